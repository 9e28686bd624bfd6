"""Which actions learners take, how targets follow, and how learners are named and configured."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.learners import (
    Bc,
    Bcq,
    Cql,
    DenseLearner,
    DoubleDqn,
    Learner,
    get_learner,
)

VALUES = jnp.array([[5.0, 4.0, 3.0], [1.0, 2.0, 3.0], [-9.0, -8.0, -7.0]])
LIKELIHOODS = jnp.array([[0.1, 0.3, 0.6], [0.50, 0.49, 0.01], [0.9, 0.05, 0.05]])


@pytest.mark.parametrize(
    ("threshold", "actions"),
    [
        (0.0, [0, 2, 2]),  # every action is allowed
        (0.05, [0, 1, 2]),  # 0.01/0.50 is not, 0.05/0.9 just is
        (0.3, [1, 1, 0]),  # 0.1/0.6 is not any more
        (0.55, [2, 1, 0]),  # nor is 0.3/0.6
        (0.99, [2, 0, 0]),  # only the likeliest are left
    ],
)
def test_bcq_takes_the_most_valuable_of_the_likely_actions(
    threshold: float, actions: list[int]
) -> None:
    # Logits may be shifted as a whole without a change.
    outputs = {"action_values": VALUES, "imitation": jnp.log(LIKELIHOODS) + 7.0}
    scores = Bcq(threshold=threshold).scores(outputs)
    assert scores.argmax(axis=-1).tolist() == actions


def test_one_observation_and_many_get_the_same_actions(learner: DenseLearner) -> None:
    params = learner.init(jax.random.key(0), 3, 4)
    observations = jax.random.normal(jax.random.key(1), (2, 5, 3))
    together = learner.act(params, observations)
    assert together.shape == (2, 5)
    assert together[1, 3] == learner.act(params, observations[1, 3])


@pytest.mark.parametrize(("interval", "rate"), [(1, 0.25), (3, 1.0), (2, 0.5)])
def test_a_target_moves_at_every_interval_by_its_rate(interval: int, rate: float) -> None:
    learner = Bcq(hidden_sizes=(2,), target_interval=interval, target_rate=rate)
    params = learner.init(jax.random.key(0), 3, 4)
    target = learner.init_target(learner.init(jax.random.key(1), 3, 4))
    update = jax.jit(learner.update_target)
    expected = np.asarray(target["action_values"][0].weight)
    for step in range(1, 7):
        target = update(params, target, jnp.int32(step))
        if step % interval == 0:
            expected = rate * np.asarray(params["action_values"][0].weight) + (1 - rate) * expected
        np.testing.assert_allclose(target["action_values"][0].weight, expected, rtol=1e-6)
    assert set(target) == {"action_values"}  # the likelihoods bootstrap from nothing


def test_a_rate_of_one_copies_bit_for_bit_and_leaves_the_parameters_free() -> None:
    learner = DoubleDqn(hidden_sizes=(2,), target_rate=1.0)
    params = learner.init(jax.random.key(0), 3, 4)
    others = learner.init_target(learner.init(jax.random.key(1), 3, 4))
    target = learner.update_target(params, others, jnp.int32(1))
    jax.tree.map(np.testing.assert_array_equal, target, params)
    # A compiled step may take over the memory of both, so they must not share any.
    step = jax.jit(lambda *both: jax.tree.map(lambda leaf: leaf + 1, both), donate_argnums=(0, 1))
    step(params, learner.init_target(params))


def test_what_standardises_observations_has_as_many_numbers_as_they() -> None:
    learner = Bc(observation_centre=(0.0, 1.0), observation_scale=(1.0, 2.0))
    with pytest.raises(QuorumError, match=r"^observation_centre is \(0.0, 1.0\): give 3 numbers"):
        learner.init(jax.random.key(0), 3, 4)


def test_learners_are_found_by_name() -> None:
    for name in ("cql", "bcq", "bc", "double-dqn"):
        learner: Learner = get_learner(name, hidden_sizes=(512,))
        assert isinstance(learner, Learner)
        assert isinstance(learner, DenseLearner)
        assert learner == get_learner(name, hidden_sizes=(512,))
        assert hash(learner) == hash(get_learner(name, hidden_sizes=(512,)))
        assert learner.hidden_sizes == (512,)
        assert get_learner(name).hidden_sizes == (64, 64)
    assert get_learner("bcq", threshold=0.1) == Bcq(threshold=0.1)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(QuorumError, match=r"unknown learner 'CLQ' \(did you mean cql\?\)"):
        get_learner("CLQ")
    with pytest.raises(QuorumError, match=r"hyper-parameter of cql 'alfa' \(did you mean alpha\?"):
        get_learner("cql", alfa=2.0)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Cql, {"alpha": -1.0}),
        (Cql, {"alpha": float("nan")}),
        (Bcq, {"threshold": 1.0}),
        (Bcq, {"threshold": -0.1}),
        (Bcq, {"logit_penalty": -0.1}),
        (DoubleDqn, {"huber_threshold": 0.0}),
        (Bc, {"discount": 1.1}),
        (Bc, {"target_interval": 0}),
        (Bc, {"target_rate": 0.0}),
        (Bc, {"target_rate": 1.5}),
        (Bc, {"hidden_sizes": (8, 0)}),
        (Bc, {"hidden_sizes": [8, 8]}),
        (Bc, {"observation_centre": [0.0, 1.0]}),
        (Bc, {"observation_centre": (0.0, float("inf"))}),
        (Cql, {"observation_scale": (1.0, 0.0)}),
        (Cql, {"observation_scale": (1.0, float("nan"))}),
        (Cql, {"observation_scale": (1.0, 2.0)}),  # without a centre
    ],
)
def test_a_hyper_parameter_out_of_range_is_named(
    kind: type[DenseLearner], wrong: dict[str, Any]
) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(QuorumError) as raised:
        kind(**wrong)
    assert str(raised.value).startswith(f"{name} is {value}: give ")
