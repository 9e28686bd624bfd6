"""Kills a program at every operation on a file, starts it again, and compares how that ends.

Random bits of the system are a function of which process asks: the first time, or again. So what a
second process draws anew is seen, where it should have gone on with what the first one drew.
"""

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from dying_disk import dying

from quorum_rl.errors import QuorumError


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
def bits_of(process: int) -> Iterator[None]:
    """The system's random bits, for a process of that number: the same whenever it asks, so that
    what two processes draw by turns is what one of them would have."""

    def bits(size: int) -> bytes:
        return hashlib.shake_256(str(process).encode()).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", bits)
        patch.setattr(random, "_urandom", bits)
        yield


def everything_in(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


class CrashPoints:
    """The operations of a program, and what it gives with the bits of each of two processes."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self._places = (folder / str(number) for number in count())
        self.wanted = []
        for number in range(2):  # the first one also has everything compiled
            place = next(self._places)
            program.prepare(place)
            with bits_of(number), dying(None) as disk:
                program.start(place)
            self.operations = disk.done
            self.wanted.append(program.result(place))

    def ends_the_same(self, dies_at: int) -> bool:
        """Whether a program that died there and was started again has the wanted result.

        What has paid has drawn its bits; before that, those of the second process are as good.
        """
        program, place = self.program, next(self._places)
        program.prepare(place)
        with bits_of(0), dying(dies_at):
            program.start(place)
        paid = program.paid(place)
        try:
            with bits_of(1):
                program.go_on(place)
            found = program.result(place)
        except (QuorumError, OSError):
            return False
        return found == self.wanted[0] or (found == self.wanted[1] and not paid)

    def differences(self, chosen: Iterable[int] | None = None) -> list[int]:
        """At which operations, of all or of the chosen, a death changes anything."""
        numbers = range(len(self.operations)) if chosen is None else chosen
        return [number for number in numbers if not self.ends_the_same(number)]

    def around_the_charge(self) -> range:
        charge = self.operations.index("write")
        return range(charge - 4, charge + 6)
