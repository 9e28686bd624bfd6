"""The queue of all results: what is in it, and when its jobs begin."""

import sys
from pathlib import Path
from typing import Any

import pytest

from quorum_rl.cli.parser import parse
from quorum_rl.errors import QuorumError
from reproduction import queue
from reproduction.paper import Paper
from reproduction.queue import Job
from reproduction.results import study


@pytest.fixture(name="every")
def _every(tmp_path: Path) -> list[Job]:
    return queue.Evaluation(tmp_path, ("--expert-seed", "1")).jobs()


def job_of(facts: dict[str, Any]) -> str:
    """The name of the job that makes a result; none for what defaults were chosen on."""
    stage, chosen = facts["stage"], facts["configuration"]
    world, learner = facts["world"], chosen.get("learner", "")
    optimiser, end = chosen.get("optimiser", "adam"), ""
    if "rewards" in stage:
        scale = stage.split("rewards-")[1].removesuffix("-sgd")
        end = " raw rewards" if scale == "1.0" else f" rewards {scale}"
    if stage.startswith("experts"):
        return f"{world} demonstrations" if stage == "experts" else ""
    if "published" in stage:
        return f"{world} published {learner} {stage.split('-')[2]} {optimiser}{end}"
    if "ablation" in stage:
        return f"{world} ablation {learner} {optimiser}{end}"
    if stage.endswith("-experts"):
        return f"{world} counts {learner}"
    return f"{world} {stage.split('-')[1]} {learner}{end}"


def test_every_result_of_the_page_has_a_job_that_runs_it_as_it_was_run(every: list[Job]) -> None:
    asked = {job.name: parse(Paper, job.command[4:]) for job in every}
    assert len(asked) == len(every)
    for facts in study("paper").values():
        name, chosen = job_of(facts), facts["configuration"]
        if not name:
            continue
        paper = asked[name]
        assert (paper.world, paper.expert_seed) == (facts["world"], chosen["expert_seed"])
        if "seeds" in chosen:
            assert (paper.seeds, paper.episodes) == (len(chosen["seeds"]), chosen["episodes"])
            assert paper.learners == (chosen["learner"],)
        if paper.reward_scale is not None:
            assert f"reward_scale={paper.reward_scale}," in chosen["learner_settings"]
        if "bound_steps" in chosen:
            assert paper.bound_steps == chosen["bound_steps"]
        if paper.stage == "grid":
            assert paper.steps == chosen["steps"]


def test_a_job_that_is_asked_for_brings_what_it_reads_unless_that_is_there(
    every: list[Job], tmp_path: Path
) -> None:
    def names(*words: str) -> list[str]:
        return [job.name for job in queue.asked_for(every, words)]

    last = "HIV comparison bcq"
    assert names(last) == ["HIV experts", "HIV demonstrations", last]
    (tmp_path / "hiv").mkdir()
    (tmp_path / "hiv" / "experts.safetensors").touch()
    assert names(last) == ["HIV demonstrations", last]
    (tmp_path / "hiv" / "demonstrations.arrow").touch()
    assert names(last) == [last]
    assert len(names()) == len(every) - 2
    with pytest.raises(QuorumError, match="'no such job', and no job has that in its name"):
        names(last, "no such job")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at-once", "0"], "--at-once is 0: give at least 1"),
        (["--only", "nosuch"], "--only has 'nosuch', and no job has that in its name"),
        (["--list", "--folder", __file__], "test_paper_queue.py' is a file, and is to be a folder"),
        (["--results", f"{__file__}/in"], "test_paper_queue.py' is a file, and is to be a folder"),
    ],
)
def test_bad_input_gets_one_sentence(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["queue", *words])
    with pytest.raises(SystemExit) as ended:
        queue.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def shell(name: str, line: str = "true", after: str | None = None) -> Job:
    return Job(name, ("/bin/sh", "-c", line), after)


def ran(jobs: list[Job], folder: Path, at_once: int = 2) -> tuple[dict[str, bool], list[str]]:
    told: list[str] = []
    states = queue.run(jobs, at_once, folder, {}, told.append)
    return states, [line.split(" s  ")[-1] for line in told]


def test_jobs_go_in_their_order_and_wait_for_what_they_read(tmp_path: Path) -> None:
    jobs = [shell("first", "sleep 0.2"), shell("second"), shell("last", after="first")]
    states, told = ran(jobs, tmp_path)
    assert all(states.values())
    assert set(told[:2]) == {"running: first", "running: second"}
    assert told[-2:] == ["running: last", "done: last"]


def test_no_more_run_at_once_than_may(tmp_path: Path) -> None:
    _, told = ran([shell(name, "sleep 0.1") for name in "abcd"], tmp_path)
    running = most = 0
    for line in told:
        running += 1 if line.startswith("running") else -1
        most = max(most, running)
    assert most == 2


def test_what_fails_is_said_and_what_reads_it_never_begins(tmp_path: Path) -> None:
    jobs = [shell("wrong", "echo no; exit 3"), shell("reads it", after="wrong"), shell("other")]
    states, told = ran(jobs, tmp_path)
    assert states == {"wrong": False, "reads it": False, "other": True}
    assert (tmp_path / "wrong.log").read_text() == "no\n"
    assert "not begun: reads it" in told
    assert "running: reads it" not in told
