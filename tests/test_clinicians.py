"""The tutorial on 150 clinicians, block by block, and the world that it takes place in."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from walked_pages import FENCE, ROOT, Answer, walked

from quorum_rl.logs import open_demonstrations
from quorum_rl.policy import Policy

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PAGE = ROOT / "docs" / "clinicians.md"
SEEN = 4  # of five columns; the last one is left out


@pytest.fixture(scope="module", name="world")
def _world() -> Iterator[Any]:
    """The example as a module, for those who import it."""
    sys.path.insert(0, str(ROOT / "examples"))
    yield importlib.import_module("clinicians")
    sys.path.remove(str(ROOT / "examples"))


@pytest.fixture(scope="module", name="walk")
def _walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Answer]]:
    """The folder after the last block of the page, and what every command answered."""
    start = tmp_path_factory.mktemp("reader")

    def follow(language: str, text: str) -> None:
        if language == "toml":
            Path("columns.toml").rename("sketch.toml")
            Path("columns.toml").write_text(text)
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), {"__name__": "page"})

    return start, walked(PAGE, start, follow)


def test_every_command_of_the_page_ends_as_the_page_shows(walk: tuple[Path, list[Answer]]) -> None:
    assert len(walk[1]) == 10
    for answer in walk[1]:
        refused = answer.shown.startswith("quorum: ")
        assert (answer.status, answer.words) == (2 if refused else 0, answer.words), answer.said
        assert answer.shown in answer.said


def test_what_the_page_shows_of_files_and_plans_is_what_they_say(
    walk: tuple[Path, list[Answer]],
) -> None:
    folder, answers = walk
    said = (folder / "sketch.toml").read_text() + "".join(answer.said for answer in answers)
    shown = [text for language, text in FENCE.findall(PAGE.read_text()) if language == "text"]
    lines = [line for text in shown for line in text.splitlines()]
    assert len(lines) == 8
    assert not [line for line in lines if line not in said.splitlines()]


def test_names_are_in_the_bundle_and_nobody_is(walk: tuple[Path, list[Answer]]) -> None:
    bundle = walk[0] / "dosing-policy"
    assert (
        "- glucose (mg/dL), cut to 40 to 400, 150 where it" in (bundle / "README.txt").read_text()
    )
    assert "glucose (mg/dL), cut to 40 to 400" in (bundle / "report.html").read_text()
    assert open_demonstrations(walk[0] / "visits.arrow").declared.horizon == 20
    for file in bundle.iterdir():
        content = file.read_bytes()
        assert not [name for name in (b"C017", b"P00017", b"potassium", b"clinician_id")
                    if name in content]  # fmt: skip


def test_the_policy_doses_far_better_than_chance(
    walk: tuple[Path, list[Answer]], world: Any
) -> None:
    """In 9 such fits, all of one set of logs, the true return was 10.8 to 11.2, and random orders
    earn -3.9 with a standard error of 0.1: a bar of 5 is far from both."""
    policy = Policy.load(walk[0] / "dosing-policy" / "policy.safetensors")
    assert world.true_return(lambda seen: policy.act(seen[:, :SEEN]))[0] > 5


def test_the_judges_are_near_the_truth_and_in_the_report(
    walk: tuple[Path, list[Answer]], world: Any
) -> None:
    """Their keys are new each time. Half an interval is 2.6: five times as far is for no chance."""
    judged = json.loads((walk[0] / "runs" / "dosing" / "judging.json").read_text())
    said, value = judged["mean_return"], judged["value"]
    assert said["low"] < said["high"]
    truth = world.clinicians_return().mean()
    assert said["low"] - 10 < truth < said["high"] + 10
    policy = Policy.load(walk[0] / "dosing-policy" / "policy.safetensors")
    worth = world.true_return(lambda seen: policy.act(seen[:, :SEEN]))[0]
    assert value["low"] - 10 < worth < value["high"] + 10
    assert judged["better"] in ("yes", "no", "cannot tell")
    assert "what the experts earn" in (walk[0] / "runs" / "dosing" / "report.html").read_text()


def test_clinicians_differ_and_all_do_better_than_chance(world: Any) -> None:
    returns = world.clinicians_return(patients=400)
    rng = np.random.default_rng(0)
    chance, error = world.true_return(lambda seen: rng.integers(4, size=len(seen)))
    # Each mean of 400 has a standard error of 0.3 or so: 9 above chance is far outside it.
    assert returns.min() > chance + 5
    assert returns.mean() > chance + 12
    assert error < 0.2
    again = world.clinicians_return(seed=0, patients=400)
    np.testing.assert_array_equal(returns, again)
    # Halves of the patients agree on who is better: the spread is the clinicians' own.
    halves = [world.clinicians_return(patients=count) for count in (300, 500)]
    assert np.corrcoef(*halves)[0, 1] > 0.8


def test_logs_are_the_same_by_seed_and_have_the_gaps_of_real_ones(world: Any) -> None:
    logs = world.logs(seed=3, count=20, patients=5)
    assert logs.equals(world.logs(seed=3, count=20, patients=5))
    assert not logs.equals(world.logs(seed=4, count=20, patients=5))
    assert logs.column("glucose").null_count > 0
    assert logs.column("order").null_count == 0
    assert set(logs.column("order").to_pylist()) <= set(world.ORDERS)
    few, many = world.clinicians(1, 5), world.clinicians(1, 50)
    np.testing.assert_array_equal(few.low_above, many.low_above[:5])


def test_a_simulator_takes_orders_by_number_and_by_name(world: Any) -> None:
    names = np.array(world.ORDERS)
    by_number = world.true_return(lambda seen: np.full(len(seen), 2), episodes=200)
    assert by_number == world.true_return(lambda seen: names[np.full(len(seen), 2)], episodes=200)
