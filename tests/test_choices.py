"""What the page on the reproduction says of how defaults were chosen is what the files say."""

import importlib
import json
from pathlib import Path

import pytest
from docs_pages import Page

from quorum_rl.envs import get_world, units_of
from quorum_rl.pipeline.learner_rule import OBSERVED
from reproduction.columns import OWN_SETTINGS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_reproduction")


def test_every_run_that_defaults_were_chosen_by_says_how_to_make_it_again() -> None:
    files = sorted((ROOT / "results" / "tuning").glob("*.json"))
    assert files
    for file in files:
        facts = json.loads(file.read_text())
        assert file.stem == facts["world"].lower()
        assert facts["population"]["command"].startswith(f"quorum experts train {facts['world']}")
        for program in facts["programs"]:
            assert {"round", "commit", "machine", "configuration"} <= program.keys()
            seeds = program["configuration"]["seeds"]
            assert all(len(row["returns"]) == seeds for row in program["rows"])


def test_maps_that_were_tried_have_names_and_the_worlds_units_are_the_worlds() -> None:
    for file in sorted((ROOT / "results" / "tuning").glob("*.json")):
        facts = json.loads(file.read_text())
        maps = facts.get("maps", {})
        named = [one for roundings in maps.values() for one in roundings]
        for program in facts["programs"]:
            options = program["configuration"]["options"]
            seen = {one: options[one] for one in OBSERVED if one in options}
            assert not seen or named.count(seen) == 1
        units = units_of(get_world(facts["world"]))
        assert units is not None
        for rounding in maps.get("in the world's units", []):
            assert rounding["observation_centre"] == pytest.approx(units.centre, rel=0.1)
            assert rounding["observation_scale"] == pytest.approx(units.scale, rel=0.1)


@pytest.mark.usefixtures("page")  # which has imported the scripts of docs/pictures
def test_runs_that_see_other_observations_are_compared_for_that_alone() -> None:
    tables = importlib.import_module("tuning_tables")
    for choice in tables.CHOICES:
        both = [pair for other in choice.others for pair in tables.pairs(choice, other)]
        assert both
        for theirs, ours in both:
            differ = {key for key in ours if ours[key] != theirs[key]}
            allowed = {choice.key, "returns", "noise_multiplier", "rate"}
            assert choice.key in differ
            if choice == tables.UNITS:
                assert differ <= allowed | {"round"}
                assert theirs["rate"] == pytest.approx(ours["rate"], rel=0.02)
            else:
                assert differ <= allowed
                assert (ours["observations"], ours["weight_decay"]) == ("raw", 0)


@pytest.mark.usefixtures("page")
def test_units_raised_returns_in_every_setting_and_at_every_seed() -> None:
    tables = importlib.import_module("tuning_tables")
    both = tables.pairs(tables.UNITS, "raw")
    assert len({(ours["world"], ours["learner"], ours["epsilon"]) for _, ours in both}) == 5
    for raw, ours in both:
        assert all(one > other for one, other in zip(ours["returns"], raw["returns"], strict=True))


@pytest.mark.usefixtures("page")
def test_fewer_steps_without_noise_do_less_harm_and_keep_most_of_what_they_gain() -> None:
    tables = importlib.import_module("split_tables")
    means = {
        name: {split: sum(each) / len(each) for split, each in earned.items()}
        for name, earned in tables.splits().items()
    }
    assert len(means) == 5
    for name, earned in means.items():
        alone, many, few = (earned[split] for split in (tables.ALONE, "p = 0.8", "p = 0.95"))
        if name.startswith("CartPole"):
            assert many > few > alone + (many - alone) / 2
        else:
            assert alone >= few > many
            assert alone - few < (alone - many) / 5


@pytest.mark.usefixtures("page")
def test_the_settings_of_hiv_learned_with_the_most_seeds_where_they_were_chosen() -> None:
    tables = importlib.import_module("hiv_tables")
    learned: dict[str, dict[float | None, int]] = {}
    for row in tables.as_a_fit_has_it():
        enough = sum(one >= 1.2e9 for one in row["returns"])
        learned.setdefault(tables.name_of(row), {})[row["epsilon"]] = enough
    for name, expected in {
        "BCQ, threshold 0.3": [3, 2, 0],  # at ε = 5, 2.5 and 1
        "BCQ, threshold 0.1": [1, 0, 0],
        "CQL, alpha 0.1": [3, 3, 3],
        "BC": [3, 3, 3],
        "BCQ, threshold 0.1, target rate 0.02": [3, 2, 3],
    }.items():
        assert [learned[name][epsilon] for epsilon in (5.0, 2.5, 1.0)] == expected, name
    chosen = "BCQ, threshold 0.1, target rate 0.02"
    totals = {
        name: sum(learned[name][epsilon] for epsilon in (5.0, 2.5, 1.0))
        for name in learned
        if name.startswith("BCQ") and "both stages" not in name
    }
    assert totals.pop(chosen) == 8 > max(totals.values())
    assert OWN_SETTINGS["HIV", "bcq"] == {"threshold": 0.1, "target_rate": 0.02}
