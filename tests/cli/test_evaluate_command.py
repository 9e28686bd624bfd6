"""`quorum evaluate`: a policy from its file alone, in a world, or estimated."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from cartpole import balancing
from commands import Quorum
from scipy import stats

from quorum_rl.envs import get_world
from quorum_rl.evaluation import policy_returns, returns_of
from quorum_rl.learners import Bc, Bcq, Learner
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy
from quorum_rl.release import save_released
from quorum_rl.types import Released, Transition

CARTPOLE = get_world("CartPole")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What `evaluate` needs of a finished run."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    balancing().save(folder / "policy.safetensors")
    return folder


@pytest.mark.parametrize("learner", [Bc(hidden_sizes=(3,)), Bcq(hidden_sizes=(3,))])
def test_a_policy_from_a_file_plays_as_its_learner_does(learner: Learner) -> None:
    params = learner.init(jax.random.key(1), 4, 2)
    stacked = jax.tree.map(lambda leaf: leaf[None], params)
    key = jax.random.key(2)
    ours = policy_returns(policy_of(learner, params), CARTPOLE, key, 5)
    np.testing.assert_array_equal(ours, returns_of(learner, stacked, CARTPOLE, None, key, 5)[0])


def test_a_run_is_evaluated_in_the_world_of_its_logs_and_keeps_the_result(
    run: Path, quorum: Quorum
) -> None:
    facts = quorum.facts("evaluate", run, "--episodes", "20")
    assert json.loads((run / "evaluation.json").read_text()) == facts
    assert (facts["world"], facts["episodes"], facts["protocol"]) == ("CartPole", 20, "final")
    assert len(facts["returns"]) == 20
    assert facts["mean"] == pytest.approx(np.mean(facts["returns"]))
    spread = stats.t.interval(0.95, 19, facts["mean"], stats.sem(facts["returns"]))
    assert facts["interval"] == pytest.approx(spread)
    scale = CARTPOLE.facts.reference_return - CARTPOLE.facts.random_return
    means = (facts["mean"], *spread)
    wanted = [(mean - CARTPOLE.facts.random_return) / scale for mean in means]
    assert [facts["score"], *facts["score_interval"]] == pytest.approx(wanted)
    assert facts["score"] > 0.1  # it balances for a while, which chance does not
    assert "1 episodes of CartPole: mean return" in quorum("evaluate", run, "--episodes", "1")


def test_without_a_simulator_the_return_is_estimated_and_called_an_estimate(
    run: Path, quorum: Quorum
) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(41, 4)).astype(np.float32)
    actions = Policy.load(run / "policy.safetensors").act(states[:-1]).astype(np.int32)
    ends = np.zeros(40, bool)
    columns: Any = (states[:-1], actions, np.ones(40, np.float32), states[1:], ends, ends)
    seen = Transition(*columns)
    offsets = np.arange(0, 41, 8)
    save_released(Released(seen, offsets, 4, 2, horizon=8), run / "released.parquet")
    measured = run / "evaluation.json"
    measured.write_text("what was measured")
    assert "estimated, not measured: return" in quorum("evaluate", run, "--fitted-q")
    assert measured.read_text() == "what was measured"
    facts = json.loads((run / "estimate.json").read_text())
    assert facts["mean"] == pytest.approx(8, rel=0.05)  # one a step, and nothing ends
    assert "estimated" in facts["protocol"]
    assert facts["episodes"] == 0
    assert facts["interval"] is None


def test_what_cannot_be_evaluated_is_refused(run: Path, tmp_path: Path, quorum: Quorum) -> None:
    elsewhere = tmp_path / "elsewhere.safetensors"
    balancing(world="trap.py:W").save(elsewhere)
    assert "none of Quorum's own" in quorum.refused("evaluate", elsewhere)
    nowhere = tmp_path / "nowhere.safetensors"
    balancing(world=None).save(nowhere)
    assert "these logs name no world" in quorum.refused("evaluate", nowhere)
    assert "no such file" in quorum.refused("evaluate", tmp_path / "none")
    assert "holds no finished run" in quorum.refused("evaluate", tmp_path)
    assert "folder of a run" in quorum.refused("evaluate", elsewhere, "--fitted-q")
    assert "released.parquet" in quorum.refused("evaluate", run, "--fitted-q")
    assert "name its own world" in quorum.refused("evaluate", run, "--world", "Acrobot")
    assert "exclude" in quorum.refused("evaluate", run, "--world", "CartPole", "--fitted-q")
    assert "--episodes is 0" in quorum.refused("evaluate", run, "--episodes", "0")
    assert not (run / "evaluation.json").exists()
