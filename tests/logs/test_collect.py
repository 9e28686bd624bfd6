"""Collecting: the logs are what the queried policies did in the true world, and nothing else."""

import math
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from quorum_rl.envs import Step, with_params
from quorum_rl.envs.cartpole import CartPole, CartPoleParams, CartPoleState
from quorum_rl.errors import QuorumError
from quorum_rl.experts import CallableExperts, LoggedExperts, Population, UnloggedExperts
from quorum_rl.experts.networks import Layer
from quorum_rl.logs import Demonstrations, collect, collect_from_gymnasium
from quorum_rl.logs.collection import drawn

WORLD = CartPole()
LIMIT = 15  # steps: some episodes end before, others at it
EXPERTS, TRAJECTORIES = 9, 6


def population(seed: int, experts: int = EXPERTS) -> Population:
    rng = np.random.default_rng(seed)
    weight: Any = rng.normal(0, 1.5, (experts, 4, 2)).astype(np.float32)
    bias: Any = rng.normal(0, 0.7, (experts, 2)).astype(np.float32)
    return Population(observation_size=4, action_count=2, network=(Layer(weight, bias),))


def default_params() -> Any:
    return with_params(WORLD, time_limit=LIMIT)


class Collected(NamedTuple):
    experts: Population
    log: Demonstrations
    logged: LoggedExperts


@pytest.fixture(scope="module")
def collected() -> Collected:
    experts = population(0)
    log, logged = collect(experts, WORLD, default_params(), trajectories=TRAJECTORIES, seed=5)
    return Collected(experts, log, logged)


def assert_same(log: Demonstrations, other: Demonstrations) -> None:
    for found, expected in zip(
        (*log.columns, *log.episodes), (*other.columns, *other.episodes), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def rows_of(log: Demonstrations) -> Any:
    """All transitions, and whose they are."""
    steps = log.transitions(np.arange(log.transition_count))
    return steps, np.repeat(log.episodes.expert, log.episodes.length)


# What the world did


def assert_gymnasiums_steps(log: Demonstrations) -> None:
    steps, _ = rows_of(log)
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    for row in range(len(steps.action)):
        env.state = np.asarray(steps.observation[row], np.float64)
        env.steps_beyond_terminated = None
        observation, reward, terminated, _, _ = env.step(int(steps.action[row]))
        np.testing.assert_allclose(steps.next_observation[row], observation, atol=1e-5)
        assert steps.reward[row] == reward
        assert steps.terminated[row] == terminated


def test_every_logged_transition_is_one_of_gymnasiums_cartpole(collected: Collected) -> None:
    assert_gymnasiums_steps(collected.log)


def test_episodes_begin_at_starts_of_their_own_and_go_on_from_state_to_state(
    collected: Collected,
) -> None:
    log = collected.log
    starts = log.columns.observations[log.episodes.first_state]
    assert (np.abs(starts) <= 0.05).all()
    assert len(np.unique(starts[:, 0])) == EXPERTS * TRAJECTORIES  # no two start alike
    steps, _ = rows_of(log)
    inside = ~(np.asarray(steps.terminated) | np.asarray(steps.truncated))[:-1]
    np.testing.assert_array_equal(
        np.asarray(steps.observation)[1:][inside], np.asarray(steps.next_observation)[:-1][inside]
    )


def test_an_episode_ends_when_the_pole_falls_or_at_the_time_limit(collected: Collected) -> None:
    episodes = collected.log.episodes
    assert len(collected.log) == EXPERTS * TRAJECTORIES
    np.testing.assert_array_equal(episodes.expert, np.repeat(np.arange(EXPERTS), TRAJECTORIES))
    np.testing.assert_array_equal(episodes.truncated, np.asarray(episodes.length) == LIMIT)
    assert (episodes.terminated | episodes.truncated).all()
    assert 5 < episodes.truncated.sum() < len(collected.log) - 5
    assert 5 < episodes.terminated.sum() < len(collected.log) - 5


def test_what_is_declared_is_what_was_done(collected: Collected) -> None:
    declared = collected.log.declared
    assert (declared.action_count, declared.observation_size, declared.horizon) == (2, 4, LIMIT)
    assert (declared.world, declared.p_min, declared.smoothing) == ("CartPole", 0.0, "none")
    assert declared.reproducible
    assert declared.world_params == asdict(CartPoleParams(time_limit=LIMIT))


# What the experts did


def test_actions_are_drawn_from_the_probabilities_that_a_query_returns() -> None:
    experts = population(1, experts=40)
    log, logged = collect(experts, WORLD, default_params(), trajectories=20, seed=11)
    steps, expert = rows_of(log)
    queried = logged.probabilities(np.asarray(steps.observation))
    chance = queried[expert, np.arange(len(expert)), 1]
    took = np.asarray(steps.action) == 1
    assert len(took) > 6000
    # Ten classes by queried probability; within each, actions are independent given the past, so
    # the standardised surplus is near normal and their squares sum to a chi-square variable.
    edges = np.quantile(chance, np.linspace(0, 1, 11)[1:-1])
    group = np.digitize(chance, edges)
    surplus = np.bincount(group, took - chance)
    variance = np.bincount(group, chance * (1 - chance))
    statistic = (surplus**2 / variance).sum()
    # Fixed seed; another seed would fail with probability 1e-6.
    assert stats.chi2.sf(statistic, len(surplus)) > 1e-6
    # It would be noticed if experts had acted for one another.
    swapped = queried[(expert + 1) % 40, np.arange(len(expert)), 1]
    worst = np.bincount(group, took - swapped) ** 2 / variance
    assert stats.chi2.sf(worst.sum(), len(surplus)) < 1e-12


def test_near_greedy_experts_stray_as_often_as_their_floor() -> None:
    experts = population(2, experts=40).smoothed(0.1)
    log, logged = collect(experts, WORLD, default_params(), trajectories=20, seed=3)
    steps, expert = rows_of(log)
    queried = logged.probabilities(np.asarray(steps.observation))[expert, np.arange(len(expert))]
    strayed = int((queried.argmax(axis=1) != np.asarray(steps.action)).sum())
    # Fixed seed; another seed would fail with probability 1e-6.
    assert stats.binomtest(strayed, len(expert), 0.1).pvalue > 1e-6
    assert log.declared.p_min == logged.p_min == 0.1


def greedy_by_hand(experts: Population, p_min: float) -> CallableExperts:
    """The experts' weights in plain Python functions, near-greedy."""

    def policy(weight: Any, bias: Any) -> Any:
        def act(states: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
            best = np.argmax(states @ np.asarray(weight) + bias, axis=1)
            return np.where(np.arange(2) == best[:, None], 1 - p_min, p_min)

        return act

    (layer,) = experts.network
    policies = [policy(*pair) for pair in zip(layer.weight, layer.bias, strict=True)]
    return CallableExperts(policies, observation_size=4, action_count=2, p_min=p_min)


def test_a_population_and_the_same_policies_as_functions_leave_the_same_logs() -> None:
    made = population(4)
    first, second = (
        collect(experts, WORLD, default_params(), trajectories=3, seed=8)[0]
        for experts in (made.smoothed(0.05), greedy_by_hand(made, 0.05))
    )
    assert_same(first, second)


# Chance


def test_the_same_seed_gives_the_same_logs_and_others_differ(collected: Collected) -> None:
    def again(seed: int | None) -> Demonstrations:
        return collect(
            collected.experts, WORLD, default_params(), trajectories=TRAJECTORIES, seed=seed
        )[0]

    assert_same(again(5), collected.log)
    logs = [collected.log, again(6), again(None), again(None)]
    starts = [float(log.columns.observations[0, 0]) for log in logs]
    assert len(set(starts)) == 4
    assert not logs[2].declared.reproducible


def test_an_expert_starts_where_it_would_start_in_another_company() -> None:
    many, few = population(0, experts=5), population(0, experts=3)
    log, other = (
        collect(experts, WORLD, default_params(), trajectories=2, seed=1)[0]
        for experts in (many, few)
    )
    starts = log.columns.observations[log.episodes.first_state]
    np.testing.assert_array_equal(
        starts[:6], other.columns.observations[other.episodes.first_state]
    )


distributions = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(2, 6)), elements=st.floats(0, 1)
).filter(lambda rows: bool((rows.sum(axis=1) > 1e-3).all()))


@given(distributions, st.data())
def test_a_uniform_number_falls_into_the_interval_of_its_action(rows: Any, data: Any) -> None:
    probabilities = rows / rows.sum(axis=1, keepdims=True)
    below_one = st.floats(0, 1, exclude_max=True)
    uniform = data.draw(hnp.arrays(np.float64, len(rows), elements=below_one))
    actions = drawn(probabilities, uniform)
    for row, action in enumerate(actions):
        upper = probabilities[row, : action + 1].sum()
        assert probabilities[row, :action].sum() <= uniform[row] + 1e-12
        assert uniform[row] < upper + 1e-12


@given(st.integers(2, 6), st.data())
def test_a_sure_action_is_always_taken(actions: int, data: Any) -> None:
    sure = data.draw(st.integers(0, actions - 1))
    for uniform in (0.0, 0.5, math.nextafter(1, 0)):
        assert drawn(np.eye(actions)[sure], np.array(uniform)) == sure


# Worlds and experts that are odd


@dataclass(frozen=True)
class Brittle(CartPole):
    """A CartPole that is no number any more once the pole has fallen and is pushed on."""

    def step(
        self, key: jax.Array, state: CartPoleState, action: jax.Array, params: CartPoleParams
    ) -> Step[CartPoleState]:
        fallen = (jnp.abs(state.angle) > 0.2094395) | (jnp.abs(state.position) > 2.4)
        after = super().step(key, state, action, params)
        return after._replace(observation=jnp.where(fallen, jnp.nan, after.observation))


def test_what_a_world_does_after_an_end_does_not_matter(collected: Collected) -> None:
    log, _ = collect(
        collected.experts, Brittle(), default_params(), trajectories=TRAJECTORIES, seed=5
    )
    assert_same(log, collected.log)


def test_logged_experts_cannot_be_smoothed_nor_act_again(collected: Collected) -> None:
    assert isinstance(collected.logged, LoggedExperts)
    assert not isinstance(collected.logged, UnloggedExperts)
    with pytest.raises(QuorumError, match="have generated logs already"):
        collected.logged.smoothed(0.1)  # type: ignore[attr-defined]
    with pytest.raises(QuorumError, match="not a LoggedExperts"):
        collect(collected.logged, WORLD, trajectories=1)  # type: ignore[arg-type]


def test_experts_of_another_world_are_refused() -> None:
    weight: Any = np.zeros((2, 6, 3), np.float32)
    bias: Any = np.zeros((2, 3), np.float32)
    others = Population(observation_size=6, action_count=3, network=(Layer(weight, bias),))
    message = "see 6 numbers and have 3 actions, but CartPole.* shows 4 and takes 2"
    with pytest.raises(QuorumError, match=message):
        collect(others, WORLD, trajectories=1)
    with pytest.raises(QuorumError, match=message):
        collect_from_gymnasium(others, "CartPole-v1", trajectories=1, horizon=500)


@pytest.mark.parametrize("trajectories", [0, -1])
def test_no_trajectories_are_refused(collected: Collected, trajectories: int) -> None:
    with pytest.raises(QuorumError, match=f"trajectories is {trajectories}: give at least 1"):
        collect(collected.experts, WORLD, trajectories=trajectories)
    with pytest.raises(QuorumError, match=f"trajectories is {trajectories}: give at least 1"):
        collect_from_gymnasium(
            collected.experts, "CartPole-v1", trajectories=trajectories, horizon=500
        )


# Any Gymnasium environment


def short_cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=LIMIT)


@pytest.fixture(scope="module")
def from_gymnasium() -> Collected:
    experts = population(0, experts=3)
    log, logged = collect_from_gymnasium(
        experts, short_cartpole, trajectories=4, horizon=LIMIT, seed=2
    )
    return Collected(experts, log, logged)


def test_any_gymnasium_environment_can_be_collected_from(from_gymnasium: Collected) -> None:
    log = from_gymnasium.log
    np.testing.assert_array_equal(log.episodes.expert, np.repeat(np.arange(3), 4))
    np.testing.assert_array_equal(log.episodes.truncated, np.asarray(log.episodes.length) == LIMIT)
    assert log.episodes.terminated.any()
    assert log.episodes.truncated.any()
    assert_gymnasiums_steps(log)


def test_collecting_from_gymnasium_depends_on_the_seed(from_gymnasium: Collected) -> None:
    def again(seed: int) -> Demonstrations:
        return collect_from_gymnasium(
            from_gymnasium.experts, short_cartpole, trajectories=4, horizon=LIMIT, seed=seed
        )[0]

    assert_same(again(2), from_gymnasium.log)
    starts = {float(log.columns.observations[0, 0]) for log in (from_gymnasium.log, again(3))}
    assert len(starts) == 2


def test_a_log_from_gymnasium_does_not_depend_on_how_many_act_at_once(
    from_gymnasium: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = sys.modules[collect_from_gymnasium.__module__]  # its name is also a function's
    monkeypatch.setattr(room, "COPIES_AT_ONCE", 9)  # two experts, then the third
    one_by_one, _ = collect_from_gymnasium(
        from_gymnasium.experts,
        "CartPole-v1",
        {"max_episode_steps": LIMIT},
        trajectories=4,
        horizon=LIMIT,
        seed=2,
    )
    assert_same(one_by_one, from_gymnasium.log)
    assert one_by_one.declared.world_params == {"max_episode_steps": LIMIT}
    assert from_gymnasium.log.declared.world_params == {}


def test_an_expert_does_in_gymnasium_what_it_would_do_in_another_company(
    from_gymnasium: Collected,
) -> None:
    (layer,) = from_gymnasium.experts.network
    few = replace(from_gymnasium.experts, network=(Layer(layer.weight[:2], layer.bias[:2]),))
    log, _ = collect_from_gymnasium(few, short_cartpole, trajectories=4, horizon=LIMIT, seed=2)
    steps = int(np.sum(log.episodes.length))
    np.testing.assert_array_equal(log.columns.actions, from_gymnasium.log.columns.actions[:steps])
    np.testing.assert_array_equal(log.episodes.length, from_gymnasium.log.episodes.length[:8])


def test_actions_in_gymnasium_are_drawn_from_the_probabilities_that_a_query_returns() -> None:
    experts = population(1, experts=12)
    log, logged = collect_from_gymnasium(
        experts, short_cartpole, trajectories=20, horizon=LIMIT, seed=4
    )
    steps, expert = rows_of(log)
    queried = logged.probabilities(np.asarray(steps.observation))
    chance = queried[expert, np.arange(len(expert)), 1]
    took = np.asarray(steps.action) == 1
    variance = np.bincount(expert, chance * (1 - chance))
    # Given the past each action is a coin of its own chance, so each expert's surplus is near
    # normal. Fixed seed; another seed would fail with probability 1e-6.
    statistic = (np.bincount(expert, took - chance) ** 2 / variance).sum()
    assert stats.chi2.sf(statistic, len(variance)) > 1e-6
    # It would be noticed if experts had acted for one another.
    swapped = queried[(expert + 1) % 12, np.arange(len(expert)), 1]
    worst = np.bincount(expert, took - swapped) ** 2 / variance
    assert stats.chi2.sf(worst.sum(), len(variance)) < 1e-12


def test_an_episode_longer_than_the_declared_horizon_is_refused(from_gymnasium: Collected) -> None:
    with pytest.raises(QuorumError, match="declare the time limit"):
        collect_from_gymnasium(
            from_gymnasium.experts, short_cartpole, trajectories=4, horizon=8, seed=2
        )


def uniform_experts(count: int) -> CallableExperts:
    def uniform(observations: Any) -> Any:
        return np.full((len(observations), 2), 0.5)

    return CallableExperts([uniform] * count, observation_size=4, action_count=2)


def test_without_a_seed_starts_and_actions_are_new_every_time() -> None:
    """Two logs of 20 fair coins agree in all of them by chance once in a million runs."""
    params = with_params(WORLD, time_limit=5)
    first, second = (
        collect(uniform_experts(2), WORLD, params, trajectories=2)[0] for _ in range(2)
    )
    assert not np.array_equal(first.columns.observations, second.columns.observations)
    assert not np.array_equal(first.columns.actions, second.columns.actions)
    assert not first.declared.reproducible


def test_without_a_seed_gymnasium_starts_and_actions_are_new_every_time() -> None:
    """At least 30 fair coins each: they agree by chance once in a thousand million runs."""
    first, second = (
        collect_from_gymnasium(uniform_experts(2), "CartPole-v1", trajectories=2, horizon=500)[0]
        for _ in range(2)
    )
    assert not np.array_equal(first.columns.observations[:1], second.columns.observations[:1])
    shorter = min(len(first.columns.actions), len(second.columns.actions))
    assert shorter >= 30
    assert not np.array_equal(first.columns.actions[:shorter], second.columns.actions[:shorter])


def test_a_stack_of_settings_is_refused(collected: Collected) -> None:
    with pytest.raises(QuorumError, match="one world"):
        collect(collected.experts, WORLD, WORLD.settings(), trajectories=1)


def test_a_floor_that_an_expert_does_not_keep_stops_it_from_acting() -> None:
    def strays(states: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        return np.tile([0.99, 0.01], (len(states), 1))

    experts = CallableExperts([strays], observation_size=4, action_count=2, p_min=0.05)
    with pytest.raises(QuorumError, match=r"expert 0 .* below the declared floor p_min = 0\.05"):
        collect(experts, WORLD, default_params(), trajectories=1, seed=0)
