"""A policy that is asked by names, answers with labels, and sees what its training saw."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from policies import network_of, random_params

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy
from quorum_rl.policy.file import HEADER_KEY
from quorum_rl.tensors import checksum, map_tensors, write_tensors

LABELS = ("hold", "low", "high")
NAMED = Dictionary((Column("sugar", "mg/dL", 2, -2, 2), Column("weight"), Column("hours")), LABELS)
ROWS = np.array([[np.nan, 1, 0], [5, -1, 2], [-9, 0, 1], [1, 2, -2]], np.float32)
SEEN = np.array([[2, 1, 0], [2, -1, 2], [-2, 0, 1], [1, 2, -2]], np.float32)  # filled, cut off


def policy_with(dictionary: Dictionary | None) -> Policy:
    network = network_of((3, 8, 3), seed=3)
    return Policy(
        networks={"values": network}, highest="values", learner="bc", dictionary=dictionary
    )


@pytest.fixture
def policy() -> Policy:
    return policy_with(NAMED)


def test_names_and_arrays_get_the_labels_of_what_training_would_have_seen(policy: Policy) -> None:
    numbers = policy_with(None).act(SEEN)
    assert len(set(numbers.tolist())) > 1
    labels = [LABELS[number] for number in numbers]
    columns = dict(zip(NAMED.names, ROWS.T, strict=True))
    assert policy.act(ROWS).tolist() == labels
    assert policy.act(columns).tolist() == labels
    assert policy.act(pa.table({**columns, "patient": ["a"] * 4})).tolist() == labels
    assert policy.action_numbers(columns).tolist() == numbers.tolist()
    np.testing.assert_array_equal(policy.values(ROWS), policy_with(None).values(SEEN))
    one = policy.act({"hours": 0, "weight": 1, "sugar": None})
    assert one == labels[0]
    assert one.shape == ()


def test_without_labels_actions_are_numbers() -> None:
    unnamed = policy_with(Dictionary(NAMED.columns))
    assert unnamed.act(ROWS).dtype == np.int64
    with pytest.raises(QuorumError, match="have no names: give an array"):
        policy_with(None).act({"sugar": 1})


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([1.0, np.nan, 0], "'weight' of an observation is missing or not finite .* declared no"),
        ([1.0, np.inf, 0], "'weight' of an observation is not finite in float32"),
        ({"sugar": 1, "weight": 1, "hours": None}, "the 'hours' of an observation is missing"),
        ({"sugar": 1, "weight": 1}, "the observations lack a column: unknown column 'hours'"),
        ({"sugar": "1", "weight": 1, "hours": 1}, "column 'sugar' .* something else than numbers"),
        ([1.0, 2], r"have shape \(2,\): give \(3,\) for one"),
    ],
)
def test_what_was_never_seen_in_training_is_refused(policy: Policy, seen: Any, said: str) -> None:
    with pytest.raises(QuorumError, match=said):
        policy.act(seen)


def test_a_picture_is_taken_in_its_own_shape() -> None:
    network = network_of((6, 3), seed=1)
    named = Dictionary((Column("frame", shape=(2, 3)),))
    seeing = Policy(networks={"v": network}, highest="v", learner="bc", dictionary=named)
    frames = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    expected = seeing.act(frames.reshape(4, 6))
    assert seeing.act(frames).tolist() == expected.tolist()
    assert seeing.act({"frame": frames}).tolist() == expected.tolist()
    assert seeing.act(frames[0]) == expected[0]


def test_names_stay_with_the_file_and_files_without_them_still_open(
    policy: Policy, tmp_path: Path
) -> None:
    policy.save(tmp_path / "policy.safetensors")
    assert Policy.load(tmp_path / "policy.safetensors").dictionary == NAMED
    policy_with(None).save(tmp_path / "old.safetensors")
    assert b"dictionary" not in (tmp_path / "old.safetensors").read_bytes()
    assert Policy.load(tmp_path / "old.safetensors").dictionary is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda named: named["columns"].pop(), "have 2 numbers together, but observation_size 3"),
        (lambda named: named["columns"][0].update(fill="x"), "in what it calls observations"),
        (lambda named: named.pop("columns"), "in what it calls observations"),
        (lambda named: named["action_labels"].append("x"), "4 actions have labels"),
        (lambda named: named["columns"][0].update(name="a\nb"), "give a text of one line"),
    ],
)
def test_a_dictionary_that_does_not_fit_its_policy_is_refused(
    policy: Policy, tmp_path: Path, change: Any, said: str
) -> None:
    """Somebody who computes a new checksum can write anything: it is refused all the same."""
    path = tmp_path / "policy.safetensors"
    policy.save(path)
    tensors, metadata = map_tensors(path)
    facts = json.loads(metadata[HEADER_KEY])
    change(facts["dictionary"])
    kept = {name: np.array(tensor) for name, tensor in tensors.items()}
    del facts["sha256"]
    facts["sha256"] = checksum(facts, kept)
    write_tensors(kept, path, {HEADER_KEY: json.dumps(facts)})
    with pytest.raises(QuorumError, match=r"policy\.safetensors'.*" + said):
        Policy.load(path)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(QuorumError, match="have 1 numbers together, but observation_size 3"):
        policy_with(Dictionary((Column("a"),)))
    with pytest.raises(QuorumError, match="1 actions have labels"):
        policy_with(Dictionary((), ("a",)))


def test_export_gives_a_policy_the_names_of_its_logs() -> None:
    learner = Bc(hidden_sizes=())
    named = Dictionary((Column("a", low=0, high=1), Column("b"), Column("c")))
    made = policy_of(learner, random_params(learner), dictionary=named)
    assert made.dictionary == named


def test_onnx_fills_cuts_and_labels_alike(policy: Policy, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    policy.to_onnx(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    rng = np.random.default_rng(0)
    rows = rng.integers(-4, 5, (500, 3)).astype(np.float32)
    rows[rng.random(500) < 0.3, 0] = np.nan
    labels, values = session.run(["labels", "values"], {"observations": rows})
    assert labels.tolist() == policy.act(rows).tolist()
    assert set(labels) == set(policy.act(rows).tolist())
    np.testing.assert_array_equal(values, policy.values(rows))
    said = session.get_modelmeta().custom_metadata_map
    assert json.loads(said["columns"]) == json.loads(json.dumps(asdict(NAMED)["columns"]))
    assert json.loads(said["action_labels"]) == list(LABELS)


def test_a_world_shows_a_policy_what_its_training_would_have_seen() -> None:
    """JAX's way of playing prepares observations as NumPy's does."""
    from quorum_rl.evaluation.returns import _Acting
    from quorum_rl.learners import Decision
    from quorum_rl.nets import Layer

    policy = policy_with(NAMED)
    params = {"values": tuple(Layer(*layer) for layer in policy.networks["values"])}
    acting = _Acting(Decision("values", None, 0.0), NAMED)
    actions = acting.act(params, jnp.asarray(ROWS))
    assert actions.tolist() == policy.action_numbers(ROWS).tolist()


def test_fields_of_a_structure_are_found_in_a_mapping_within_a_mapping() -> None:
    named = Dictionary((Column("vitals.pulse"), Column("age"), Column("vitals.deep.rate")))
    nested = {"vitals": {"pulse": [1, 4], "deep": {"rate": [3, 6]}}, "age": [2, 5], "more": {}}
    assert named.vectors_of(nested).tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(QuorumError, match=r"'vitals\.pulse'"):
        named.vectors_of({"vitals": {"puls": 1, "deep": {"rate": 3}}, "age": 2})
