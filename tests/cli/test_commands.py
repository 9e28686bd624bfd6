"""The command: what a newcomer reads, and what happens when they make a mistake."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Quorum

from quorum_rl import __version__
from quorum_rl.cli.main import main
from quorum_rl.experts import load_population, save_population
from quorum_rl.logs import open_demonstrations

TINY = ("--preset", "small", "--settings", "2", "--count", "4", "--hidden", "8")
PLAN = ("plan", "release", "--minimum-experts", "3000", "--actions", "2", "--p-min", "0.02",
        "--horizon", "200", "--epsilon", "7.5", "--delta", "3e-4")  # fmt: skip


def test_version_is_the_package_version(quorum: Quorum) -> None:
    assert quorum("--version") == f"quorum {__version__}\n"


def test_no_help_imports_jax() -> None:
    """Nor anything else that takes long: every command's, one after the other in one process."""
    code = (
        "import sys, quorum_rl.cli.main as cli\n"
        "def shown(*words):\n"
        "    try: cli.main([*words, '--help'])\n"
        "    except SystemExit as stop: assert not stop.code\n"
        "shown()\n"
        "for name in cli.COMMANDS: shown(name)\n"
        "for path in cli.paths(): shown(*path)\n"
        "found = {'jax', 'scipy', 'gymnasium', 'matplotlib', 'pyarrow'} & set(sys.modules)\n"
        "assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("usage: quorum", "demo", "worlds", "experts", "demos", "policy"):
        assert word in done.stdout


def test_worlds_are_listed_for_machines(quorum: Quorum) -> None:
    facts = quorum.facts("worlds", "list")
    assert facts["CartPole"]["settings"] == 1000
    assert facts["HIV"]["params"]["penalty_drug_1"] == 20000


def test_an_episode_is_drawn(tmp_path: Path, quorum: Quorum) -> None:
    picture = tmp_path / "episode.svg"
    said = quorum("worlds", "draw", "CartPole", "--out", picture, "--param", "gravity", "9")
    assert str(picture) in said
    assert picture.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("exprets",), "did you mean experts?"),
        (("worlds", "draw", "Cartpole", "--out", "a.png"), "did you mean CartPole?"),
        (("worlds", "draw", "CartPole", "--out", "a.txt"), "a.txt"),
        (("worlds", "draw", "CartPole", "--out", "a.png", "--param", "mass", "1"), "'mass'"),
        (("worlds", "draw", "CartPole", "--out", "a.png", "--param", "gravity", "nan"), "finite"),
        (("worlds", "draw", "none.py:W", "--out", "a.png"), "none.py"),
        (("experts", "show", "none.safetensors"), "none.safetensors"),
        (("experts", "train", "CartPole", "--out", "no/such/folder/x"), "no/such/folder"),
        (("experts", "train", "CartPole", "--out", "x", *TINY, "--count", "99"), "99 experts"),
        (("experts", "train", "CartPole", "--out", "x", *TINY, "--settings", "0"), "settings is 0"),
        (("experts", "train", "CartPole", "--out", "x", *TINY, "--hidden", "0"), "hidden"),
        (("experts", "train", "CartPole", "--out", "x", *TINY, "--seed", "-7"), "-7"),
        (("experts", "train", "CartPole", "--out", "x", *TINY, "--batch-slices", "0"), "slices"),
        (("experts", "train", "CartPole", "--out", "x", *TINY, "--learning-rates", "nan"), "nan"),
        (("demos", "import", "x.csv", "--out", "x", "--actions", "2"), "--horizon"),
        (("experts", "returns", "x"), "--diagnostics-not-private"),
        (("demos", "collect", "none.safetensors", "--out", "x"), "none.safetensors"),
        (("demos", "collect", "e", "--out", "x", "--gymnasium", "CartPole-v1"), "--horizon"),
        (("demos", "show", "none.arrow"), "none.arrow"),
        (("demos", "agreement", "a", "b"), "--diagnostics-not-private"),
        ((*PLAN, "--out", "plan.json", "--epsilon", "0"), "epsilon is 0"),
        ((*PLAN, "--out", "plan.json", "--stop-probability", "0.1"), "exclude each other"),
        ((*PLAN, "--out", "no/such/folder/plan.json"), "no/such/folder"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence_and_nothing_is_written(
    words: tuple[str, ...],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quorum: Quorum,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named in quorum.refused_for_free(tmp_path, *words)


@pytest.fixture(scope="module")
def experts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "experts.safetensors"
    main(["experts", "train", "CartPole", "--out", str(path), *TINY, "--steps", "2048"])
    return path


def test_experts_are_trained_and_shown(experts_file: Path, quorum: Quorum) -> None:
    assert len(load_population(experts_file)) == 4
    facts = quorum.facts("experts", "show", experts_file)
    assert facts["world"] == "CartPole"
    assert facts["hidden"] == [8]
    assert facts["total_steps"] == 2048


def test_a_file_of_experts_cannot_choose_which_python_file_is_run(
    experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('the trap was run')")
    population = load_population(experts_file)
    changed = replace(population, origin={**population.origin, "world": f"{trap}:W"})
    path = tmp_path / "changed.safetensors"
    save_population(changed, path)
    assert "--world" in quorum.refused("demos", "collect", path, "--out", tmp_path / "d.arrow")
    assert "--world" in quorum.refused("experts", "returns", path, "--diagnostics-not-private")


@pytest.mark.parametrize("p_min", ["0.9", "-1"])
def test_a_floor_that_no_policy_can_have_is_refused(
    p_min: str, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    out = str(tmp_path / "d.arrow")
    assert p_min in quorum.refused("demos", "collect", experts_file, "--out", out, "--p-min", p_min)
    assert p_min in quorum.refused("experts", "returns", experts_file, "--p-min", p_min,
                                   "--diagnostics-not-private")  # fmt: skip


def test_demonstrations_go_from_collecting_to_a_table_and_back(
    experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    demos, table, again = (str(tmp_path / name) for name in ("d.arrow", "d.parquet", "again.arrow"))
    quorum("demos", "collect", experts_file, "--out", demos, "--trajectories", "2")
    quorum("demos", "export", demos, "--out", table)
    quorum("demos", "import", table, "--out", again, "--actions", "2", "--observations", "4",
           "--horizon", "200", "--p-min", "0.02")  # fmt: skip
    first, second = open_demonstrations(demos), open_demonstrations(again)
    assert first.transition_count == second.transition_count
    assert (first.columns.observations == second.columns.observations).all()
    shown = quorum.facts("demos", "show", demos)
    assert shown["p_min"] == 0.02
    assert shown["smoothing"] == "greedy"
    assert not shown["reproducible"]
    assert "seed" not in shown


def test_demonstrations_go_to_minari_and_back(
    experts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: Quorum
) -> None:
    pytest.importorskip("minari", reason="Minari is an optional extra")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    demos, again = str(tmp_path / "d.arrow"), str(tmp_path / "again.arrow")
    quorum("demos", "collect", experts_file, "--out", demos, "--trajectories", "2")
    quorum("demos", "export", demos, "--out", "minari:cartpole/experts-v0")
    quorum("demos", "import", "minari:cartpole/experts-v0", "--out", again, "--actions", "2",
           "--observations", "4", "--horizon", "200")  # fmt: skip
    first, second = open_demonstrations(demos), open_demonstrations(again)
    assert (first.columns.observations == second.columns.observations).all()
    assert (first.episodes.expert == second.episodes.expert).all()


def test_agreement_is_drawn_when_the_user_accepts_that_it_is_not_private(
    experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    demos, picture = tmp_path / "d.arrow", tmp_path / "a.png"
    quorum("demos", "collect", experts_file, "--out", demos, "--trajectories", "2")
    curve = quorum.facts("demos", "agreement", demos, experts_file, "--picture", picture,
                         "--diagnostics-not-private")["mean"]  # fmt: skip
    assert 0.02 <= curve[0] <= 0.98
    assert picture.stat().st_size > 1000


def test_an_interrupted_training_leaves_what_is_needed_to_go_on(
    tmp_path: Path, quorum: Quorum
) -> None:
    path = tmp_path / "experts.safetensors"
    words = ("experts", "train", "CartPole", "--out", str(path), *TINY, "--steps", "400000")
    begun = subprocess.Popen(
        [sys.executable, "-m", "quorum_rl", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert begun.stdout is not None
    begun.stdout.readline()  # "4 agents …": training is about to start
    time.sleep(1)
    os.kill(begun.pid, signal.SIGINT)
    _, said = begun.communicate(timeout=120)
    unfinished = tmp_path / "experts.safetensors.unfinished"
    assert begun.returncode == 130, said
    assert unfinished.exists()
    assert not path.exists()
    assert "goes on" in said
    assert "total_steps" in quorum.refused(*words[:-1], "2048")
    assert unfinished.exists()
