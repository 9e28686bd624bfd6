"""Experts on eight devices, and on two processes: the same results as on one device."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits import DELTA, EPSILON, LEARNER, SETTINGS, crowd, fitted, named, weights
from fitted_together import SMALL
from loops import PRIVATE_STEP, run_of, stacked
from spread_over import EXPERTS, log, population, released, trained_on

from quorum_rl.budget import read_ledger
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import plan_fit
from quorum_rl.pipeline.context import said_by_all
from quorum_rl.training import chunks
from quorum_rl.training.contributions import Local
from quorum_rl.training.data import expert_data
from quorum_rl.training.loop import begin
from quorum_rl.training.mapped import mapped_data
from quorum_rl.training.recipe import Recipe
from quorum_rl.training.sources import even_cuts, spread_data

ENDED = 900  # seconds in which a process has ended, however busy the machine is
HERE = Path(__file__).parent
Found = dict[str, Any]


def started(path: Path, devices: int, *process: str) -> "subprocess.Popen[str]":
    """`spread_over.py` under way, with so many devices."""
    rooms = [str(HERE / "support"), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, str(HERE / "support" / "spread_over.py"), path, str(devices), *process],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(rooms)},
        stderr=subprocess.PIPE,
        text=True,
    )


def found_by(path: Path, process: "subprocess.Popen[str]") -> Found:
    _, said = process.communicate(timeout=ENDED)
    assert process.returncode == 0, said
    with np.load(path) as made:
        return dict(made)


@pytest.fixture(scope="module", name="demonstrations")
def _demonstrations() -> Demonstrations:
    made: Demonstrations = log()
    return made


@pytest.fixture(scope="module", name="trained")
def _trained(demonstrations: Demonstrations) -> Found:
    return trained_on(expert_data(demonstrations))


@pytest.fixture(scope="module", name="locally")
def _locally(demonstrations: Demonstrations) -> Found:
    """The same of experts who take steps of their own."""
    return trained_on(expert_data(demonstrations), local=True)


@pytest.fixture(scope="module", name="eight")
def _eight(tmp_path_factory: pytest.TempPathFactory) -> Found:
    path = tmp_path_factory.mktemp("eight") / "found.npz"
    return found_by(path, started(path, 8))


@pytest.fixture(scope="module", name="two")
def _two(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What each of two processes found, each with one device."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    paths = [folder / f"{which}.npz" for which in range(2)]
    under_way = [started(path, 1, str(which), address) for which, path in enumerate(paths)]
    try:
        return [found_by(*one) for one in zip(paths, under_way, strict=True)]
    finally:
        for process in under_way:
            process.kill()  # if one failed, the other waits for it


def same_parameters(found: Found, expected: Found, local: Found) -> None:
    """To the bit: whole numbers are summed, and chunks have one size wherever they are."""
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found[name], leaf)
    for name, leaf in local.items():
        np.testing.assert_array_equal(found[f"locally trained {name}"], leaf)


def test_private_steps_on_eight_devices_are_those_on_one(
    eight: Found, trained: Found, locally: Found
) -> None:
    same_parameters(eight, trained, locally)


def test_each_of_eight_devices_holds_an_eighth_and_at_most_one_expert_more(
    eight: Found, demonstrations: Demonstrations
) -> None:
    largest = np.diff(demonstrations.expert_transition_offsets).max()
    assert len(eight["held"]) == 8
    assert eight["held"].max() <= demonstrations.transition_count / 8 + largest


def test_two_processes_take_the_first_ones_steps(
    two: list[Found], trained: Found, locally: Found
) -> None:
    """Each has a secret key of its own; if noise were drawn twice, or by the other, this fails."""
    for found in two:
        same_parameters(found, trained, locally)


def test_processes_do_not_train_each_by_itself(two: list[Found]) -> None:
    for found in two:
        assert "as many trainings" in str(found["refused"])


def test_counts_and_what_is_released_are_the_same_to_the_bit(
    eight: Found, two: list[Found]
) -> None:
    expected = released(helps=False)
    assert 0 < expected["lengths"].sum() < 9 * 12
    for found in (eight, two[0]):
        np.testing.assert_array_equal(found["counts"], expected["counts"])
        np.testing.assert_array_equal(found["lengths"], expected["lengths"])
    assert "counts" not in two[1]


@pytest.fixture(scope="module", name="experts")
def _experts() -> Found:
    """What one device makes of the same agents and experts."""
    return population()


def test_devices_and_processes_train_and_log_the_same_experts_as_one(
    eight: Found, two: list[Found], experts: Found
) -> None:
    for found in (eight, *two):
        np.testing.assert_array_equal(found["agents"], experts["agents"])
        np.testing.assert_array_equal(found["chosen"], experts["chosen"])
        np.testing.assert_allclose(found["weights"], experts["weights"], rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(found["actions"], experts["actions"])
        np.testing.assert_allclose(
            found["observations"], experts["observations"], rtol=1e-5, atol=1e-6
        )
    assert two[0]["identity"] == two[1]["identity"]


def test_memory_of_agents_and_experts_falls_as_one_over_the_devices(
    eight: Found, experts: Found
) -> None:
    """Nine agents are at most two on each of eight devices, 256 experts just 32."""
    here = len(experts["bytes of agents"])
    of_an_agent = experts["bytes of agents"][0] / -(-9 // here)
    np.testing.assert_array_equal(eight["bytes of agents"], np.full(8, 2 * of_an_agent))
    everything = experts["bytes of experts"].sum()
    np.testing.assert_array_equal(eight["bytes of experts"], np.full(8, everything / 8))


def test_two_processes_fit_as_one_and_the_first_alone_pays_and_writes(
    two: list[Found], tmp_path: Path
) -> None:
    """Stopped before its first step and gone on: one release and one training are paid for."""
    folder = Path(str(two[0]["folder"]))
    expected = fitted(named(crowd(), "alone"), tmp_path / "run", learner=SMALL)
    assert expected.released is not None
    for number, leaf in enumerate(weights(expected)):
        np.testing.assert_allclose(two[0][f"fitted {number}"], leaf, rtol=2e-4, atol=2e-6)
    np.testing.assert_array_equal(
        two[0]["observations released"], expected.released.transitions.observation
    )
    assert read_ledger(folder / "ledger.jsonl").events == expected.plan.events
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in expected.folder.iterdir()
    )
    assert not Path(str(two[1]["folder"])).exists()


def test_processes_that_were_told_differently_refuse_before_anything_is_paid(
    two: list[Found],
) -> None:
    """Of another learner, and of other experts, as many as those who acted."""
    assert "stopped after 0 of 20 steps" in two[0]["said"][2]
    for found in two:
        assert all("different runs" in said for said in found["said"][:2])
    assert len(two[1]["said"]) == 2


def test_experts_whom_the_log_names_are_known_by_their_name_and_others_by_what_they_do() -> None:
    one, other = crowd(), crowd(preference=0.8)
    plan = plan_fit(one.log.declared, LEARNER, epsilon=EPSILON, delta=DELTA, settings=SETTINGS)
    assert said_by_all(plan, one.log, one.experts, 1) == said_by_all(
        plan, one.log, crowd().experts, 1
    )
    assert said_by_all(plan, one.log, one.experts, 1) != said_by_all(
        plan, one.log, other.experts, 1
    )
    named_experts = replace(one.log.declared, experts_identity=one.experts.identity)
    log = replace(one.log, declared=named_experts)
    assert said_by_all(plan, log, one.experts, 1) != said_by_all(plan, log, crowd().experts, 1)


def test_a_log_that_stays_in_its_file_or_on_two_devices_gives_the_same_bits(
    demonstrations: Demonstrations, trained: Found, locally: Found
) -> None:
    for data in (mapped_data(demonstrations), spread_data(demonstrations)):
        for local, expected in ((False, trained), (True, locally)):
            found = trained_on(data, local=local)
            for name, leaf in expected.items():
                np.testing.assert_array_equal(found[name], leaf)


def test_a_step_that_is_read_in_parts_of_its_experts_gives_the_same_bits(
    demonstrations: Demonstrations, locally: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that draws more than fits into memory: eight experts at a time."""
    monkeypatch.setattr(chunks, "MOST_NUMBERS", 1)
    data, parts = mapped_data(demonstrations), []
    summed = chunks._summed

    def counted(recipe: Any) -> Any:
        parts.append(1)
        return summed(recipe)

    monkeypatch.setattr(chunks, "_summed", counted)
    found = trained_on(data, local=True)
    assert parts  # there was more than one
    for name, leaf in locally.items():
        np.testing.assert_array_equal(found[name], leaf)


def test_how_many_steps_are_taken_at_once_does_not_tell_how_many_experts_there_are(
    demonstrations: Demonstrations,
) -> None:
    """Nor whether their log is mapped: a curve and messages show after which steps a chunk ends."""
    step = replace(PRIVATE_STEP, contribution=Local(steps=200, batch_size=500, rate=0.1))
    recipe = Recipe(learner=LEARNER, private_shape=step.shape)
    runs = stacked([run_of(0, step)])
    state = begin(recipe, runs, 3, 4)
    fewer = demonstrations.select(demonstrations.episodes.expert > 0)
    found = {
        chunks.most_at_once(recipe, runs, state, data(log))
        for log in (demonstrations, fewer)
        for data in (mapped_data, expert_data, spread_data)
    }
    assert len(found) == 1
    assert found.pop() < chunks.STEPS_AT_ONCE


def test_wherever_data_lie_a_run_may_rest_while_another_takes_a_private_step(
    demonstrations: Demonstrations, trained: Found
) -> None:
    usual = trained_on(expert_data(demonstrations), rests=True)
    for data in (mapped_data(demonstrations), spread_data(demonstrations)):
        found = trained_on(data, rests=True)
        for name, leaf in usual.items():
            np.testing.assert_array_equal(found[name], leaf)
            np.testing.assert_array_equal(leaf[0], trained[name][0])  # it takes every step
    assert any(np.abs(usual[name][1] - trained[name][1]).max() > 1e-3 for name in trained)


@pytest.mark.parametrize("parts", [1, 2, 7, EXPERTS, 40])
def test_cuts_share_out_every_expert_once_and_transitions_evenly(
    parts: int, demonstrations: Demonstrations
) -> None:
    offsets = demonstrations.expert_transition_offsets
    edges = even_cuts(offsets, parts)
    assert (edges[0], edges[-1], len(edges)) == (0, EXPERTS, parts + 1)
    assert (np.diff(edges) >= 0).all()
    held = np.diff(offsets[edges])
    assert held.max() <= offsets[-1] / parts + np.diff(offsets).max()
