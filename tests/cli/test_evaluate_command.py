"""`quorum evaluate`: a policy from its file alone, in a world."""

import json
from pathlib import Path

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


def test_what_cannot_be_evaluated_is_refused(run: Path, tmp_path: Path, quorum: Quorum) -> None:
    elsewhere = tmp_path / "elsewhere.safetensors"
    balancing(world="trap.py:W").save(elsewhere)
    assert "none of Quorum's own" in quorum.refused("evaluate", elsewhere)
    nowhere = tmp_path / "nowhere.safetensors"
    balancing(world=None).save(nowhere)
    assert "these logs name no world" in quorum.refused("evaluate", nowhere)
    assert "no such file" in quorum.refused("evaluate", tmp_path / "none")
    assert "holds no finished run" in quorum.refused("evaluate", tmp_path)
    assert "name its own world" in quorum.refused("evaluate", run, "--world", "Acrobot")
    both = "--world", "CartPole", "--gymnasium", "CartPole-v1"
    assert "exclude" in quorum.refused("evaluate", run, *both)
    assert "--episodes is 0" in quorum.refused("evaluate", run, "--episodes", "0")
    assert not (run / "evaluation.json").exists()
