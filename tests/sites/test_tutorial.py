"""docs/sites.md as its reader types it: every command of the page, as a process.

Needs the extra `sites`, which is not in the lock: it is skipped where Flower is not installed.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from at_sites import logs_at, whole_log

from quorum_rl.budget import read_certificate
from quorum_rl.logs import save_demonstrations

pytest.importorskip("flwr", reason="the extra 'sites' (Flower) is not installed")

PAGE: Final = Path(__file__).parents[2] / "docs" / "sites.md"
FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODULES: Final = {
    "quorum": ("-m", "quorum_rl"),
    "flower-superlink": ("-c", "from flwr.superlink.cli import flower_superlink as run; run()"),
    "flwr": ("-c", "from flwr.cli.app import app; app()"),
}
SECONDS: Final = 900


def blocks(section: str) -> list[str]:
    """What is to be typed in a section of the page."""
    part = PAGE.read_text().partition(f"## {section}\n")[2]
    return [block for _, block in FENCE.findall(part.partition("\n## ")[0])]


def lines(block: str) -> list[str]:
    return block.replace("\\\n", " ").splitlines()


def words(line: str) -> list[str]:
    """A command as a process of this interpreter, or of a shell."""
    name, *rest = shlex.split(line, comments=True)
    if name in MODULES:
        return [sys.executable, *MODULES[name], *rest]
    return ["bash", "-c", line]


class Terminals:
    """Where commands are typed, in one folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        self._surroundings = os.environ | quiet | {"FLWR_HOME": str(folder / "flower")}

    def run(self, line: list[str]) -> str:
        done = subprocess.run(
            line, cwd=self._folder, env=self._surroundings, timeout=SECONDS,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, line: str) -> None:
        made = self._stack.enter_context(
            subprocess.Popen(words(line), cwd=self._folder, env=self._surroundings)
        )
        self._stack.callback(made.kill)


def test_the_tutorial_ends_with_a_policy_and_its_certificate(tmp_path: Path) -> None:
    logs, cutting, link, sites, coordinator = blocks("Three sites on one machine")
    with ExitStack() as stack:
        terminals = Terminals(tmp_path, stack)
        for line in lines(logs):
            terminals.run(words(line))
        terminals.run([sys.executable, "-c", cutting])
        terminals.start(*lines(link))
        time.sleep(10)
        for line in lines(sites):
            terminals.start(line)
        terminals.run(words(*lines(coordinator)))
    assert read_certificate(tmp_path / "runs" / "sites" / "certificate.json").epsilon <= 3
    assert (tmp_path / "runs" / "sites" / "policy.safetensors").exists()


def test_with_certificates_keys_and_a_secret_it_is_the_same(tmp_path: Path) -> None:
    """The page's network is the loopback here; its first site is the only one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    here = {"flower.example.org": "localhost", "0.0.0.0": "127.0.0.1", "8000": port,
            "/home/coordinator": str(tmp_path)}  # fmt: skip

    def said(block: str) -> str:
        return re.sub("|".join(map(re.escape, here)), lambda found: here[found[0]], block)

    papers, key, link, known, keys, site, coordinator = map(said, blocks("Across a network"))
    (tmp_path / "keys").mkdir()
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(known)
    save_demonstrations(logs_at(whole_log())["north"], tmp_path / "north.arrow")
    with ExitStack() as stack:
        terminals = Terminals(tmp_path, stack)
        for line in (*lines(papers), *lines(key)):
            terminals.run(words(line))
        (tmp_path / "north.pub").rename(tmp_path / "keys" / "north.pub")
        terminals.start(*lines(link))
        time.sleep(10)
        assert "registered" in terminals.run(words(*lines(keys)))
        terminals.start(*lines(site))
        short = ["--private-steps", "3", "--local-steps", "3", "--allow-noise"]
        terminals.run([*words(*lines(coordinator)), *short])
    assert read_certificate(tmp_path / "runs" / "fit" / "certificate.json").epsilon <= 3
