"""Populations on disk: what comes back, who else can read it, and what damage is refused."""

import json
import stat
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, Population, load_population, save_population
from quorum_rl.experts.networks import Layer
from quorum_rl.experts.storage import HEADER_KEY, _checksum

STATES = np.random.default_rng(1).normal(0, 2, (40, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def saved(population: Population, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experts") / "experts.safetensors"
    save_population(population, path)
    return path


def test_a_population_comes_back_bit_for_bit(population: Population, saved: Path) -> None:
    loaded = load_population(saved)
    for found, expected in zip(
        jax.tree.leaves(loaded.network), jax.tree.leaves(population.network), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.float32
    for name in ("observation_size", "action_count", "p_min", "origin"):
        assert getattr(loaded, name) == getattr(population, name)
    np.testing.assert_array_equal(loaded.probabilities(STATES), population.probabilities(STATES))


def test_a_loaded_population_is_mapped_and_not_read(saved: Path) -> None:
    leaves = jax.tree.leaves(load_population(saved).network)
    assert all(isinstance(leaf, np.memmap) and not leaf.flags.writeable for leaf in leaves)


def test_the_safetensors_library_reads_the_file(population: Population, saved: Path) -> None:
    tensors = load_file(saved)
    assert sorted(tensors) == sorted(f"layer_{n}.{part}" for n in range(3) for part in LAYER_PARTS)
    for number, layer in enumerate(population.network):
        np.testing.assert_array_equal(tensors[f"layer_{number}.weight"], layer.weight)
        np.testing.assert_array_equal(tensors[f"layer_{number}.bias"], layer.bias)
    with safe_open(saved, "np") as file:
        header = json.loads(file.metadata()["quorum_rl.population"])
    assert header["origin"] == population.origin


LAYER_PARTS = ("bias", "weight")


def test_half_precision_returns_the_experts_that_a_reader_will_find(
    population: Population, saved: Path, tmp_path: Path
) -> None:
    path = tmp_path / "half.safetensors"
    returned = save_population(population, path, half_precision=True)
    loaded = load_population(path)
    np.testing.assert_array_equal(loaded.probabilities(STATES), returned.probabilities(STATES))
    difference = np.abs(returned.probabilities(STATES) - population.probabilities(STATES)).max()
    assert 1e-4 < difference < 0.2  # other experts, though similar ones
    assert path.stat().st_size < 0.6 * saved.stat().st_size
    # bfloat16 is the upper half of a float32: the relative error is at most 2⁻⁸.
    for found, expected in zip(
        jax.tree.leaves(returned.network), jax.tree.leaves(population.network), strict=True
    ):
        np.testing.assert_allclose(np.float32(found), expected, rtol=2**-8)


def test_a_digest_is_of_what_decides_the_answers(
    population: Population, saved: Path, tmp_path: Path
) -> None:
    """Not of the identity, which a changed set may keep, nor of where the networks lie."""
    own = LoggedExperts(population).digest()
    assert LoggedExperts(load_population(saved)).digest() == own
    assert LoggedExperts(population.smoothed(0.1)).digest() == own  # the floor is declared
    bias = np.array(population.network[-1].bias)
    bias[0, 0] += 1
    layers = (*population.network[:-1], population.network[-1]._replace(bias=bias))
    assert LoggedExperts(replace(population, network=layers)).digest() != own
    half = save_population(population, tmp_path / "half.safetensors", half_precision=True)
    assert LoggedExperts(half).digest() != own


def test_half_precision_saved_again_stays_the_same(population: Population, tmp_path: Path) -> None:
    path = tmp_path / "experts.safetensors"
    once = save_population(population, path, half_precision=True)
    before = once.probabilities(STATES)
    twice = save_population(once, path)  # over the very file that `once` is mapped from
    np.testing.assert_array_equal(twice.probabilities(STATES), before)
    np.testing.assert_array_equal(once.probabilities(STATES), before)


def test_arrays_that_lie_in_memory_in_another_order_are_saved_right(tmp_path: Path) -> None:
    weight: Any = np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 4, 3))
    bias: Any = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]
    made = Population(observation_size=4, action_count=3, network=(Layer(weight, bias),))
    returned = save_population(made, tmp_path / "experts.safetensors")
    np.testing.assert_array_equal(returned.network[0].weight, weight)
    np.testing.assert_array_equal(returned.network[0].bias, bias)


def test_only_the_owner_can_read_the_file_and_nothing_else_is_left(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello, this is a letter and no model\n",  # as a length: 8e18 bytes
        b"\xff" * 64,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 1) + b"3",
        struct.pack("<Q", 2) + b"{}",
    ],
)
def test_what_never_was_a_population_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.safetensors"
    path.write_bytes(content)
    with pytest.raises(QuorumError, match=r"foreign\.safetensors"):
        load_population(path)


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"weights": np.zeros(3)}, path, metadata={"format": "np"})
    with pytest.raises(QuorumError, match=r"other\.safetensors.* holds no population of experts"):
        load_population(path)


def test_a_file_of_another_format_is_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "later.safetensors"
    path.write_bytes(saved.read_bytes().replace(b'version\\": 1', b'version\\": 7'))
    with pytest.raises(QuorumError, match="has format 7, this version of Quorum reads 1"):
        load_population(path)


# Files made by hand: two experts, two numbers observed, three hidden, two actions.

SHAPES = {
    "layer_0.weight": (2, 2, 3),
    "layer_0.bias": (2, 3),
    "layer_1.weight": (2, 3, 2),
    "layer_1.bias": (2, 2),
}
ABOUT = {
    "version": 1,
    "observation_size": 2,
    "action_count": 2,
    "p_min": 0.1,
    "identity": "by hand",
    "origin": {},
}
KINDS = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "I32": np.int32}


def by_hand(
    shapes: dict[str, Any] | None = None,
    about: Any = None,
    dtypes: dict[str, str] | None = None,
    changes: dict[str, Any] | None = None,
) -> bytes:
    """A file that is right but for what is said; `changes` go over the header last.

    Its digest agrees with what is said, so that it is not the digest that is refused.
    """
    header: dict[str, Any] = {}
    shapes, end = SHAPES if shapes is None else shapes, 0
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name, "F32")
        begin, end = end, end + int(np.prod(shape)) * (2 if dtype == "BF16" else 4)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    about = ABOUT if about is None else about
    if isinstance(about, dict):
        zeros = {
            name: np.zeros(shape, KINDS[(dtypes or {}).get(name, "F32")])
            for name, shape in shapes.items()
        }
        about = about | {"sha256": _checksum(about, zeros)}
    text = about if isinstance(about, str) else json.dumps(about)
    header["__metadata__"] = {HEADER_KEY: text}
    header.update(changes or {})
    written = json.dumps(header).encode()
    return struct.pack("<Q", len(written)) + written + bytes(end)


def with_header(changes: dict[str, Any]) -> bytes:
    return by_hand(changes=changes)


def of_bias(**changes: Any) -> bytes:
    """The header's entry for the last bias, which lies at bytes 120 to 136, changed."""
    entry = {"dtype": "F32", "shape": [2, 2], "data_offsets": [120, 136], **changes}
    return with_header({"layer_1.bias": entry})


def of_about(**changes: Any) -> bytes:
    return by_hand(about={**ABOUT, **changes})


DEEP = "[" * 200_000
NOT_EXPERTS: dict[str, tuple[bytes, str]] = {
    # what bytes belong to which tensor
    "header text as weights": (of_bias(data_offsets=[-16, 0]), "no shape or no place"),
    "overlapping tensors": (of_bias(data_offsets=[0, 16]), "overlap or leave a gap"),
    "tensors beyond the end": (of_bias(data_offsets=[136, 152]), "overlap or leave a gap"),
    "an end beyond the file": (by_hand()[:-16], "take 136 bytes, but it holds 120"),
    "bytes that belong to nobody": (by_hand() + b"more", "take 136 bytes, but it holds 140"),
    "offsets that are huge": (of_bias(data_offsets=[2**70, 2**70 + 16]), "overlap or leave a gap"),
    "a shape that is huge": (of_bias(shape=[2**70, 2]), "another size than its shape"),
    "a shape that is huge and empty": (
        with_header({"more": {"dtype": "F32", "shape": [0, 2**70], "data_offsets": [0, 0]}}),
        "[Mm]aximum|large",
    ),
    "a negative shape": (of_bias(shape=[-2, -2]), "no shape or no place"),
    "offsets that are no numbers": (of_bias(data_offsets=["120", "136"]), "no place"),
    "one offset": (of_bias(data_offsets=[120]), "no place"),
    "a shape that is a number": (of_bias(shape=4), "no shape"),
    "a type that is a list": (of_bias(dtype=["F32"]), "unhashable|no known type"),
    "no type": (with_header({"layer_1.bias": {"shape": [2, 2]}}), "lacks 'dtype'"),
    "a tensor that is a number": (with_header({"layer_1.bias": 3}), "no known type"),
    # which network they make
    "a bias that would broadcast": (
        by_hand({**SHAPES, "layer_1.bias": (2, 1)}), r"layer 1 .* a bias \(2, 1\)"
    ),
    "a bias of one expert for two": (
        by_hand({**SHAPES, "layer_1.bias": (1, 2)}), r"layer 1 .* a bias \(1, 2\)"
    ),
    "a bias without an axis": (by_hand({**SHAPES, "layer_0.bias": ()}), r"a bias \(\)"),
    "layers that do not fit": (
        by_hand({**SHAPES, "layer_1.weight": (2, 4, 2)}), "layer 1 .* 3 numbers come in"
    ),
    "other observations": (of_about(observation_size=3), "layer 0 .* 3 numbers come in"),
    "other actions": (of_about(action_count=3), "layer 1"),
    "no layers": (by_hand({}), "its tensors are"),
    "half a layer": (by_hand({"layer_0.weight": (2, 2, 2)}), "its tensors are"),
    "one tensor more": (by_hand({**SHAPES, "spare": (1,)}), "its tensors are"),
    "no experts": (
        by_hand({name: (0, *shape[1:]) for name, shape in SHAPES.items()}), "holds no expert"
    ),
    "whole numbers as weights": (by_hand(dtypes=dict.fromkeys(SHAPES, "I32")), "not all float32"),
    "two precisions": (by_hand(dtypes={"layer_0.bias": "BF16"}), "not all float32"),
    # what it says about them
    "a description that is cut": (by_hand(about='{"version": 1'), "Expecting"),
    "a description that is deep": (by_hand(about=DEEP), "recursion"),
    "a description that is a list": (by_hand(about=[1]), "no JSON object"),
    "no version": (by_hand(about={}), "lacks 'version'"),
    "metadata that is a list": (with_header({"__metadata__": [HEADER_KEY]}), "metadata"),
    "metadata that holds a number": (with_header({"__metadata__": {HEADER_KEY: 1}}), "metadata"),
    "a floor that is a text": (of_about(p_min="0.1"), "p_min is '0.1'"),
    "a floor that is no number": (of_about(p_min=float("nan")), "p_min is nan"),
    "a floor that is negative": (of_about(p_min=-0.1), "p_min is -0.1"),
    "a floor that no policy has": (of_about(p_min=0.6), "p_min is 0.6"),
    "a size that is a text": (of_about(observation_size="2"), "observation_size is '2'"),
    "a size that is true": (of_about(observation_size=True), "observation_size is True"),
    "one action": (of_about(action_count=1), "action_count is 1"),
    "an origin that is a list": (of_about(origin=["CartPole"]), "origin is not an object"),
}  # fmt: skip


def test_a_file_made_by_hand_is_read(tmp_path: Path) -> None:
    path = tmp_path / "experts.safetensors"
    path.write_bytes(by_hand())
    assert {name: tensor.shape for name, tensor in load_file(path).items()} == SHAPES
    found = load_population(path)
    assert (len(found), found.observation_size, found.action_count, found.p_min) == (2, 2, 2, 0.1)
    path.write_bytes(by_hand(dtypes=dict.fromkeys(SHAPES, "BF16")))
    assert load_population(path).network[0].weight.dtype == "bfloat16"


@pytest.mark.parametrize("damage", NOT_EXPERTS)
def test_a_file_that_makes_no_sense_is_refused_with_the_reason(tmp_path: Path, damage: str) -> None:
    content, reason = NOT_EXPERTS[damage]
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(content)
    with pytest.raises(QuorumError, match=reason) as refused:
        load_population(path)
    assert "wrong.safetensors' is not a" in str(refused.value)
    assert str(refused.value).endswith("): make it again.")
    assert "\n" not in str(refused.value)


def test_saving_into_a_folder_that_is_not_there_is_refused(
    population: Population, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match="cannot be written"):
        save_population(population, tmp_path / "none" / "experts.safetensors")


def test_a_save_that_fails_leaves_the_old_file_alone(
    population: Population, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: Any, filename: str, metadata: Any) -> None:
        del tensors, metadata
        Path(filename).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    path = tmp_path / "experts.safetensors"
    path.write_bytes(saved.read_bytes())
    monkeypatch.setattr("quorum_rl.tensors.save_file", full)
    with pytest.raises(QuorumError, match="No space left"):
        save_population(population, path)
    assert path.read_bytes() == saved.read_bytes()
    assert list(tmp_path.iterdir()) == [path]
