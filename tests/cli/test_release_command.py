"""`quorum release` and what surrounds it: from experts to a certificate, and what is refused."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from commands import Quorum

from quorum_rl.experts import load_population
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.release import read_released


class Files(NamedTuple):
    """Everything that a release takes, and where it writes."""

    log: Path
    experts: Path
    plan: Path
    ledger: Path
    out: Path

    @property
    def marker(self) -> Path:
        return self.log.with_name(self.log.name + ".released")

    def words(self, *more: str) -> list[str]:
        """The release of these files, accepting the assumptions that our own logs leave open."""
        return ["release", str(self.log), str(self.experts), "--plan", str(self.plan), "--ledger",
                str(self.ledger), "--out", str(self.out), "--accept", "one-expert-each",
                "floor-everywhere", *more]  # fmt: skip


@pytest.fixture
def files(
    experts_file: Path, collected: Path, planned: Path, tmp_path: Path, quorum: Quorum
) -> Files:
    """A release that is ready to be made, in a folder of its own."""
    log = tmp_path / "log.arrow"
    shutil.copy(collected, log)
    ledger = tmp_path / "experts.ledger"
    quorum("ledger", "create", ledger, "--epsilon", "30", "--delta", "1e-3")
    return Files(log, experts_file, planned, ledger, tmp_path / "released.parquet")


def test_the_flow_goes_from_experts_to_a_certificate_that_holds(
    files: Files, quorum: Quorum
) -> None:
    shown = quorum(*files.words())
    released = read_released(files.out)
    assert f"{len(released)} prefixes, {int(released.lengths.sum())} transitions" in shown
    assert len(released) <= 4  # iterations
    assert (released.horizon, released.action_count, released.observation_size) == (8, 2, 4)
    assert files.marker.exists()

    certificate = quorum.facts("certificate", "show", files.ledger)
    assert 0 < certificate["epsilon"] <= 20.001
    assert certificate["delta"] == 1e-3
    assert certificate["modes"] == ["tight"]
    assert certificate["marks"] == []
    assert all(assumption["accepted"] for assumption in certificate["assumptions"])
    assert f"ε = {certificate['epsilon']:.4f}" in quorum("certificate", "show", files.ledger)
    assert "the certificate holds" in quorum("certificate", "verify", files.ledger)
    ledger = quorum.facts("ledger", "show", files.ledger)
    assert ledger["spent_epsilon"] == certificate["epsilon"]
    assert len(ledger["charges"]) == 1


def test_nothing_says_how_many_experts_there_are(files: Files, quorum: Quorum) -> None:
    """What is printed, the ledger, the marker and the released file's facts know the plan alone."""
    printed = quorum(*files.words())
    printed += quorum("ledger", "show", files.ledger)
    printed += quorum("certificate", "show", files.ledger, "--json")
    printed += quorum("demos", "show", files.log)
    metadata = pq.read_schema(files.out).metadata
    texts = [
        printed.replace(str(files.out.parent), ""),  # whose name may have any number
        files.ledger.read_text(),
        files.marker.read_text(),
        b"".join(metadata.values()).decode(),
    ]
    experts, episodes = len(load_population(files.experts)), len(open_demonstrations(files.log))
    numbers = [set(re.findall(r"\b\d+\b", text)) for text in texts]
    assert "60" in numbers[0]  # the declared number is public
    for found in numbers:
        assert not found & {str(experts), str(experts - 1), str(episodes)}


# Once, and then never again.


def test_a_second_release_is_refused_by_the_marker_whatever_the_ledger(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    before = files.ledger.read_bytes()
    quorum(*files.words())
    charged = files._replace(out=tmp_path / "other.parquet")
    fresh = charged._replace(ledger=tmp_path / "other.ledger")
    restored = charged._replace(ledger=tmp_path / "restored.ledger")
    quorum("ledger", "create", fresh.ledger, "--epsilon", "30", "--delta", "1e-3")
    restored.ledger.write_bytes(before)
    assert "once per pool" in quorum.refused_for_free(tmp_path, *charged.words())
    assert "belongs to the ledger" in quorum.refused_for_free(tmp_path, *fresh.words())
    lied = fresh.words("other-experts")
    assert "has begun already" in quorum.refused_for_free(tmp_path, *lied)
    assert "older copy or a fork" in quorum.refused_for_free(tmp_path, *restored.words())
    files.marker.write_text("torn")
    assert "is damaged, and says to which ledger" in quorum.refused(*fresh.words())


def test_new_demonstrations_under_an_old_name_are_not_held_up_by_the_old_marker(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    quorum(*files.words())
    log = open_demonstrations(files.log)
    fresh = replace(log.declared, identity="0" * 32)
    save_demonstrations(replace(log, declared=fresh), files.log)
    other = files._replace(ledger=tmp_path / "other.ledger", out=tmp_path / "other.parquet")
    quorum("ledger", "create", other.ledger, "--epsilon", "30", "--delta", "1e-3")
    assert "the experts of" in quorum.refused_for_free(tmp_path, *other.words())
    quorum(*other.words("other-experts"))
    assert other.out.exists()


def test_neither_a_copy_nor_a_table_and_back_make_new_demonstrations(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    quorum(*files.words())
    copy, table, again = (tmp_path / name for name in ("copy.arrow", "log.parquet", "again.arrow"))
    shutil.copy(files.log, copy)
    quorum("demos", "export", files.log, "--out", table)
    quorum("demos", "import", table, "--out", again)
    for log in (copy, again):
        other = files._replace(log=log, out=tmp_path / "again.parquet")
        said = quorum.refused_for_free(tmp_path, *other.words())
        assert "stage 1 runs once per pool" in said


# What is refused costs nothing: no charge, no marker, no output.


@pytest.mark.parametrize(
    ("changed", "content", "words", "said"),
    [
        ("log", None, (), "changed/log"),
        ("experts", None, (), "changed/experts"),
        ("plan", None, (), "changed/plan"),
        ("ledger", None, (), "there is no ledger"),
        ("out", None, (), "there is no folder"),
        ("out", "precious", (), "--overwrite"),
        *[("plan", text, (), "quorum plan") for text in ("", "a", "[]", "{}", '{"mode": "tight"}')],
        (None, None, ("--accept", "common-world"), "one-expert-each (nobody owns two experts)"),
        (None, None, ("--accept", "one-expert-each"), "floor-everywhere (every expert gives every"),
        (None, None, ("--accept", "one-expert-eech"), "did you mean one-expert-each?"),
        (None, None, ("--training-minimum", "-1"), "training_minimum is -1"),
        (None, None, ("--seed", "-1"), "seed is -1"),
    ],
)
def test_what_is_wrong_is_named_before_anything_happens(
    changed: str | None, content: str | None, words: tuple[str, ...], said: str,
    files: Files, tmp_path: Path, quorum: Quorum,
) -> None:  # fmt: skip
    """A file that is missing or has another content, or a wrong option."""
    if changed is not None:
        path = tmp_path / "changed" / changed
        files = files._replace(**{changed: path})
        if content is not None:
            path.parent.mkdir()
            path.write_text(content)
    assert said in quorum.refused_for_free(tmp_path, *files.words(*words))


def test_a_plan_whose_noise_was_turned_down_by_hand_costs_more(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    """The ledger is charged for the constants of the plan, not for the epsilon that it claims."""
    facts = json.loads(files.plan.read_text())
    wrong = files._replace(plan=tmp_path / "wrong.json")
    wrong.plan.write_text(json.dumps(facts | {"query_epsilon": 30 * facts["query_epsilon"]}))
    assert "over the ledger's budget" in quorum.refused_for_free(tmp_path, *wrong.words())


# Interrupted at the worst moment.


# Other kinds of releases.
