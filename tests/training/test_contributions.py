"""What experts contribute: steps of their own, gradients, or a last layer in closed form."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg
from standardising import STANDARDISING

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc, Cql, DenseLearner, Learner, Networks
from quorum_rl.nets import apply_hidden
from quorum_rl.training import mechanism
from quorum_rl.training.contributions import Gradient, Local, Solve, mean_gradient
from quorum_rl.training.data import ExpertData
from quorum_rl.training.mechanism import PrivateStep, sum_over_drawn
from quorum_rl.training.randomness import keys_of
from quorum_rl.types import Transition

KEY = jax.random.key(5)


@dataclass(frozen=True, kw_only=True)
class Shaken(Bc):
    """Cloning whose goal, and so whose gradient, depends on the key."""

    def goal(self, params: Networks, target: Networks, transition: Transition, key: Any) -> Any:
        del params, target, transition
        return jax.random.uniform(key)

    def loss_from_outputs(self, outputs: Any, goal: Any, transition: Transition) -> Any:
        return (1 + goal) * super().loss_from_outputs(outputs, None, transition)


def flat(tree: Any) -> Any:
    return np.concatenate(
        [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    )


SHAKEN = Shaken(hidden_sizes=(6, 5))


@pytest.fixture(scope="module", name="nets")
def _nets() -> Networks:
    return SHAKEN.init(jax.random.key(0), 3, 4)


def test_a_gradient_is_the_mean_of_all_gradients_with_a_key_for_each(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    nets: Networks,
    transitions: Callable[..., Transition],
) -> None:
    batch, keys = transitions(9, 12), jax.random.split(KEY, 12)
    cases: list[tuple[DenseLearner, Networks, Networks]] = [
        (learner, params, target),
        (SHAKEN, nets, {}),
    ]
    for one, at, slow in cases:
        gradient = jax.jit(partial(Gradient(transitions=12), one))(at, slow, batch, KEY)
        each = jax.jit(jax.vmap(jax.grad(one.loss), (None, None, 0, 0)))(at, slow, batch, keys)
        mean = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).mean(axis=0), each)
        np.testing.assert_allclose(flat(gradient), flat(mean), rtol=1e-5, atol=1e-6)


def test_one_local_step_is_the_gradient_times_the_rate(
    nets: Networks, transitions: Callable[..., Transition]
) -> None:
    batch = transitions(10, 7)
    local = Local(steps=1, batch_size=7, rate=0.3)
    went = jax.jit(partial(local, SHAKEN))(nets, {}, batch, KEY)
    own = jax.random.split(KEY, 1)[0]
    gradient = jax.jit(partial(Gradient(transitions=7), SHAKEN))(nets, {}, batch, own)
    np.testing.assert_allclose(flat(went), 0.3 * flat(gradient), rtol=1e-5, atol=2e-7)
    # With the key of another step it is another: the key does matter.
    other = jax.jit(partial(Gradient(transitions=7), SHAKEN))(nets, {}, batch, KEY)
    assert np.abs(flat(went) - 0.3 * flat(other)).max() > 1e-4


@pytest.mark.parametrize("steps", [2, 5])
def test_local_steps_are_plain_gradient_steps_each_on_its_own_transitions(
    steps: int, nets: Networks, transitions: Callable[..., Transition]
) -> None:
    size, rate = 4, 0.5
    batch = transitions(11, steps * size)
    went = jax.jit(partial(Local(steps=steps, batch_size=size, rate=rate), SHAKEN))(
        nets, {}, batch, KEY
    )
    gradient = jax.jit(partial(mean_gradient, SHAKEN))
    at: Any = nets
    for number, key in enumerate(jax.random.split(KEY, steps)):
        part = jax.tree.map(lambda leaf, at=number: leaf[at * size : (at + 1) * size], batch)
        at = jax.tree.map(lambda old, by: old - rate * by, at, gradient(at, {}, part, key))
    np.testing.assert_allclose(flat(went), flat(nets) - flat(at), rtol=1e-5, atol=2e-6)
    assert Local(steps=steps, batch_size=size).transitions == steps * size


def test_steps_and_gradients_train_everything(params: Networks, learner: DenseLearner) -> None:
    for contribution in (Local(), Gradient()):
        assert all(jax.tree.leaves(contribution.trained(learner, params)))


# A last layer in closed form


@pytest.mark.parametrize("actions", [2, 4])
@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_solve_is_ridge_regression_over_the_hidden_layer(
    actions: int, ridge: float, transitions: Callable[..., Transition]
) -> None:
    imitator = Bc(hidden_sizes=(6, 5), **STANDARDISING)
    nets = imitator.init(jax.random.key(1), 3, actions)
    batch = transitions(12, 50)
    batch = batch._replace(action=batch.action % actions)
    solve = Solve(transitions=50, ridge=ridge)
    made = jax.jit(partial(solve, imitator))(nets, {}, batch, KEY)
    seen = apply_hidden(nets["policy"], imitator.standardised(batch.observation), jax.nn.relu)
    features = np.column_stack([np.asarray(seen, np.float64), np.ones(50)])
    aims = np.where(np.eye(actions)[np.asarray(batch.action)] == 1, 1.0, -1 / (actions - 1))
    # As least squares: every feature once more, pulled to zero.
    more = np.vstack([features, np.sqrt(50 * ridge) * np.eye(features.shape[1])])
    found, *_ = linalg.lstsq(more, np.vstack([aims, np.zeros((features.shape[1], actions))]))
    *hidden, last = made["policy"]
    np.testing.assert_allclose(last.weight, -found[:-1], rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(last.bias, -found[-1], rtol=2e-3, atol=2e-4)
    assert not flat(hidden).any()
    assert jax.tree.map(bool, solve.trained(imitator, nets)) == {
        "policy": (
            *(type(last)(False, False) for _ in hidden),
            type(last)(True, True),
        )
    }


def test_solve_is_for_imitators(params: Networks) -> None:
    with pytest.raises(QuorumError, match=r"the learner of method solve .*: give bc"):
        Solve().trained(Cql(hidden_sizes=(16, 12)), params)
    with pytest.raises(QuorumError, match="give bc"):
        Solve().trained(object(), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        (Gradient, {"transitions": 0}, "transitions_per_expert is 0: give at least 1"),
        (Local, {"steps": 0}, "local_steps is 0"),
        (Local, {"batch_size": 0}, "transitions_per_expert is 0"),
        (Local, {"rate": 0.0}, "local_rate is 0.0: give a positive number"),
        (Local, {"rate": float("inf")}, "local_rate is inf"),
        (Solve, {"transitions": 0}, "transitions_per_expert is 0"),
        (Solve, {"ridge": 0.0}, "ridge is 0.0"),
    ],
)
def test_a_contribution_out_of_its_range_is_refused_by_name(
    kind: Any, wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(QuorumError, match=says):
        kind(**wrong)


class OneNumberForAll(Gradient):
    """A leaf of one number, which fits everywhere in a leaf of the parameters."""

    def __call__(
        self, learner: Learner, params: Any, target: Any, transitions: Transition, key: Any
    ) -> Any:
        made = super().__call__(learner, params, target, transitions, key)
        return jax.tree.map(jnp.sum, made)


def test_a_contribution_that_would_broadcast_past_its_clip_norm_is_refused(
    nets: Networks, transitions: Callable[..., Transition], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ExpertData(transitions(3, 12), jnp.asarray([0, 12]))
    step = PrivateStep(
        sampling_rate=1.0,
        clip_norm=1e-3,
        noise_multiplier=1.0,
        expected_batch=1.0,
        chunk=8,
        contribution=OneNumberForAll(transitions=12),
    )

    def norm_of_one_expert() -> float:
        drawn, keys = jnp.asarray([True]), keys_of(KEY)
        made = sum_over_drawn(SHAKEN, nets, {}, data, drawn, keys, step.numbers, step.shape)
        return float(np.linalg.norm(flat(made)))

    with pytest.raises(QuorumError, match="OneNumberForAll has other leaves or shapes"):
        norm_of_one_expert()

    def unchecked(contribution: Any, *told: Any) -> Any:
        return jax.tree.leaves(contribution(*told))

    monkeypatch.setattr(mechanism, "trained_leaves", unchecked)
    assert norm_of_one_expert() > 2 * step.units  # what it would have counted
