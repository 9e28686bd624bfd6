"""An exported policy takes the same actions in onnxruntime."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from policies import (
    LEARNERS,
    network_of,
    random_observations,
    random_params,
    values_in_float64,
    whole_observations,
    whole_policies,
)

from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def opened(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: f"{one.name}-{one.hidden_sizes}")
def test_an_exported_policy_takes_the_same_actions(learner: DenseLearner, tmp_path: Path) -> None:
    policy = policy_of(learner, random_params(learner), world="CartPole")
    observations = random_observations(5000)
    policy.to_onnx(tmp_path / "policy.onnx")
    session = opened(tmp_path / "policy.onnx")
    actions, values = session.run(["actions", "values"], {"observations": observations})
    # Where two actions, or a likelihood and the threshold, are nearly equal, rounding may decide.
    best = np.sort(values_in_float64(policy, observations))[:, -2:]
    clear = best[:, 1] - best[:, 0] > 1e-5
    clear &= (np.isfinite(values) == np.isfinite(policy.values(observations))).all(axis=1)
    assert clear.mean() > 0.99
    assert actions.dtype == np.int64
    np.testing.assert_array_equal(actions[clear], policy.act(observations)[clear])
    np.testing.assert_allclose(
        values[clear], policy.values(observations)[clear], rtol=1e-5, atol=1e-5
    )
    assert session.get_modelmeta().custom_metadata_map == {
        "learner": learner.name,
        "world": "CartPole",
    }


@given(policy=whole_policies())
@settings(max_examples=60, derandomize=True)
def test_policies_of_every_shape_decide_alike_ties_included(
    policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("exported") / "policy.onnx"
    policy.to_onnx(path)
    session = opened(path)
    for rows in (1, 40):  # the batch is dynamic
        observations = whole_observations(policy, rows)
        actions, values = session.run(None, {"observations": observations})
        # In whole numbers all sums are exact, so nothing is left to rounding.
        np.testing.assert_array_equal(actions, policy.act(observations))
        np.testing.assert_array_equal(values, policy.values(observations))


@pytest.fixture
def policy() -> Policy:
    return Policy(
        networks={"values": network_of((2, 3, 2), 0), "likely": network_of((2, 2), 1)},
        highest="values",
        among_likely="likely",
        threshold=0.3,
        learner="made-up",
    )


def test_a_runtime_of_2021_can_read_the_model(policy: Policy, tmp_path: Path) -> None:
    policy.to_onnx(tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    # onnxruntime 1.10 (December 2021) reads format 8 and operator sets up to 15.
    assert model.ir_version <= 8
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 13)]
    (observations,) = model.graph.input
    assert observations.name == "observations"
    assert [one.name for one in model.graph.output] == ["actions", "values"]
    assert observations.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_the_same_policy_gives_the_same_model_bit_for_bit(policy: Policy, tmp_path: Path) -> None:
    for name in ("first", "second"):
        policy.to_onnx(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_without_onnx_the_extra_is_named(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(QuorumError, match=r"install it with pip install 'quorum-rl\[onnx\]'\.$"):
        policy.to_onnx(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
