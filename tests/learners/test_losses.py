"""Losses and gradients against the papers' formulas in NumPy and double precision.

The NumPy side takes one transition at a time, with loops and indices where the library has masks,
and its gradients are finite differences.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from quorum_rl.learners import Bc, Bcq, Cql, DenseLearner, DoubleDqn, Networks
from quorum_rl.learners.losses import bootstrapped_return, huber, of_action
from quorum_rl.types import Transition

Vector: TypeAlias = npt.NDArray[np.float64]
Nets: TypeAlias = dict[str, list[tuple[Vector, Vector]]]


def forward(net: list[tuple[Vector, Vector]], x: Vector) -> Vector:
    for weight, bias in net[:-1]:
        x = np.maximum(x @ weight + bias, 0)
    return x @ net[-1][0] + net[-1][1]


def numpy_softmax(logits: Vector) -> Vector:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def numpy_huber(error: float, threshold: float) -> float:
    if abs(error) <= threshold:
        return 0.5 * error**2
    return threshold * (abs(error) - 0.5 * threshold)


def numpy_greedy(learner: DenseLearner, nets: Nets, x: Vector) -> int:
    if isinstance(learner, Bc):
        return int(np.argmax(numpy_softmax(forward(nets["policy"], x))))
    values = forward(nets["action_values"], x)
    allowed = list(range(len(values)))
    if isinstance(learner, Bcq):
        likelihoods = numpy_softmax(forward(nets["imitation"], x))
        allowed = [a for a in allowed if likelihoods[a] / likelihoods.max() > learner.threshold]
    return max(allowed, key=lambda action: values[action])


def numpy_goal(learner: DenseLearner, nets: Nets, target: Nets, row: Any) -> float:
    """What the logged action's value is pulled towards; behaviour cloning does not look at it."""
    if row.terminated or isinstance(learner, Bc):
        return scale_of(learner) * float(row.reward)
    action = numpy_greedy(learner, nets, row.next_observation)
    next_value = forward(target["action_values"], row.next_observation)[action]
    return float(scale_of(learner) * row.reward + learner.discount * next_value)


def scale_of(learner: DenseLearner) -> float:
    return learner.reward_scale if isinstance(learner, DoubleDqn) else 1.0


def numpy_loss(learner: DenseLearner, nets: Nets, goal: float, row: Any) -> float:
    if isinstance(learner, Bc):
        return float(-np.log(numpy_softmax(forward(nets["policy"], row.observation))[row.action]))
    assert isinstance(learner, DoubleDqn)
    values = forward(nets["action_values"], row.observation)
    total = numpy_huber(values[row.action] - goal, learner.huber_threshold)
    if isinstance(learner, Cql):
        total += learner.alpha * float(np.log(np.exp(values).sum()) - values[row.action])
    if isinstance(learner, Bcq):
        logits = forward(nets["imitation"], row.observation)
        total -= float(np.log(numpy_softmax(logits)[row.action]))
        total += learner.logit_penalty * float(np.mean(logits**2))
    return total


def in_numpy(networks: Networks) -> Nets:
    return {
        name: [
            (np.array(weight, np.float64), np.array(bias, np.float64)) for weight, bias in network
        ]
        for name, network in networks.items()
    }


def rows_of(learner: DenseLearner, batch: Transition) -> list[Transition]:
    """The transitions one by one, as the networks see them."""
    columns = Transition(*(np.asarray(column, np.float64) for column in batch))  # type: ignore[arg-type]
    centre = np.array(learner.observation_centre or (0, 0, 0))
    scale = np.array(learner.observation_scale or (1, 1, 1))
    seen = columns._replace(
        observation=(columns.observation - centre) / scale,
        next_observation=(columns.next_observation - centre) / scale,
        action=np.asarray(batch.action),  # type: ignore[arg-type]
    )
    return [Transition(*values) for values in zip(*seen, strict=True)]


@pytest.fixture(scope="module")
def keys(batch: Transition) -> jax.Array:
    return jax.random.split(jax.random.key(9), len(batch.reward))


def networks_and_target(learner: DenseLearner) -> tuple[Networks, Networks]:
    """Parameters, and a target that is not their copy."""
    params, others = (learner.init(jax.random.key(seed), 3, 4) for seed in (0, 1))
    return params, learner.init_target(others)


def test_every_loss_is_the_formula_of_its_paper(
    learner: DenseLearner, batch: Transition, keys: jax.Array
) -> None:
    params, target = networks_and_target(learner)
    losses = jax.jit(jax.vmap(learner.loss, (None, None, 0, 0)))(params, target, batch, keys)
    nets, slow = in_numpy(params), in_numpy(target)
    expected = [
        numpy_loss(learner, nets, numpy_goal(learner, nets, slow, row), row)
        for row in rows_of(learner, batch)
    ]
    np.testing.assert_allclose(losses, expected, rtol=2e-6, atol=2e-6)


def test_every_gradient_is_the_finite_difference_of_the_formula(
    learner: DenseLearner, batch: Transition, keys: jax.Array
) -> None:
    params, target = networks_and_target(learner)

    def mean_loss(params: Networks) -> jax.Array:
        return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, batch, keys).mean()

    gradient = jax.jit(jax.grad(mean_loss))(params)
    nets, rows = in_numpy(params), rows_of(learner, batch)
    # The goals are constants: they are computed before any parameter is moved.
    goals = [numpy_goal(learner, nets, in_numpy(target), row) for row in rows]

    def numpy_mean_loss() -> float:
        pairs = zip(goals, rows, strict=True)
        return sum(numpy_loss(learner, nets, goal, row) for goal, row in pairs) / len(rows)

    for ours, array in zip(jax.tree.leaves(gradient), jax.tree.leaves(nets), strict=True):
        differences = np.empty_like(array)
        for index in np.ndindex(array.shape):
            before = array[index]
            array[index] = before + 1e-6
            above = numpy_mean_loss()
            array[index] = before - 1e-6
            differences[index] = (above - numpy_mean_loss()) / 2e-6
            array[index] = before
        np.testing.assert_allclose(ours, differences, rtol=1e-5, atol=1e-6)


def test_a_truncated_transition_bootstraps_and_a_terminated_one_does_not(
    batch: Transition, keys: jax.Array
) -> None:
    learner = DoubleDqn(hidden_sizes=(8,), discount=0.9)
    params, target = networks_and_target(learner)
    everything = jnp.ones_like(batch.terminated)

    def goals(terminated: jax.Array, truncated: jax.Array) -> npt.NDArray[np.float32]:
        ended = batch._replace(terminated=terminated, truncated=truncated)
        return np.asarray(jax.vmap(learner.goal, (None, None, 0, 0))(params, target, ended, keys))

    going_on = goals(~everything, ~everything)
    assert np.all(np.abs(going_on - batch.reward) > 1e-3)
    np.testing.assert_array_equal(goals(~everything, everything), going_on)
    np.testing.assert_array_equal(goals(everything, ~everything), batch.reward)
    np.testing.assert_array_equal(goals(everything, everything), batch.reward)


def test_what_follows_a_termination_cannot_spoil_the_goal(batch: Transition) -> None:
    last = jax.tree.map(lambda column: column[0], batch)
    assert last.terminated
    assert bootstrapped_return(last, jnp.float32(np.nan), 0.9) == last.reward


@pytest.mark.parametrize("error", [0.0, 0.3, -0.5, 0.5, 2.0, -1e30])
def test_the_slope_of_huber_is_the_error_up_to_the_threshold(error: float) -> None:
    value, slope = jax.value_and_grad(huber)(jnp.float32(error), 0.5)
    assert value == pytest.approx(numpy_huber(error, 0.5), rel=1e-6)
    assert slope == pytest.approx(max(-0.5, min(0.5, error)), rel=1e-6)


def test_the_entry_of_an_action_is_the_indexed_one() -> None:
    values = jnp.array([[1.0, -jnp.inf, 3.0], [4.0, 5.0, 6.0]])
    np.testing.assert_array_equal(jax.vmap(of_action)(values, jnp.array([2, 0])), [3.0, 4.0])
