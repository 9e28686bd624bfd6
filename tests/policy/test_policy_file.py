"""A policy's file: the same policy comes back, and no damaged one ever does."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from policies import LEARNERS, network_of, random_params, whole_observations, whole_policies
from safetensors.numpy import load_file, save_file

from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy
from quorum_rl.policy.file import FORMAT, HEADER_KEY
from quorum_rl.tensors import checksum


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: f"{one.name}-{one.hidden_sizes}")
def test_a_policy_comes_back_from_its_file(learner: DenseLearner, tmp_path: Path) -> None:
    policy = policy_of(learner, random_params(learner), world="CartPole", certificate="ab12")
    policy.save(tmp_path / "policy.safetensors")
    back = Policy.load(tmp_path / "policy.safetensors")
    check_same(back, policy)
    back.save(tmp_path / "again.safetensors")
    first, second = (tmp_path / f"{name}.safetensors" for name in ("policy", "again"))
    assert first.read_bytes() == second.read_bytes()


def check_same(back: Policy, policy: Policy) -> None:
    for name in ("highest", "among_likely", "threshold", "learner", "world", "certificate"):
        assert getattr(back, name) == getattr(policy, name)
    assert back.networks.keys() == policy.networks.keys()
    for name, network in policy.networks.items():
        for found, expected in zip(back.networks[name], network, strict=True):
            np.testing.assert_array_equal(found.weight, expected.weight, strict=True)
            np.testing.assert_array_equal(found.bias, expected.bias, strict=True)


@given(policy=whole_policies())
@settings(max_examples=30, derandomize=True)
def test_policies_of_every_shape_come_back(
    policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("policies") / "policy.safetensors"
    policy.save(path)
    check_same(Policy.load(path), policy)
    observations = whole_observations(policy, 10)
    np.testing.assert_array_equal(Policy.load(path).act(observations), policy.act(observations))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "policy.safetensors"
    Policy(
        networks={"values": network_of((2, 3, 2), 0), "likely": network_of((2, 2), 1)},
        highest="values",
        among_likely="likely",
        threshold=0.3,
        learner="made-up",
    ).save(path)
    return path


def test_any_safetensors_reader_finds_the_description_and_the_weights(saved: Path) -> None:
    tensors = load_file(saved)
    assert {name: one.shape for name, one in tensors.items()} == {
        "values.0.weight": (2, 3),
        "values.0.bias": (3,),
        "values.1.weight": (3, 2),
        "values.1.bias": (2,),
        "likely.0.weight": (2, 2),
        "likely.0.bias": (2,),
    }
    said = description(saved)
    assert said.pop("sha256") == checksum(said, tensors)
    assert said == {
        "format": 1,
        "activation": "relu",
        "networks": {"values": [2, 3, 2], "likely": [2, 2]},
        "decision": {"highest": "values", "among_likely": "likely", "threshold": 0.3},
        "learner": "made-up",
        "world": None,
        "certificate": None,
    }


def description(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    found: dict[str, Any] = json.loads(
        json.loads(content[8 : 8 + length])["__metadata__"][HEADER_KEY]
    )
    return found


def test_what_is_not_a_policy_is_named(tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(QuorumError, match=r"other': the file holds no policy: give the policy\.s"):
        Policy.load(tmp_path / "other")
    (tmp_path / "text").write_text("this is not a policy")
    with pytest.raises(QuorumError, match="is damaged or not one that Quorum wrote"):
        Policy.load(tmp_path / "text")


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (
            {"format": FORMAT + 1},
            r"has format 3 and .* reads up to 2: install a newer one with pip",
        ),
        ({"format": 0}, "its description is not one of a policy"),
        ({"format": "1"}, "its description is not one of a policy"),
        ({"activation": "tanh"}, "its activation is 'tanh'"),
        ({"decision": {"highest": "values"}}, "it does not say how it decides"),
        ({"decision": None}, "it does not say how it decides"),
        ({"networks": {"values": [2, 3, 2]}}, "it holds 6 tensors where 4 are announced"),
        ({"networks": {"values": [2, 2, 2]}}, r"a weight \(2, 3\) .* where \(2, 2\) is announced"),
        ({"networks": {"others": [2, 3, 2]}}, "it lacks 'others.0.weight'"),
        ({"networks": []}, "is damaged or not one"),
        ({"networks": {"values": 3}}, "is damaged or not one"),
        ({"learner": 3}, "policy '.*': the policy's learner is 3: give a text"),
        (
            {"decision": {"highest": "values", "among_likely": "likely", "threshold": 2}},
            "policy '.*': the threshold is 2: give",
        ),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(
    saved: Path, tmp_path: Path, changed: dict[str, Any], complaint: str
) -> None:
    rewrite(saved, tmp_path / "changed", changed, {})
    with pytest.raises(QuorumError, match=complaint):
        Policy.load(tmp_path / "changed")


@pytest.mark.parametrize(
    ("tensors", "complaint"),
    [
        ({"values.0.bias": np.zeros(2, np.float32)}, r"a bias \(2,\) where \(2, 3\) is announced"),
        (
            {"values.0.bias": np.zeros(3)},
            "tensor 'values.0.bias' is of type float64 and not float32",
        ),
        ({"more": np.zeros(3, np.float32)}, "it holds 7 tensors where 6 are announced"),
        (
            {"values.0.bias": np.full(3, np.nan, np.float32)},
            "policy '.*': layer 0 of network 'values' has a number that is not finite",
        ),
    ],
)
def test_weights_that_make_no_sense_are_refused(
    saved: Path, tmp_path: Path, tensors: dict[str, Any], complaint: str
) -> None:
    rewrite(saved, tmp_path / "changed", {}, tensors)
    with pytest.raises(QuorumError, match=complaint):
        Policy.load(tmp_path / "changed")


def rewrite(source: Path, path: Path, changed: dict[str, Any], tensors: dict[str, Any]) -> None:
    """The file with another description or other weights, and a checksum that fits them."""
    said = {**description(source), **changed}
    weights = {**load_file(source), **tensors}
    said["sha256"] = checksum(said, weights)
    save_file(weights, path, metadata={HEADER_KEY: json.dumps(said)})


def test_a_description_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    deep = "[" * 100_000
    save_file({"a": np.zeros(1)}, tmp_path / "deep", metadata={HEADER_KEY: deep})
    with pytest.raises(QuorumError, match="is damaged or not one"):
        Policy.load(tmp_path / "deep")


def test_a_place_that_cannot_be_written_is_named(saved: Path, tmp_path: Path) -> None:
    policy = Policy.load(saved)
    for write in (policy.save, policy.to_onnx):
        with pytest.raises(QuorumError, match=r"nowhere.*cannot be written: No such file"):
            write(tmp_path / "nowhere" / "policy")
