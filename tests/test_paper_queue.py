"""The queue of all results: what is in it, and when its jobs begin and end."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from reproduction import queue
from reproduction.paper import Paper
from reproduction.queue import Job
from reproduction.results import study


def made(jobs: list[Job], folder: Path, **options: Any) -> tuple[dict[str, str], list[str]]:
    told: list[str] = []
    given: dict[str, Any] = {
        "at_once": 2,
        "limit": 20.0,
        "pause": 0.02,
        "tell": told.append,
    } | options
    states = queue.Queue(jobs=jobs, logs=folder, environment={}, **given).run()
    return states, [line.split(" s  ")[1].split(",")[0] for line in told]


def shell(name: str, line: str = "true", **options: Any) -> Job:
    return Job(name=name, command=("/bin/sh", "-c", line), **options)


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
    asked = {job.name: tyro.cli(Paper, args=job.command[4:]) for job in every}
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
    with pytest.raises(ValueError, match="'no such job', and no job has that in its name"):
        names(last, "no such job")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--at-once", "0"], "--at-once is 0: give at least 1"),
        (["--minutes", "nan"], "--minutes is nan: give more than 0"),
        (["--only", "nosuch"], "--only has 'nosuch', and no job has that in its name"),
        (["--only"], "expected at least one argument"),
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
    monkeypatch.setattr(sys, "argv", ["paper_queue.py", *words])
    with pytest.raises(SystemExit) as ended:
        queue.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_jobs_wait_for_what_they_read_and_go_in_their_order(tmp_path: Path) -> None:
    jobs = [
        shell("last", after=("first", "second")),
        shell("first", "sleep 0.2"),
        shell("second"),
    ]
    states, told = made(jobs, tmp_path)
    assert set(states.values()) == {"done"}
    assert told[:2] == ["running: first", "running: second"]
    assert told[-2:] == ["running: last", "done: last"]


def test_jobs_begin_as_soon_as_what_they_read_is_complete(tmp_path: Path) -> None:
    """A job may have more to do than to make the file that others wait for."""
    file = tmp_path / "made"
    jobs = [
        shell("makes it", f"touch {file}; sleep 0.5", makes=file),
        shell("reads it", after=("makes it",)),
        shell("behind", behind="reads it"),
    ]
    states, told = made(jobs, tmp_path)
    assert set(states.values()) == {"done"}
    assert told.index("done: reads it") < told.index("done: makes it")
    file.unlink()
    failed = [shell("makes it", "exit 3", makes=file), *jobs[1:2]]
    states, _ = made(failed, tmp_path)
    assert states == {"makes it": "failed", "reads it": "waiting"}


def test_no_more_run_at_once_than_may_and_none_beside_one_that_needs_the_memory(
    tmp_path: Path,
) -> None:
    jobs = [shell(name, "sleep 0.1") for name in ("a", "b", "c")]
    _, told = made([*jobs, shell("alone", behind="c")], tmp_path)
    running = most = 0
    for line in told:
        running += 1 if line.startswith("running") else -1
        most = max(most, running)
    assert most == 2
    assert told.index("done: c") < told.index("running: alone")
    states, _ = made([shell("alone", behind="one that is not run")], tmp_path)
    assert states == {"alone": "done"}


def test_what_fails_is_said_and_what_reads_it_never_begins(tmp_path: Path) -> None:
    jobs = [
        shell("wrong", "echo no; exit 3"),
        shell("reads it", after=("wrong",)),
        shell("other"),
    ]
    states, _ = made(jobs, tmp_path)
    assert states == {"wrong": "failed", "reads it": "waiting", "other": "done"}
    assert (tmp_path / "wrong.log").read_text() == "no\n"


def test_what_cannot_end_in_time_is_not_begun_and_what_has_not_is_stopped(tmp_path: Path) -> None:
    jobs = [shell("too long", at_least=9.0), shell("hangs", "sleep 60")]
    states, _ = made(jobs, tmp_path, limit=0.5)
    assert states == {"too long": "late", "hangs": "stopped"}


def test_the_urgent_are_served_first(tmp_path: Path) -> None:
    line = "echo $CUDA_MPS_CLIENT_PRIORITY $(nice)"
    made([shell("one", line, urgent=True), shell("two", line)], tmp_path)
    said = [(tmp_path / f"{name}.log").read_text().split() for name in ("one", "two")]
    assert [first for first, _ in said] == ["0", "1"]
    assert int(said[1][1]) == min(int(said[0][1]) + 10, 19)  # there is nothing nicer


def test_nothing_waits_for_one_that_cannot_come(tmp_path: Path) -> None:
    jobs = [
        shell("wrong", "exit 3"),
        shell("alone", behind="never"),
        shell("never", after=("wrong",)),
    ]
    states, _ = made(jobs, tmp_path)
    assert states == {"wrong": "failed", "alone": "done", "never": "waiting"}


def test_no_process_is_left_if_the_queue_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that does not listen to being asked."""
    monkeypatch.setattr(queue, "GRACE", 0.3)
    begun: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    def noted(*words: Any, **options: Any) -> Any:
        begun.append(begin(*words, **options))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)

    def broken(line: str) -> None:
        if "running: last" in line:
            raise KeyboardInterrupt

    deaf = "trap '' INT; sleep 60"
    with pytest.raises(KeyboardInterrupt):
        made([shell("deaf", deaf), shell("last", deaf)], tmp_path, tell=broken)
    assert len(begun) == 2
    assert all(process.returncode is not None for process in begun)
