"""Experts that stand for many, and samples of what they did."""

import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.training import ExpertData
from quorum_rl.types import Transition
from reproduction import results
from reproduction.studies import samples, tuning

COUNTS = (5, 9, 7)
MADE = {"cut": 2, "keep": 16, "trajectories": 20}


@pytest.fixture(scope="module", name="data")
def _data() -> ExpertData:
    """Actions tell transitions apart, and rewards experts."""
    number = jnp.arange(sum(COUNTS))
    whose = jnp.repeat(jnp.arange(len(COUNTS)), jnp.array(COUNTS)).astype(jnp.float32)
    seen = jnp.zeros((len(number), 4))
    never = jnp.zeros(len(number), bool)
    transitions = Transition(seen, number, whose, seen, never, never)
    return ExpertData(transitions, jnp.array([0, *np.cumsum(COUNTS)]))


@pytest.fixture(name="path")
def _path(data: ExpertData, tmp_path: Path) -> Path:
    path = tmp_path / "sample.npz"
    samples.save(path, data, {"world": "CartPole", "seed": 7}, MADE)
    return path


def test_experts_are_cut_in_parts_that_differ_by_one_at_most_and_nothing_is_lost(
    data: ExpertData,
) -> None:
    parts = samples.cut(data, 3)
    sizes = np.diff(parts.offsets).reshape(len(COUNTS), 3)
    assert sizes.sum(axis=1).tolist() == list(COUNTS)
    assert np.ptp(sizes, axis=1).max() <= 1
    assert np.array_equal(parts.transitions.action, data.transitions.action)
    with pytest.raises(QuorumError, match="has 5 transitions, which cannot be cut into 6"):
        samples.cut(data, 6)


def test_a_sample_has_as_much_of_everybody_and_only_what_is_theirs(data: ExpertData) -> None:
    kept = samples.some_of_each(data, 16)
    assert np.diff(kept.offsets).tolist() == [16] * len(COUNTS)
    whose = np.asarray(kept.transitions.reward).reshape(len(COUNTS), 16)
    assert (whose == np.arange(len(COUNTS))[:, None]).all()
    again = samples.some_of_each(data, 16)
    assert np.array_equal(again.transitions.action, kept.transitions.action)


def test_a_sample_is_read_as_it_was_saved(data: ExpertData, path: Path) -> None:
    found = samples.source_of(path)
    assert (found.world.name, found.origin["seed"], found.made) == ("CartPole", 7, MADE)
    assert found.sample is not None
    assert found.standing_for(len(COUNTS)) is found.sample
    for before, now in zip(data.transitions, found.sample.transitions, strict=True):
        assert np.array_equal(before, now)
        assert before.dtype == now.dtype
    assert np.array_equal(data.offsets, found.sample.offsets)
    with pytest.raises(QuorumError, match="this sample has 3 experts, and 3000 are needed"):
        found.standing_for(3000)
    with pytest.raises(QuorumError, match="needs experts who can act, and not a sample"):
        found.log()


def test_a_result_cannot_say_of_a_sample_what_it_was_not(path: Path) -> None:
    source = samples.source_of(path)
    assert tuning.data_of(source, argparse.Namespace(**MADE)) is source.sample
    with pytest.raises(QuorumError, match="with --cut 2 --keep 16 --trajectories 20: say so"):
        tuning.data_of(source, argparse.Namespace(**MADE | {"cut": 3}))


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04"])
def test_what_is_no_sample_is_said_to_be_none(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(QuorumError, match=r"sample\.npz is no sample: make one"):
        samples.source_of(path)
    np.savez(path, origin=np.array("[]"))
    with pytest.raises(QuorumError, match=r"sample\.npz is no sample: make one"):
        samples.source_of(path)


def tried(path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    how = [f"--{name}={value}" for name, value in MADE.items()]
    monkeypatch.setattr("sys.argv", ["tuning", str(path), *how, *words])
    tuning.main()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--options", "[1]"], "'[1]' is no JSON object"),
        (["--rates", "nan"], "argument --rates: nan is no positive number"),
        (["--sampling-rate", "2"], "argument --sampling-rate: 2 is more than 1"),
        (["--seeds", "0"], "--seeds is 0: give at least 1"),
        (["--learner", "nobody"], "nobody"),
        (["--no-noise"], "the rule is for noise: give --rates with --no-noise"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_one_sentence(
    path: Path,
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        tried(path, words, monkeypatch)
    assert said in capsys.readouterr().err


def test_runs_are_added_to_what_was_tried_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise they are clipped all the same."""
    file = path.with_name("tuning.parquet")
    words = ["--no-noise", "--rates", "1e-3", "--clip-norms", "0.1", "--steps", "2", "--seeds", "1"]
    words += ["--transitions", "1", "--episodes", "1", "--hidden", "2", "--out", str(file)]
    for name in ("first", "second"):
        tried(path, [*words, "--round", name], monkeypatch)
    rows = results.read(file)["cartpole"]["rows"]
    assert [row["round"] for row in rows] == ["first", "second"]
    assert rows[0]["epsilon"] is None
    assert rows[0]["returns"] == rows[1]["returns"]
    assert rows[0]["noise_multiplier"] * rows[0]["clip_norm"] < 1e-5
