"""Tables and pictures of the docs are what the results say, and a result is what was written."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from quorum_rl.audit import described
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import Result
from quorum_rl.pipeline.expectation import EARNED
from reproduction import results
from reproduction.tables import few, tuning
from reproduction.tables.__main__ import PAGES, ROOT, rendered, stale
from reproduction.tables.pictures import digest, is_current, save


def test_every_table_and_picture_of_the_docs_is_current() -> None:
    assert list(stale()) == []


def test_an_edited_number_is_noticed_and_put_right() -> None:
    for name, sections in PAGES.items():
        page = (ROOT / name).read_text(encoding="utf-8")
        section = next(iter(sections))
        before, mark, after = page.partition(f"<!-- {section} -->")
        edited = before + mark + re.sub(r"\d\.\d", "77.7", after, count=1)
        assert edited != page
        assert rendered(edited, {section: sections[section]}) == page


def test_a_picture_of_other_numbers_is_noticed(tmp_path: Path) -> None:
    def drawn(height: float) -> Figure:
        figure = Figure()
        figure.add_subplot().errorbar([1], [height], [0.1])
        return figure

    file = tmp_path / "picture.svg"
    assert not is_current(drawn(1.0), file)
    save(drawn(1.0), file)
    assert is_current(drawn(1.0), file)
    assert not is_current(drawn(1.01), file)
    assert digest(drawn(1.0)) == digest(drawn(1.0))


@pytest.mark.parametrize("file", sorted(results.FOLDER.iterdir()), ids=lambda file: file.name)
def test_every_committed_result_is_read_and_written_alike(file: Path, tmp_path: Path) -> None:
    there = results.read(file)
    assert there
    results.write(tmp_path / "again.parquet", there)
    assert results.read(tmp_path / "again.parquet") == there


def test_every_result_says_how_to_make_it_again() -> None:
    for name, facts in results.study("paper").items():
        assert {"world", "stage", "commit", "machine", "seconds", "configuration"} <= facts.keys()
        assert name == f"{facts['world'].lower()}-{facts['stage']}"
        for method in facts.get("methods", []):
            assert len(method["returns"]) == len(facts["configuration"]["seeds"])


def test_the_cases_of_the_audit_are_those_of_the_code() -> None:
    """So that no default of a fit moves a worst case unnoticed."""
    kept = results.study("audit")["pipeline"]["configuration"]["cases"]
    for name, case in described("pipeline").items():
        assert case["chain"] == kept[name]["chain"]
        assert case["settings"] == kept[name]["settings"]


def test_the_audit_refuted_no_claim_and_caught_every_planted_bug() -> None:
    audit = results.study("audit")
    for part in ("release", "training", "pipeline"):
        assert not any(finding["refuted"] for finding in audit[part]["findings"])
    planted = audit["planted"]
    assert set(planted["caught"].values()) == {planted["repeats"]}


def test_runs_that_a_choice_is_judged_by_differ_in_that_alone() -> None:
    for choice in tuning.CHOICES:
        pairs = [pair for other in choice.others for pair in tuning._pairs(choice, other)]
        assert pairs
        free = {choice.key, "rate", *tuning.NO_SETTINGS}
        free |= {"round"} if choice == tuning.UNITS else set()
        for theirs, ours in pairs:
            differ = {key for key in ours if ours[key] != theirs.get(key)}
            assert choice.key in differ <= free


def test_results_keep_what_was_found_and_others_of_the_study(tmp_path: Path) -> None:
    file = tmp_path / "new" / "study.parquet"
    rows = [
        {"epsilon": None, "returns": [1.5, 2.0], "options": {"alpha": 0.1}, "round": 1},
        {"epsilon": 5.0, "returns": [], "options": {}, "round": "units"},
    ]
    first = {"seconds": 3, "rows": rows, "notes": ["a"], "infeasible": []}
    results.add(file, "first", first)
    results.add(file, "second", {"seconds": 4})
    assert results.read(file) == {"first": first, "second": {"seconds": 4}}
    results.add(file, "first", {"seconds": 5})
    assert results.read(file)["first"] == {"seconds": 5}


def test_a_result_that_was_made_in_another_way_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "study.parquet"
    chosen = {"seeds": [0, 1], "settings": {"p": 0.8, "other": "word" * 20}}
    result = Result("CartPole", "cql-comparison", chosen, commit="abc")
    results.check_place(result, file)  # nothing is there
    results.save(result, file, {"found": 1})
    results.check_place(result, file)
    for changed, said in (
        ({"seeds": (0,)}, "has seeds = [0, 1], and this run seeds = [0]: give"),
        ({"settings": {"p": 0.95}}, "has settings.p = 0.8, and this run settings.p = 0.95: give"),
        ({"settings": {"other": "x" * 99}}, "has another settings.other, and this run another"),
    ):
        with pytest.raises(QuorumError, match=re.escape(said)):
            results.check_place(replace(result, configuration=changed), file)
    assert results.read(file)["cartpole-cql-comparison"]["found"] == 1
    assert json.dumps(results.read(file))  # as it would be shown


@pytest.mark.parametrize("content", [b"", b"PAR1", b"{}"])
def test_what_has_no_results_is_in_the_way(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "study.parquet"
    file.write_bytes(content)
    with pytest.raises(QuorumError, match="is in the way, and has no results: give another file"):
        results.add(file, "first", {})
    assert file.read_bytes() == content
    shutil.copy(ROOT / "results" / "long.parquet", file)
    assert results.read(file)


def test_what_a_plan_says_that_others_earned_is_what_the_results_say() -> None:
    found: dict[tuple[int, ...], list[float]] = {}
    for world in few.WORLDS:
        # Both populations of a world; not those beside a release, with other settings.
        for name in results.study("few").keys() & {world, f"{world}-3000"}:
            for row in few.facts(name)["rows"]:
                if row["method"] == few.OURS:
                    earned = few.as_fraction(world, few.summary(np.array(row["returns"])))
                    sizes = tuple(row["learner"]["hidden_sizes"])
                    found.setdefault(sizes, []).append(round(earned.mean, 2))
    assert {sizes: (min(earned), max(earned)) for sizes, earned in found.items()} == EARNED
