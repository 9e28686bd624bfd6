"""What commands show while they work, on a screen and in a file."""

import io
import signal

import pytest
from rich.console import Console

from quorum_rl.cli import output
from quorum_rl.errors import Interrupted


def shown(*, terminal: bool, seconds: float, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is written of work that says after 10 and after 2000 steps that it goes on."""
    now = iter([0.0, 1.0, seconds])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    written = io.StringIO()
    place = Console(file=written, force_terminal=terminal, width=200)
    with output.timed_bar(place, "steps") as update:
        update(10, 5000)
        update(2000, 5000)
    return written.getvalue()


def test_a_file_gets_a_line_once_a_minute_and_a_screen_its_bar_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = shown(terminal=False, seconds=61.0, monkeypatch=monkeypatch).splitlines()
    assert lines[0] == "steps: 2,000 of 5,000 after 61 s"
    assert "40%" in lines[-1]
    (line,) = shown(terminal=False, seconds=59.0, monkeypatch=monkeypatch).splitlines()
    assert line.startswith("steps  40%")
    assert "of 5,000" not in shown(terminal=True, seconds=61.0, monkeypatch=monkeypatch)


class Left(io.StringIO):
    """A pipe that nobody reads any more."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_a_reader_who_left_does_not_stop_what_may_be_paid_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("sys.stdout", Left())
    place, done = output.console(), 0
    with output.stoppable(place) as asked, output.timed_bar(place, "steps") as update:
        for done in (1, 2, 3):
            update(done, 3)
        signal.raise_signal(signal.SIGINT)
    assert (done, asked) == (3, [True])


def test_work_that_a_reader_who_left_did_stop_is_not_said_to_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped: list[bool] = []
    monkeypatch.setattr(output, "drop_output", lambda: dropped.append(True))
    monkeypatch.setattr("sys.stdout", Left())
    place = output.console()
    with pytest.raises(Interrupted, match="stopped before its end"), output.stoppable(place):
        place.print("the plan")
    assert dropped
