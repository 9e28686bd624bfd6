"""The queue of all results: what is in it, and when its jobs begin and end."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from quorum_rl.cli import command_of
from quorum_rl.commands.paper import Paper

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", name="queue")
def _queue() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("paper_queue")
    finally:
        sys.path.pop(0)


def made(
    queue: Any, jobs: list[Any], folder: Path, **options: Any
) -> tuple[dict[str, str], list[str]]:
    told: list[str] = []
    given = {"at_once": 2, "seconds": 20.0, "pause": 0.02} | options
    states = queue.run(jobs, logs=folder, environment={}, tell=told.append, **given)
    return states, [line.split(" s  ")[1].split(",")[0] for line in told]


def shell(queue: Any, name: str, line: str = "true", **options: Any) -> Any:
    return queue.Job(name, ("/bin/sh", "-c", line), **options)


def test_every_result_of_the_page_has_its_job_and_the_other_way_round(queue: Any) -> None:
    """But for experts of another seed, which defaults were chosen on."""
    worlds = {world.lower(): world for world in queue.WORLDS}
    names = {job.name for job in queue.jobs(())}
    for file in (ROOT / "results" / "paper").glob("*.json"):
        world, *parts = file.stem.split("-")
        if parts == ["experts", "seed", "2"]:
            continue
        if parts == ["experts"]:
            assert f"{worlds[world]} demonstrations" in names
            continue
        learner, stage, *rest = parts
        if rest[:1] == ["experts"]:
            stage, rest = "counts", []
        if stage == "grid":
            rest = []
        epsilon = rest[:1] if stage == "published" else []
        optimiser = ["sgd"] if "sgd" in rest else []
        assert " ".join([worlds[world], stage, learner, *epsilon, *optimiser]) in names
    assert len(names) == len(queue.jobs(()))


def test_a_job_that_is_asked_for_brings_what_it_reads_and_nothing_else(queue: Any) -> None:
    names = [job.name for job in queue.chosen(queue.jobs(()), ["HIV comparison bcq"])]
    assert names == ["HIV experts", "HIV demonstrations", "HIV comparison bcq"]
    assert queue.chosen(queue.jobs(()), ["no such job"]) == []


def test_quorum_paper_understands_every_command(queue: Any) -> None:
    for job in queue.jobs(("--expert-seed", "1")):
        asked = command_of(job.command[4:])
        assert isinstance(asked, Paper)
        assert job.name.startswith(f"{asked.world} {asked.stage}")
        assert (asked.paper_optimiser == "sgd") == job.name.endswith("sgd")


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
    jobs = [shell(queue, "too long", seconds=9.0), shell(queue, "hangs", "sleep 60")]
    states, _ = made(queue, jobs, tmp_path, seconds=0.5)
    assert states == {"too long": "late", "hangs": "stopped"}


def test_the_urgent_are_served_first_by_the_gpu(queue: Any, tmp_path: Path) -> None:
    line = "echo $CUDA_MPS_CLIENT_PRIORITY"
    made(queue, [shell(queue, "one", line, urgent=True), shell(queue, "two", line)], tmp_path)
    assert [(tmp_path / f"{name}.log").read_text() for name in ("one", "two")] == ["0\n", "1\n"]
    urgent = {job.name for job in queue.jobs(()) if job.urgent}
    assert {"LunarLander experts", "LunarLander published cql 10 sgd"} <= urgent
