"""Experts that stand for many, and samples of what they did."""

import argparse
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scripts import script

from quorum_rl.errors import QuorumError
from quorum_rl.training.data import ExpertData
from quorum_rl.types import Transition

COUNTS = (5, 9, 7)
MADE = {"cut": 2, "keep": 16, "trajectories": 20}


@pytest.fixture(scope="module", name="samples")
def _samples() -> Any:
    return script("benchmarks", "samples")


@pytest.fixture(scope="module", name="data")
def _data() -> ExpertData:
    """Actions tell transitions apart, and rewards experts."""
    number = jnp.arange(sum(COUNTS))
    whose = jnp.repeat(jnp.arange(len(COUNTS)), jnp.array(COUNTS)).astype(jnp.float32)
    seen = jnp.zeros((len(number), 4))
    never = jnp.zeros(len(number), bool)
    transitions = Transition(seen, number, whose, seen, never, never)
    return ExpertData(transitions, jnp.array([0, *np.cumsum(COUNTS)]))


def test_experts_are_cut_in_parts_that_differ_by_one_at_most_and_nothing_is_lost(
    samples: Any, data: ExpertData
) -> None:
    parts = samples.cut(data, 3)
    sizes = np.diff(parts.offsets).reshape(len(COUNTS), 3)
    assert sizes.sum(axis=1).tolist() == list(COUNTS)
    assert np.ptp(sizes, axis=1).max() <= 1
    assert np.array_equal(parts.transitions.action, data.transitions.action)
    with pytest.raises(
        QuorumError, match="an expert has 5 transitions, which cannot be cut into 6"
    ):
        samples.cut(data, 6)


def test_a_sample_has_as_much_of_everybody_and_only_what_is_theirs(
    samples: Any, data: ExpertData
) -> None:
    kept = samples.some_of_each(data, 16)
    assert np.diff(kept.offsets).tolist() == [16] * len(COUNTS)
    whose = np.asarray(kept.transitions.reward).reshape(len(COUNTS), 16)
    assert (whose == np.arange(len(COUNTS))[:, None]).all()
    assert set(np.asarray(kept.transitions.action)) <= set(range(sum(COUNTS)))
    again = samples.some_of_each(data, 16)
    assert np.array_equal(again.transitions.action, kept.transitions.action)


def test_a_sample_is_read_as_it_was_saved(samples: Any, data: ExpertData, tmp_path: Path) -> None:
    path, origin = tmp_path / "sample.npz", {"world": "CartPole", "seed": 7}
    samples.save(path, data, origin, MADE)
    found = samples.source_of(path)
    assert (found.world.name, found.origin, found.made) == ("CartPole", origin, MADE)
    assert found.standing_for(len(COUNTS)) is found.sample
    with pytest.raises(QuorumError, match="this sample has 3 experts, and 3000 are needed"):
        found.standing_for(3000)
    for before, now in zip(data.transitions, found.sample.transitions, strict=True):
        assert np.array_equal(before, now)
        assert before.dtype == now.dtype
    assert np.array_equal(data.offsets, found.sample.offsets)
    assert (found.declared.world, found.declared.observation_size) == ("CartPole", 4)
    with pytest.raises(QuorumError, match="needs experts who can act, and not a sample"):
        found.log()


def test_what_is_no_sample_is_said_to_be_none(samples: Any, tmp_path: Path) -> None:
    path = tmp_path / "sample.npz"
    with pytest.raises(QuorumError, match="there is no such file"):
        samples.source_of(path)

    def refused() -> None:
        with pytest.raises(QuorumError, match=r"sample\.npz is no sample: make one"):
            samples.source_of(path)

    for content in (b"", b"nothing", b"PK\x03\x04"):
        path.write_bytes(content)
        refused()
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    refused()
    for origin in ("{}", "[]", "no JSON", '{"world": "CartPole"}'):
        np.savez(path, origin=np.array(origin))
        refused()


def test_a_result_cannot_say_of_a_sample_what_it_was_not(
    samples: Any, data: ExpertData, tmp_path: Path
) -> None:
    path = tmp_path / "sample.npz"
    samples.save(path, data, {"world": "CartPole"}, MADE)
    source, tuning = samples.source_of(path), script("benchmarks", "tuning")
    assert tuning.data_of(source, argparse.Namespace(**MADE)) is source.sample
    for name in MADE:
        wrong = argparse.Namespace(**MADE | {name: 3})
        with pytest.raises(QuorumError, match="with --cut 2 --keep 16 --trajectories 20: say so"):
            tuning.data_of(source, wrong)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--options", "[1]"], "'[1]' is no JSON object"),
        (["--rates", "abc"], "argument --rates: invalid rate value: 'abc'"),
        (["--rates", "-1"], "argument --rates: -1 is no positive number"),
        (["--rates", "nan"], "argument --rates: nan is no positive number"),
        (["--clip-norms", "0"], "argument --clip-norms: 0 is no positive number"),
        (["--sampling-rate", "2"], "argument --sampling-rate: 2 is more than 1"),
        (["--averaging", "2"], "--averaging is 2: give a decay from 0 to below 1"),
        (["--experts", "1"], "--experts is 1: give at least 2"),
        (["--options", '{"alpha": "x"}'], "alpha is 'x': give a number"),
        (["--seeds", "0"], "--seeds is 0: give at least 1"),
        (["--out", "nowhere/a.json"], "there is no folder nowhere: make it first"),
        (["--learner", "nobody"], "nobody"),
        (["--options", '{"nonsense": 1}'], "nonsense"),
        (["--epsilons", "0"], "argument --epsilons: 0 is no positive number"),
        (["--no-noise"], "the rule is for noise: give --rates with --no-noise"),
        (["--no-noise", "--rates", "1", "--epsilons", "1"], "leave out --epsilons"),
        (["--no-noise", "--without-privacy"], "not allowed with argument --no-noise"),
        (["--optimiser", "sgd"], "the rule is for adam: give --rates with --optimiser"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_one_sentence(
    samples: Any,
    data: ExpertData,
    tmp_path: Path,
    asked: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "sample.npz"
    samples.save(path, data, {"world": "CartPole"}, MADE)
    how = [f"--{name}={value}" for name, value in MADE.items()]
    monkeypatch.setattr("sys.argv", ["tuning.py", str(path), *how, *asked])
    with pytest.raises(SystemExit, match="2"):
        script("benchmarks", "tuning").main()
    assert said in capsys.readouterr().err


def test_steps_without_noise_are_clipped_all_the_same() -> None:
    tuning = script("benchmarks", "tuning")
    given = argparse.Namespace(
        without_privacy=False,
        no_noise=True,
        experts=300,
        sampling_rate=0.05,
        steps=10,
        transitions=1,
        normalised=False,
        clip_norms=[0.1, 10.0],
        rates=[1e-3],
    )
    made = tuning.trials(given, 300)
    for trial in made:
        assert trial.epsilon is None
        noise = trial.step.noise_multiplier * trial.step.clip_norm / trial.step.expected_batch
        assert noise < 1e-7  # in units of a gradient of which an expert has clip_norm
    assert [trial.step.clip_norm for trial in made] == [0.1, 10.0]
