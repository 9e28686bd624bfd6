"""A result as it is committed: with everything that is needed to make it again."""

import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from quorum_rl.distributed import this_machine
from quorum_rl.errors import QuorumError
from quorum_rl.files import write_json

LONGEST_SAID: Final = 60


@dataclass(frozen=True)
class Result:
    """What one stage found about one world; `begun` is when, by `time.monotonic`."""

    world: str
    stage: str
    configuration: dict[str, Any]
    commit: str | None = None  # otherwise that of the working tree, if it has one
    begun: float = field(default_factory=time.monotonic)

    def path(self, folder: Path) -> Path:
        """Its file."""
        return folder / f"{self.world.lower()}-{self.stage}.json"

    def check_place(self, folder: Path) -> None:
        """Fail if its file is there and was made in another way: it would be lost.

        Raises:
            QuorumError: naming what differs.
        """
        path = self.path(folder)
        if not path.exists():
            return
        try:
            there = dict(json.loads(path.read_text(encoding="utf-8"))["configuration"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise QuorumError(
                f"{str(path)!r} is in the way, and is no result: give another folder."
            ) from error
        before = _flat(there)
        for name, value in _flat(json.loads(json.dumps(self.configuration))).items():
            if before.get(name, value) != value:
                raise QuorumError(
                    f"{str(path)!r} would be lost, for it has {_named(name, before[name])}, and "
                    f"this run {_named(name, value)}: give another folder for results."
                )

    def save(self, folder: Path, found: dict[str, Any]) -> Path:
        """Write what was `found` with its provenance; returns the file."""
        path = self.path(folder)
        write_json(path, self.facts(found))
        return path

    def facts(self, found: dict[str, Any]) -> dict[str, Any]:
        """What was `found`, with what it took to find it."""
        provenance = {
            "world": self.world,
            "stage": self.stage,
            "commit": self.commit or _commit(),
            "machine": this_machine(),
            "seconds": round(time.monotonic() - self.begun, 1),
            "configuration": self.configuration,
        }
        return provenance | found


def _flat(facts: dict[str, Any], before: str = "") -> dict[str, Any]:
    """The same with a dot between the name of a dictionary and the names in it."""
    made: dict[str, Any] = {}
    for name, value in facts.items():
        inner = isinstance(value, dict)
        made |= _flat(value, f"{before}{name}.") if inner else {f"{before}{name}": value}
    return made


def _named(name: str, value: Any) -> str:
    said = str(value)
    return f"{name} = {said}" if len(said) <= LONGEST_SAID else f"another {name}"


def _commit() -> str | None:
    """The commit of the source, marked if files have been changed since; None outside of git."""
    git = shutil.which("git")
    if git is None:
        return None

    def said(*words: str) -> str | None:
        made = subprocess.run(
            [git, "-C", str(Path(__file__).parent), *words],
            capture_output=True,
            text=True,
            check=False,
        )
        return made.stdout.strip() if made.returncode == 0 else None

    commit = said("rev-parse", "--short=12", "HEAD")
    changed = said("status", "--porcelain", "--untracked-files=no", ":/src")
    return commit and (f"{commit}, changed" if changed else commit)
