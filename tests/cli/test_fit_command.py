"""`quorum fit`: what it writes, says and refuses, and how it goes on."""

import json
import signal
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Quorum, everything_in, forget, networks

from quorum_rl.budget import read_ledger
from quorum_rl.cli.configuration import going_on
from quorum_rl.cli.fit import Fit
from quorum_rl.cli.main import command_of
from quorum_rl.cli.parser import flags_of
from quorum_rl.errors import Interrupted
from quorum_rl.learners import Cql, learner_to_json
from quorum_rl.logs import open_demonstrations
from quorum_rl.pipeline import FitSettings
from quorum_rl.policy import Policy
from quorum_rl.privacy import ReleaseEvent, TrainingEvent, event_to_json, total_epsilon

BUDGET = ("--epsilon", "20", "--delta", "1e-3")
SMALL = ("--method", "selective", "--minimum-experts", "136", "--hidden", "4",
         "--private-steps", "10", "--sampling-rate",
         "0.1", "--transitions-per-expert", "2", "--batch-size", "8", "--release-only-steps", "10",
         "--least-released", "1",
         "--accept", "one-expert-each", "floor-everywhere")  # fmt: skip
STANDARDISING = ("--observation-centre", "0", "-0.5", "0.1", "1", "--observation-scale", "1", "2",
                 "0.1", "3")  # fmt: skip
RELEASING = ("--iterations", "4", "--release-share", "0.9")


def test_a_fit_from_files_ends_in_a_policy_and_prints_nothing_but_its_facts(
    log: Path, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    folder = tmp_path / "run"
    facts = quorum.facts("fit", log, experts_file, *BUDGET, *SMALL, *RELEASING, "--folder", folder)
    assert "release: 4 trajectories" in quorum.err
    record = read_ledger(folder / "ledger.jsonl")
    assert [type(event) for event in record.events] == [ReleaseEvent, TrainingEvent]
    assert facts["epsilon"] == pytest.approx(total_epsilon(record.events, 1e-3), abs=1e-4)
    assert facts["epsilon"] <= 20
    assert facts["private_steps"] == 10
    assert facts["policy"] == str(folder / "policy.safetensors")
    assert Policy.load(facts["policy"]).act(np.zeros((3, 4))).shape == (3,)
    assert Policy.load(facts["policy"]).world == "CartPole"
    assert {path.name for path in folder.iterdir()} >= {"policy.onnx", "config.toml", "config.json"}
    (line,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    assert line["step"] == 11  # ten private ones, and one without noise
    assert np.isfinite(line["loss_on_released"])


def test_a_run_is_repeated_from_its_own_configuration(
    log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    """To the bit where it had a seed; the second run pays again, into a ledger of its own."""
    first, second = tmp_path / "first", tmp_path / "second"
    quorum("fit", log, *BUDGET, *SMALL, *STANDARDISING, "--seed", "5", "--folder", first)
    forget(log)
    quorum("fit", "--config", first / "config.toml", "--folder", second)
    assert networks(first) == networks(second)
    for folder in (first, second):
        assert len(read_ledger(folder / "ledger.jsonl").charges) == 1
    words: Any = command_of(["fit", "--config", str(second / "config.toml")])
    assert words.folder == second
    assert words.settings.private_steps == 10
    written = json.loads((second / "config.json").read_text())["learner"]
    wanted = Cql(
        hidden_sizes=(4,),
        observation_centre=(0.0, -0.5, 0.1, 1.0),
        observation_scale=(1.0, 2.0, 0.1, 3.0),
    )
    assert written == json.loads(json.dumps(learner_to_json(wanted)))


def test_a_second_fit_of_a_log_names_its_ledger_and_the_words_that_go_past_it(
    log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    fit = ("fit", log, *BUDGET, *SMALL, "--folder")
    quorum(*fit, tmp_path / "first")
    ledger = tmp_path / "first" / "ledger.jsonl"
    for words in ((), ("--dry-run",)):
        said = quorum.refused_for_free(tmp_path, *fit, tmp_path / "second", *words)
        assert f"'{log}' belongs to the ledger '{ledger}', and another one would not count" in said
        assert f"charge this to it (--ledger {ledger}); or, if these are other experts, acc" in said
    quorum(*fit, tmp_path / "second", "--accept", "one-expert-each", "other-experts")
    assert "these are other experts than those of the ledger" in quorum(
        "certificate", "show", tmp_path / "second"
    )
    assert "holds and agrees" in quorum("certificate", "verify", tmp_path / "second")


def test_without_a_seed_none_is_written_down(log: Path, tmp_path: Path, quorum: Quorum) -> None:
    quorum("fit", log, *BUDGET, *SMALL, "--folder", tmp_path / "run")
    assert "seed" not in tomllib.loads((tmp_path / "run" / "config.toml").read_text())["fit"]


def test_ctrl_c_keeps_what_was_done_and_names_the_command_that_goes_on(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: Quorum
) -> None:
    from quorum_rl.training import loop

    folder, whole = tmp_path / "run", tmp_path / "whole"
    fit = ("fit", log, *BUDGET, *SMALL, "--private-steps", "501", "--seed", "5", "--folder")
    ran = loop._finite

    def interrupted_in_the_first_chunk(tree: Any) -> bool:
        signal.raise_signal(signal.SIGINT)
        return ran(tree)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_finite", interrupted_in_the_first_chunk)
        quorum(*fit, folder, status=130)
    assert "stopped after 250 of 501 steps" in quorum.err
    command = quorum.err.rpartition("Go on with: quorum ")[2].split()
    quorum("report", folder)
    quorum(*command)
    assert not (folder / "report.html").exists()  # it said that the run was not finished
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1
    forget(log)
    quorum(*fit, whole)
    assert networks(folder) == networks(whole)


def test_training_after_a_release_costs_no_more_than_what_both_may(
    log: Path, experts_file: Path, planned: Path, tmp_path: Path, quorum: Quorum
) -> None:
    ledger, released, folder = (tmp_path / name for name in ("ledger", "out.parquet", "run"))
    train = ["fit", log, "--released", released, "--ledger", ledger, *SMALL, "--folder", folder]
    quorum("ledger", "create", ledger, "--epsilon", "40", "--delta", "2e-3")
    quorum("release", log, experts_file, "--plan", planned, "--ledger", ledger, "--out", released,
           "--accept", "one-expert-each", "floor-everywhere")  # fmt: skip
    said = quorum.refused(*train, "--epsilon", "1", "--delta", "2e-3")
    assert "nothing is left for training" in said
    assert len(read_ledger(ledger).charges) == 1
    assert quorum.facts(*train, "--epsilon", "25", "--delta", "2e-3")["private_steps"] == 10
    events = read_ledger(ledger).events
    assert [type(event) for event in events] == [ReleaseEvent, TrainingEvent]
    assert 24 < total_epsilon(events, 2e-3) <= 25
    assert not (folder / "ledger.jsonl").exists()
    assert (folder / "metrics.jsonl").read_text()


def test_a_release_that_the_ledger_does_not_hold_is_refused(
    log: Path, experts_file: Path, planned: Path, tmp_path: Path, quorum: Quorum
) -> None:
    ledger, other, released = (tmp_path / name for name in ("ledger", "other", "out.parquet"))
    for path in (ledger, other):
        quorum("ledger", "create", path, "--epsilon", "40", "--delta", "2e-3")
    quorum("release", log, experts_file, "--plan", planned, "--ledger", ledger, "--out", released,
           "--accept", "one-expert-each", "floor-everywhere")  # fmt: skip
    again = tmp_path / "again.arrow"
    quorum("demos", "collect", experts_file, "--out", again, "--p-min", "0.1", "--trajectories",
           "5", "--param", "time_limit", "8")  # fmt: skip
    train = ("fit", "--released", released, "--epsilon", "25", "--delta", "2e-3", *SMALL,
             "--folder", tmp_path / "run")  # fmt: skip
    for words, says in (
        ((log, "--ledger", other), "another ledger"),
        ((log,), "--ledger"),
        ((again, "--ledger", ledger), "holds no release"),
        ((log, "--ledger", ledger, "--method", "dp-sgd"), "does not learn from released data"),
        ((log, experts_file, "--ledger", ledger), "leave out EXPERTS"),
        ((log, "--ledger", ledger, "--dry-run"), "leave out --dry-run"),
    ):
        assert says in quorum.refused_for_free(tmp_path, *train, *words)


def test_a_dry_run_says_what_would_be_charged_and_writes_nothing(
    log: Path, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    """The same as the fit says and does afterwards."""
    folder = tmp_path / "run"
    words = ["fit", log, experts_file, *BUDGET, *SMALL, *RELEASING, "--folder", folder]
    before = everything_in(tmp_path)
    shown = quorum(*words, "--dry-run")
    facts = quorum.facts(*words, "--dry-run")
    assert everything_in(tmp_path) == before
    assert "nothing was charged" in shown
    assert len(facts["charges"]) == 2
    assert facts["spends"] <= 20
    assert facts["refused"] is None
    assert shown.partition("only a plan")[0] in quorum(*words)
    events = read_ledger(folder / "ledger.jsonl").events
    assert facts["charges"] == [event_to_json(event) for event in events]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--epsilon", "0"), "epsilon is 0"),
        (("--epsilon", "-3"), "epsilon is -3"),
        (("--epsilon", "inf"), "epsilon is inf"),
        (("--epsilon", "0.01"), "mostly noise"),
        (("--delta", "1"), "delta is 1"),
        (("--delta", "0"), "delta is 0"),
        (("--minimum-experts", "1"), "minimum_experts is 1"),
        (("--private-share", "0"), "private_share is 0"),
        (("--clip-norm", "-1"), "-1"),
        (("--method", "non-private"), "--diagnostics-not-private"),
        (("--accept",), "one-expert-each"),
        (("--accept", "no-such-thing"), "no-such-thing"),
        (("--seed", "-1"), "seed"),
        (("--observation-centre", "0", "1", "--observation-scale", "1", "2"),
         "observation_centre is (0.0, 1.0): give 4 numbers, or none."),
        (("--learner", "own.py:NOT"), "has no learner called 'NOT'"),
        (("--learner", "own.py:Nobody"), "has no learner called 'Nobody'"),
        (("--learner", "own.py:DenseLearner"), "has no learner called 'DenseLearner'"),
        (("--learner", "own.pyx:Mine"), "there is no file"),
        (("--ledger", "ledger"), "over the ledger's budget of 5"),
    ],
)  # fmt: skip
def test_a_fit_that_makes_no_sense_is_refused_at_no_cost_and_so_is_its_dry_run(
    words: tuple[str, ...],
    says: str,
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quorum: Quorum,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    quorum("ledger", "create", "ledger", "--epsilon", "5", "--delta", "1e-3")
    fit = ("fit", log, *BUDGET, *SMALL, "--method", "local", *words, "--folder", "run")
    for more in ((), ("--dry-run",)):
        assert says in quorum.refused_for_free(tmp_path, *fit, *more)


def test_a_dry_run_knows_a_folder_that_is_none(log: Path, quorum: Quorum) -> None:
    words = ("fit", str(log), *BUDGET, *SMALL, "--method", "local", "--folder", str(log))
    said = quorum.refused(*words, "--dry-run")
    assert "is a file: choose another folder" in said
    assert quorum.refused(*words) == said


@pytest.mark.parametrize("least", ["136", "137"])
def test_a_plan_says_where_nobodys_removal_is_covered(
    least: str, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    said = quorum("fit", log, *BUDGET, *SMALL, "--method", "local", "--minimum-experts", least,
                  "--folder", tmp_path / "run", "--dry-run")  # fmt: skip
    assert ("nobody's removal" in " ".join(said.split())) is (least == "137")


def test_a_dry_run_knows_which_logs_the_ledger_has_used_up(
    log: Path, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    """As the fit says it, word for word."""
    ledger = tmp_path / "ledger"
    quorum("ledger", "create", ledger, "--epsilon", "60", "--delta", "1e-2")
    again = ["--ledger", str(ledger), "--folder", str(tmp_path / "run")]
    local = ["fit", str(log), *BUDGET, *SMALL, "--method", "local", *again]
    releasing = ["fit", str(log), str(experts_file), *BUDGET, *SMALL, *RELEASING, *again]
    quorum(*local[:-1], tmp_path / "first")
    quorum(*local, "--dry-run")  # a log may be trained on twice
    said = quorum.refused(*releasing, "--dry-run")
    assert "a training has read all trajectories" in said
    assert quorum.refused(*releasing).endswith(said)


@pytest.mark.parametrize("used", ["released", "trained"])
@pytest.mark.parametrize("own_ledger", [False, True])
def test_a_dry_run_heeds_the_markers_beside_a_log(
    used: str, own_ledger: bool, log: Path, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    """Left under another ledger, whoever the experts are. As the fit says it, word for word."""
    witness = {"log": open_demonstrations(log).declared.identity, "ledger": "another"}
    log.with_name(f"{log.name}.{used}").write_text(json.dumps(witness))
    ledger = tmp_path / "ledger"
    quorum("ledger", "create", ledger, "--epsilon", "60", "--delta", "1e-2")
    more = [*BUDGET, *SMALL, "other-experts", "--folder", str(tmp_path / "run")]
    more += ["--ledger", str(ledger)] * own_ledger
    local = ["fit", str(log), *more, "--method", "local"]
    releasing = ["fit", str(log), str(experts_file), *more, *RELEASING]
    for words, sentences in (
        (releasing, {"released": "has begun already", "trained": "has read all trajectories"}),
        (local, {"released": "were released under another ledger"}),
    ):
        if used in sentences:
            said = quorum.refused_for_free(tmp_path, *words, "--dry-run")
            assert sentences[used] in said
            assert quorum.refused_for_free(tmp_path, *words) == said
        else:
            quorum(*words, "--dry-run")


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from quorum_rl.learners import Bc, DenseLearner

@dataclass(frozen=True, kw_only=True)
class Mine(Bc):
    strength: float = 2.0
    name: ClassVar[str] = "mine"

    def loss_from_outputs(self, outputs, goal, transition):
        return self.strength * super().loss_from_outputs(outputs, goal, transition)

MADE = Mine(hidden_sizes=(3,), strength=3.0)
NOT = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


def test_a_learner_of_ones_own_is_fitted_evaluated_reported_and_published(
    own: str, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    folder = tmp_path / "run"
    named = ("--learner", f"{own}:Mine")
    quorum("fit", log, *BUDGET, *SMALL, "--folder", folder, *named)
    written = json.loads((folder / "config.json").read_text())["learner"]
    assert (written["name"], written["strength"]) == ("mine", 2.0)
    assert written["hidden_sizes"] == [4]
    assert Policy.load(folder / "policy.safetensors").learner == "mine"
    quorum("evaluate", folder, "--episodes", "2")
    quorum("report", folder)
    quorum("publish", folder, "--out", tmp_path / "bundle")
    quorum("certificate", "verify", tmp_path / "bundle")
    again = tmp_path / "again"
    config = ("--config", str(folder / "config.toml"), "--folder", str(again))
    assert "name it on the command line too" in quorum.refused("fit", *config)
    command: Any = command_of(["fit", *config, *named])
    forget(log)
    command.run()
    assert json.loads((again / "config.json").read_text())["learner"] == written
    with pytest.raises(Interrupted, match=f"{' '.join(named)}$"), going_on(["fit"], command):
        raise Interrupted("stopped.")


def test_a_run_goes_on_with_the_code_of_an_own_learner_that_it_began_with(
    own: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: Quorum
) -> None:
    """The noise is drawn by the step's number: with other code it would meet other sums."""
    from quorum_rl.training import loop

    def stopped(_: Any) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    folder = tmp_path / "run"
    words = ["fit", str(log), *BUDGET, *SMALL, "--folder", str(folder), "--learner", f"{own}:Mine"]
    with monkeypatch.context() as patched:
        patched.setattr(loop, "_finite", stopped)
        quorum(*words, status=130)
    Path(own).write_text(OWN.replace("return self.strength", "return 2 * self.strength"))
    assert "was begun with learner_code" in quorum.refused(*words)
    Path(own).write_text(OWN)
    quorum(*words)
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1


def test_a_sweep_takes_an_own_learner_too(
    own: str, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    small = ("--private-steps", "3", "--transitions-per-expert", "1", "--minimum-experts", "136")
    words = (str(log), *BUDGET, *small, "--hidden", "--learner", f"{own}:Mine")
    sweep = tmp_path / "sweep"
    (tmp_path / "s.toml").write_text("[sweep.grid]\nclip-norm = [0.1, 0.2]\n")
    quorum("sweep", *words, "--config", tmp_path / "s.toml", "--folder", sweep, "--episodes", "1",
           "--seeds", "1")  # fmt: skip
    assert Policy.load(sweep / "winner" / "policy.safetensors").learner == "mine"


def test_an_own_learner_that_is_made_already_is_taken_as_it_is(
    own: str, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    small = [word for word in SMALL if word not in ("--hidden", "4")]
    words = ("fit", str(log), *BUDGET, *small, "--learner", f"{own}:MADE")
    assert "hidden_sizes" in quorum.refused(*words, "--hidden", "4", "--folder", tmp_path / "no")
    assert not (tmp_path / "no").exists()
    quorum(*words, "--folder", tmp_path / "run")
    written = json.loads((tmp_path / "run" / "config.json").read_text())["learner"]
    assert (written["strength"], written["hidden_sizes"]) == (3.0, [3])


def test_every_setting_of_a_fit_is_a_flag_with_help_and_a_name_of_its_own() -> None:
    wanted = {field.name for field in fields(FitSettings)} - {"contribution"}  # code is Python's
    flags = [flag for flag in flags_of(Fit) if flag.within == "settings"]
    assert {flag.field for flag in flags} == wanted
    assert FitSettings(**{flag.field: flag.default for flag in flags}) == FitSettings()
