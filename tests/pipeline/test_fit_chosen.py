"""Fits in which judges choose between learners: each is trained and paid for, one is the policy."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pytest
from fits import DELTA, EPSILON, Crowd, crowd, fitted, named, same_weights
from steady_parts import steady_parts

from quorum_rl.budget import check_certificate, read_ledger
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.learners import get_learner
from quorum_rl.pipeline import FitSettings, Fitted, plan_asked, run, training_stage
from quorum_rl.privacy import total_epsilon

STEPS: Final = 3
LOCAL: Final = FitSettings(private_steps=STEPS, local_steps=2, transitions_per_expert=2)
CHOICES: Final[dict[str, Any]] = {
    "experts": None,
    "settings": LOCAL,
    "learner": "auto",
    "learner_settings": {"hidden_sizes": (2,), "alpha": 0.5},  # which cql alone has
    "judges": 0.3,
    "return_bounds": (0, 5),
    "choose": ("bc", "cql"),
}


FIFTH: Final[dict[str, Any]] = {"judges": 0.2, "return_bounds": (0, 5)}


class PowerCutError(Exception):
    """Whatever ends a process."""


def cut(*_: Any, **__: Any) -> Any:
    raise PowerCutError


@pytest.fixture(scope="module")
def everyone() -> Iterator[Crowd]:
    with steady_parts():
        yield crowd(identity="chosen")


@pytest.fixture(scope="module")
def done(everyone: Crowd, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fitted(everyone, tmp_path_factory.mktemp("chosen") / "run", **CHOICES)


def said_of(made: Fitted) -> dict[str, Any]:
    return dict(json.loads((made.folder / "judging.json").read_text()))


def test_all_candidates_are_paid_for_and_together_cost_what_was_asked(done: Fitted) -> None:
    record = read_ledger(done.folder / "ledger.jsonl")
    assert record.events == done.plan.events
    steps, values, judges = record.events
    assert [event.part for event in record.events] == ["training", "training", "judging"]
    assert (steps.steps, values.steps, judges.steps) == (2 * STEPS, 120, 1)  # type: ignore[union-attr]
    assert 0.99 * EPSILON < total_epsilon([steps, values], DELTA) <= EPSILON
    assert record.charges[0].facts["candidates"] == ["bc", "cql"]
    assert done.certificate is not None
    assert "2 learners were trained for one policy (bc, cql)" in done.certificate.statement
    assert check_certificate(done.folder / "certificate.json").consistency is not None


def test_the_policy_is_the_one_whose_interval_begins_highest(done: Fitted) -> None:
    said = said_of(done)
    lows = [one["value"]["low"] for one in said["candidates"]]
    assert said["chosen"] == np.argmax(lows)
    chosen = said["candidates"][said["chosen"]]
    assert done.policy.learner == chosen["learner"] == done.plan.learner.name  # type: ignore[attr-defined]
    assert done.judging is not None
    assert {name: said[name] for name in ("value", "gain", "better", "agreement")} == {
        name: chosen[name] for name in ("value", "gain", "better", "agreement")
    }
    assert json.loads(json.dumps(done.judging.to_json()))["value"] == chosen["value"]
    assert "the policy earns" in done._repr_html_()


def test_settings_go_to_the_learners_that_know_them(everyone: Crowd) -> None:
    declared, asked = everyone.log.declared, {"epsilon": EPSILON, "delta": DELTA}
    judges = {"choose": ("bc", "cql"), **FIFTH, "settings": LOCAL}
    plan = plan_asked(declared, **asked, **judges, learner_settings={"alpha": 0.5})  # type: ignore[arg-type]
    assert [getattr(one, "alpha", None) for one in plan.candidates] == [None, 0.5]
    with pytest.raises(QuorumError, match="'alpa'"):
        plan_asked(declared, **asked, **judges, learner_settings={"alpa": 0.5})  # type: ignore[arg-type]


def test_each_has_the_noise_of_half_of_what_training_may_spend(everyone: Crowd) -> None:
    declared, asked = everyone.log.declared, {"epsilon": EPSILON, "delta": DELTA}
    options: dict[str, Any] = {**FIFTH, "settings": LOCAL, **asked}
    one = plan_asked(declared, learner="bc", learner_settings={"hidden_sizes": (2,)}, **options)
    two = plan_asked(
        declared, choose=("bc", "double-dqn"), learner_settings={"hidden_sizes": (2,)}, **options
    )
    assert two.noise == pytest.approx(2**0.5 * one.noise, rel=0.01)
    assert two.judging is not None
    assert one.judging is not None
    assert one.judging.left_by_noise("value") < two.judging.left_by_noise("value")
    assert "the judges choose one of 2" in two.describe()
    assert "noise would choose" not in two.describe()
    few = replace(declared, minimum_experts=60)
    options |= {"epsilon": 1.0, "choose": ("bc", "cql"), "learner_settings": {"hidden_sizes": ()}}
    assert "noise would choose: name one learner" in plan_asked(few, **options).describe()


def parameters(one: Crowd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of two candidates that are alike, where everybody judges: the start, and noise alone."""
    found: list[Any] = []

    def kept(*given: Any) -> Any:
        found.extend(training_stage.learned(*given))
        return found

    monkeypatch.setattr(run, "learned", kept)
    bc = get_learner("bc", hidden_sizes=())
    alike = (bc, replace(bc, observation_centre=(0.0,), observation_scale=(1.0,)))
    more: dict[str, Any] = {"choose": alike, "learner_settings": None, "judges": 1 - 1e-12}
    fitted(one, folder, **CHOICES | more)
    return [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(made)]) for made in found]


def of_one_key(run: Any, number: int) -> Any:
    return replace(run, plan=replace(run.plan, learner=run.plan.candidates[number]))


def test_candidates_have_noise_of_their_own(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two sums have in common would otherwise come out where one is taken from the other."""
    first, second = parameters(named(everyone, "alike"), tmp_path / "one", monkeypatch)
    assert (first != second).all()
    monkeypatch.setattr(training_stage, "of_candidate", of_one_key)
    first, second = parameters(named(everyone, "planted"), tmp_path / "two", monkeypatch)
    assert (first == second).all()  # the planted bug is seen


@pytest.mark.parametrize("cut_at", ["second", "values", "certificate"])
def test_a_run_that_is_killed_ends_the_same_and_pays_once(
    cut_at: str, everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    trained: list[int] = []
    steps = training_stage.train_runs  # type: ignore[attr-defined]

    def kept(*given: Any) -> Any:
        heard.append(training_stage.learned(*given))
        return heard[-1]

    def counted(plan: Any, *given: Any) -> Any:
        trained.append(1)
        if cut_at == "second" and len(trained) == 2:
            raise PowerCutError
        return steps(plan, *given)

    monkeypatch.setattr(run, "learned", kept)
    monkeypatch.setattr(training_stage, "train_runs", counted)
    where = {"second": "run.RunContext", "values": "judging_stage.told_by",
             "certificate": "run.write_certificate"}[cut_at]  # fmt: skip
    one, choices = named(everyone, f"killed at {cut_at}"), CHOICES | {"seed": None}
    with monkeypatch.context() as patched:
        if cut_at != "second":
            patched.setattr(f"quorum_rl.pipeline.{where}", cut)
        with pytest.raises(PowerCutError):
            fitted(one, tmp_path / "run", **choices)
    told = tmp_path / "run" / "judging.json"
    before = told.read_bytes() if told.exists() else None
    made = fitted(one, tmp_path / "run", **choices)
    assert len(trained) == (3 if cut_at == "second" else 2)  # a finished candidate is not repeated
    if cut_at == "certificate":
        assert told.read_bytes() == before
    if len(heard) == 2:
        pairs = zip(*(jax.tree.leaves(found) for found in heard), strict=True)
        assert all((np.asarray(a) == np.asarray(b)).all() for a, b in pairs)
    assert read_ledger(tmp_path / "run" / "ledger.jsonl").events == made.plan.events
    lines = [json.loads(line) for line in (made.folder / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["candidate"]) for line in lines] == [(3, 0), (6, 1)]
    assert lines[0]["epsilon"] < lines[1]["epsilon"] <= EPSILON


def test_whoever_stops_between_two_candidates_goes_on_to_the_same(
    done: Fitted, everyone: Crowd, tmp_path: Path
) -> None:
    heard: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> bool:
        heard.append((done, total))
        return done == STEPS

    one = named(everyone, "stopped")
    with pytest.raises(Interrupted, match="stopped after 3 of 6 steps"):
        fitted(one, tmp_path, progress=stop, **CHOICES)
    made = fitted(one, tmp_path, progress=lambda *at: heard.append(at), **CHOICES)
    assert heard == [(0, 6), (3, 6), (3, 6), (6, 6)]
    assert same_weights(made, done)
    assert said_of(made) == said_of(done)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"judges": None, "return_bounds": None}, "give judges and return_bounds"),
        ({"return_bounds": None}, "give judges and return_bounds"),
        (
            {"settings": FitSettings(method="non-private"), "diagnostics_not_private": True}
            | {"judges": None, "return_bounds": None},
            "give judges and return_bounds",
        ),
        ({"learner": "bc"}, "leave learner"),
        ({"choose": ("bc",)}, "two learners or more"),
        ({"choose": ("bc", "bc")}, "two learners or more"),
        ({"choose": ("bc", "bcd")}, "did you mean bc"),
        ({"choose": "bc,cql"}, "a list of learners"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_in_a_sentence(
    choices: dict[str, Any], said: str, everyone: Crowd, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match=said):
        fitted(everyone, tmp_path / "run", **CHOICES | {"learner_settings": None} | choices)
    assert not (tmp_path / "run").exists()
