"""Policies of continuous actions: in NumPy, in files and in onnxruntime, as their learner acts."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dosing import BOUNDS

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc, BcGaussian, DenseLearner, Iql, Td3Bc
from quorum_rl.nets import Layer
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy

NAMED = Dictionary((Column("x"), Column("y", fill=0.5, low=-4, high=4)), ("dose", "flow"), BOUNDS)
LAYER = (Layer(np.ones((2, 2), np.float32), np.zeros(2, np.float32)),)


def trained(kind: type[DenseLearner]) -> tuple[DenseLearner, Policy]:
    learner = kind(
        hidden_sizes=(8,),
        action_bounds=BOUNDS,
        observation_centre=(1.0, -1.0),
        observation_scale=(2.0, 0.5),
    )
    params = jax.tree.map(lambda leaf: 3 * leaf, learner.init(jax.random.key(0), 2, 2))
    return learner, policy_of(learner, params, dictionary=NAMED)


@pytest.fixture
def seen() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 2, (200, 2)).clip(-4, 4).astype(np.float32)


@pytest.mark.parametrize("kind", [Bc, BcGaussian, Td3Bc, Iql])
def test_a_policy_acts_as_its_learner_and_as_its_files(
    kind: type[DenseLearner], seen: np.ndarray, tmp_path: Path
) -> None:
    learner, policy = trained(kind)
    params = jax.tree.map(lambda leaf: 3 * leaf, learner.init(jax.random.key(0), 2, 2))
    acted = policy.act(seen)
    assert acted.dtype == np.float32
    assert acted.shape == (200, 2)
    np.testing.assert_allclose(acted, learner.act(params, jnp.asarray(seen)), atol=1e-5)
    np.testing.assert_array_equal(policy.action_numbers(seen), acted)
    np.testing.assert_array_equal(policy.act({"x": seen[:, 0], "y": seen[:, 1]}), acted)
    assert policy.act(seen[0]).shape == (2,)
    policy.save(tmp_path / "policy.safetensors")
    again = Policy.load(tmp_path / "policy.safetensors")
    assert again.dictionary == NAMED
    assert again.continuous
    np.testing.assert_array_equal(again.act(seen), acted)


def test_onnxruntime_gives_the_same_actions_and_the_model_says_their_bounds(
    seen: np.ndarray, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    _, policy = trained(Bc)
    policy.to_onnx(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    assert [output.name for output in session.get_outputs()] == ["actions"]
    missing = seen.copy()
    missing[0, 1] = np.nan  # for which 0.5 stands
    (actions,) = session.run(None, {"observations": missing})
    np.testing.assert_allclose(actions, policy.act(missing), atol=1e-6)
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["action_bounds"] == "[[-2.0, 2.0], [0.0, 1.0]]"
    assert facts["action_labels"] == '["dose", "flow"]'


def test_actions_never_leave_their_bounds(seen: np.ndarray) -> None:
    _, policy = trained(Bc)
    large = tuple(
        Layer(1e6 * layer.weight, 1e6 * layer.bias) for layer in policy.networks["policy"]
    )
    acted = replace(policy, networks={"policy": large}).act(seen)
    low, high = np.array(BOUNDS, np.float32).T
    assert ((acted >= low) & (acted <= high)).all()
    assert {*acted[:, 0].tolist()} <= {-2.0, 2.0}


def test_what_a_continuous_policy_cannot_be_or_say(seen: np.ndarray) -> None:
    with pytest.raises(QuorumError, match="by the highest output or by squashed ones"):
        Policy(networks={"policy": LAYER}, learner="bc")
    with pytest.raises(QuorumError, match="where its dictionary has action_bounds"):
        Policy(networks={"policy": LAYER}, squashed="policy", learner="bc")
    with pytest.raises(QuorumError, match="where its dictionary has action_bounds"):
        Policy(networks={"policy": LAYER}, highest="policy", learner="bc", dictionary=NAMED)
    with pytest.raises(QuorumError, match="1 numbers of an action have bounds, but action_count 2"):
        Policy(
            networks={"policy": LAYER},
            squashed="policy",
            learner="bc",
            dictionary=Dictionary(action_bounds=((0.0, 1.0),)),
        )
    with pytest.raises(QuorumError, match="continuous and have no numbers: ask act"):
        trained(Bc)[1].values(seen)


@pytest.mark.parametrize(
    "bounds", [((1.0, 1.0),), ((2.0, 1.0),), ((0.0, float("nan")),), ((-3e38, 3e38),)]
)
def test_bounds_that_are_none_are_refused(bounds: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(QuorumError, match="number 0 of an action"):
        Dictionary(action_bounds=bounds)
