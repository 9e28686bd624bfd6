"""What commands share when they show something."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from quorum_rl.errors import QuorumError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

BAR = 40  # characters of a full bar
PICTURES = (".png", ".svg", ".pdf")


def console() -> "Console":
    """Where people read."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def bar(share: float) -> str:
    """A bar for a share of one."""
    return "█" * round(BAR * share)


def check_seed(seed: int | None) -> None:
    """Fail for a seed that JAX would refuse, or take for another one."""
    if seed is not None and not 0 <= seed < 2**32:
        raise QuorumError(f"the seed is {seed}: give a whole number from 0 to {2**32 - 1}.")


def check_new_file(path: Path, *, overwrite: bool) -> None:
    """Fail before the work, not after it, if a result could not be written."""
    if not path.parent.is_dir():
        raise QuorumError(f"there is no folder {str(path.parent)!r} for {path.name!r}: create it.")
    if path.is_dir():
        raise QuorumError(f"{str(path)!r} is a folder: give a file name.")
    if path.exists() and not overwrite:
        raise QuorumError(
            f"{str(path)!r} exists already: give another name, or --overwrite to replace it."
        )
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Fail if nothing can be written into a folder."""
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise QuorumError(
            f"nothing can be written into {str(folder)!r} ({error.strerror}): choose another."
        ) from error


def check_picture(path: Path) -> None:
    """As `check_new_file`, for a picture, which may replace an older one."""
    if path.suffix.lower() not in PICTURES:
        raise QuorumError(f"{str(path)!r} is no picture: let it end in {', '.join(PICTURES)}.")
    check_new_file(path, overwrite=True)


def show_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print named facts, for a person or for a program."""
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        console().print(f"{name.replace('_', ' '):>20}  {value}")


def begin_diagnostics(what: str, accepted: bool, picture: Path | None, seed: int) -> None:
    """Start a command that looks at private data without noise.

    Raises:
        QuorumError: unless the user said that they know what that means.
    """
    if not accepted:
        raise QuorumError(
            f"{what} would be computed from private data without noise: add "
            "--diagnostics-not-private if these are synthetic experts or nobody else will see it."
        )
    if picture is not None:
        check_picture(picture)
    check_seed(seed)
    from quorum_rl.devices import prepare  # late, for it imports JAX

    prepare()


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a picture in the format that its name says."""
    from quorum_rl.envs.drawing import save_figure
    from quorum_rl.files import replacing

    with replacing(path) as temporary:
        save_figure(figure, temporary)
