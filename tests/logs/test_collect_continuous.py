"""Logs of continuous actions: drawn from the experts' own Gaussians, within bounds, and kept."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import numpy.typing as npt
import pytest
from aim_world import Aim
from scipy import stats

from quorum_rl.envs import get_world, with_params
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, Population, load_population, save_population
from quorum_rl.experts.networks import Layer
from quorum_rl.logs import (
    Demonstrations,
    agreement_curve,
    collect,
    collect_from_gymnasium,
    open_demonstrations,
    save_demonstrations,
)
from quorum_rl.logs.collection import as_they_acted

PENDULUM = get_world("Pendulum")
LIMIT = 12


def population(experts: int, spread: float, width: int = 3, seed: int = 0) -> Population:
    """Linear experts, each with its own mean; all have one spread."""
    rng = np.random.default_rng(seed)
    weight = np.zeros((experts, width, 2), np.float32)
    weight[:, :, 0] = rng.normal(0, 0.4, (experts, width))
    weight[:, -1] /= 10  # of speeds up to 8: no mean comes near a bound
    bias = np.zeros((experts, 2), np.float32)
    bias[:, 1] = np.log(spread)
    return Population(
        observation_size=width,
        action_count=1,
        action_bounds=((-2.0, 2.0),),
        network=(Layer(weight, bias),),
    )


def collected(experts: Population, seed: int | None = 5, trajectories: int = 4) -> Demonstrations:
    params = with_params(PENDULUM, time_limit=LIMIT)
    return collect(experts, PENDULUM, params, trajectories=trajectories, seed=seed)[0]


def assert_same(log: Demonstrations, other: Demonstrations) -> None:
    for found, expected in zip(
        (*log.columns, *log.episodes), (*other.columns, *other.episodes), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def scaled(log: Demonstrations, experts: Population, spread: float) -> npt.NDArray[np.float64]:
    """How many standard deviations the actions lie beside their experts' means."""
    steps = log.transitions(np.arange(log.transition_count))
    expert = np.repeat(log.episodes.expert, log.episodes.length)
    (layer,) = experts.network
    seen = np.asarray(steps.observation, np.float64)
    mean = (seen * np.asarray(layer.weight)[expert, :, 0]).sum(axis=1)
    made: npt.NDArray[np.float64] = (np.asarray(steps.action)[:, 0] - mean) / spread
    return made


def test_a_log_holds_the_torques_that_experts_drew_and_what_came_of_them() -> None:
    log = collected(population(5, spread=0.3))
    declared = log.declared
    assert declared.continuous
    assert declared.action_bounds == ((-2.0, 2.0),)
    assert declared.dictionary is not None
    assert declared.dictionary.action_labels == ("torque",)
    assert declared.p_min is None
    assert log.columns.actions.dtype == np.float32
    assert log.columns.actions.shape == (5 * 4 * LIMIT, 1)
    env: Any = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    steps = log.transitions(np.arange(100))
    for row in range(100):
        cosine, sine, speed = np.asarray(steps.observation[row], np.float64)
        env.state = np.array([np.arctan2(sine, cosine), speed])
        observation, reward, *_ = env.step(np.asarray(steps.action[row]))
        np.testing.assert_allclose(steps.next_observation[row], observation, atol=1e-5)
        np.testing.assert_allclose(steps.reward[row], reward, atol=1e-5)


@pytest.mark.parametrize("gymnasiums", [False, True])
def test_actions_have_the_distribution_of_their_own_experts(gymnasiums: bool) -> None:
    """Kolmogorov and Smirnov's test; a right log fails once in 10^6 seeds."""
    experts = population(6, spread=0.1)
    if gymnasiums:
        log, _ = collect_from_gymnasium(
            experts, "Pendulum-v1", {"max_episode_steps": LIMIT}, trajectories=20, horizon=LIMIT,
            seed=1,
        )  # fmt: skip
        assert log.declared.action_bounds == ((-2.0, 2.0),)
    else:
        log = collected(experts, trajectories=20)
    assert (np.abs(log.columns.actions) < 2).all()
    assert stats.kstest(scaled(log, experts, 0.1), "norm").pvalue > 1e-6
    swapped = replace(experts, network=jax.tree.map(lambda leaf: leaf[::-1], experts.network))
    assert stats.kstest(scaled(log, swapped, 0.1), "norm").pvalue < 1e-12


def test_actions_are_cut_to_their_bounds() -> None:
    actions = np.asarray(collected(population(3, spread=5.0)).columns.actions)
    assert actions.min() == -2
    assert actions.max() == 2
    # Beyond 0.4 of a standard deviation lie 69 %; the standard error of 144 is 4 %.
    assert 0.5 < (np.abs(actions) == 2).mean() < 0.88


def test_a_seed_gives_the_same_log_and_another_another() -> None:
    experts = population(3, spread=0.3)
    assert_same(collected(experts), collected(experts))
    other = collected(experts, seed=6)
    assert not np.array_equal(other.columns.actions, collected(experts).columns.actions)


def test_in_gymnasium_an_expert_does_the_same_in_any_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experts = population(3, spread=0.3)

    def log_of(some: Population) -> Demonstrations:
        return collect_from_gymnasium(
            some, "Pendulum-v1", {"max_episode_steps": LIMIT}, trajectories=2, horizon=LIMIT, seed=2
        )[0]

    whole = log_of(experts)
    alone = log_of(replace(experts, network=jax.tree.map(lambda leaf: leaf[:1], experts.network)))
    count = alone.transition_count
    np.testing.assert_array_equal(alone.columns.actions, whole.columns.actions[:count])
    room = sys.modules[collect_from_gymnasium.__module__]
    monkeypatch.setattr(room, "COPIES_AT_ONCE", 2)
    assert_same(log_of(experts), whole)


def test_experts_and_their_log_come_back_from_files(tmp_path: Path) -> None:
    experts = save_population(population(3, spread=0.3), tmp_path / "experts.safetensors")
    log = collected(experts)
    save_demonstrations(log, tmp_path / "log.arrow")
    loaded = open_demonstrations(tmp_path / "log.arrow")
    assert_same(loaded, log)
    assert loaded.declared == log.declared
    assert_same(collected(load_population(tmp_path / "experts.safetensors")), log)


def test_experts_of_other_bounds_or_of_a_list_of_actions_are_refused() -> None:
    experts = population(2, spread=0.3)
    strong = replace(experts, action_bounds=((-3.0, 3.0),))
    with pytest.raises(
        QuorumError, match=r"continuous \(-3 to 3\), but those of Pendulum cont.*2 "
    ):
        collected(strong)
    two = population(2, spread=0.3, width=4)
    with pytest.raises(QuorumError, match="but those of CartPole a finite list: use experts of"):
        collect(two, CartPole(), trajectories=1)
    finite = Population(observation_size=2, action_count=2, network=two.network)
    with pytest.raises(QuorumError, match="are a finite list, but those of Aim continuous"):
        collect(finite, Aim(), trajectories=1)


def test_nobody_measures_how_long_experts_of_continuous_actions_agree() -> None:
    experts = population(2, spread=0.3)
    log = collected(experts)
    logged = as_they_acted(experts, log)
    assert isinstance(logged, LoggedExperts)
    with pytest.raises(QuorumError, match="an agreement\\) needs a finite list"):
        agreement_curve(logged, log, trajectories=2)
