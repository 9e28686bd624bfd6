"""Fits whose logs declare no units: asked of the experts, paid for, and in the policy."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from fits import DELTA, EPSILON, SETTINGS, Crowd, crowd, fitted, interrupted, named

from quorum_rl.budget import check_certificate, read_ledger
from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc, Cql, get_learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline import FitSettings, Fitted, UnitsName, units_stage
from quorum_rl.pipeline.context import planned
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.planning import plan_fit
from quorum_rl.pipeline.units import OBSERVED, Asking, in_units, units_to_ask
from quorum_rl.policy import Policy
from quorum_rl.privacy import ReleaseEvent, TrainingEvent, total_epsilon
from quorum_rl.training import Asked, Unit, ask_units

LOCAL: Final = FitSettings(private_steps=3, local_steps=2, transitions_per_expert=2)
CHOICES: Final[dict[str, Any]] = {
    "experts": None,
    "settings": LOCAL,
    "learner": "bc",
    "learner_settings": {"hidden_sizes": (2,)},
    "units": "auto",
}


@pytest.fixture(scope="module")
def wild() -> Crowd:
    """The crowd, to whom times are 1000 apart, and 7000 later."""
    one = crowd(identity="wild")
    seen = 1000 * one.log.columns.observations + 7000
    log = replace(one.log, columns=one.log.columns._replace(observations=seen))
    return one._replace(log=log)


@pytest.fixture(scope="module")
def done(wild: Crowd, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fitted(wild, tmp_path_factory.mktemp("units") / "run", **CHOICES)


def units_of(made: Fitted) -> tuple[Any, Any]:
    learner: Any = made.plan.learner
    return learner.observation_centre, learner.observation_scale


def check_paid(made: Fitted) -> None:
    """Every event of the plan stands in the ledger, once, and the certificate is of them."""
    events = read_ledger(made.folder / "ledger.jsonl").events
    assert events == made.plan.events
    assert made.plan.units is not None
    assert events.count(made.plan.units.event) == 1
    assert made.certificate is not None
    assert total_epsilon(events, DELTA) <= made.certificate.epsilon <= EPSILON
    checked = check_certificate(made.folder / "certificate.json")
    assert checked.consistency is not None
    assert checked.consistency.epsilon <= EPSILON * 1.001


def test_units_are_found_paid_for_once_and_certified(done: Fitted) -> None:
    """Steps see 7000 to 11000, each as often: median 9000, and 80% within 4000."""
    check_paid(done)
    (centre,), (scale,) = units_of(done)
    assert abs(centre - 9000) < 1000
    assert 1000 < scale < 3000
    assert total_epsilon(done.plan.events, DELTA) > 0.99 * EPSILON


def test_they_are_published_and_in_the_policy(done: Fitted, wild: Crowd) -> None:
    said = json.loads((done.folder / "units.json").read_text())
    (unit,) = said["units"]
    assert ((unit["centre"],), (unit["scale"],)) == units_of(done)
    assert said["said"] == [
        f"observations are seen less ({unit['centre']:g}) and divided by ({unit['scale']:g})"
    ]
    config = json.loads((done.folder / "config.json").read_text())
    assert config["units"]["asked"] == said["asked"] == [{"place": 0, "range": None}]
    assert config["learner"]["observation_centre"] == []  # what was asked for, not what was found
    kept = Policy.load(done.folder / "policy.safetensors")
    seen = wild.log.columns.observations[:50]
    learner: Any = done.plan.learner
    assert (kept.act(seen) == np.asarray(learner.act(done.params, seen))).all()
    assert (kept.act(seen) == 0).all()  # as nine in ten of them


def test_a_fit_that_does_not_pay_is_found(
    wild: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units_stage, "pay_for", lambda *_, **__: None)
    made = fitted(named(wild, "unpaid"), tmp_path, **CHOICES)
    with pytest.raises(AssertionError):
        check_paid(made)


@pytest.mark.parametrize(
    ("at", "seed"),
    [
        ("quorum_rl.pipeline.units_stage.ask_units", None),  # paid for, not asked
        ("quorum_rl.pipeline.run.pay_for_steps", 1),  # asked and written down
    ],
)
def test_a_run_that_was_killed_finds_the_same_units_for_one_charge(
    at: str, seed: int | None, wild: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, choices = named(wild, f"killed {at} {seed}"), CHOICES | {"seed": seed}
    found: list[Any] = []
    asked = ask_units

    def heard(*given: Any) -> Any:
        found.append(asked(*given))
        return found[-1]

    monkeypatch.setattr(units_stage, "ask_units", heard)
    interrupted(one, tmp_path, at, monkeypatch, **choices)
    assert len(read_ledger(tmp_path / "ledger.jsonl").charges) == 1
    made = fitted(one, tmp_path, **choices)
    check_paid(made)
    assert all(each == found[0] for each in found)


def test_the_judges_are_not_asked(wild: Crowd, tmp_path: Path) -> None:
    made = fitted(named(wild, "wild, judged"), tmp_path, judges=0.3, **CHOICES)
    check_paid(made)
    assert [event.part for event in made.plan.events] == ["training", "training", "judging"]
    assert abs(units_of(made)[0][0] - 9000) < 1500


def test_what_is_found_outranks_what_was_there_and_what_is_not_stays() -> None:
    asked = (Asked(0), Asked(2), Asked(None))
    found = (Unit(9.0, 2.0), None, Unit(0.0, 0.3))
    named = Cql(observation_centre=(1.0, 2.0, 3.0), observation_scale=(4.0, 5.0, 6.0))
    assert in_units(named, asked, found) == Cql(
        observation_centre=(9.0, 2.0, 3.0), observation_scale=(2.0, 5.0, 6.0), reward_scale=3.3
    )
    assert in_units(Bc(), asked[:2], found[:2]) == Bc(
        observation_centre=(9.0, 0.0, 0.0), observation_scale=(2.0, 1.0, 1.0)
    )


def test_units_stand_beside_a_release() -> None:
    """On everybody, as it is, and all within the budget."""
    declared = replace(PLAIN, p_min=0.1, minimum_experts=3000, minimum_trajectories=9)
    asking = units_to_ask("auto", declared, SETTINGS, Cql(), called="bc", given=None)
    plan = plan_fit(declared, Cql(), epsilon=EPSILON, delta=DELTA, settings=SETTINGS, asking=asking)
    assert [type(event) for event in plan.events] == [ReleaseEvent, TrainingEvent, TrainingEvent]
    assert 0.99 * EPSILON < total_epsilon(plan.events, DELTA) <= EPSILON


OWN: Final = ((), ()), ((9e3,), (2e3,))


@pytest.mark.parametrize("own", [dict(zip(OBSERVED, both, strict=True)) for both in OWN])
def test_who_has_public_units_or_wants_none_is_not_asked(own: Any, wild: Crowd) -> None:
    """The plan is that of a fit that never asks, and so is every bit that follows."""
    common: dict[str, Any] = {
        "epsilon": EPSILON, "delta": DELTA, "minimum_experts": None, "minimum_trajectories": None,
        "learner": "bc", "learner_settings": own, "settings": LOCAL,
        "diagnostics_not_private": False,
    }  # fmt: skip
    auto, _, _ = planned(wild.log, None, units="auto", **common)
    assert auto == planned(wild.log, None, units="public", **common)[0]
    assert auto.units is None


NAMED: Final = Dictionary((Column("a", low=0, high=9), Column("b")))
PLAIN: Final = Declared(2, 2, 5, minimum_experts=400)


@pytest.mark.parametrize(
    ("units", "declared", "learner", "given", "asked"),
    [
        ("auto", PLAIN, Bc(), None, (Asked(0), Asked(1))),
        ("auto", PLAIN, Cql(), {}, (Asked(0), Asked(1), Asked(None))),
        ("auto", PLAIN, Cql(), {"reward_scale": 2.0}, (Asked(0), Asked(1))),
        ("auto", PLAIN, Bc(), {"observation_centre": ()}, None),
        ("auto", replace(PLAIN, dictionary=NAMED), Bc(), None, (Asked(1),)),
        ("private", replace(PLAIN, dictionary=NAMED), Bc(), None, (Asked(0, (0, 9)), Asked(1))),
        ("public", PLAIN, Bc(), None, None),
        ("auto", replace(PLAIN, observation_size=4, world="CartPole"), Bc(), None, None),
        ("auto", replace(PLAIN, world="Shop"), Bc(), None, (Asked(0), Asked(1))),
    ],
)
def test_only_what_nobody_declared_is_asked_for(
    units: UnitsName, declared: Declared, learner: Any, given: Any, asked: Any
) -> None:
    found = units_to_ask(units, declared, FitSettings(), learner, called="bc", given=given)
    assert (None if found is None else found.asked) == asked


def test_a_learner_that_is_made_is_left_alone_unless_told_otherwise() -> None:
    made = get_learner("bc")
    alone: dict[str, Any] = {"called": made, "given": None}
    assert units_to_ask("auto", PLAIN, FitSettings(), made, **alone) is None
    assert units_to_ask("private", PLAIN, FitSettings(), made, **alone) is not None


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"units": "mine"}, "unknown units 'mine'"),
        ({"learner_settings": {"observation_centre": (0.0,), "observation_scale": (1.0,)}},
         "go with no observation_centre"),
        ({"settings": FitSettings(method="non-private"), "diagnostics_not_private": True},
         "neither mode paper nor"),
        ({"epsilon": 0.05, "settings": replace(LOCAL, allow_noise=True)},
         r"private units of 1 number need [\d,]+ experts"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence_and_for_free(
    choices: dict[str, Any], said: str, wild: Crowd, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match=said):
        fitted(wild, tmp_path / "run", **CHOICES | {"units": "private"} | choices)
    assert not (tmp_path / "run").exists()


def test_nobody_is_asked_where_that_would_leave_mostly_noise() -> None:
    few, wide = replace(PLAIN, minimum_experts=130), Bc(hidden_sizes=(100, 100))
    asking = units_to_ask("auto", few, FitSettings(), wide, called="bc", given=None)
    plan = plan_fit(few, wide, epsilon=3.0, delta=1e-4, asking=asking)
    assert plan.units is None
    assert plan.mostly_noise is None
    assert "so none are asked for" in plan.describe()
    assert asking is not None
    insisted = plan_fit(few, wide, epsilon=3.0, delta=1e-4, asking=asking._replace(must=True))
    assert insisted.mostly_noise is not None


def test_where_experts_are_too_few_a_plan_says_so_and_asks_nothing() -> None:
    asking = units_to_ask("auto", PLAIN, FitSettings(), Bc(), called="bc", given=None)
    few = replace(PLAIN, minimum_experts=20)
    plan = plan_fit(few, Bc(), epsilon=1.0, delta=1e-4, asking=asking)
    same = plan_fit(few, Bc(), epsilon=1.0, delta=1e-4)
    assert plan.units is None
    assert plan.private == same.private
    assert "observations and rewards are seen as they are" in plan.describe()
    enough = plan_fit(PLAIN, Bc(), epsilon=3.0, delta=1e-4, asking=asking)
    assert "private units: middle and spread of 2 numbers" in enough.describe()
    assert enough.units is not None
    assert enough.events[0] == enough.units.event
    assert json.loads(json.dumps(enough.units.to_json()))["share"] == enough.units.share


@pytest.mark.parametrize(
    ("numbers", "experts", "epsilon"), [(21_000, 20_000, 20), (100, 8_000_000, 1)]
)
def test_where_numbers_have_no_room_in_one_sum_a_plan_says_so_and_nobody_pays(
    numbers: int, experts: int, epsilon: float
) -> None:
    """More than a norm is checked of, or than a row's rounding leaves something of."""
    declared = Declared(2, numbers, 10, minimum_experts=experts, identity="wide")
    asking = Asking(tuple(Asked(place) for place in range(numbers)), must=False)

    def plan(asking: Asking) -> FitPlan:
        learner = get_learner("bc", hidden_sizes=(2,))
        return plan_fit(declared, learner, epsilon=epsilon, delta=1e-5, asking=asking)

    said = plan(asking)
    assert said.units is None
    assert "have no room in one sum" in said.describe()
    with pytest.raises(QuorumError, match="have no room in one sum"):
        plan(asking._replace(must=True))
