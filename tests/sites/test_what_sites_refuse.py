"""A site answers for its experts by itself: what it refuses, whatever its coordinator asks."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from at_sites import ACCEPTED, MOST, ROUNDS, fitted_at_sites, logs_at, whole_log

from quorum_rl.errors import QuorumError
from quorum_rl.sites import Answer, Question, Site, SitesHere


class Heard(SitesHere):
    """Sites that write down what they are asked."""

    questions: list[Question]

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        self.questions = [*getattr(self, "questions", []), questions["north"]]
        yield from super().ask(questions)


@pytest.fixture(scope="module", name="asked")
def _asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, list[Question]]:
    """A site of a fit that is over, and what it was asked."""
    every = [
        Site(name, replace(log, declared=replace(log.declared, identity=name)), most_experts=most)
        for (name, log), most in zip(logs_at(whole_log()).items(), MOST.values(), strict=True)
    ]
    reached = Heard(every)
    folder = tmp_path_factory.mktemp("asked") / "run"
    fitted_at_sites(reached, folder, accepted=ACCEPTED)
    assert [question.number for question in reached.questions] == [*range(1, ROUNDS + 1)]
    return every[0], reached.questions


@pytest.mark.parametrize("most", [math.inf, math.nan, "many", [23], None])
def test_a_site_that_is_no_number_of_experts_is_refused_in_a_sentence(
    most: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = SitesHere([Site("north", logs_at(whole_log())["north"], most_experts=23)])
    lying = {"north": {**reached.facts(["north"])["north"], "most": most}}
    monkeypatch.setattr(reached, "facts", lambda _: lying)
    with pytest.raises(QuorumError, match="what the site 'north' says of itself is unreadable"):
        fitted_at_sites(reached, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def of_task(**changes: Any) -> Callable[[Question], Question]:
    return lambda question: question._replace(task={**question.task, **changes})


def test_a_site_says_the_same_again(asked: tuple[Site, list[Question]]) -> None:
    """As after a coordinator was killed, and has charged its ledger for something else since."""
    site, questions = asked
    last, ledger = questions[-1], questions[-1].task["ledger"]
    for question in (last, of_task(ledger=ledger | {"lines": 100})(last)):
        for one, other in zip(site.answer(question).arrays, site.answer(last).arrays, strict=True):
            assert (one == other).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one._replace(arrays=[leaf + 1 for leaf in one.arrays]), "another sum"),
        (of_task(clip_norm=7.0), "another sum"),
        (lambda one: one._replace(number=ROUNDS + 1), f"round {ROUNDS + 1} of {ROUNDS}"),
        (lambda one: one._replace(number=0), f"round 0 of {ROUNDS}"),
    ],
)
def test_a_site_refuses_what_the_run_did_not_say(
    change: Callable[[Question], Question], said: str, asked: tuple[Site, list[Question]]
) -> None:
    site, questions = asked
    with pytest.raises(QuorumError, match=said):
        site.answer(change(questions[-1]))


def test_a_site_has_no_sum_for_a_round_that_is_over(asked: tuple[Site, list[Question]]) -> None:
    """A coordinator in an older copy of its folder asks for one; one that was killed does not."""
    site, questions = asked
    with pytest.raises(QuorumError, match="or for one of a round that is over"):
        site.answer(questions[1])


def test_a_site_asks_in_every_round_whose_its_log_is(asked: tuple[Site, list[Question]]) -> None:
    """A ledger that is swapped under a run, after the first of its rounds."""
    site, questions = asked
    anew = Site(site.name, site._log, most_experts=MOST[site.name])
    anew.answer(questions[0])
    another = {**questions[1].task["ledger"], "ledger": "another"}
    with pytest.raises(QuorumError, match="belong to the ledger"):
        anew.answer(of_task(ledger=another)(questions[1]))


def test_a_site_that_was_started_again_goes_on(asked: tuple[Site, list[Question]]) -> None:
    site, questions = asked
    anew = Site(site.name, site._log, most_experts=MOST[site.name])
    for question in questions[2:]:
        found = anew.answer(question).arrays
    for one, other in zip(found, site.answer(questions[-1]).arrays, strict=True):
        assert np.array_equal(one, other)
