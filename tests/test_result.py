"""The pictures of results, and what pages say of them, are what the result files say."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docs_pages import Page
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import stats

from quorum_rl.privacy.calibration import noise_multiplier_for

ROOT = Path(__file__).parent.parent
BOTH, AVERAGED = "both stages", "DP-SGD, averaged"


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_result")


@pytest.fixture(scope="module", name="panels")
def _panels(page: Page) -> dict[str, Any]:
    return {panel.name: panel for panel in page.script.panels()}


def pairs(panel: Any, one: str, other: str) -> dict[float, tuple[Any, Any]]:
    """What two methods scored, at every epsilon at which both were run."""
    others = {point.epsilon: point for point in panel.methods[other]}
    here = {point.epsilon: point for point in panel.methods[one]}
    return {epsilon: (here[epsilon], others[epsilon]) for epsilon in here if epsilon in others}


def clear(panel: Any, one: str, other: str) -> set[float]:
    """At which epsilons the interval of one method is above that of the other."""
    found = pairs(panel, one, other).items()
    return {epsilon for epsilon, (here, there) in found if here.low > there.high}


def test_no_number_of_the_table_was_typed_by_hand(page: Page) -> None:
    assert page.rendered(page.text) == page.text
    before, mark, table = page.text.partition("<!-- result -->")
    assert page.rendered(before + mark + table.replace("0.9", "0.8", 1)) == page.text


def test_the_picture_was_drawn_from_these_results(page: Page) -> None:
    said = page.script.described(page.script.panels())
    assert said in page.script.PICTURE.read_text(encoding="utf-8")


def test_the_page_says_on_how_many_experts_and_seeds(page: Page) -> None:
    for world in page.script.WORLDS:
        for learner in page.script.LEARNERS:
            ours = page.script.result(world, f"{learner}-comparison")
            stages = [f"{learner}-published-{epsilon}" for epsilon in page.script.CLAIMED]
            published = [page.script.result(world, stage) for stage in stages]
            assert f"{ours['experts']} experts, {ours['seeds']} seeds" in page.text
            assert f"δ = 1/{ours['experts']}" in page.text
            assert f"--expert-seed {ours['configuration']['expert_seed']} " in page.text
            for one in filter(None, published):
                assert f"({one['seeds']} for the paper's settings)" in page.text
                assert one["experts"] == ours["experts"]


def gained(panel: Any) -> dict[float, float]:
    """What a release beside private steps adds to them, on average."""
    found = pairs(panel, BOTH, AVERAGED).items()
    return {epsilon: both.fraction - alone.fraction for epsilon, (both, alone) in found}


def test_both_stages_gain_on_cartpole_with_cql_what_we_say(panels: dict[str, Any]) -> None:
    found = [round(one, 2) for one in gained(panels["CartPole, CQL"]).values()]
    assert (min(found), max(found)) == (0.01, 0.07)


def test_seed_by_seed_both_stages_gain_on_cartpole_with_cql_what_we_say(page: Page) -> None:
    ours = page.script.result("CartPole", "cql-comparison")
    scores = {(one["name"], one["epsilon"]): one["scores"] for one in ours["methods"]}
    bound = np.mean(scores["non-private", None])
    for epsilon, said in ((5.0, (0.06, 0.03, 0.09)), (7.5, (0.07, 0.01, 0.13))):
        each = np.subtract(scores[BOTH, epsilon], scores[AVERAGED, epsilon]) / bound
        ends = stats.ttest_1samp(each, 0).confidence_interval(0.95)
        assert tuple(round(one, 2) for one in (each.mean(), *ends)) == said


def test_nowhere_are_both_stages_clear_of_averaged_training(panels: dict[str, Any]) -> None:
    for panel in panels.values():
        assert not clear(panel, BOTH, AVERAGED)
    helped = {epsilon for epsilon, one in gained(panels["CartPole, BCQ"]).items() if one > 0}
    assert helped == {5.0, 7.5}
    for name in ("Acrobot, CQL", "Acrobot, BCQ"):
        assert all(abs(one) < 0.02 for one in gained(panels[name]).values())
    on_hiv = {epsilon: round(one, 2) for epsilon, one in gained(panels["HIV, CQL"]).items()}
    assert on_hiv == {1.0: -0.02, 2.5: -0.06, 5.0: 0.0, 7.5: 0.0, 10.0: 0.0}
    lost = gained(panels["HIV, BCQ"])
    assert all(one < -0.2 for epsilon, one in lost.items() if epsilon < 10)


def test_averaged_training_earns_what_we_say(panels: dict[str, Any]) -> None:
    def of(name: str) -> dict[float, float]:
        return {point.epsilon: round(point.fraction, 2) for point in panels[name].methods[AVERAGED]}

    for name in panels:
        if name.endswith("CQL"):
            assert min(of(name).values()) >= 0.98
    assert min([*of("CartPole, BCQ").values(), *of("Acrobot, BCQ").values()]) == 0.94
    assert (of("LunarLander, BCQ")[1], of("LunarLander, BCQ")[5]) == (0.61, 0.89)
    assert [of("HIV, BCQ")[epsilon] for epsilon in (1, 2.5, 5)] == [0.91, 0.74, 0.97]


def test_one_transition_gives_no_more_than_we_say(panels: dict[str, Any]) -> None:
    one = "DP-SGD, one transition"
    for world, most in (("LunarLander", 0.365), ("HIV", 0.195)):
        for learner in ("CQL", "BCQ"):
            assert all(
                point.fraction < most for point in panels[f"{world}, {learner}"].methods[one]
            )


@pytest.mark.parametrize(("optimiser", "run", "below"), [("Adam", 24, 13), ("plain steps", 21, 12)])
def test_so_many_of_the_papers_settings_were_run_and_are_below_averaged_training(
    page: Page, panels: dict[str, Any], optimiser: str, run: int, below: int
) -> None:
    name = page.script.PUBLISHED[optimiser]
    assert sum(len(panel.methods[name]) for panel in panels.values()) == run
    assert sum(len(clear(panel, AVERAGED, name)) for panel in panels.values()) == below
    assert not any(clear(panel, name, AVERAGED) for panel in panels.values())


def test_the_noise_of_the_headline_costs_at_smaller_deltas_what_we_say() -> None:
    """By dp-accounting, which the noise was not chosen with."""
    said = {1.0: (1.12, 1.33, 1.52), 5.0: (5.45, 6.22, 6.90)}
    for epsilon, costs in said.items():
        noise = noise_multiplier_for(
            steps=8000, sampling_rate=0.05, epsilon=epsilon, delta=1 / 3000
        )
        event = SelfComposedDpEvent(PoissonSampledDpEvent(0.05, GaussianDpEvent(noise)), 8000)
        account = PLDAccountant(value_discretization_interval=1e-4).compose(event)
        found = [round(account.get_epsilon(delta), 2) for delta in (1e-4, 1e-5, 1e-6)]
        assert found == pytest.approx(costs, abs=0.011)


@pytest.fixture(scope="module", name="few")
def _few() -> Page:
    return Page("make_few")


def test_no_number_of_the_tables_on_few_experts_was_typed_by_hand(few: Page) -> None:
    assert few.rendered(few.text) == few.text
    before, mark, table = few.text.partition("<!-- results -->")
    assert few.rendered(before + mark + table.replace("98", "97", 1)) == few.text
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"<!-- few -->\n{few.script.in_short()}\n<!-- /few -->" in readme


def test_the_picture_of_few_experts_was_drawn_from_these_results(few: Page) -> None:
    said = few.script.described(few.script.panels())
    assert said in few.script.PICTURE.read_text(encoding="utf-8")


def test_the_page_on_few_experts_says_what_was_run(few: Page) -> None:
    tables = importlib.import_module("few_tables")
    for world in tables.WORLDS:
        facts = tables.facts(world)
        assert facts["population"]["seed"] == 21
        assert facts["population"]["experts"] == max(tables.SMALLER)
        assert (facts["seeds"], facts["episodes"], facts["delta"]) == (8, 50, 1e-4)
        declared = {(row["experts"], row["minimum_experts"]) for row in facts["rows"]}
        assert declared == {(count, int(0.95 * count)) for count in tables.SMALLER}
        for row in facts["rows"]:
            if row["method"] == tables.THEIRS:
                assert (row["noise"] > 2.2) == (row["experts"] <= 100)
    timed = tables.facts("LunarLander")["timed"]
    assert (timed["experts"], timed["runs"]) == (3000, 25)
    for seconds in (timed["first_s"], timed["again_s"]):
        assert f"{seconds:.1f} s" in few.text


def test_every_goal_for_few_experts_is_met_and_the_furthest_missed_on_lunarlander_alone(
    few: Page,
) -> None:
    assert "missed" not in few.script.goals()
    lines = few.script.further().splitlines()
    assert [line.split()[1] for line in lines if "missed" in line] == ["LunarLander"]


@pytest.mark.usefixtures("few")
def test_values_gain_nothing_for_certain_over_imitation() -> None:
    tables = importlib.import_module("few_tables")
    compared = 0
    for world in tables.WORLDS:
        ours = tables.returns(world, tables.OURS)
        for at, each in tables.returns(world, tables.VALUES).items():
            assert tables.summary(each - ours[at]).low <= 0
            compared += 1
    assert compared == 18
