"""Populations on disk: what comes back, who else can read it, and what damage is refused."""

import json
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from quorum_rl.errors import QuorumError
from quorum_rl.experts import Population, load_population, save_population
from quorum_rl.experts.networks import Layer

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


Damage = Callable[[bytes], bytes]


def changed(old: bytes, new: bytes) -> Damage:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new)

    return change


DAMAGES: dict[str, Damage] = {
    "its last byte is missing": lambda data: data[:-1],
    "its second half is missing": lambda data: data[: len(data) // 2],
    "its header is cut": lambda data: data[:100],
    "only five bytes are left": lambda data: data[:5],
    "its header is not closed": changed(b"}", b" "),
    "a type is unknown": changed(b'"dtype":"F32"', b'"dtype":"Q32"'),
    "a shape is another": changed(b"[37,4,17]", b"[37,5,17]"),
    "a layer is missing": changed(b"layer_0.weight", b"layer_9.weight"),
    "a field is missing": changed(b"observation_size", b"observation_sice"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_by_name(saved: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(DAMAGES[damage](saved.read_bytes()))
    with pytest.raises(QuorumError, match=r"damaged\.safetensors"):
        load_population(path)


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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=r"none\.safetensors.*no such file"):
        load_population(tmp_path / "none.safetensors")


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
    monkeypatch.setattr("quorum_rl.experts.storage.save_file", full)
    with pytest.raises(QuorumError, match="No space left"):
        save_population(population, path)
    assert path.read_bytes() == saved.read_bytes()
    assert list(tmp_path.iterdir()) == [path]
