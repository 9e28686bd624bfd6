"""What the page on the reproduction says of studies made apart is what their files say."""

import importlib
import json
from typing import Any

import numpy as np
import pytest
from docs_pages import Page
from scipy import stats


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_reproduction")


def results_in(folder: str) -> dict[str, Any]:
    rendering = importlib.import_module("rendering")
    found: dict[str, Any] = rendering.by_learner(rendering.RESULTS / folder)
    return found


@pytest.mark.usefixtures("page")
def test_on_hiv_it_is_the_steps_on_prefixes_that_bcq_fails_by() -> None:
    (found,) = results_in("beside").values()
    learned = {way["name"]: [earned > 5e8 for earned in way["returns"]] for way in found["ways"]}
    assert learned == {
        "both stages": [False] * 3,
        "without steps on prefixes": [False, True, True],
        "with all trajectories": [False] * 3,
        "private steps alone": [True] * 3,
    }
    earned = {way["name"]: way["returns"] for way in found["ways"]}
    assert earned["without steps on prefixes"][1:] == earned["private steps alone"][1:]
    real = next(
        one
        for one in importlib.import_module("paper_tables").result("HIV", "bcq-comparison")[
            "methods"
        ]
        if (one["name"], one["epsilon"]) == ("both stages", 5.0)
    )
    assert np.mean(found["released"]) == pytest.approx(np.mean(real["released"]), rel=0.05)


@pytest.mark.usefixtures("page")
def test_averaging_alone_and_raw_rewards_alone_mend_the_papers_step_on_lunar_lander() -> None:
    found, tables = results_in("step")["cql"], importlib.import_module("paper_tables")
    ends = {way["name"]: way["rows"][-1]["returns"] for way in found["ways"]}
    assert {row["steps"] for way in found["ways"] for row in way["rows"][-1:]} == {20_000}
    theirs = ends["the paper's step"]
    for name, said in (
        ("the paper's step", -96),
        ("no noise", 116),
        ("neither noise nor clipping", 173),
        ("the mean of 16 transitions", 191),
        ("raw rewards", 61),
    ):
        assert round(np.mean(ends[name])) == said
    for name, gain in (("the mean of 16 transitions", 250), ("raw rewards", 30)):
        assert min(ends[name]) > max(theirs) + gain
    for name in ("our networks", "our experts a step and rate", "raw observations", "α = 10"):
        assert np.mean(ends[name]) < np.mean(theirs) + 35
    scale = tables.result("LunarLander", "cql-comparison")
    lowest, highest = scale["random_return"], scale["reference_return"]
    bound = tables.bound_of("LunarLander", "cql").mean()
    raw, scaled = (
        (np.array(ends[name]) - lowest) / (highest - lowest) / bound
        for name in ("raw rewards", "the paper's step")
    )
    between = stats.ttest_1samp(raw, 0).confidence_interval(0.95)
    assert [round(one, 2) for one in (raw.mean(), *raw)] == [0.63, 0.82, 0.35, 0.73]
    assert [round(one, 2) for one in (*between, scaled.mean())] == [0.02, 1.25, 0.23]


@pytest.mark.usefixtures("page")
def test_bcq_needs_all_that_tells_our_step_from_the_papers_on_lunar_lander() -> None:
    found = results_in("step")["bcq"]
    ends = {way["name"]: np.mean(way["rows"][-1]["returns"]) for way in found["ways"]}
    said = {
        "the paper's step": -60,
        "no noise": 179,
        "the mean of 16 transitions": -30,
        "all four": 114,
    }
    assert {name: round(ends[name]) for name in said} == said
    assert ends["neither noise nor clipping"] < ends["no noise"]
    harm = ("our experts a step and rate", "raw observations", "threshold 0.9")
    assert all(ends[name] < ends["the paper's step"] - 90 for name in harm)


@pytest.mark.usefixtures("page")
def test_noise_that_moves_weights_far_makes_returns_fall_with_either_optimiser() -> None:
    found = results_in("long")
    assert list(found) == ["bcq"]
    ways = {way["name"]: way for way in found["bcq"]["ways"]}
    far, earned = (
        {name: [np.mean(row[key]) for row in way["rows"]] for name, way in ways.items()}
        for key in ("moved", "returns")
    )
    assert ways["plain steps, as far"]["rate_factor"] == 12.8
    for name in ("Adam", "plain steps, as far"):
        assert far[name] == pytest.approx(far["Adam"], rel=0.05)
        assert far[name][-1] / far[name][0] == pytest.approx(10, rel=0.05)
        assert max(earned[name]) > 2 * earned[name][-1]
    for name in ("plain steps", "Adam, a tenth of the rate"):
        assert far["Adam"][-1] / far[name][-1] > 9
        assert max(earned[name]) == earned[name][-1]
    assert earned["Adam, no noise"][-1] > 0.95 * max(earned["Adam, no noise"])


@pytest.mark.usefixtures("page")
def test_alone_hiv_is_compared_within_a_quarter_of_an_hour() -> None:
    times = importlib.import_module("alone_tables").times()
    assert list(times) == [
        "HIV experts",
        "HIV demonstrations",
        "HIV comparison cql",
        "HIV comparison bcq",
    ]
    assert max(ended for _, ended in times.values()) == 505
    assert times["HIV experts"][1] - times["HIV experts"][0] == 243


@pytest.mark.usefixtures("page")
def test_hiv_compared_again_moved_in_one_row_alone() -> None:
    tables = importlib.import_module("paper_tables")
    alone = importlib.import_module("rendering").RESULTS / "alone"
    again = {
        one: json.loads((alone / f"hiv-{one}.json").read_text())
        for one in ("experts", "cql-comparison", "bcq-comparison")
    }
    experts, same = again.pop("experts"), tables.result("HIV", "experts")
    for what in ("transitions", "mean_return", "return_quantiles", "histogram", "agreement"):
        assert experts[what] == same[what]
    moved = {}
    for stage, found in again.items():
        learner = stage[:3]
        bound = tables.bound_of("HIV", learner).mean()
        before = tables.result("HIV", stage)
        assert before["commit"] != found["commit"]
        for one, old in zip(found["methods"], before["methods"], strict=True):
            assert one["released"] == old["released"]
            where = (one["name"], one["epsilon"])
            each = np.array([tables.scores(before, *where), one["scores"]]) / bound
            if (abs(each[1] - each[0]) > 0.005).any():
                moved[learner, *where] = each
    assert moved.keys() == {("bcq", "both stages", epsilon) for epsilon in (1.0, 2.5, 5.0)}
    for epsilon, seed, scored, means in (
        (1.0, 0, [0.91, 0.02], [0.55, 0.38]),
        (5.0, 3, [0.04, 0.91], [0.40, 0.57]),
    ):
        each = moved["bcq", "both stages", epsilon]
        assert each[:, seed].round(2).tolist() == scored
        assert each.mean(axis=1).round(2).tolist() == means
