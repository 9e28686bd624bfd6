"""What commands share when they show something."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Protocol

from quorum_rl import envs
from quorum_rl.errors import SEED, Interrupted, QuorumError, require, require_packages
from quorum_rl.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

BAR = 40  # characters of a full bar
PICTURES = (".png", ".svg", ".pdf")
SECONDS_BETWEEN_LINES = 60.0  # where a bar cannot move


class Update(Protocol):
    """Moves a bar: what is done, of how much, and a remark."""

    def __call__(self, done: int, total: int, remark: str = "") -> None: ...


class RefutedError(QuorumError):
    """The command was used rightly, and what it checked is wrong: exit status 1."""


@contextmanager
def refuting() -> Iterator[None]:
    """What is refused in this block is a finding, and no mistake of the user's."""
    try:
        yield
    except QuorumError as error:
        raise RefutedError(str(error)) from error


def printable(text: str) -> str:
    """The text as it may be printed: what would move the terminal stands there as a name."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
    )


def console(*, stderr: bool = False) -> "Console":
    """Where people read: the standard output, or beside it where programs read that."""
    from rich.console import Console

    class Quiet(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            told = (printable(each) if isinstance(each, str) else each for each in objects)
            super().print(*told, **options)

        def on_broken_pipe(self) -> None:
            """A reader who left is not an error; `main` ends the command."""
            raise BrokenPipeError

    # What is printed is text, whoever wrote it: a label such as [/x] would be a tag of rich's.
    return Quiet(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=stderr)


@contextmanager
def timed_bar(shown: "Console", what: str) -> Iterator[Update]:
    """A progress bar with the time that is left, told what is done, of how much, and a remark.

    It appears when it is told first, so that what is refused before has its sentence alone. In a
    file or a pipe, where nothing moves, there is a line once a minute. Work that may be paid for
    goes on where nobody reads that any more.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description} {task.percentage:>3.0f}%"),
        BarColumn(),
        TextColumn("{task.fields[remark]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=shown,
    )
    task = bar.add_task(what, total=None, remark="")
    begun = said = time.monotonic()

    def update(done: int, total: int, remark: str = "") -> None:
        nonlocal said
        with suppress(BrokenPipeError):
            if not bar.live.is_started:
                bar.start()
            bar.update(task, completed=done, total=total, remark=remark)
            now = time.monotonic()
            if not shown.is_terminal and done < total and now - said >= SECONDS_BETWEEN_LINES:
                said = now
                beside = f"; {remark}" if remark else ""
                shown.print(f"{what}: {done:,} of {total:,} after {now - begun:.0f} s{beside}")

    try:
        yield update
    finally:
        with suppress(BrokenPipeError):
            if bar.live.is_started:
                bar.stop()


@contextmanager
def stoppable(shown: "Console") -> Iterator[list[bool]]:
    """Ctrl-C sets the flag; a second one ends the process at once.

    Raises:
        Interrupted: if the work ends because whoever read its output left: it is not done.
    """
    asked = [False]

    def on_interrupt(number: int, frame: Any) -> None:
        del number, frame
        if asked[0]:  # at once: unwinding out of a running XLA program can crash
            shown.print("stopped at once; what was under way is lost")
            os._exit(130)
        asked[0] = True
        with suppress(BrokenPipeError):
            shown.print("stopping after what is under way (Ctrl-C again to stop at once)")

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield asked
    except BrokenPipeError:
        drop_output()
        raise Interrupted("stopped before its end, for nobody reads the output any more.") from None
    finally:
        signal.signal(signal.SIGINT, before)


def drop_output() -> None:
    """What is still to be written to the standard output goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def stoppable_bar(shown: "Console", what: str) -> Iterator[Callable[..., bool]]:
    """A `timed_bar` that answers whether somebody asked to stop."""
    with stoppable(shown) as asked, timed_bar(shown, what) as update:

        def progress(done: int, total: int, remark: str = "") -> bool:
            update(done, total, remark)
            return asked[0]

        yield progress


def bar(share: float) -> str:
    """A bar for a share of one."""
    return "█" * round(BAR * share)


def check_seed(seed: int | None) -> None:
    """Fail for a seed that JAX would refuse, or take for another one."""
    if seed is not None:
        require("the seed", seed, SEED)


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
    require_packages("a picture", "report", "matplotlib")
    if path.suffix.lower() not in PICTURES:
        raise QuorumError(f"{str(path)!r} is no picture: let it end in {', '.join(PICTURES)}.")
    check_new_file(path, overwrite=True)


def show_facts(facts: Mapping[str, Any], *sentences: object, as_json: bool) -> None:
    """Print named facts for a program; for a person these sentences, or else the facts."""
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    named = (f"{name.replace('_', ' '):>20}  {value}" for name, value in facts.items())
    for sentence in sentences or named:
        console().print(sentence)


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a picture in the format that its name says."""
    with replacing(path) as temporary:
        envs.save_figure(figure, temporary)


def start_jax(*, fast: bool = False, together: bool = False) -> bool:
    """Prepare the devices, with other processes if there may be any; whether this is the first."""
    from quorum_rl.distributed import is_first, join, prepare  # late, for it imports JAX

    prepare(fast=fast)
    if together:
        join()
    return not together or is_first()
