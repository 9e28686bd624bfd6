"""The queue of all results: what is in it, and when its jobs begin and end."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts import ROOT, script

from quorum_rl.cli.main import command_of
from reproduction.paper import Paper


@pytest.fixture(scope="module", name="queue")
def _queue() -> Any:
    return script("benchmarks", "paper_queue")


def made(queue: Any, jobs: list[Any], folder: Path, **options: Any) -> tuple[dict[str, str], Any]:
    told: list[str] = []
    given = {"at_once": 2, "limit": 20.0, "pause": 0.02, "tell": told.append} | options
    states = queue.Queue(jobs=jobs, logs=folder, environment={}, **given).run()
    return states, [line.split(" s  ")[1].split(",")[0] for line in told]


def shell(queue: Any, name: str, line: str = "true", **options: Any) -> Any:
    return queue.Job(name=name, command=("/bin/sh", "-c", line), **options)


@pytest.fixture(name="every")
def _every(queue: Any, tmp_path: Path) -> list[Any]:
    return list(queue.Evaluation(tmp_path, ("--expert-seed", "1")).jobs())


def results(world: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The results of the page with the names of their jobs; none that defaults were chosen on."""
    for file in sorted((ROOT / "results" / "paper").glob(f"{world.lower()}-*.json")):
        facts = json.loads(file.read_text())
        parts: list[str] = [*facts["stage"].split("-"), ""]
        learner, stage, mark = parts[0], parts[1], parts[2] if len(parts) > 2 else ""
        optimiser = facts["configuration"].get("optimiser", "adam")
        scale = parts[parts.index("rewards") + 1] if "rewards" in parts else ""
        raw = {"": "", "1.0": " raw rewards"}.get(scale, f" rewards {scale}")
        if facts["stage"] == "experts":
            yield f"{world} demonstrations", facts
        elif stage == "published":
            yield f"{world} published {learner} {mark} {optimiser}{raw}", facts
        elif stage == "ablation":
            yield f"{world} ablation {learner} {optimiser}{raw}", facts
        elif stage in ("comparison", "grid"):
            yield f"{world} {stage} {learner}{raw}", facts
        elif mark == "experts":
            yield f"{world} counts {learner}", facts
        else:
            assert facts["stage"] == "experts-seed-2"


def test_every_result_of_the_page_has_a_job_that_runs_it_as_it_was_run(
    queue: Any, every: list[Any]
) -> None:
    asked = {job.name: command_of(job.command[4:]) for job in every}
    assert len(asked) == len(every)
    for name, paper in asked.items():
        assert isinstance(paper, Paper)
        assert name.startswith(f"{paper.world} {paper.stage}")
        if paper.stage in ("published", "ablation"):
            raw = " raw rewards" if paper.reward_scale == 1 else ""
            assert name.endswith(f"{paper.paper_optimiser}{raw}")
    for world in queue.WORLDS:
        for name, facts in results(world):
            paper, said = asked[name], facts["configuration"]
            assert isinstance(paper, Paper)
            assert (paper.world, paper.expert_seed) == (world, said["expert_seed"])
            if "seeds" in said:
                assert (paper.seeds, paper.episodes) == (len(said["seeds"]), said["episodes"])
                assert paper.learners == (said["learner"],)
            if paper.reward_scale is not None:
                assert f"reward_scale={paper.reward_scale}," in said["learner_settings"]
            if "bound_steps" in said:
                assert paper.bound_steps == said["bound_steps"]
            if paper.stage == "grid":
                assert paper.steps == said["steps"]


def test_no_job_is_begun_that_could_not_end_or_refused_that_could(
    queue: Any, every: list[Any]
) -> None:
    """By the seconds that results took, beside others, some of which were halted meanwhile."""
    takes = {job.name: job.at_least for job in every}
    for world in queue.WORLDS:
        for name, facts in results(world):
            if "published" in name:
                assert takes[name] <= max(facts["seconds"], 50)
                assert takes[name] >= facts["seconds"] / 3 or facts["seconds"] < 200


def test_a_job_that_is_asked_for_brings_what_it_reads_unless_that_is_there(
    queue: Any, every: list[Any], tmp_path: Path
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
    queue: Any,
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


def test_jobs_wait_for_what_they_read_and_go_in_their_order(queue: Any, tmp_path: Path) -> None:
    jobs = [
        shell(queue, "last", after=("first", "second")),
        shell(queue, "first", "sleep 0.2"),
        shell(queue, "second"),
    ]
    states, told = made(queue, jobs, tmp_path)
    assert set(states.values()) == {"done"}
    assert told[:2] == ["running: first", "running: second"]
    assert told[-2:] == ["running: last", "done: last"]


def test_jobs_begin_as_soon_as_what_they_read_is_complete(queue: Any, tmp_path: Path) -> None:
    """A job may have more to do than to make the file that others wait for."""
    file = tmp_path / "made"
    jobs = [
        shell(queue, "makes it", f"touch {file}; sleep 0.5", makes=file),
        shell(queue, "reads it", after=("makes it",)),
        shell(queue, "behind", behind="reads it"),
    ]
    states, told = made(queue, jobs, tmp_path)
    assert set(states.values()) == {"done"}
    assert told.index("done: reads it") < told.index("done: makes it")
    file.unlink()
    failed = [shell(queue, "makes it", "exit 3", makes=file), *jobs[1:2]]
    states, _ = made(queue, failed, tmp_path)
    assert states == {"makes it": "failed", "reads it": "waiting"}


def test_no_more_run_at_once_than_may_and_none_beside_one_that_needs_the_memory(
    queue: Any, tmp_path: Path
) -> None:
    jobs = [shell(queue, name, "sleep 0.1") for name in ("a", "b", "c")]
    _, told = made(queue, [*jobs, shell(queue, "alone", behind="c")], tmp_path)
    running = most = 0
    for line in told:
        running += 1 if line.startswith("running") else -1
        most = max(most, running)
    assert most == 2
    assert told.index("done: c") < told.index("running: alone")
    states, _ = made(queue, [shell(queue, "alone", behind="one that is not run")], tmp_path)
    assert states == {"alone": "done"}


def test_what_fails_is_said_and_what_reads_it_never_begins(queue: Any, tmp_path: Path) -> None:
    jobs = [
        shell(queue, "wrong", "echo no; exit 3"),
        shell(queue, "reads it", after=("wrong",)),
        shell(queue, "other"),
    ]
    states, _ = made(queue, jobs, tmp_path)
    assert states == {"wrong": "failed", "reads it": "waiting", "other": "done"}
    assert (tmp_path / "wrong.log").read_text() == "no\n"


def test_what_cannot_end_in_time_is_not_begun_and_what_has_not_is_stopped(
    queue: Any, tmp_path: Path
) -> None:
    jobs = [shell(queue, "too long", at_least=9.0), shell(queue, "hangs", "sleep 60")]
    states, _ = made(queue, jobs, tmp_path, limit=0.5)
    assert states == {"too long": "late", "hangs": "stopped"}


def test_the_urgent_are_served_first(queue: Any, tmp_path: Path) -> None:
    line = "echo $CUDA_MPS_CLIENT_PRIORITY $(nice)"
    made(queue, [shell(queue, "one", line, urgent=True), shell(queue, "two", line)], tmp_path)
    said = [(tmp_path / f"{name}.log").read_text().split() for name in ("one", "two")]
    assert [first for first, _ in said] == ["0", "1"]
    assert int(said[1][1]) == min(int(said[0][1]) + 10, 19)  # there is nothing nicer


def test_nothing_waits_for_one_that_cannot_come(queue: Any, tmp_path: Path) -> None:
    jobs = [
        shell(queue, "wrong", "exit 3"),
        shell(queue, "alone", behind="never"),
        shell(queue, "never", after=("wrong",)),
    ]
    states, _ = made(queue, jobs, tmp_path)
    assert states == {"wrong": "failed", "alone": "done", "never": "waiting"}


def test_no_process_is_left_if_the_queue_breaks(
    queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that does not listen to being asked."""
    monkeypatch.setattr(queue, "GRACE", 0.3)
    begun: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    def noted(*words: Any, **options: Any) -> Any:
        begun.append(begin(*words, **options))
        return begun[-1]

    monkeypatch.setattr(queue.subprocess, "Popen", noted)

    def broken(line: str) -> None:
        if "running: last" in line:
            raise KeyboardInterrupt

    deaf = "trap '' INT; sleep 60"
    with pytest.raises(KeyboardInterrupt):
        made(queue, [shell(queue, "deaf", deaf), shell(queue, "last", deaf)], tmp_path, tell=broken)
    assert len(begun) == 2
    assert all(process.returncode is not None for process in begun)
