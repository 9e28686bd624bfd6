"""A file system under a program that dies at its n-th operation.

Every operation that changes a file goes through here: it is counted, and from the n-th on none is
carried out, so whatever a dying program still does on its way out leaves no trace, as after
kill -9. C libraries write only to temporary files that Python made, whose content nobody reads.
"""

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

OPERATIONS = [
    "write",
    "fsync",
    "ftruncate",
    "rename",
    "replace",
    "link",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
]


class KilledError(BaseException):
    """What no handler of the program may treat."""


class DyingDisk:
    """Counts the operations of a program and carries out those before number `dies_at`."""

    def __init__(self, dies_at: int | None, torn: bool = False) -> None:
        self.done: list[str] = []
        self._dies_at, self._torn = dies_at, torn

    def operation(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._count(name, original, args)
            return original(*args, **kwargs)

        return counted

    def opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(file: Any, *args: Any, **kwargs: Any) -> Any:
            asked = args[0] if args else kwargs.get("mode", kwargs.get("flags", "r"))
            if isinstance(asked, int):
                changes = asked & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            else:
                changes = bool(set(asked) & set("wax+"))
            if changes and not (isinstance(file, int)):
                self._count(f"open {file}", original, ())
            return original(file, *args, **kwargs)

        return counted

    def _count(self, name: str, original: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._dies_at is not None and len(self.done) >= self._dies_at:
            first = len(self.done) == self._dies_at
            self.done.append(name)
            if first and self._torn and name == "write":
                original(args[0], args[1][: len(args[1]) // 2])
            raise KilledError(name)
        self.done.append(name)


@contextmanager
def dying(dies_at: int | None, *, torn: bool = False) -> Iterator[DyingDisk]:
    """The disk for a block, which ends with the program's death; never, if `dies_at` is None."""
    disk = DyingDisk(dies_at, torn)
    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, disk.operation(name, getattr(os, name)))
        patch.setattr(os, "open", disk.opening(os.open))
        patch.setattr(io, "open", disk.opening(io.open))
        patch.setattr(builtins, "open", disk.opening(builtins.open))
        with suppress(KilledError):
            yield disk
