"""What a sweep tries, and which trials are one program."""

import math
from dataclasses import replace
from typing import Any

import pytest
from fits import LEARNER
from sweeps import BATCHES, CLIPS, PRIVATE, asked

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Cql
from quorum_rl.pipeline import plan_fit
from quorum_rl.sweep import Common, Search
from quorum_rl.sweep.space import Choices
from quorum_rl.sweep.trials import planned, programs_of


def test_a_grid_is_every_combination_in_the_order_of_the_file() -> None:
    every = asked().search.all()
    assert every[:3] == [
        {"clip_norm": 0.5, "batch_size": 8},
        {"clip_norm": 0.5, "batch_size": 16},
        {"clip_norm": 1.0, "batch_size": 8},
    ]
    assert len(every) == len(CLIPS) * len(BATCHES)


def test_draws_lie_in_their_ranges_and_are_the_same_for_one_seed() -> None:
    search = Search(
        draws={
            "learning-rate": {"low": 1e-4, "high": 1e-1, "scale": "log"},
            "batch-size": {"low": 8, "high": 32},
            "optimiser": ["sgd", "adam"],
        },
        trials=400,
        seed=3,
    )
    every = search.all()
    assert every == search.all() != replace(search, seed=4).all()
    rates = [float(trial["learning_rate"]) for trial in every]
    assert all(1e-4 <= rate <= 1e-1 for rate in rates)
    # Half of them below the geometric middle: 400 fair coins, 5 deviations (1e-6 by chance).
    assert abs(sum(rate < math.sqrt(1e-5) for rate in rates) - 200) < 50
    assert {trial["batch_size"] for trial in every} == set(range(8, 33))
    assert {trial["optimiser"] for trial in every} == {"sgd", "adam"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "and has none"),
        ({"grid": {"clip-norm": [1.0]}, "draws": {"clip-norm": [1.0]}}, "and has both"),
        ({"grid": {"clip-nrom": [1.0]}}, "did you mean clip-norm?"),
        ({"grid": {"clip-norm": []}}, "no value to try"),
        ({"grid": {"clip-norm": ["much"]}}, "would be tried as 'much'"),
        ({"grid": {"batch-size": [8.5]}}, "would be tried as 8.5"),
        ({"grid": {"falling-rates": [1]}}, "would be tried as 1"),
        ({"grid": {"method": ["magic"]}}, "would be tried as 'magic'"),
        ({"draws": {"clip-norm": {"low": 1.0}}}, "is no range"),
        ({"draws": {"clip-norm": {"low": 2.0, "high": 1.0}}}, "let it rise"),
        ({"draws": {"clip-norm": {"low": 0.0, "high": 1.0, "scale": "log"}}}, "from above 0"),
        ({"draws": {"clip-norm": [1.0]}, "trials": 0}, "--trials has 0 trials"),
        ({"grid": {name: list(range(1, 200)) for name in ("pool-limit", "iterations")}}, "39601"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_sentence(given: Any, said: str) -> None:
    with pytest.raises(QuorumError, match=r"\.$") as refused:
        Search(**given)
    assert said in str(refused.value)


def test_a_trial_is_planned_as_a_fit_with_its_settings_would_be() -> None:
    log = asked().log
    common = Common(5.0, 0.01, PRIVATE, hidden_sizes=LEARNER.hidden_sizes)
    choices: Choices = {
        "clip_norm": 3.0,
        "transitions_per_expert": 5,
        "epsilon": 4.0,
        "averaging": 0.0,
    }
    settings = replace(PRIVATE, clip_norm=3.0, transitions_per_expert=5, averaging=0.0)
    alone = plan_fit(log.declared, LEARNER, epsilon=4.0, delta=0.01, settings=settings)
    assert common.plan(choices, log.declared) == alone


def test_trials_see_observations_as_they_are_told_to_if_there_are_as_many_numbers() -> None:
    declared = asked().log.declared
    numbers = tuple(float(n) for n in range(1, declared.observation_size + 1))
    common = Common(5.0, 0.01, PRIVATE, observation_centre=numbers, observation_scale=numbers)
    wanted = Cql(observation_centre=numbers, observation_scale=numbers)
    assert common.usual_learner(declared) == wanted
    more = replace(common, observation_centre=(*numbers, 1.0), observation_scale=(*numbers, 1.0))
    (trial,) = planned([{}], more, declared)
    assert trial.plan is None
    assert f"give {len(numbers)} numbers, or none" in trial.reason


def test_trials_of_one_shape_are_one_program_and_large_ones_are_cut_evenly() -> None:
    one = asked()
    trials = planned(one.search.all(), one.common, one.log.declared)
    whole = programs_of(trials, together=32)
    assert [[t.choices["batch_size"] for t in p.trials] for p in whole] == [[8] * 3, [16] * 3]
    cut = programs_of(trials * 2, together=4)  # six of each shape
    assert [len(program.trials) for program in cut] == [3, 3, 3, 3]


def test_a_trial_that_cannot_be_planned_is_in_no_program_and_says_why() -> None:
    one = asked(search=Search(grid={"clip-norm": [1.0, -1.0]}))
    good, bad = planned(one.search.all(), one.common, one.log.declared)
    assert bad.plan is None
    assert "clip" in bad.reason
    assert [program.trials for program in programs_of([good, bad], 8)] == [(good,)]
