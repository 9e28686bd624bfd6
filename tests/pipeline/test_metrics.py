"""The metrics of a run: what they are, who hears them, and that a run repeats no line."""

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc
from quorum_rl.logs import Declared
from quorum_rl.pipeline import FitPlan, FitSettings, plan_fit, tracker
from quorum_rl.pipeline.metrics import MOST_TRANSITIONS, RunMetrics
from quorum_rl.privacy import total_epsilon
from quorum_rl.training import StepKind, TrainState
from quorum_rl.types import Released, Transition

LEARNER = Bc(hidden_sizes=())
NOISELESS = FitPlan(
    settings=FitSettings(averaging=0.5, optimiser="adam"), learner=LEARNER, epsilon=1, delta=1e-4
)
PLAIN = np.full(1000, StepKind.PLAIN)


def released(count: int) -> Released:
    rng = np.random.default_rng(count)
    states = rng.normal(size=(count + 1, 3)).astype(np.float32)
    ends = jnp.zeros(count, bool)
    seen = Transition(
        jnp.asarray(states[:-1]),
        jnp.asarray(rng.integers(2, size=count), jnp.int32),
        jnp.zeros(count),
        jnp.asarray(states[1:]),
        ends,
        ends,
    )
    return Released(seen, np.array([0, count]), 3, 2, horizon=count)


def standing(seed: int) -> TrainState:
    """One run, whose average is what counts."""
    params, average = (
        jax.tree.map(lambda leaf: leaf[None], LEARNER.init(jax.random.key(one), 3, 2))
        for one in (seed, seed + 1)
    )
    return TrainState(params, {}, ({}, {}), average, jnp.zeros(1, jnp.int32))


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("count", [7, 2 * MOST_TRANSITIONS])
def test_the_loss_is_the_mean_over_released_transitions_of_what_training_would_return(
    count: int, tmp_path: Path
) -> None:
    path, data, at = tmp_path / "metrics.jsonl", released(count), standing(0)
    RunMetrics(path, NOISELESS, PLAIN, data, None, 0).add(at, 250)
    (layer,) = at.average["policy"]
    logits = np.asarray(data.transitions.observation) @ layer.weight[0] + layer.bias[0]
    losses = -log_softmax(logits, axis=1)[np.arange(count), np.asarray(data.transitions.action)]
    chosen = np.round(np.linspace(0, count - 1, min(count, MOST_TRANSITIONS))).astype(int)
    (line,) = lines(path)
    assert set(line) == {"step", "loss_on_released"}
    assert line["step"] == 250
    assert line["loss_on_released"] == pytest.approx(losses[chosen].mean(), rel=1e-5)


def test_a_run_that_goes_on_takes_again_what_was_not_saved_and_a_line_that_was_cut_off(
    tmp_path: Path,
) -> None:
    path, data = tmp_path / "metrics.jsonl", released(7)
    first = RunMetrics(path, NOISELESS, PLAIN, data, None, 0)
    for step in (250, 500, 750):
        first.add(standing(step), step)
    with path.open("a") as file:
        file.write('{"step": 10')
    before = lines_until_cut(path)
    again = RunMetrics(path, NOISELESS, PLAIN, data, None, 500)
    assert lines(path) == before[:2]
    again.add(standing(750), 750)
    assert lines(path) == before


def lines_until_cut(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()[:-1]]


def test_what_was_spent_is_that_of_the_private_steps_so_far(tmp_path: Path) -> None:
    declared = Declared(2, 3, 5, minimum_experts=300)
    plan = plan_fit(declared, LEARNER, epsilon=1, delta=1e-4)
    assert plan.private is not None
    heard: list[dict[str, float]] = []
    schedule = np.full(plan.private_steps, StepKind.PRIVATE)
    path = tmp_path / "metrics.jsonl"
    metrics = RunMetrics(path, plan, schedule, None, lambda line: heard.append(dict(line)), 0)
    for step in (15, 60):
        metrics.add(standing(0), step)
    assert heard == lines(path)
    some, every = heard
    events = [plan.private.event(15)]
    assert some["epsilon"] == pytest.approx(total_epsilon(events, 1e-4))
    assert some["noise_over_signal"] == pytest.approx(2 * plan.noise)
    assert every["epsilon"] == pytest.approx(total_epsilon(plan.events, 1e-4))
    assert every["noise_over_signal"] == pytest.approx(plan.noise)


class Run:
    """What Weights & Biases and trackio give."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []
        self.finished = False

    def log(self, found: dict[str, float], step: int) -> None:
        self.logged.append((found, step))

    def finish(self) -> None:
        self.finished = True


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_dashboard_hears_every_line_and_the_end(
    name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, module = Run(), ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.init = lambda **_: run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    with tracker(name, "runs/mine") as track:
        track({"step": 3, "epsilon": 0.5})
        assert not run.finished
    assert run.logged == [({"epsilon": 0.5}, 3)]
    assert run.finished


def test_tensorboard_reads_what_was_tracked(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="the extra track is not installed")
    with tracker("tensorboard", tmp_path) as track:
        track({"step": 3, "epsilon": 0.5})
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"epsilon" in file.read_bytes()


def test_a_dashboard_that_is_unknown_or_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(QuorumError, match="unknown dashboard 'wandbs'"), tracker("wandbs", "x"):  # type: ignore[arg-type]
        pass
    monkeypatch.setattr("quorum_rl.errors.find_spec", lambda _: None)
    with pytest.raises(QuorumError, match=r"quorum-rl\[track\]"), tracker("wandb", "x"):
        pass
