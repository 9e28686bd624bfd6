"""The command as a test runs it: in this process, with what it prints and how it refuses."""

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from quorum_rl.cli.main import main
from quorum_rl.policy import Policy


class Quorum:
    """Runs command lines, whose words may be anything that has a text."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.err = ""  # what the last command said beside its output

    def __call__(self, *words: object, status: int = 0) -> str:
        """What a command prints that ends with an exit status."""
        self.capsys.readouterr()
        with pytest.raises(SystemExit) if status else nullcontext() as stopped:
            main([str(word) for word in words])
        out, self.err = self.capsys.readouterr()
        assert (stopped.value.code if stopped else 0) == status, self.err
        return out

    def facts(self, *words: object, status: int = 0) -> dict[str, Any]:
        """What a command prints for programs, and nothing else."""
        found: dict[str, Any] = json.loads(self(*words, "--json", status=status))
        return found

    def refused(self, *words: object, status: int = 2) -> str:
        """The sentence with which a command is refused.

        Exit status 2 unless another is expected: 1 is for what was checked and is wrong.
        """
        self(*words, status=status)
        assert self.err.startswith("quorum: ")
        assert self.err.count("\n") == 1
        assert self.err.endswith(".\n")
        return self.err

    def refused_for_free(self, folder: Path, *words: object) -> str:
        """The same of a command that leaves a folder as it is, to the byte."""
        before = everything_in(folder)
        said = self.refused(*words)
        assert everything_in(folder) == before
        return said


def forget(log: Path) -> None:
    """Have nobody remember to which ledger a log belongs, as on another machine."""
    shutil.rmtree(os.environ["QUORUM_STATE"], ignore_errors=True)
    for beside in log.parent.glob(f"{log.name}.*"):
        beside.unlink()


def everything_in(folder: Path) -> dict[Path, bytes]:
    """Every folder and file below a folder, with its content."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def networks(folder: Path) -> list[bytes]:
    """The parameters of a run's policy, to compare."""
    policy = Policy.load(folder / "policy.safetensors")
    layers = (layer for network in policy.networks.values() for layer in network)
    return [part.tobytes() for layer in layers for part in layer]
