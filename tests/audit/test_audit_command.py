"""`quorum audit`: what it prints, what it writes, and how it refuses."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from commands import Quorum

from quorum_rl.audit import AuditSizes, draw_findings, suite
from quorum_rl.audit.bounds import LowerBound
from quorum_rl.audit.finding import ACTIONS, ITERATES, Finding
from quorum_rl.audit.planted_bugs import BUGS


def finding(epsilon: float, certain: float) -> Finding:
    return Finding(
        what="training",
        threat=ITERATES,
        canary="a canary",
        claimed=2.0,
        bound=LowerBound(epsilon, 0.01, 0.95, "remove", 75),
        certain=certain,
        ceiling=2.3,
        runs=100,
    )


@pytest.fixture(name="found")
def _found(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the audits of all parts will seem to find: to be filled in by a test."""
    found: list[Finding] = []
    monkeypatch.setattr(suite, "audited", lambda *_: iter(found))
    monkeypatch.setattr(suite, "tried", lambda test: found if test.is_planted else [])
    return found


def test_claims_that_stand_are_shown_with_their_bounds(
    found: list[Finding], quorum: Quorum
) -> None:
    found.append(finding(2.1, 1.9))  # above the claim, but not certainly
    shown = quorum("audit", "--only", "training")
    assert "2.000" in shown
    assert "2.100" in shown
    assert "stands" in shown
    assert "REFUTED" not in shown


def test_a_claim_that_no_result_could_refute_does_not_stand(
    found: list[Finding], quorum: Quorum
) -> None:
    found.append(replace(finding(1.1, 1.0), ceiling=1.9))
    shown = quorum("audit", "--only", "training")
    assert "too few runs" in shown
    assert "cannot be refuted with so few runs, which could show at most 1.900" in shown
    assert "stands" not in shown
    assert found[0].to_json()["refutable"] is False


def test_a_refuted_claim_is_exit_status_1(
    found: list[Finding], quorum: Quorum, tmp_path: Path
) -> None:
    found.append(finding(2.5, 2.2))
    out = tmp_path / "out.json"
    printed = quorum.facts("audit", "--only", "release", "--out", out, status=1)
    assert printed == json.loads(out.read_text())
    assert printed["findings"][0]["refuted"] is True
    assert Finding.from_json(printed["findings"][0]) == found[0]
    assert {"commit", "machine", "seconds", "configuration"} <= printed.keys()
    assert printed["configuration"]["seed"] == 0
    assert printed["configuration"]["cases"].keys() == {"release, leaver", "release, deviator"}


def test_a_planted_bug_that_is_found_is_success_and_one_that_is_missed_is_not(
    found: list[Finding], quorum: Quorum
) -> None:
    found.append(finding(2.5, 2.2))
    shown = quorum("audit", "--planted", "all")
    assert "SELF-TEST" in shown
    assert all(name in shown for name in BUGS)
    assert BUGS.keys() == suite.WORST_CASES.keys()
    found[:] = [finding(1.0, 0.9)]
    assert "missed: noise-halved" in quorum("audit", "--planted", "noise-halved", status=1)


def test_a_self_test_counts_what_it_catches_and_whom_it_accuses_without_a_bug(
    found: list[Finding], quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.append(finding(2.5, 2.2))
    printed = quorum.facts("audit", "--planted", "all", "--repeats", 3)
    assert printed["caught"] == dict.fromkeys(BUGS, 3)
    assert [outcome["seed"] for outcome in printed["outcomes"]["noise-halved"]] == [0, 1, 2]
    assert printed["outcomes"]["noise-halved"][2]["certain"] == [2.2]
    sound = printed["without bugs"]
    assert (sound["findings"], sound["accused"]) == (0, 0)
    # What needs an assumption catches nothing, nor does the black box where there is a white one.
    assumed = replace(finding(2.5, 2.2), note="if so")
    acted = replace(finding(2.5, 2.2), threat=ACTIONS)
    monkeypatch.setattr(suite, "tried", lambda _: [assumed, acted])
    printed = quorum.facts("audit", "--planted", "clipping-off", "--repeats", 2, status=1)
    assert printed["caught"] == {"clipping-off": 0}
    sound = printed["without bugs"]
    assert (sound["findings"], sound["accused"]) == (28, 28)
    assert sound["outcomes"].keys() == set(suite.WITHOUT_BUGS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--planted", "nois-halved"), "noise-halved"),
        (("--runs", "3"), "at least 16"),
        (("--seed", "-1"), "the seed is -1"),
        (("--picture", "a.txt"), "no picture"),
        (("--planted", "all", "--only", "release"), "--only has no effect beside --planted"),
        (("--planted", "all", "--picture", "a.png"), "--picture has no effect beside --planted"),
        (("--full", "--runs", "50"), "both say how many runs"),
        (("--repeats", "2"), "--repeats has no effect without --planted"),
    ],
)
def test_mistakes_are_one_sentence(words: tuple[str, ...], said: str, quorum: Quorum) -> None:
    assert said in quorum.refused("audit", *words)


def test_a_picture_is_replaced_only_if_told(
    tmp_path: Path, quorum: Quorum, found: list[Finding]
) -> None:
    found.append(finding(1.0, 0.9))
    picture = tmp_path / "a.svg"
    picture.write_text("mine")
    words = ("audit", "--only", "release", "--picture", picture)
    assert "--overwrite" in quorum.refused(*words)
    assert picture.read_text() == "mine"
    quorum(*words, "--overwrite")
    assert "<svg" in picture.read_text()


def test_lower_bounds_are_drawn_beside_claims() -> None:
    second = Finding(**{**vars(finding(2.5, 2.2)), "threat": ACTIONS})
    third = replace(finding(0.5, 0.2), ceiling=1.9)
    figure = draw_findings([finding(1.5, 1.2), second, third])
    (axes,) = figure.axes
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    assert widths == [1.5, 2.5, 0.5]
    assert [np.ravel(line.get_xdata())[0] for line in axes.lines] == [2.0, 2.0, 2.0]
    colours = {bar.get_facecolor() for bar in axes.patches}
    assert len(colours) == 3  # a refuted claim has its own, and one that cannot be


def test_one_number_of_runs_is_that_of_every_part() -> None:
    sizes = asdict(AuditSizes.all(50))
    assert sizes == dict.fromkeys(sizes, 50)
