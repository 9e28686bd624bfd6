"""Fits with judges: the others teach, the judges answer, and both cost what one of them does."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from fits import (
    DELTA,
    EPSILON,
    SETTINGS,
    Crowd,
    crowd,
    fitted,
    interrupted,
    named,
    same_weights,
)
from steady_parts import steady_parts

from quorum_rl.budget import (
    ASSUMPTIONS,
    Budget,
    Ledger,
    SplitKey,
    check_certificate,
    key_path,
    read_ledger,
)
from quorum_rl.errors import QuorumError
from quorum_rl.judging import fitted_values, parted, verdicts
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import FitSettings, Fitted, judging_stage
from quorum_rl.privacy import total_epsilon

THROWN: Final = SplitKey.judges  # by coins, as they fall
LOCAL: Final = FitSettings(private_steps=3, local_steps=2, transitions_per_expert=2)
CERTIFIED: Final = "quorum_rl.budget.Budget.finite_certificate"
CHOICES: Final[dict[str, Any]] = {
    "experts": None,
    "settings": LOCAL,
    "learner": "bc",
    "learner_settings": {"hidden_sizes": (2,)},
    "judges": 0.15,
    "return_bounds": (0, 5),
}


@pytest.fixture(scope="module")
def everyone() -> Iterator[Crowd]:
    with steady_parts():
        yield crowd(identity="judged")  # which logs were released from is remembered by name


@pytest.fixture(scope="module")
def done(everyone: Crowd, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fitted(everyone, tmp_path_factory.mktemp("judged") / "run", **CHOICES)


def parts_in(made: Fitted, log: Demonstrations) -> tuple[Demonstrations, Demonstrations]:
    with Ledger.open(made.folder / "ledger.jsonl") as ledger:
        return parted(log, ledger.split(0.15))


def otherwise(one: Crowd, part: Demonstrations, name: str) -> Crowd:
    """The crowd, where the experts of a part took the other action throughout."""
    actions = one.log.columns.actions.copy()
    for step, length in zip(part.episodes.first_step, part.episodes.length, strict=True):
        actions[step : step + length] = 1 - actions[step : step + length]
    log = replace(one.log, columns=one.log.columns._replace(actions=actions))
    return named(one._replace(log=log), name)


def test_both_parts_together_cost_what_one_does_and_the_certificate_holds(done: Fitted) -> None:
    record = read_ledger(done.folder / "ledger.jsonl")
    assert [event.part for event in record.events] == ["training", "training", "judging"]
    assert record.events == done.plan.events
    for part in ("training", "judging"):
        own = [event for event in record.events if event.part == part]
        assert 0.99 * EPSILON < total_epsilon(own, DELTA) <= EPSILON
    assert done.certificate is not None
    assert done.certificate.epsilon <= EPSILON
    assert "judges with probability 0.15" in done.certificate.statement
    checked = check_certificate(done.folder / "certificate.json")
    assert checked.consistency is not None
    assert checked.consistency.epsilon <= EPSILON * 1.001


def test_the_answers_are_in_the_folder_and_true_of_the_crowd(done: Fitted, everyone: Crowd) -> None:
    assert done.judging is not None
    written = json.loads((done.folder / "judging.json").read_text())
    assert written == json.loads(
        json.dumps({"judges": done.plan.judging.to_json(), **done.judging.to_json()})  # type: ignore[union-attr]
    )
    answer = done.judging.mean_return
    assert answer is not None
    assert answer.low < 5 * everyone.log.columns.rewards.mean() < answer.high
    seen = everyone.log.transitions(np.arange(everyone.log.transition_count))
    agreement = np.mean(done.act(seen.observation) == seen.action)
    assert done.judging.agreement.low < agreement < done.judging.agreement.high


def test_the_key_of_the_split_stands_in_no_other_file(done: Fitted) -> None:
    key = key_path(done.folder / "ledger.jsonl")
    assert key.stat().st_mode & 0o077 == 0
    assert not (done.folder / "private").exists()
    for path in done.folder.iterdir():
        assert path == key or key.read_bytes() not in path.read_bytes()


def test_the_policy_is_learned_from_the_others_alone(
    done: Fitted, everyone: Crowd, tmp_path: Path
) -> None:
    """To the bit, whatever the judges did; and the answers are of the judges."""
    others, judges = parts_in(done, everyone.log)
    changed = fitted(otherwise(everyone, judges, "judged, one"), tmp_path / "one", **CHOICES)
    assert same_weights(changed, done)
    assert changed.judging is not None
    assert done.judging is not None
    assert changed.judging.agreement.high < done.judging.agreement.low
    taught = fitted(otherwise(everyone, others, "judged, two"), tmp_path / "two", **CHOICES)
    assert not same_weights(taught, done)
    assert taught.judging is not None
    assert taught.judging.mean_return == done.judging.mean_return


def test_without_a_seed_too_a_run_goes_on_to_the_same_answers(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    def heard(sums: Any, plan: Any) -> Any:
        said.append(sums)
        return verdicts(sums, plan)

    monkeypatch.setattr("quorum_rl.pipeline.judging_stage.verdicts", heard)
    choices = CHOICES | {"seed": None}
    one = named(everyone, "judged, unseeded")
    interrupted(one, tmp_path / "run", CERTIFIED, monkeypatch, **choices)
    fitted(one, tmp_path / "run", **choices)
    assert (said[0] == said[1]).all()
    assert len(read_ledger(tmp_path / "run" / "ledger.jsonl").charges) == 3


def test_a_run_that_is_killed_with_its_values_fitted_fits_the_same_again_and_pays_once(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def kept(*given: Any) -> Any:
        made.append(fitted_values(*given))
        return made[-1]

    monkeypatch.setattr("quorum_rl.pipeline.judging_stage.fitted_values", kept)
    one, choices = named(everyone, "judged, killed"), CHOICES | {"seed": None}
    at = "quorum_rl.pipeline.judging_stage.told_by"
    interrupted(one, tmp_path / "run", at, monkeypatch, **choices)
    fitted(one, tmp_path / "run", **choices)
    assert (made[0].weights == made[1].weights).all()
    events = read_ledger(tmp_path / "run" / "ledger.jsonl").events
    assert [event.part for event in events] == ["training", "training", "judging"]


def test_a_run_goes_on_under_its_own_ledger_alone(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has other judges: the same noise would be on their sum, and on another's."""
    books = [Budget.create(tmp_path / name, epsilon=9.0, delta=DELTA) for name in ("one", "two")]
    choices = CHOICES | {"seed": None, "accepted": (*ASSUMPTIONS, "other-experts")}
    one, folder = named(everyone, "judged, two ledgers"), tmp_path / "run"
    interrupted(one, folder, CERTIFIED, monkeypatch, budget=books[0], **choices)
    told = (folder / "judging.json").read_bytes()
    with pytest.raises(QuorumError, match="was begun under the ledger"):
        fitted(one, folder, budget=books[1], **choices)
    assert not books[1].record.charges
    assert fitted(one, folder, budget=books[0], **choices).certificate is not None
    assert (folder / "judging.json").read_bytes() == told


def test_a_planted_bug_is_found_that_fits_values_without_paying(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger then holds less than the plan says, and what was left out is no small part."""
    paid: Any = judging_stage.pay_for  # type: ignore[attr-defined]

    def forgetful(run: Any, stage: str, *rest: Any) -> None:
        if stage != "values":
            paid(run, stage, *rest)

    monkeypatch.setattr(judging_stage, "pay_for", forgetful)
    made = fitted(named(everyone, "judged, unpaid"), tmp_path / "run", **CHOICES)
    charged = read_ledger(tmp_path / "run" / "ledger.jsonl").events
    assert charged != made.plan.events
    own = [event for event in charged if event.part == "training"]
    assert total_epsilon(own, DELTA) < 0.95 * EPSILON


def test_stages_that_cost_the_same_pay_for_themselves_whatever_a_run_is_killed_at(
    done: Fitted, everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever chooses as many steps as values take, with their noise, pays for both."""
    assert done.plan.judging is not None
    assert done.plan.judging.values is not None
    values = done.plan.judging.values.event
    alike = replace(LOCAL, private_steps=values.steps, noise_multiplier=values.noise_multiplier)
    choices, book = CHOICES | {"settings": alike}, tmp_path / "run" / "ledger.jsonl"
    for at, charges in (("run.judged", 1), ("judging_stage.fitted_values", 2)):
        interrupted(
            named(everyone, "judged, alike"),
            tmp_path / "run",
            f"quorum_rl.pipeline.{at}",
            monkeypatch,
            **choices,
        )
        assert len(read_ledger(book).charges) == charges
    made = fitted(named(everyone, "judged, alike"), tmp_path / "run", **choices)
    assert made.plan.events[0] == made.plan.events[1]
    assert read_ledger(book).events == made.plan.events


def test_one_ledger_has_the_same_judges_for_every_fit_and_the_larger_part_counts(
    everyone: Crowd, tmp_path: Path
) -> None:
    budget = Budget.create(tmp_path / "ledger", epsilon=9.0, delta=DELTA)
    for number in range(2):
        one = named(everyone, f"judged {number}")
        fitted(one, tmp_path / f"run {number}", budget=budget, **CHOICES | {"epsilon": 3.0})
    twice = budget.spent()
    assert twice == pytest.approx(
        max(
            total_epsilon([e for e in budget.record.events if e.part == part], DELTA)
            for part in ("training", "judging")
        )
    )
    assert twice < 6
    plain = {name: CHOICES[name] for name in ("experts", "settings", "learner", "learner_settings")}
    fitted(
        named(everyone, "judged 2"), tmp_path / "plain", budget=budget, **plain | {"epsilon": 3.0}
    )
    assert twice < budget.spent() <= 9


def test_another_share_or_key_is_refused_and_nothing_is_charged(
    everyone: Crowd, tmp_path: Path
) -> None:
    budget = Budget.create(tmp_path / "ledger", epsilon=20.0, delta=DELTA)
    fitted(named(everyone, "judged, first"), tmp_path / "one", budget=budget, **CHOICES)
    charged = budget.record.events
    again = {"budget": budget, **CHOICES}
    with pytest.raises(QuorumError, match="once and for good"):
        fitted(named(everyone, "judged, second"), tmp_path / "two", **again | {"judges": 0.3})
    key_path(budget.ledger).write_text("00" * 32)
    with pytest.raises(QuorumError, match="another than the ledger was given"):
        fitted(named(everyone, "judged, third"), tmp_path / "three", **again)
    assert budget.record.events == charged
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("share", [1e-12, 1 - 1e-12])
def test_a_part_may_be_empty_and_nobody_is_told(share: float, tmp_path: Path) -> None:
    made = fitted(crowd(identity=f"judged by {share}"), tmp_path, **CHOICES | {"judges": share})
    assert made.judging is not None
    assert (made.judging.agreement.estimate is None) == (share < 0.5)


def test_a_release_is_on_everybody_beside_both_parts(everyone: Crowd, tmp_path: Path) -> None:
    made = fitted(named(everyone, "judged, released"), tmp_path, settings=SETTINGS, judges=0.15)
    parts = [event.part for event in read_ledger(tmp_path / "ledger.jsonl").events]
    assert parts == ["everybody", "training", "judging"]
    assert made.certificate is not None
    assert made.certificate.epsilon <= EPSILON
    check_certificate(tmp_path / "certificate.json")
    assert made.judging is not None
    assert made.judging.mean_return is None  # no bounds were declared


def test_names_that_change_with_who_takes_part_are_the_owners_word(
    everyone: Crowd, tmp_path: Path
) -> None:
    """Numbers that are ranks: without the first expert, everybody behind has another coin."""
    refused = {"accepted": ("one-expert-each",)}
    with pytest.raises(QuorumError, match=r"accept by name: own-names \(every expert has one name"):
        fitted(named(everyone, "ranks"), tmp_path / "run", **CHOICES | refused)
    assert not (tmp_path / "run").exists()
    key = SplitKey(0.5, bytes(range(32)))
    parts = [THROWN(key, [str(rank) for rank in range(count)]) for count in (40, 39)]
    assert (parts[0][1:] != parts[1]).any()  # the others, with the first expert and without


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"judges": 1.5}, "judges is 1.5"),
        ({"judges": None}, "which share"),
        ({"return_bounds": (5, 0)}, "the lower one first"),
        ({"return_bounds": (1,)}, "two numbers"),
        ({"settings": FitSettings(method="non-private"), "diagnostics_not_private": True}, "leave"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    choices: dict[str, Any], said: str, everyone: Crowd, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match=said):
        fitted(everyone, tmp_path / "run", **CHOICES | choices)
    assert not (tmp_path / "run").exists()
