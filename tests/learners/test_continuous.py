"""Continuous actions: the losses, what they lead to, and who may learn them."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dosing import BOUNDS, right
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from quorum_rl.errors import QuorumError
from quorum_rl.learners import (
    Bc,
    BcGaussian,
    Cql,
    DenseLearner,
    Iql,
    Networks,
    Td3Bc,
    apply_network,
    get_learner,
    within_bounds,
)
from quorum_rl.learners.bc_gaussian import LEAST_LOG, MOST_LOG
from quorum_rl.types import Transition

Train: TypeAlias = Callable[[DenseLearner, Transition, int], Networks]

ROWS: Final = 40
SMALL: Final[dict[str, Any]] = {"hidden_sizes": (8, 6), "action_bounds": BOUNDS}
KINDS: Final = (Bc, BcGaussian, Td3Bc, Iql)


@pytest.fixture(scope="module")
def doses() -> Transition:
    """Steps that are right, up to noise, and earn the less the further off they are."""
    rng = np.random.default_rng(5)
    seen, after = rng.uniform(-1, 1, (2, ROWS, 1)).astype(np.float32)
    low, high = np.array(BOUNDS).T
    done = np.clip(right(seen) + rng.normal(0, 0.3, (ROWS, 2)), low, high).astype(np.float32)
    reward = -np.abs(done - right(seen)).sum(axis=1)
    ends = np.arange(ROWS) % 3 == 0
    return Transition(*map(jnp.asarray, (seen, done, reward, after, ends, ~ends)))


def made(kind: type[DenseLearner], **chosen: Any) -> tuple[DenseLearner, Networks, Networks]:
    learner = kind(**SMALL | chosen)
    params, others = (learner.init(jax.random.key(seed), 1, 2) for seed in (0, 1))
    return learner, params, learner.init_target(others)


def losses(learner: DenseLearner, params: Networks, target: Networks, seen: Transition) -> Any:
    keys = jax.random.split(jax.random.key(2), len(seen.reward))
    return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, seen, keys)


def squashed(params: Networks, seen: Transition) -> Any:
    return np.tanh(apply_network(params["policy"], seen.observation))


def in_units(seen: Transition) -> Any:
    low, high = np.array(BOUNDS).T
    return (np.asarray(seen.action) - (low + high) / 2) / ((high - low) / 2)


def test_imitation_is_the_mean_square_between_actions_in_units_of_their_bounds(
    doses: Transition,
) -> None:
    learner, params, target = made(Bc)
    wanted = np.square(squashed(params, doses) - in_units(doses)).mean(axis=1)
    np.testing.assert_allclose(losses(learner, params, target, doses), wanted, rtol=1e-5)


def test_gaussian_imitation_weighs_scipys_density_by_its_spread(doses: Transition) -> None:
    learner, params, target = made(BcGaussian)
    log_spread = np.asarray(apply_network(params["log_spread"], doses.observation))
    spread = np.exp(np.clip(log_spread, LEAST_LOG, MOST_LOG))
    density = norm.logpdf(in_units(doses), squashed(params, doses), spread)
    wanted = -(spread * density).mean(axis=1) / 5
    np.testing.assert_allclose(losses(learner, params, target, doses), wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@given(scale=st.floats(0.1, 50), shift=st.floats(-20, 20))
@settings(max_examples=5, deadline=None, derandomize=True)
def test_bounds_are_units_and_nothing_else(
    kind: type[DenseLearner], doses: Transition, scale: float, shift: float
) -> None:
    """In other units of the actions, losses are the same and actions are in those units."""
    learner, params, target = made(kind)
    bounds = tuple((scale * low + shift, scale * high + shift) for low, high in BOUNDS)
    moved = kind(**SMALL | {"action_bounds": bounds})
    seen = doses._replace(action=scale * doses.action + shift)
    found, wanted = (
        losses(one, params, target, log) for one, log in ((moved, seen), (learner, doses))
    )
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-3)
    acted = scale * learner.act(params, doses.observation) + shift
    np.testing.assert_allclose(
        moved.act(params, doses.observation), acted, atol=1e-5 * (scale + abs(shift))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_actions_lie_within_their_bounds_whatever_the_parameters(kind: type[DenseLearner]) -> None:
    learner, params, _ = made(kind)
    large = jax.tree.map(lambda leaf: 1e3 * leaf, params)
    acted = np.asarray(learner.act(large, jnp.linspace(-1e3, 1e3, 50)[:, None]))
    low, high = np.array(BOUNDS, np.float32).T
    assert acted.shape == (50, 2)
    assert ((acted >= low) & (acted <= high)).all()
    np.testing.assert_array_equal(within_bounds(jnp.array([[-1.0, 1.0]]), BOUNDS), [[-2.0, 1.0]])


@pytest.mark.parametrize("kind", [Td3Bc, Iql])
def test_no_gradient_of_the_policys_part_reaches_the_critics(
    kind: type[DenseLearner], doses: Transition
) -> None:
    """Whatever the policy's part weighs, critics are pulled towards their targets alone."""
    chosen = {"alpha": 0.0} if kind is Td3Bc else {"temperature": 0.0}
    gradients = []
    for settled in ({}, chosen):
        learner, params, target = made(kind, **settled)

        def mean(params: Networks, learner: Any = learner, target: Any = target) -> Any:
            return losses(learner, params, target, doses).mean()

        gradients.append(jax.grad(mean)(params))
    usual, without = gradients
    for name in ("first_critic", "second_critic"):
        jax.tree.map(np.testing.assert_array_equal, usual[name], without[name])
    differs = jax.tree.map(lambda a, b: not np.array_equal(a, b), usual, without)
    assert any(jax.tree.leaves(differs["policy"]))


@pytest.mark.parametrize(
    ("kind", "chosen", "times"), [(Td3Bc, {"alpha": 0.0}, 1.0), (Iql, {"temperature": 0.0}, 0.5)]
)
def test_without_values_the_policy_imitates(
    kind: type[DenseLearner], chosen: dict[str, Any], times: float, doses: Transition
) -> None:
    """IQL's loss has half the sum over the numbers of an action: with two of them, the mean."""
    learner, params, target = made(kind, **chosen)
    imitator, _, _ = made(Bc)
    only = {"policy": params["policy"]}
    wanted = jax.grad(lambda some: losses(imitator, some, {}, doses).mean())(only)
    found = jax.grad(lambda some: losses(learner, some, target, doses).mean())(params)
    scaled = jax.tree.map(lambda leaf: times * 2 * leaf if kind is Iql else leaf, wanted["policy"])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        found["policy"],
        scaled,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_all_learn_what_experts_do(
    kind: type[DenseLearner], doses: Transition, train: Train
) -> None:
    learner = kind(**SMALL)
    params = train(learner, doses, 2)
    seen = np.linspace(-0.9, 0.9, 30, dtype=np.float32)[:, None]
    off = np.abs(np.asarray(learner.act(params, jnp.asarray(seen))) - right(seen)).mean(axis=0)
    assert (off < [0.4, 0.15]).all(), off


def test_values_prefer_what_earned_more_where_imitation_does_not(train: Train) -> None:
    """Half of the actions were -0.5 and earned 0, half 0.5 and earned 1."""
    done = np.tile([[-0.5], [0.5]], (20, 1)).astype(np.float32)
    one = np.ones((40, 1), np.float32)
    log = Transition(
        *map(jnp.asarray, (one, done, (done[:, 0] > 0) * 1.0, one, one[:, 0] > 0, one[:, 0] < 0))
    )
    acted = {}
    for kind in KINDS:
        learner = kind(hidden_sizes=(8, 6), action_bounds=((-1.0, 1.0),))
        acted[kind] = float(learner.act(train(learner, log, 1), jnp.ones(1))[0])
    assert abs(acted[Bc]) < 0.05
    assert abs(acted[BcGaussian]) < 0.05
    assert acted[Iql] > 0.25
    assert acted[Td3Bc] > 0.25


def test_who_learns_which_actions() -> None:
    for kind in KINDS:
        kind(action_bounds=BOUNDS).check_actions(BOUNDS)
    Bc().check_actions(())
    with pytest.raises(QuorumError, match="cql learns finite actions, and these are continuous"):
        Cql().check_actions(BOUNDS)
    with pytest.raises(QuorumError, match="iql learns continuous actions, and these are finite"):
        Iql().check_actions(())
    with pytest.raises(QuorumError, match=r"bc was made for action_bounds \(\), but \(\(-2\.0"):
        Bc().check_actions(BOUNDS)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("td3-bc", {"alpha": -1.0}),
        ("td3-bc", {"target_noise": float("nan")}),
        ("iql", {"expectile": 1.0}),
        ("iql", {"temperature": -0.1}),
        ("iql", {"most_weight": 0.0}),
        ("iql", {"reward_scale": 0.0}),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(name: str, chosen: dict[str, float]) -> None:
    with pytest.raises(QuorumError, match=next(iter(chosen))):
        get_learner(name, **chosen)
