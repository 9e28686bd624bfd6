"""docs/sites.md as its reader types it: every command of the tutorial, as a process.

Needs the extra `sites`, which is not in the lock: it is skipped where Flower is not installed.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from quorum_rl.budget import read_certificate

pytest.importorskip("flwr", reason="the extra 'sites' (Flower) is not installed")

PAGE: Final = Path(__file__).parents[2] / "docs" / "sites.md"
FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SUPERLINK: Final = "from flwr.superlink.cli import flower_superlink as run; run()"
SECONDS: Final = 900


def tutorial() -> list[tuple[str, str]]:
    """The blocks of the page's first example."""
    part = PAGE.read_text().partition("## Three sites on one machine")[2]
    return FENCE.findall(part.partition("\n## ")[0])


def words(line: str) -> list[str]:
    """A command as a process of this interpreter."""
    name, *rest = shlex.split(line, comments=True)
    start = {"quorum": ("-m", "quorum_rl"), "flower-superlink": ("-c", SUPERLINK)}
    return [sys.executable, *start[name], *rest]


def test_the_tutorial_ends_with_a_policy_and_its_certificate(tmp_path: Path) -> None:
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    surroundings = os.environ | quiet | {"FLWR_HOME": str(tmp_path / "flower")}
    logs, cutting, link, sites, coordinator = tutorial()

    def run(line: list[str]) -> None:
        done = subprocess.run(
            line, cwd=tmp_path, env=surroundings, timeout=SECONDS, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def lines(block: tuple[str, str]) -> list[str]:
        return block[1].replace("\\\n", " ").splitlines()

    for line in lines(logs):
        run(words(line))
    run([sys.executable, "-c", cutting[1]])
    with ExitStack() as stack:

        def start(line: str) -> None:
            made = stack.enter_context(
                subprocess.Popen(words(line), cwd=tmp_path, env=surroundings)
            )
            stack.callback(made.kill)

        start(*lines(link))
        time.sleep(10)
        for line in lines(sites):
            start(line)
        run(words(*lines(coordinator)))
    assert read_certificate(tmp_path / "runs" / "sites" / "certificate.json").epsilon <= 3
    assert (tmp_path / "runs" / "sites" / "policy.safetensors").exists()
