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

from quorum_rl.budget import read_ledger
from quorum_rl.experts import load_population, save_population
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.release import read_released

OPEN = ("one-expert-each", "floor-everywhere")

NUMBERS = ("--minimum-experts", "60", "--actions", "2", "--horizon", "8", "--epsilon", "20",
           "--delta", "1e-3", "--iterations", "4", "--objective", "threshold")  # fmt: skip


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


def test_with_a_seed_the_same_prefixes_come_out_and_the_certificate_says_so(
    files: Files, quorum: Quorum
) -> None:
    research = files.ledger.with_name("research.ledger")
    again = files._replace(ledger=research, out=files.out.with_name("again.parquet"))
    quorum("ledger", "create", research, "--research", "--delta", "1e-3")
    quorum(*files.words("--seed", "3"))
    quorum(*again.words("--seed", "3"))
    assert pq.read_table(files.out).equals(pq.read_table(again.out))
    # All four drawn prefixes fail with probability below 1e-9: twice the threshold agrees.
    assert len(read_released(files.out))
    assert "not private against someone who knows the seed" in quorum(
        "certificate", "show", files.ledger
    )


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


def test_other_experts_than_those_who_acted_are_refused(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    """Same world, same floor, same shapes: only the random identity tells them apart."""
    others = files._replace(experts=tmp_path / "others.safetensors")
    save_population(replace(load_population(files.experts), identity="0" * 32), others.experts)
    said = quorum.refused_for_free(tmp_path, *others.words())
    assert "not the experts who acted" in said


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


def test_a_release_over_the_budget_is_refused_and_costs_nothing(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    poor = files._replace(ledger=tmp_path / "poor.ledger")
    quorum("ledger", "create", poor.ledger, "--epsilon", "2", "--delta", "1e-3")
    said = quorum.refused_for_free(tmp_path, *poor.words())
    assert "over the ledger's budget of 2" in said
    assert "nothing was charged" in said
    quorum(*files.words())


def test_a_plan_whose_noise_was_turned_down_by_hand_costs_more(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    """The ledger is charged for the constants of the plan, not for the epsilon that it claims."""
    facts = json.loads(files.plan.read_text())
    wrong = files._replace(plan=tmp_path / "wrong.json")
    wrong.plan.write_text(json.dumps(facts | {"query_epsilon": 30 * facts["query_epsilon"]}))
    assert "over the ledger's budget" in quorum.refused_for_free(tmp_path, *wrong.words())


# Interrupted at the worst moment.


@pytest.mark.parametrize(
    ("moment", "charged"),
    [("quorum_rl.experts.load_population", False), ("quorum_rl.release.run.draw_fresh", True)],
)
def test_an_interrupted_release_is_charged_once_and_made_by_the_same_command(
    moment: str, charged: bool, files: Files, monkeypatch: pytest.MonkeyPatch, quorum: Quorum
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(moment, interrupt)
        assert quorum.refused(*files.words(), status=130) == "quorum: interrupted.\n"
    assert not files.out.exists()
    assert files.marker.exists() is charged
    assert len(read_ledger(files.ledger).charges) == charged
    other = files._replace(out=files.out.with_name("other.parquet"))
    if charged:  # a second release is none that goes on
        assert "once per pool" in quorum.refused(*other.words())
    quorum(*files.words())
    assert files.out.exists()
    assert len(read_ledger(files.ledger).charges) == 1
    assert not files.out.with_name("released.parquet.private").exists()
    assert "exists already" in quorum.refused(*files.words())


# Other kinds of releases.


def test_random_stopping_needs_no_word_about_a_floor(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    unchanged = files._replace(log=tmp_path / "unchanged.arrow", plan=tmp_path / "stopping.json")
    quorum("demos", "collect", files.experts, "--out", unchanged.log, "--p-min", "0",
           "--trajectories", "5", "--param", "time_limit", "8")  # fmt: skip
    quorum("plan", "release", *NUMBERS, "--stop-probability", "0.1", "--out", unchanged.plan)
    quorum(*unchanged.words())
    assumed = {
        found["name"]
        for found in quorum.facts("certificate", "show", unchanged.ledger)["assumptions"]
    }
    assert assumed == {
        "logs-from-queried-policies",
        "independent-trajectories",
        "common-world",
        "public-ends",
        "one-expert-each",
    }


def test_paper_mode_never_gets_a_certificate_that_holds(
    files: Files, tmp_path: Path, quorum: Quorum
) -> None:
    published = files._replace(plan=tmp_path / "paper.json")
    quorum(
        "plan", "release", *NUMBERS, "--p-min", "0.1", "--mode", "paper", "--out", published.plan
    )
    quorum(*published.words())
    shown = quorum("certificate", "show", files.ledger)
    assert "what came out is not certified" in shown
    assert "as published: epsilon = 20" in shown
    assert "mode paper" in quorum.refused("certificate", "verify", files.ledger, status=1)


def test_a_research_ledger_refuses_nothing_and_says_so(files: Files, quorum: Quorum) -> None:
    research = files._replace(ledger=files.ledger.with_name("research.ledger"))
    quorum("ledger", "create", research.ledger, "--research")
    words = [word for word in research.words() if word not in ("--accept", *OPEN)]
    quorum(*words)
    quorum(*words, "--overwrite")
    fresh = files._replace(out=files.out.with_name("production.parquet"))
    assert "has begun already" in quorum.refused(*fresh.words())  # research used the pool up
    assert "delta" in quorum.refused("certificate", "show", research.ledger)
    shown = quorum("certificate", "show", research.ledger, "--delta", "1e-3")
    assert "research ledger: its budget was not enforced" in shown
    assert "used more than once, so the claim does not hold" in shown
    assert "one-expert-each (NOT accepted)" in shown
    verify = ("certificate", "verify", str(research.ledger), "--delta", "1e-3")
    said = quorum.refused(*verify, status=1)
    assert "used more than once" in said
