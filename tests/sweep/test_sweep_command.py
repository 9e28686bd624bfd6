"""`quorum sweep`, trained for real: from a configuration file to a policy that is certified."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cartpole import under_the_pole
from commands import Quorum

from quorum_rl.cli.main import command_of, main
from quorum_rl.experts import save_population
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.policy import Policy

EXPERTS = 60


@pytest.fixture(scope="module", name="collected")
def _collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    save_population(under_the_pole(EXPERTS), folder / "experts.safetensors")
    log = folder / "collected.arrow"
    main(["demos", "collect", str(folder / "experts.safetensors"), "--out", str(log), "--p-min",
          "0.1", "--trajectories", "3", "--param", "time_limit", "8"])  # fmt: skip
    return log


def configuration(log: Path, folder: Path, more: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(f"""
[sweep]
demonstrations = "{log}"
epsilon = 5.0
delta = 1e-3
minimum-experts = 50
folder = "{folder / "sweep"}"
learner = "bc"
hidden = []
episodes = 1
seeds = 1
private-steps = 3
transitions-per-expert = 1
{more}
""")
    return path


def test_a_configured_grid_is_trained_judged_and_certified(
    collected: Path, tmp_path: Path, quorum: Quorum
) -> None:
    grid = "[sweep.grid]\nprivate-learning-rate = [0.01, 1e39]"
    facts = quorum.facts("sweep", "--config", configuration(collected, tmp_path, grid))
    assert facts["trials"] == 2
    assert facts["winner"]["private_learning_rate"] == 0.01
    assert facts["marks"][0].startswith("selection not accounted")
    rows = pq.read_table(tmp_path / "sweep" / "sweep.parquet").to_pylist()
    assert ["stopped being numbers" in row["reason"] for row in rows] == [False, True]
    assert [row["score"] is None for row in rows] == [False, True]
    kept = command_of(["sweep", "--config", str(tmp_path / "sweep" / "config.toml"), "--json"])
    assert kept == command_of(["sweep", "--config", str(tmp_path / "sweep.toml"), "--json"])
    winner = tmp_path / "sweep" / "winner"
    assert Policy.load(winner / "policy.safetensors").world == "CartPole"
    assert "selection not accounted" in quorum("certificate", "verify", winner)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "give the table [sweep.grid] or the table [sweep.random]"),
        ("[sweep.grid]\nclip-nrom = [1.0]", "did you mean clip-norm?"),
        ("[sweep.grid]\nclip-norm = 1.0", "must be a table of names"),
        ('ray = "127.0.0.1:9"\n[sweep.grid]\nclip-norm = [1.0]', "--ray"),
        ('ledger = "x.jsonl"\n[sweep.grid]\nclip-norm = [1.0]', "add --select"),
    ],
)
def test_a_configuration_that_makes_no_sweep_is_refused_in_one_sentence(
    more: str, said: str, collected: Path, tmp_path: Path, quorum: Quorum
) -> None:
    assert said in quorum.refused("sweep", "--config", configuration(collected, tmp_path, more))


def test_a_python_file_that_a_log_names_as_its_world_is_not_run(
    collected: Path, tmp_path: Path, quorum: Quorum
) -> None:
    ran, script = tmp_path / "ran", tmp_path / "theirs.py"
    script.write_text(f"open({str(ran)!r}, 'w')")
    log = open_demonstrations(collected)
    theirs = replace(log, declared=replace(log.declared, world=f"{script}:WORLD"))
    save_demonstrations(theirs, tmp_path / "theirs.arrow")
    more = "[sweep.grid]\nclip-norm = [1.0]"
    wanted = configuration(tmp_path / "theirs.arrow", tmp_path, more)
    said = quorum.refused("sweep", "--config", wanted)
    assert "none of Quorum's own: name it with --world" in said
    assert not ran.exists()
