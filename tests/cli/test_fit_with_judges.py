"""`quorum fit --judges`, and `--units`: from the plan to what may leave the building."""

import json
from pathlib import Path

import pytest
from commands import Quorum

from quorum_rl.budget import key_path

SMALL = ("--epsilon", "20", "--delta", "1e-3", "--minimum-experts", "136", "--hidden", "2",
         "--private-steps", "2", "--local-steps", "2", "--transitions-per-expert", "2",
         "--accept", "one-expert-each", "own-names")  # fmt: skip
JUDGED = (*SMALL, "--judges", "0.2", "--return-bounds", "-5", "500", "--units", "private",
          "--choose", "bc,cql")  # fmt: skip


def test_what_the_judges_say_is_planned_told_reported_and_published(
    log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    run, bundle = tmp_path / "run", tmp_path / "bundle"
    planned = quorum.facts("fit", log, *JUDGED, "--folder", run, "--dry-run")
    parts = [event["part"] for event in planned["charges"]]
    assert parts == [*["training"] * 3, "judging"]  # units, steps, values, answers
    assert planned["spends"] <= 20
    assert not run.exists()
    facts = quorum.facts("fit", log, *JUDGED, "--folder", run)
    said = json.loads((run / "judging.json").read_text())
    assert "private units: observations are seen less (" in quorum.err
    assert len(json.loads((run / "units.json").read_text())["units"]) == 5  # cql sees rewards too
    assert "judges: each expert with probability 0.2" in quorum.err
    assert facts["judges"]["mean_return"] == said["mean_return"]
    assert said["mean_return"]["bounds"] == [-5, 500]
    assert "the policy does what they did" in quorum.err
    assert "better than what is done today: " in quorum.err
    assert facts["judges"]["better"] == said["better"]
    assert said["value"]["bounds"] == [-5, 500]
    assert [one["learner"] for one in said["candidates"]] == ["bc", "cql"]
    chosen = said["candidates"][said["chosen"]]["learner"]
    assert f"the judges choose {chosen}" in quorum.err
    ledger = run / "ledger.jsonl"
    assert "of those who judge" in quorum("ledger", "show", ledger)
    quorum("certificate", "verify", run)
    quorum("publish", run, "--out", bundle)
    report = (bundle / "report.html").read_text()
    assert "What the judges say" in report
    assert f"They chose it from 2, as what {chosen} earns has the interval" in report
    assert "bc, cql" in (bundle / "README.txt").read_text()
    for path in bundle.iterdir():
        assert key_path(ledger).read_bytes() not in path.read_bytes()
        assert not path.name.endswith("split-key")
    quorum("certificate", "verify", bundle)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--judges", "1"), "judges is 1.0"),
        (("--judges", "0.1", "--return-bounds", "3"), "two numbers"),
        (("--return-bounds", "3", "4"), "which share"),
        (("--choose", "bc,cql"), "--return-bounds"),
        (("--choose", "bc,cql", "--learner", "bc"), "--learner"),
        (("--judges", "0.1", "--method", "non-private", "--diagnostics-not-private"), "neither"),
    ],
)
def test_judges_that_make_no_sense_are_refused_before_anything_is_written(
    more: tuple[str, ...], said: str, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    refusal = quorum.refused_for_free(
        tmp_path, "fit", log, *SMALL, *more, "--folder", tmp_path / "run"
    )
    assert said in refusal
