"""Environments of Gymnasium from the command line: parameters, scores, what is refused."""

import sys
from pathlib import Path

import pytest
from cartpole import balancing
from commands import Quorum

from quorum_rl.envs import get_world
from quorum_rl.evaluation import same_world
from quorum_rl.logs import open_demonstrations

CARTPOLE = ("--gymnasium", "CartPole-v1", "--episodes", "4")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.safetensors"
    balancing().save(path)
    return path


@pytest.fixture
def without_box2d(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Box2D were not installed, whether it is or not."""
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)


def test_with_our_time_limit_gymnasiums_cartpole_has_our_score(
    policy: Path, quorum: Quorum
) -> None:
    shorter = quorum.facts("evaluate", policy, *CARTPOLE)  # which stops at 500 steps
    assert (shorter["score"], shorter["gymnasium_params"]) == (None, {})
    assert all(50 < value <= 500 for value in shorter["returns"])  # a random policy has 22
    assert [path.name for path in policy.parent.iterdir()] == [policy.name]  # no file is left
    words = ("--gymnasium-param", "max_episode_steps", "1000")
    found = quorum.facts("evaluate", policy, *CARTPOLE, *words)
    facts = get_world("CartPole").facts
    scale = facts.reference_return - facts.random_return
    assert found["score"] == pytest.approx((found["mean"] - facts.random_return) / scale)
    assert found["gymnasium_params"] == {"max_episode_steps": 1000.0}


def test_a_score_needs_the_default_world_with_the_time_limit_for_evaluation() -> None:
    lander = same_world("LunarLander-v3", {})
    assert lander is not None
    assert lander.name == "LunarLander"
    assert same_world("LunarLander-v3", {"gravity": -9.8}) is None
    assert same_world("LunarLander-v3", {"max_episode_steps": 200}) is None
    assert same_world("Acrobot-v1", {}) is None
    acrobot = same_world("Acrobot-v1", {"max_episode_steps": 200})
    assert acrobot is not None
    assert acrobot.name == "Acrobot"
    pendulum = same_world("Pendulum-v1", {})
    assert pendulum is not None
    assert pendulum.name == "Pendulum"
    assert same_world("MountainCar-v0", {}) is None


def test_parameters_of_the_environment_are_kept_with_the_log(
    experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    out = tmp_path / "log.arrow"
    quorum("demos", "collect", experts_file, "--out", out, "--gymnasium", "CartPole-v1",
           "--horizon", "6", "--gymnasium-param", "max_episode_steps", "6", "sutton_barto_reward",
           "1", "--trajectories", "1")  # fmt: skip
    log = open_demonstrations(out)
    assert log.declared.world_params == {"max_episode_steps": 6.0, "sutton_barto_reward": 1.0}
    assert (log.episodes.length == 6).all()
    assert not log.columns.rewards.any()  # that reward is 0 until the pole falls


@pytest.mark.usefixtures("without_box2d")
def test_box2d_is_named_where_it_is_missing(
    policy: Path, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    fix = "LunarLander-v3 needs Box2D and pygame, not both of which are installed: pip install "
    fix += "'quorum-rl[box2d]'."
    lander = ("--gymnasium", "LunarLander-v3")
    assert fix in quorum.refused("evaluate", policy, *lander)
    out = tmp_path / "log.arrow"
    assert fix in quorum.refused("demos", "collect", experts_file, "--out", out, *lander,
                                 "--horizon", "1000")  # fmt: skip
    assert not out.exists()


def test_settings_of_no_environment_are_refused(
    policy: Path, tmp_path: Path, quorum: Quorum
) -> None:
    evaluate = ("evaluate", str(policy))
    collect = ("demos", "collect", "experts", "--out", str(tmp_path / "log.arrow"))
    for command in (evaluate, collect):
        said = quorum.refused(*command, "--gymnasium-param", "gravity", "-9.8")
        assert "goes with --gymnasium" in said
    named = ("--gymnasium", "CartPole-v1")
    assert "gravitas" in quorum.refused(*evaluate, *named, "--gymnasium-param", "gravitas", "1")
    assert "--gymnasium-param instead" in quorum.refused(
        *collect, *named, "--horizon", "500", "--param", "gravity", "9"
    )
