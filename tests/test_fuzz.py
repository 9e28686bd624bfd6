"""Every kind of file that Quorum reads, changed at random: refused in a sentence, or harmless.

With QUORUM_FUZZ=5000 in the environment each kind is changed so many times (CONTRIBUTING.md).
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest
from file_kinds import KINDS, Kind, native_log

from quorum_rl.errors import QuorumError

TIMES: Final = int(os.environ.get("QUORUM_FUZZ", "300"))  # for each kind
SECONDS: Final = 10  # that one file may take: more is a hang
MEMORY: Final = 2**30  # bytes that one file may take: more is a bomb


@pytest.fixture(autouse=True)
def _in_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file that takes too long is a failure; the same events are accounted once."""
    from quorum_rl.budget import checking, verifier

    known = cache(verifier.independent_epsilon)
    for module in (checking, verifier):
        monkeypatch.setattr(module, "independent_epsilon", known)

    def hangs(*_: Any) -> None:
        raise AssertionError(f"a file took longer than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, hangs)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def peak_memory() -> int:
    """The most memory that this process has had since `forget_peak`, where the system tells."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    (said,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(said.split()[1]) * 1024


def forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def within(most: int) -> Iterator[None]:
    """Fails if the block takes more memory than that, also for a moment."""
    forget_peak()
    before = peak_memory()
    yield
    assert peak_memory() - before < most, "a file took too much memory"


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_changed_file_is_refused_in_a_sentence_or_changes_no_guarantee(
    make: Callable[[Path], Kind], tmp_path: Path
) -> None:
    kind = make(tmp_path)
    whole, expected = kind.path.read_bytes(), kind.read(kind.path)
    random = Random(make.__name__)
    refused, sentences = 0, set[str]()
    for number in range(TIMES):
        kind.path.write_bytes(kind.change(whole, random))
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            with within(MEMORY):
                found = kind.read(kind.path)
        except QuorumError as error:
            refused += 1
            sentences.add(str(error))
        except Exception as error:
            raise AssertionError(f"change {number} of {make.__name__} gave {error!r}") from error
        else:
            assert found == expected, f"change {number} of {make.__name__} was accepted"
    assert refused > TIMES / 10
    assert not [said for said in sentences if "\n" in said]


def test_the_fuzzer_finds_a_log_whose_digest_nobody_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same changes with the check taken out: some digit of what is declared gets through."""
    for name in ("check_said", "check_columns"):
        monkeypatch.setattr(f"quorum_rl.logs.native.{name}", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="of native_log was accepted"):
        test_a_changed_file_is_refused_in_a_sentence_or_changes_no_guarantee(native_log, tmp_path)


def sleeps(_: bytes) -> None:
    time.sleep(5)


def fills(_: bytes) -> None:
    np.ones(2**26)  # for a moment, and more than lies about unused


def raises(_: bytes) -> None:
    raise ZeroDivisionError


def says_much(_: bytes) -> None:
    raise QuorumError("One thing.\nAnd another.")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (sleeps, "longer than 0.1 seconds"),
        (fills, "too much memory"),
        (raises, "gave ZeroDivisionError"),
        (says_much, "And another"),
        (len, "was accepted"),
    ],
)
def test_the_fuzzer_finds_a_reader_that_does_harm(
    harm: Callable[[bytes], Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if harm is fills and not peak_memory():
        pytest.skip("this system does not tell how much memory was taken")
    if harm is sleeps:
        monkeypatch.setitem(globals(), "SECONDS", 0.1)
    monkeypatch.setitem(globals(), "MEMORY", 2**26)
    whole = b"a good file"

    def make(folder: Path) -> Kind:
        (folder / "file").write_bytes(whole)
        return Kind(folder / "file", lambda path: path.read_bytes() == whole or harm(whole))

    with pytest.raises(AssertionError, match=said):
        test_a_changed_file_is_refused_in_a_sentence_or_changes_no_guarantee(make, tmp_path)
