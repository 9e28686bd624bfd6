"""Folders that an evaluation will write into: refused before the work, not after it."""

from pathlib import Path

from quorum_rl.cli.output import check_folder
from quorum_rl.errors import QuorumError


def check_makeable(*folders: Path) -> None:
    """Fail if one of these folders cannot be made, and make none."""
    for folder in folders:
        there = next((path for path in (folder, *folder.parents) if path.exists()), None)
        if there is not None and not there.is_dir():
            raise QuorumError(f"{str(there)!r} is a file, and is to be a folder: choose another.")


def make_folder(folder: Path) -> None:
    """Make a folder that may be there, and fail if nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise QuorumError(
            f"{str(folder)!r} cannot be made a folder ({error.strerror}): choose another."
        ) from error
    check_folder(folder)
