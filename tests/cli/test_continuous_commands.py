"""Experts of continuous actions at the shell: trained, shown, judged, and collected from."""

from pathlib import Path

import numpy as np
import pytest
from commands import Quorum

from quorum_rl.cli.main import main
from quorum_rl.logs import open_demonstrations


@pytest.fixture(scope="module")
def experts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "experts.safetensors"
    main(["experts", "train", "Pendulum", "--preset", "small", "--settings", "2", "--candidates",
          "1", "--count", "2", "--hidden", "8", "--steps", "2048", "--out", str(path)])  # fmt: skip
    return path


def test_experts_are_shown_with_their_bounds_and_judged_as_they_act(
    experts_file: Path, quorum: Quorum
) -> None:
    facts = quorum.facts("experts", "show", experts_file)
    assert facts["action_bounds"] == [[-2.0, 2.0]]
    assert facts["action_count"] == 1
    options = ("experts", "returns", experts_file, "--episodes", "2", "--diagnostics-not-private")
    assert quorum.facts(*options)["mean"] != quorum.facts(*options, "--p-min", "0")["mean"]
    assert "densities have no floor" in quorum.refused(*options, "--p-min", "0.02")


def test_logs_are_collected_without_a_floor_and_say_their_bounds(
    experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    log = tmp_path / "log.arrow"
    said = quorum("demos", "collect", experts_file, "--trajectories", "1", "--out", log)
    assert "continuous actions" in said
    declared = open_demonstrations(log).declared
    assert declared.action_bounds == ((-2.0, 2.0),)
    assert declared.p_min is None
    facts = quorum.facts("demos", "show", log)
    assert facts["dictionary"]["action_labels"] == ["torque"]
    refused = tmp_path / "refused.arrow"
    text = quorum.refused("demos", "collect", experts_file, "--p-min", "0.02", "--out", refused)
    assert "densities have no floor p_min: leave it out" in text
    assert not refused.exists()
    agreement = ("demos", "agreement", log, experts_file)
    text = quorum.refused(*agreement, "--diagnostics-not-private")
    assert "needs a finite list" in text


def test_what_uniform_actions_do_is_drawn(tmp_path: Path, quorum: Quorum) -> None:
    picture = tmp_path / "episode.svg"
    quorum("worlds", "draw", "Pendulum", "--out", picture, "--param", "time_limit", "20")
    assert picture.read_text().lstrip().startswith("<?xml")
    facts = quorum.facts("worlds", "list")
    assert facts["Pendulum"]["action_bounds"] == [[-2, 2]]
    assert np.shape(facts["LunarLanderContinuous"]["action_bounds"]) == (2, 2)
    assert "action_bounds" not in facts["CartPole"]
    assert "torque -2 to" in quorum("worlds", "list")  # the rest is in the cell's next line
