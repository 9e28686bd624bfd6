"""Learners by name see a known world in its units, and what is asked for outranks them."""

from dataclasses import replace
from typing import Any

import pytest

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.envs.lunar_lander import LunarLander
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc, Bcq, Cql
from quorum_rl.logs import Declared
from quorum_rl.pipeline.learner_rule import asked_learner, learner_for
from quorum_rl.pipeline.planning import plan_fit
from quorum_rl.pipeline.settings import FitSettings

LANDER = Declared(
    4, 8, 1000, p_min=0.02, minimum_experts=3000, minimum_trajectories=20, world="LunarLander"
)
UNITS = LunarLander.units
COST = 1.0, 1e-4


def test_a_world_of_ours_is_seen_in_its_units() -> None:
    wanted: Any = {"observation_centre": UNITS.centre, "observation_scale": UNITS.scale}
    assert learner_for(LANDER, "bcq") == Bcq(reward_scale=UNITS.reward_scale, **wanted)
    assert learner_for(LANDER, "bc") == Bc(**wanted)  # rewards are nothing to it


def test_what_is_asked_for_outranks_the_units() -> None:
    raw = learner_for(LANDER, "cql", observation_centre=(), observation_scale=())
    assert raw == Cql(reward_scale=UNITS.reward_scale)
    numbers = tuple(float(one) for one in range(1, 9))
    own: Any = {"observation_centre": numbers, "observation_scale": numbers}
    assert learner_for(LANDER, "cql", reward_scale=2.0, **own) == Cql(reward_scale=2.0, **own)
    with pytest.raises(QuorumError, match="as many numbers as for the centre"):
        learner_for(LANDER, "cql", observation_scale=numbers)  # the units' centre is not mixed in


@pytest.mark.parametrize(
    "declared",
    [
        replace(LANDER, world=None),
        replace(LANDER, world="LunarLander-v3"),
        replace(LANDER, observation_size=9),
    ],
)
def test_other_worlds_are_seen_as_they_are(declared: Declared) -> None:
    assert learner_for(declared, "cql") == Cql()


def test_a_learner_that_is_made_is_taken_as_it_is_and_cannot_have_settings_beside() -> None:
    made = Cql(alpha=2.0)
    settings = FitSettings(method="dp-sgd")
    assert asked_learner(LANDER, settings, COST, made, None) is made
    asked = asked_learner(LANDER, settings, COST, "auto", {"alpha": 2.0})
    assert asked == learner_for(LANDER, "cql", alpha=2.0)
    with pytest.raises(QuorumError, match=r"^learner_settings are for a learner by name"):
        asked_learner(LANDER, settings, COST, made, {"alpha": 1.0})


def test_declared_ranges_are_units_and_numbers_that_are_asked_for_outrank_them() -> None:
    named = Dictionary((Column("sugar", low=40, high=400), Column("hours")))
    declared = Declared(2, 2, 10, dictionary=named)
    own: Any = {"observation_centre": (220.0, 0.0), "observation_scale": (90.0, 1.0)}
    assert learner_for(declared, "bc") == Bc(**own)
    asked: Any = {"observation_centre": (1.0, 2.0), "observation_scale": (3.0, 4.0)}
    assert learner_for(declared, "bc", **asked) == Bc(**asked)
    assert learner_for(declared, "bc", observation_centre=(), observation_scale=()) == Bc()
    labelled = Declared(2, 2, 10, dictionary=Dictionary((), ("a", "b")))
    assert learner_for(labelled, "bc") == Bc()


def test_the_plan_says_in_which_units_numbers_are_seen() -> None:
    settings = FitSettings(method="dp-sgd", private_steps=10)
    budget: Any = {"epsilon": 5.0, "delta": 1e-4}
    said = plan_fit(LANDER, learner_for(LANDER, "cql"), settings=settings, **budget).describe()
    assert "observations are seen less (0 0 0 0 0 0 0 0) and divided by (0.5 1 0.5" in said
    assert "rewards are multiplied by 0.1" in said
    picture = replace(LANDER, observation_size=400, world="Breakout")
    said = plan_fit(picture, learner_for(picture, "cql"), settings=settings, **budget).describe()
    assert f"less (0{' 0' * 15} …, 400 numbers) and divided by (0.25 0.25" in said
    said = plan_fit(LANDER, Cql(), settings=settings, **budget).describe()
    assert "observations are" not in said
    assert "rewards are" not in said
