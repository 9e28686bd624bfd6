"""Policies of networks that are not dense: parameters in the file, code from the user alone."""

import json
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_networks
import pytest
from own_networks import Alike, Steering

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc, Outputs
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy

SIZES = 4, 3
NAMED = Dictionary(
    (Column("sugar", fill=1.0, low=-2.0, high=2.0), Column("rest", shape=(3,))), ("a", "b", "c")
)


def params_of(learner: Any) -> Any:
    return learner.init(jax.random.key(0), *SIZES)


ALIKE = Alike()


def made(learner: Any = ALIKE, **facts: Any) -> Policy:
    return policy_of(learner, params_of(learner), sizes=SIZES, **facts)


def seen(rows: int) -> Any:
    return np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    made(world="CartPole").save(tmp_path / "policy.safetensors")
    return tmp_path / "policy.safetensors"


def test_it_acts_as_its_learner_also_from_its_file(saved: Path) -> None:
    policy = Policy.load(saved, learner=Alike())
    assert (policy.learner, policy.world, policy.continuous) == ("Alike", "CartPole", False)
    assert (policy.observation_size, policy.action_count) == SIZES
    for rows in (0, 1, 3, 5000):
        wanted = Alike().act(params_of(Alike()), jnp.asarray(seen(rows)))
        np.testing.assert_array_equal(policy.act(seen(rows)), wanted)
    assert len(set(policy.act(seen(100)).tolist())) > 1
    one, block = seen(1)[0], seen(6).reshape(2, 3, 4)
    assert policy.act(one).shape == ()
    np.testing.assert_array_equal(policy.act(block).ravel(), policy.act(seen(6)))


def test_names_fills_ranges_and_labels_hold_for_it_too(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    made(dictionary=NAMED).save(path)
    policy = Policy.load(path, learner=Alike())
    missing, far = [np.nan, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0]
    assert policy.dictionary == NAMED
    assert policy.act(missing) == policy.act([1.0, 0.0, 0.0, 0.0])
    assert policy.act({"sugar": 9.0, "rest": [0.0, 0.0, 0.0]}) == policy.act(far)
    assert policy.act(far) == policy.act([2.0, 0.0, 0.0, 0.0])
    assert {str(label) for label in policy.act(seen(100))} <= {"a", "b", "c"}


def test_continuous_actions_stay_within_their_bounds(tmp_path: Path) -> None:
    bounds = Dictionary(action_bounds=((-0.1, 0.2), (0.0, 5.0), (-9.0, 9.0)))
    path = tmp_path / "policy.safetensors"
    made(Steering(), dictionary=bounds).save(path)
    policy = Policy.load(path, learner=Steering())
    acted = policy.act(seen(50))
    low, high = np.asarray(bounds.action_bounds, np.float32).T
    wanted = Steering().act(params_of(Steering()), jnp.asarray(seen(50)))
    np.testing.assert_allclose(acted, np.clip(wanted, low, high), rtol=1e-6)
    assert policy.continuous
    with pytest.raises(QuorumError, match="no values: ask act"):
        policy.values(seen(1))


def test_without_its_learner_it_is_kept_and_does_not_act(saved: Path, tmp_path: Path) -> None:
    policy = Policy.load(saved)
    policy.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()
    with pytest.raises(QuorumError, match=r"^the policy acts by code of its learner, which no"):
        policy.act(seen(1))
    with pytest.raises(QuorumError, match="which ONNX cannot hold"):
        policy.to_onnx(tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()


def test_the_learner_it_is_given_is_that_of_its_fit(
    saved: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(learner: Any, match: str, path: Path = saved) -> None:
        with pytest.raises(QuorumError, match=match):
            Policy.load(path, learner=learner)

    refused(Alike, "the learner is the class Alike: give an instance")
    refused(Steering(), "the policy acts by 'Alike', not by 'Steering': give its own learner")
    refused(Alike(filters=4), "has the settings filters 3, and this Alike has filters 4")
    with monkeypatch.context() as patched:
        patched.setattr(own_networks, "BIASES", 2)  # as another version of a package might
        refused(Alike(), r"head.bias \(1, 3\).* and Alike makes .*head.bias \(2, 3\)")
    with monkeypatch.context() as patched:
        patched.setattr(Alike, "code_digest", 64 * "0", raising=False)
        refused(Alike(), "and that of Alike has 000000000000…: give the file that the fit was")
    dense = tmp_path / "dense"
    policy_of(Bc(), Bc().init(jax.random.key(0), *SIZES)).save(dense)
    refused(Bc(), "it acts without its learner: leave the learner out", dense)


def changed(path: Path, change: Any) -> Path:
    """The file with another description, which vouches for itself."""
    from quorum_rl.tensors import checksum, map_tensors, write_tensors

    tensors, metadata = map_tensors(path)
    said = json.loads(metadata["quorum_rl.policy"])
    change(said)
    said["sha256"] = checksum(said, tensors)
    write_tensors(tensors, path, {"quorum_rl.policy": json.dumps(said)})
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["code"].update(sizes=[4]),
        lambda said: said["code"].update(sizes=[4, 0]),
        lambda said: said["code"].pop("sha256"),
        lambda said: said["code"].update(sha256="a file\n"),
        lambda said: said["code"].update(settings=[]),
        lambda said: said.update(code="a file"),
        lambda said: said["parameters"].update({"head.bias": [3, 1]}),
        lambda said: said.pop("parameters"),
        lambda said: said.update(format=1),
        lambda said: said.update(learner=3),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(saved: Path, change: Any) -> None:
    with pytest.raises(QuorumError, match="policy"):
        Policy.load(changed(saved, change))


def test_a_flipped_bit_and_a_later_format_are_noticed(saved: Path) -> None:
    whole = saved.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    flipped = bytearray(whole)
    flipped[8 + length + 3] ^= 1
    saved.write_bytes(flipped)
    with pytest.raises(QuorumError, match="checksum is that of another policy"):
        Policy.load(saved)
    saved.write_bytes(whole)
    with pytest.raises(QuorumError, match="has format 3 and this version of Quorum reads up to 2"):
        Policy.load(changed(saved, lambda said: said.update(format=3)))


class Logits(Alike):
    def act(self, params: Any, observations: Any) -> Any:
        return self.outputs(params, observations)


class Beyond(Alike):
    def act(self, params: Any, observations: Any) -> Any:
        return 3 + super().act(params, observations)


class Counting(Alike):
    def init(self, *given: Any) -> Any:
        return super().init(*given) | {"steps": jnp.zeros((), jnp.int32)}


class Twice(Alike):
    def init(self, *given: Any) -> Any:
        return super().init(*given) | {"head.bias": jnp.zeros(3)}


class Nothing(Alike):
    def init(self, *given: Any) -> Any:
        del given
        return {}


@dataclass(frozen=True)
class Holding(Alike):
    network: Any = field(default=jnp.sin)


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (Logits(), r"the method act of Logits returns .* whole numbers of shape \(n,\)"),
        (Counting(), "'steps' of Counting is of type int32: give float32"),
        (Twice(), "two parameters are called 'head.bias'"),
        (Nothing(), "there are no parameters"),
        (Holding(), "network of Holding is .*: keep numbers and texts in the learner's fields"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_learner_whose_policy_could_not_be_kept_is_refused(learner: Any, said: str) -> None:
    with pytest.raises(QuorumError, match=said):
        made(learner)


def test_so_is_one_that_is_written_in_no_file_or_has_no_hash() -> None:
    names: dict[str, Any] = {"Alike": Alike}
    exec("class Typed(Alike):\n    act = lambda self, *given: Alike.act(self, *given)", names)
    with pytest.raises(QuorumError, match="Typed is written in no file: write it into one"):
        made(names["Typed"]())
    listed: Any = type("Listed", (Alike,), {"__hash__": None})
    with pytest.raises(QuorumError, match="Listed cannot be hashed: make it a frozen dataclass"):
        made(listed())


def test_an_answer_that_is_no_action_and_a_training_that_diverged_are_noticed() -> None:
    with pytest.raises(QuorumError, match="Beyond answered with an action that is none of 0 to 2"):
        made(Beyond()).act(seen(5))
    broken = params_of(Alike()) | {"filters": [jnp.full((2, 3), jnp.nan)]}
    with pytest.raises(QuorumError, match=r"'filters.0' has a number that is not finite"):
        policy_of(Alike(), broken, sizes=SIZES)
    with pytest.raises(QuorumError, match="act by code: give sizes"):
        policy_of(Alike(), params_of(Alike()))


class ByScores(Bc):
    def scores(self, outputs: Outputs) -> Any:
        return -outputs["policy"]


def test_dense_networks_whose_scores_are_code_act_by_it() -> None:
    learner = ByScores(hidden_sizes=(4,))
    policy = made(learner)
    wanted = learner.act(params_of(learner), jnp.asarray(seen(20)))
    np.testing.assert_array_equal(policy.act(seen(20)), wanted)
    assert policy.by_code is not None
    data = policy_of(Bc(hidden_sizes=(4,)), params_of(learner))
    assert (policy.act(seen(20)) != data.act(seen(20))).any()
    with pytest.raises(QuorumError, match="by networks or by code"):
        replace(data, by_code=policy.by_code)
