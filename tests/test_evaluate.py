"""Greedy returns against Gymnasium, and statistics against SciPy."""

from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from quorum_rl.dictionary import Dictionary
from quorum_rl.envs import (
    AnyWorld,
    Facts,
    Spaces,
    Step,
    episode_returns,
    get_world,
    start,
    with_params,
    world_names,
)
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import (
    PROTOCOLS,
    Protocol,
    as_fraction_of,
    evaluation_params,
    greedy_policy,
    gymnasium_returns,
    interquartile_mean,
    paired_difference,
    policy_returns,
    returns_of,
    scores_of,
    summarise,
)
from quorum_rl.learners import Bc, DoubleDqn, Learner, Outputs
from quorum_rl.nets import Layer
from quorum_rl.pipeline import policy_of
from quorum_rl.pytree import pytree

CARTPOLE = get_world("CartPole")
LEARNER = Bc(hidden_sizes=())  # linear: two preferences for four numbers
EPISODES = 6
KEY = jax.random.key(3)

Floats = npt.NDArray[np.float64]


def _linear(right: tuple[float, ...]) -> Any:
    """Parameters that push right where the weighted sum of the observation is positive."""
    weight = jnp.stack([jnp.zeros(4), jnp.array(right, jnp.float32)], axis=1)
    return {"policy": (Layer(weight, jnp.zeros(2)),)}


def _stacked(policies: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *policies)


# One that never lets the pole fall, one that does after a while, one that does at once.
POLICIES = [_linear((0.1, 0.3, 5, 1)), _linear((0, 0, 1, 0)), _linear((1, 0, -1, 0))]


@pytest.fixture(scope="module")
def cartpole_returns() -> npt.NDArray[np.float32]:
    return returns_of(LEARNER, _stacked(POLICIES), CARTPOLE, None, KEY, EPISODES)


# --- in a world ---


def _gymnasium_return(weight: Floats, first: Floats) -> float:
    """One episode of Gymnasium's own CartPole from the state `first`, step by step."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=1000)
    env.reset(seed=0)
    plant: Any = env.unwrapped
    plant.state = first
    observation, total, done = first, 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(int(observation @ weight > 0))
        total += float(reward)
        done = terminated or truncated
    return total


@pytest.mark.parametrize("run", range(len(POLICIES)))
def test_returns_are_those_of_gymnasium_from_the_same_starts(
    cartpole_returns: npt.NDArray[np.float32], run: int
) -> None:
    start_key, _ = jax.random.split(jax.random.fold_in(KEY, run))
    starts = start(CARTPOLE, start_key, evaluation_params(CARTPOLE), EPISODES).observation
    weight = np.asarray(POLICIES[run]["policy"][0].weight[:, 1], np.float64)
    expected = [_gymnasium_return(weight, np.asarray(start, np.float64)) for start in starts]
    np.testing.assert_array_equal(cartpole_returns[run], expected)


def test_the_three_policies_differ(cartpole_returns: npt.NDArray[np.float32]) -> None:
    means = cartpole_returns.mean(axis=1)
    assert means[0] == 1000  # the time limit for evaluation, not the 200 of demonstrations
    assert means[1] < 100
    assert means[2] < 20


@partial(jax.jit, static_argnums=(0, 1, 4))
def _alone(
    learner: Learner, world: AnyWorld, trained: Any, key: jax.Array, episodes: int
) -> jax.Array:
    return episode_returns(world, lambda _, seen: learner.act(trained, seen), key, episodes)


def test_all_at_once_equals_one_by_one(cartpole_returns: npt.NDArray[np.float32]) -> None:
    for run, trained in enumerate(POLICIES):
        alone = _alone(LEARNER, CARTPOLE, trained, jax.random.fold_in(KEY, run), EPISODES)
        np.testing.assert_array_equal(cartpole_returns[run], alone)


@pytree
class WalkParams:
    noise: float
    time_limit: int


class WalkState(NamedTuple):
    time: jax.Array
    position: jax.Array


@dataclass(frozen=True)
class Walk:
    """A noisy walk that ends above one, and pays what it gains: every step is random."""

    name: ClassVar[str] = "Walk"
    spaces: ClassVar[Spaces] = Spaces(("position",), (-9.0,), (9.0,), ("down", "up"))
    facts: ClassVar[Facts] = Facts(0.0, "a guess", 1.0, "a guess", 5, 5)

    def default_params(self) -> WalkParams:
        return WalkParams(noise=1.0, time_limit=5)

    def settings(self) -> WalkParams:
        return WalkParams(noise=np.ones(2), time_limit=np.full(2, 5))  # type: ignore[arg-type]

    def reset(self, key: jax.Array, params: WalkParams) -> tuple[WalkState, jax.Array]:
        del params
        position = jax.random.uniform(key, (1,), minval=-2)
        return WalkState(jnp.zeros((), jnp.int32), position), position

    def step(
        self, key: jax.Array, state: WalkState, action: jax.Array, params: WalkParams
    ) -> Step[WalkState]:
        gain = 0.1 * (2 * action - 1) + params.noise * jax.random.uniform(key, (1,), minval=-1)
        moved = WalkState(state.time + 1, state.position + gain)
        ended = moved.position[0] > 1
        return Step(moved, moved.position, gain[0], ended, moved.time >= params.time_limit)


def test_a_random_world_plays_the_same_episodes_all_at_once_and_one_by_one() -> None:
    learner = DoubleDqn(hidden_sizes=(3,))
    trained = jax.vmap(lambda key: learner.init(key, 1, 2))(jax.random.split(KEY, 3))
    together = returns_of(learner, trained, Walk(), None, KEY, 50)
    for run in range(3):
        own = jax.tree.map(itemgetter(run), trained)
        # The first episodes are the same however many there are.
        alone = _alone(learner, Walk(), own, jax.random.fold_in(KEY, run), 20)
        np.testing.assert_allclose(together[run, :20], alone, rtol=1e-5, atol=1e-6)
    assert len(np.unique(together)) == together.size  # every run has episodes of its own


def test_the_key_decides_everything(cartpole_returns: npt.NDArray[np.float32]) -> None:
    stacked = _stacked(POLICIES)
    again = returns_of(LEARNER, stacked, CARTPOLE, None, KEY, EPISODES)
    np.testing.assert_array_equal(again, cartpole_returns)
    other = returns_of(LEARNER, stacked, CARTPOLE, None, jax.random.key(4), EPISODES)
    assert (other != cartpole_returns).any()


def test_a_given_setting_brings_its_own_time_limit() -> None:
    params = with_params(CARTPOLE, time_limit=30)
    found = returns_of(LEARNER, _stacked(POLICIES), CARTPOLE, params, KEY, EPISODES)
    assert (found[0] == 30).all()
    assert found[2].max() < 30


@pytest.mark.parametrize(
    ("params", "episodes", "says"),
    [(None, 0, "episodes is 0"), (CARTPOLE.settings(), 2, "stack of settings")],
)
def test_what_cannot_be_evaluated_is_refused(params: Any, episodes: int, says: str) -> None:
    with pytest.raises(QuorumError, match=says):
        returns_of(LEARNER, _stacked(POLICIES), CARTPOLE, params, KEY, episodes)


# --- in Gymnasium ---


def test_gymnasium_returns_are_those_gymnasium_records() -> None:
    made: list[RecordEpisodeStatistics[Any, Any]] = []

    def recorded() -> gymnasium.Env[Any, Any]:
        made.append(RecordEpisodeStatistics(gymnasium.make("CartPole-v1", max_episode_steps=50)))
        return made[-1]

    policy = greedy_policy(LEARNER, POLICIES[1])
    found = gymnasium_returns(policy, recorded, episodes=7, copies=3, seed=5)
    counted = [total for env in made for total in env.return_queue]
    assert sorted(found) == sorted(counted)
    again = gymnasium_returns(policy, recorded, episodes=7, copies=2, seed=5)
    np.testing.assert_array_equal(found, again)


# --- scores ---


@pytest.mark.parametrize("name", world_names())
def test_a_random_policy_scores_0_and_the_reference_1(name: str) -> None:
    world = get_world(name)
    ends = np.array([world.facts.random_return, world.facts.reference_return])
    returns = ends[:, None] + np.array([-3.0, 0.0, 3.0])  # episodes around these means
    np.testing.assert_allclose(scores_of(world, returns), [0, 1], atol=1e-9)


def test_a_fraction_of_the_baseline_is_1_for_the_baseline_itself() -> None:
    baseline = np.array([0.7, 0.9])
    assert as_fraction_of(baseline, baseline).mean() == pytest.approx(1)
    np.testing.assert_allclose(as_fraction_of(np.array([0.4, 0.0]), baseline), [0.5, 0])
    with pytest.raises(QuorumError, match="no better than a random policy"):
        as_fraction_of(baseline, np.array([0.1, -0.3]))


# --- summaries ---

SCORES = arrays(
    np.float64,
    st.integers(2, 30),
    elements=st.floats(-100, 100, allow_subnormal=False).map(lambda x: round(x, 6)),
)


@given(SCORES)
def test_the_interquartile_mean_is_scipys_trimmed_mean(scores: Floats) -> None:
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25), abs=1e-9)


def test_the_mean_has_scipys_student_interval() -> None:
    scores = np.random.default_rng(0).normal(2, 3, 7)
    found = summarise(scores)
    expected = stats.ttest_1samp(scores, 0).confidence_interval(0.95)
    assert found.seeds == 7
    assert found.mean == pytest.approx(scores.mean())
    assert found.mean_interval is not None
    assert found.mean_interval.low == pytest.approx(expected.low)
    assert found.mean_interval.high == pytest.approx(expected.high)


def test_a_paired_difference_has_scipys_interval_for_related_samples() -> None:
    rng = np.random.default_rng(1)
    seeds = rng.normal(0, 5, 6)  # what both methods have in common
    ours, theirs = seeds + 1 + rng.normal(0, 0.1, 6), seeds + rng.normal(0, 0.1, 6)
    found = paired_difference(ours, theirs).mean_interval
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.low > 0


def test_the_bootstrap_interval_is_about_scipys() -> None:
    scores = np.random.default_rng(2).exponential(size=40)
    found = summarise(scores).interquartile_interval
    expected = stats.bootstrap(
        (scores,),
        lambda drawn, axis: stats.trim_mean(drawn, 0.25, axis=axis),
        method="percentile",
        n_resamples=5000,
        rng=np.random.default_rng(3),
    ).confidence_interval
    assert found is not None
    # Two bootstraps of one sample: their ends differ by about 3% of the width.
    assert (found.low, found.high) == pytest.approx(
        (expected.low, expected.high), abs=0.1 * (expected.high - expected.low)
    )


def test_seeds_are_redrawn_within_their_world() -> None:
    # Worlds of different difficulty but without chance: redrawing across them would be wide.
    found = summarise([[0.0] * 5, [1.0] * 5, [5.0] * 5]).interquartile_interval
    assert found is not None
    assert (
        found.low == found.high == pytest.approx(stats.trim_mean([0] * 5 + [1] * 5 + [5] * 5, 0.25))
    )


def test_worlds_are_averaged_seed_by_seed() -> None:
    table = np.random.default_rng(4).normal(size=(3, 8))
    found = summarise(table)
    alone = summarise(table.mean(axis=0))
    assert found.mean == pytest.approx(alone.mean)
    assert found.mean_interval is not None
    assert alone.mean_interval is not None
    assert found.mean_interval.low == pytest.approx(alone.mean_interval.low)
    assert found == summarise(table)  # the bootstrap's seed is fixed


def test_one_seed_has_no_interval() -> None:
    found = summarise([0.5])
    assert (found.mean, found.interquartile_mean) == (0.5, 0.5)
    assert found.mean_interval is None
    assert found.interquartile_interval is None


def test_scores_that_cannot_be_summarised_are_refused() -> None:
    with pytest.raises(QuorumError, match="1 of 2 scores are not finite"):
        summarise([1.0, np.nan])
    with pytest.raises(QuorumError, match="shape"):
        summarise([])
    with pytest.raises(QuorumError, match="same seeds"):
        paired_difference([1.0, 2.0], [1.0, 2.0, 3.0])


# --- protocols ---


def test_the_papers_protocol_evaluates_ten_times_over_the_last_10000_steps() -> None:
    paper = PROTOCOLS["paper"]
    assert paper.steps(40_000) == tuple(range(31_000, 40_001, 1000))
    assert paper.steps(2000) == tuple(range(1100, 2001, 100))  # shorter: over its last half
    assert paper.steps(3) == (2, 3)
    assert paper.steps(1) == (1,)
    assert PROTOCOLS["final"].steps(40_000) == (40_000,)


@given(st.integers(1, 50), st.integers(1, 200), st.integers(1, 300))
def test_evaluations_are_evenly_spaced_and_end_with_training(
    evaluations: int, last_steps: int, training_steps: int
) -> None:
    steps = Protocol(evaluations, last_steps).steps(training_steps)
    window = min(last_steps, (training_steps + 1) // 2)
    assert steps[-1] == training_steps
    assert steps[0] > training_steps - window
    assert len(steps) == min(evaluations, window)
    gaps = np.diff((training_steps - window, *steps))
    assert gaps.min() >= 1
    assert gaps.max() - gaps.min() <= 1


def test_a_protocol_averages_the_scores_of_each_run() -> None:
    paper = PROTOCOLS["paper"]
    scores = np.random.default_rng(5).normal(size=(10, 3))
    np.testing.assert_allclose(paper.average(list(scores)), scores.mean(axis=0))
    with pytest.raises(QuorumError, match="11 evaluations"):
        paper.average([*scores, scores[0]])


class Coded(Bc):
    """The same, but that its policies act by code."""

    def scores(self, outputs: Outputs) -> jax.Array:
        return super().scores(outputs)


def test_a_policy_that_acts_by_code_earns_what_the_same_networks_do() -> None:
    world, key = get_world("Pendulum"), jax.random.key(0)
    sizes, bounds = (3, 1), world.spaces.action_bounds
    params = Bc(hidden_sizes=(4,), action_bounds=bounds).init(key, *sizes)
    by_data, by_code = (
        policy_of(
            kind(hidden_sizes=(4,), action_bounds=bounds),
            params,
            dictionary=Dictionary(action_bounds=bounds),
            sizes=sizes,
        )
        for kind in (Bc, Coded)
    )
    assert by_code.by_code is not None
    earned = policy_returns(by_data, world, key, 3)
    np.testing.assert_allclose(policy_returns(by_code, world, key, 3), earned, rtol=1e-4)
