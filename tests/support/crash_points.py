"""Kills a program at every operation on a file, starts it again, and compares how that ends.

Random bits of the system are a function of which process asks: the first time, or again. So what a
second process draws anew is seen, where it should have gone on with what the first one drew.
"""

import hashlib
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from commands import networks
from dying_disk import dying

from quorum_rl.budget import read_certificate, read_ledger
from quorum_rl.errors import QuorumError

PREPARING: Final = 2  # the number of the process that comes before


@dataclass(frozen=True)
class Program:
    """What is killed.

    `prepare` makes what it needs in a new folder, and `start` runs it there; `result` is all that
    must be the same, `paid` whether anything is charged, and `done` what a finished one answers.
    """

    prepare: Callable[[Path], None]
    start: Callable[[Path], Any]
    result: Callable[[Path], Any]
    paid: Callable[[Path], bool]
    done: str

    def go_on(self, place: Path) -> None:
        try:
            self.start(place)
        except QuorumError as error:
            if self.done not in str(error):
                raise


@contextmanager
def process(number: int, place: Path) -> Iterator[None]:
    """A process of that number, with a state folder for its place.

    The system's random bits are the same whenever it asks, so that what two processes draw by turns
    is what one of them would have.
    """

    def bits(size: int) -> bytes:
        return hashlib.shake_256(str(number).encode()).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORUM_STATE", str(state_of(place)))
        patch.setattr(os, "urandom", bits)
        patch.setattr(random, "_urandom", bits)
        yield


def state_of(place: Path) -> Path:
    return place.with_name(f"{place.name} state")


def everything_in(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def kinds_in(state: Path) -> list[str]:
    """What a state folder holds, whatever its ledgers are called."""
    return sorted(re.sub("[0-9a-f]{32}", "*", name) for name in everything_in(state))


def remembered_lines(place: Path) -> list[int]:
    """Of which lines of their ledgers the logs know."""
    return [json.loads(path.read_text())["lines"] for path in sorted(place.glob("log.arrow.*"))]


def outcome_of(folder: Path, ledger: Path, place: Path) -> tuple[Any, ...]:
    """Of a folder with a policy: that, the certificate, what was charged, and what is there."""
    made = read_certificate(folder / "certificate.json")
    said = made.epsilon, made.marks, made.statement
    return networks(folder), said, read_ledger(ledger).events, everything_in(place)


def is_charged(ledger: Path) -> bool:
    return ledger.exists() and bool(read_ledger(ledger).charges)


class CrashPoints:
    """The operations of a program, and what it gives with the bits of each of two processes."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self._places = (folder / str(number) for number in count())
        self.wanted: list[Any] = []
        self.state: list[list[str]] = []  # what the user's state folder holds then
        for number in range(2):  # the first one also has everything compiled
            place = self._prepared()
            with process(number, place), dying(None) as disk:
                program.start(place)
            self.operations = disk.done
            self.wanted.append(program.result(place))
            self.state.append(kinds_in(state_of(place)))

    def _prepared(self) -> Path:
        """The next place, the same as the others."""
        place = next(self._places)
        with process(PREPARING, place):
            self.program.prepare(place)
        return place

    def ends_the_same(self, dies_at: int) -> bool:
        """Whether a program that died there and was started again has the wanted result.

        What has paid has drawn its bits; before that, those of the second process are as good.
        """
        program, place = self.program, self._prepared()
        with process(0, place), dying(dies_at):
            program.start(place)
        paid = program.paid(place)
        try:
            with process(1, place):
                program.go_on(place)
            found = program.result(place), kinds_in(state_of(place))
        except (QuorumError, OSError):
            return False
        first, second = zip(self.wanted, self.state, strict=True)
        return found == first or (found == second and not paid)

    def differences(self, chosen: Iterable[int] | None = None) -> list[int]:
        """At which operations, of all or of the chosen, a death changes anything."""
        numbers = range(len(self.operations)) if chosen is None else chosen
        return [number for number in numbers if not self.ends_the_same(number)]

    def around_the_charge(self) -> range:
        charge = self.operations.index("write")
        return range(charge - 4, charge + 6)
