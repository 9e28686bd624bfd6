"""A result with everything that is needed to make it again."""

import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorum_rl.distributed import this_machine


@dataclass(frozen=True)
class Result:
    """What one stage finds about one world; `begun` is when, by `time.monotonic`."""

    world: str
    stage: str
    configuration: dict[str, Any]
    commit: str | None = None  # otherwise that of the working tree, if it has one
    begun: float = field(default_factory=time.monotonic)

    def facts(self, found: dict[str, Any]) -> dict[str, Any]:
        """What was `found`, with what it took to find it."""
        provenance = {
            "world": self.world,
            "stage": self.stage,
            "commit": self.commit or source_commit(),
            "machine": this_machine(),
            "seconds": round(time.monotonic() - self.begun, 1),
            "configuration": self.configuration,
        }
        return provenance | found


def source_commit() -> str | None:
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
