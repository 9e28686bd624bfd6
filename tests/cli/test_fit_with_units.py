"""`quorum fit --units`: planned, or refused in a sentence."""

from dataclasses import replace
from pathlib import Path

import pytest
from commands import Quorum

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.logs import open_demonstrations, save_demonstrations

SMALL = ("--epsilon", "20", "--delta", "1e-3", "--minimum-experts", "136", "--hidden", "2",
         "--private-steps", "2", "--local-steps", "2", "--transitions-per-expert", "2",
         "--accept", "one-expert-each")  # fmt: skip


def plain(said: str) -> str:
    """Without the ends of lines."""
    return " ".join(said.split())


@pytest.fixture
def foreign(log: Path, tmp_path: Path) -> Path:
    """The log, as of a world that Quorum does not ship; of one column somebody knows the range."""
    found = open_demonstrations(log)
    named = Dictionary((Column("at", low=-5, high=5), *map(Column, ("speed", "angle", "spin"))))
    declared = replace(found.declared, world=None, dictionary=named, identity="foreign")
    save_demonstrations(replace(found, declared=declared), path := tmp_path / "foreign.arrow")
    return path


def test_units_that_nobody_declares_are_planned(
    foreign: Path, tmp_path: Path, quorum: Quorum
) -> None:
    run = tmp_path / "run"
    planned = quorum.facts("fit", foreign, *SMALL, "--folder", run, "--dry-run")
    assert len(planned["charges"]) == 2
    without = quorum.facts("fit", foreign, *SMALL, "--folder", run, "--dry-run",
                           "--units", "public")  # fmt: skip
    assert len(without["charges"]) == 1
    assert without["noise_over_signal"] < planned["noise_over_signal"]
    assert not run.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--units", "own"), "give one of auto, private, public"),
        (("--units", "private", "--epsilon", "0.3", "--allow-noise"), "experts to learn from"),
        (("--units", "private", "--method", "non-private", "--diagnostics-not-private"), "neither"),
        (("--units", "private", "--released", "x", "--ledger", "y"), "leave out --units"),
    ],
)
def test_units_that_cannot_be_are_refused_before_anything_is_written(
    more: tuple[str, ...], said: str, foreign: Path, tmp_path: Path, quorum: Quorum
) -> None:
    folder = tmp_path / "run"
    assert said in quorum.refused_for_free(
        tmp_path, "fit", foreign, *SMALL, *more, "--folder", folder
    )


def test_a_plan_before_there_are_logs_has_them_too(quorum: Quorum) -> None:
    sizes = ("--actions", "3", "--observations", "6", "--delta", "1e-4")
    enough = quorum("plan", "fit", "--minimum-experts", "500", *sizes, "--epsilon", "3")
    assert "private units: middle and spread of 6 numbers" in plain(enough)
    few = quorum("plan", "fit", "--minimum-experts", "50", *sizes, "--epsilon", "3")
    assert "private units of 6 numbers need" in plain(few)
