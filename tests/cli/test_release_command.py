"""`quorum release` and what surrounds it: from experts to a certificate, and what is refused."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from quorum_rl.budget import read_ledger
from quorum_rl.cli.main import main
from quorum_rl.experts import load_population, save_population
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.release import read_released

Refused = Callable[..., str]

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
    experts_file: Path,
    collected: Path,
    planned: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Files:
    """A release that is ready to be made, in a folder of its own."""
    log = tmp_path / "log.arrow"
    shutil.copy(collected, log)
    ledger = tmp_path / "experts.ledger"
    main(["ledger", "create", str(ledger), "--epsilon", "30", "--delta", "1e-3"])
    capsys.readouterr()
    return Files(log, experts_file, planned, ledger, tmp_path / "released.parquet")


def test_the_flow_goes_from_experts_to_a_certificate_that_holds(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    main(files.words())
    shown = capsys.readouterr().out
    released = read_released(files.out)
    assert f"{len(released)} prefixes, {int(released.lengths.sum())} transitions" in shown
    assert len(released) <= 4  # iterations
    assert (released.horizon, released.action_count, released.observation_size) == (8, 2, 4)
    assert files.marker.exists()

    main(["certificate", "show", str(files.ledger), "--json"])
    certificate = json.loads(capsys.readouterr().out)
    assert 0 < certificate["epsilon"] <= 20.001
    assert certificate["delta"] == 1e-3
    assert certificate["modes"] == ["tight"]
    assert certificate["marks"] == []
    assert all(assumption["accepted"] for assumption in certificate["assumptions"])
    main(["certificate", "show", str(files.ledger)])
    assert f"ε = {certificate['epsilon']:.4f}" in capsys.readouterr().out
    main(["certificate", "verify", str(files.ledger)])
    assert "the certificate holds" in capsys.readouterr().out
    main(["ledger", "show", str(files.ledger), "--json"])
    ledger = json.loads(capsys.readouterr().out)
    assert ledger["spent_epsilon"] == certificate["epsilon"]
    assert len(ledger["charges"]) == 1


def test_with_a_seed_the_same_prefixes_come_out_and_the_certificate_says_so(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    research = files.ledger.with_name("research.ledger")
    again = files._replace(ledger=research, out=files.out.with_name("again.parquet"))
    main(["ledger", "create", str(research), "--research", "--delta", "1e-3"])
    main(files.words("--seed", "3"))
    main(again.words("--seed", "3"))
    assert pq.read_table(files.out).equals(pq.read_table(again.out))
    # All four drawn prefixes fail with probability below 1e-9: twice the threshold agrees.
    assert len(read_released(files.out))
    capsys.readouterr()
    main(["certificate", "show", str(files.ledger)])
    assert "not private against someone who knows the seed" in capsys.readouterr().out


def test_nothing_says_how_many_experts_there_are(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed, the ledger, the marker and the released file's facts know the plan alone."""
    main(files.words())
    main(["ledger", "show", str(files.ledger)])
    main(["certificate", "show", str(files.ledger), "--json"])
    main(["demos", "show", str(files.log)])
    metadata = pq.read_schema(files.out).metadata
    texts = [
        capsys.readouterr().out,
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
    files: Files, refused: Refused
) -> None:
    main(files.words())
    other = files._replace(
        ledger=files.ledger.with_name("other.ledger"), out=files.out.with_name("other.parquet")
    )
    main(["ledger", "create", str(other.ledger), "--epsilon", "30", "--delta", "1e-3"])
    untouched = other.ledger.read_bytes()
    assert "has begun already" in refused(*other.words())
    assert "once per pool" in refused(*other._replace(ledger=files.ledger).words())
    assert not other.out.exists()
    assert other.ledger.read_bytes() == untouched
    files.marker.write_text("torn")  # what cannot be read counts as used
    assert "has begun already" in refused(*other.words())


def test_a_ledger_restored_from_an_older_copy_does_not_release_again(
    files: Files, refused: Refused
) -> None:
    before = files.ledger.read_bytes()
    main(files.words())
    files.ledger.write_bytes(before)
    again = files._replace(out=files.out.with_name("again.parquet"))
    assert "has begun already" in refused(*again.words())
    assert files.ledger.read_bytes() == before


def test_other_experts_than_those_who_acted_are_refused(
    files: Files, refused: Refused, tmp_path: Path
) -> None:
    """Same world, same floor, same shapes: only the random identity tells them apart."""
    others = replace(load_population(files.experts), identity="0" * 32)
    save_population(others, tmp_path / "others.safetensors")
    said = refused(*files._replace(experts=tmp_path / "others.safetensors").words())
    assert "not the experts who acted" in said
    assert not files.out.exists()
    assert not files.marker.exists()


def test_new_demonstrations_under_an_old_name_are_not_held_up_by_the_old_marker(
    files: Files,
) -> None:
    main(files.words())
    log = open_demonstrations(files.log)
    fresh = replace(log.declared, identity="0" * 32)
    save_demonstrations(replace(log, declared=fresh), files.log)
    other = files._replace(
        ledger=files.ledger.with_name("other.ledger"), out=files.out.with_name("other.parquet")
    )
    main(["ledger", "create", str(other.ledger), "--epsilon", "30", "--delta", "1e-3"])
    main(other.words())
    assert other.out.exists()


def test_a_second_release_from_a_copy_is_refused_by_the_ledger(
    files: Files, refused: Refused
) -> None:
    main(files.words())
    copy = files._replace(
        log=files.log.with_name("copy.arrow"), out=files.out.with_name("copy.parquet")
    )
    shutil.copy(files.log, copy.log)
    charged = files.ledger.read_bytes()
    assert "stage 1 runs once per pool" in refused(*copy.words())
    assert files.ledger.read_bytes() == charged
    assert not copy.out.exists()
    assert not copy.marker.exists()


def test_a_table_and_back_makes_no_new_demonstrations(files: Files, refused: Refused) -> None:
    main(files.words())
    table, again = files.log.with_name("log.parquet"), files.log.with_name("again.arrow")
    main(["demos", "export", str(files.log), "--out", str(table)])
    main(["demos", "import", str(table), "--out", str(again)])
    copy = files._replace(log=again, out=files.out.with_name("again.parquet"))
    assert "stage 1 runs once per pool" in refused(*copy.words())


# What is refused costs nothing: no charge, no marker, no output.


def refused_for_free(files: Files, refused: Refused, *more: str) -> str:
    """The sentence with which a release is refused, if nothing at all has happened."""
    before = {path: path.read_bytes() for path in files.ledger.parent.iterdir()}
    said = refused(*files.words(*more))
    assert {path: path.read_bytes() for path in files.ledger.parent.iterdir()} == before
    return said


def test_a_release_over_the_budget_is_refused_and_costs_nothing(
    files: Files, refused: Refused
) -> None:
    poor = files._replace(ledger=files.ledger.with_name("poor.ledger"))
    main(["ledger", "create", str(poor.ledger), "--epsilon", "2", "--delta", "1e-3"])
    said = refused_for_free(poor, refused)
    assert "over the ledger's budget of 2" in said
    assert "nothing was charged" in said
    main(files.words())


def test_a_ledger_with_a_torn_last_line_is_at_its_end(files: Files, refused: Refused) -> None:
    with files.ledger.open("ab") as file:
        file.write(b'{"entry":{"entry":"charge","ev')
    assert "nothing more can be learned" in refused_for_free(files, refused)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("log", "none.arrow"),
        ("experts", "none.safetensors"),
        ("plan", "the plan"),
        ("ledger", "there is no ledger"),
        ("out", "no/such/folder"),
    ],
)
def test_a_missing_file_is_named(
    missing: str, said: str, files: Files, refused: Refused, tmp_path: Path
) -> None:
    names = {
        "log": "none.arrow",
        "experts": "none.safetensors",
        "plan": "none.json",
        "ledger": "none.ledger",
        "out": "no/such/folder/released.parquet",
    }
    assert said in refused_for_free(files._replace(**{missing: tmp_path / names[missing]}), refused)


@pytest.mark.parametrize("content", ["", "not a plan", "[]", "{}", '{"mode": "tight"}'])
def test_what_is_no_plan_is_refused(
    content: str, files: Files, refused: Refused, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(content)
    assert "quorum plan" in refused_for_free(files._replace(plan=wrong), refused)


def test_a_plan_whose_noise_was_turned_down_by_hand_costs_more(
    files: Files, refused: Refused, tmp_path: Path
) -> None:
    """The ledger is charged for the constants of the plan, not for the epsilon that it claims."""
    facts = json.loads(files.plan.read_text())
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(facts | {"query_epsilon": 30 * facts["query_epsilon"]}))
    said = refused_for_free(files._replace(plan=wrong), refused)
    assert "over the ledger's budget" in said


def test_an_output_that_exists_is_not_replaced_unasked(files: Files, refused: Refused) -> None:
    files.out.write_text("precious")
    assert "--overwrite" in refused_for_free(files, refused)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--accept", "common-world"), "one-expert-each (nobody owns two experts)"),
        (("--accept", "one-expert-each"), "floor-everywhere (every expert gives every action"),
        (("--accept", "one-expert-eech"), "did you mean one-expert-each?"),
        (("--training-minimum", "-1"), "training_minimum is -1"),
        (("--seed", "-1"), "seed is -1"),
    ],
)
def test_options_are_checked_before_the_charge(
    words: tuple[str, ...], said: str, files: Files, refused: Refused
) -> None:
    assert said in refused_for_free(files, refused, *words)


def test_demonstrations_from_another_machine_need_a_word_of_their_owner(
    files: Files, refused: Refused
) -> None:
    log = open_demonstrations(files.log)
    elsewhere = files._replace(log=files.log.with_name("elsewhere.arrow"))
    save_demonstrations(
        replace(log, declared=replace(log.declared, machine="gpu H200, jax 0.9")), elsewhere.log
    )
    assert "rounds-alike" in refused_for_free(elsewhere, refused)
    main(elsewhere.words("--accept", "one-expert-each", "floor-everywhere", "rounds-alike"))


def test_demonstrations_that_do_not_say_how_their_experts_acted_are_refused(
    files: Files, refused: Refused
) -> None:
    table, own = files.log.with_name("log.csv"), files.log.with_name("own.arrow")
    main(["demos", "export", str(files.log), "--out", str(table)])
    main(["demos", "import", str(table), "--out", str(own), "--actions", "2", "--observations",
          "4", "--horizon", "8", "--p-min", "0.1"])  # fmt: skip
    said = refused_for_free(files._replace(log=own), refused)
    assert "logs-from-queried-policies" in said


# Interrupted at the worst moment.


@pytest.mark.parametrize(("moment", "charged"), [("load", False), ("draw", True)])
def test_an_interrupted_release_counts_as_made_once_it_was_charged(
    moment: str,
    charged: bool,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused: Refused,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if moment == "load":
            patched.setattr("quorum_rl.experts.load_population", interrupt)
        else:
            patched.setattr(sys.modules["quorum_rl.release.run"], "draw_fresh", interrupt)
        with pytest.raises(SystemExit) as stopped:
            main(files.words())
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "quorum: interrupted.\n"
    assert not files.out.exists()
    assert files.marker.exists() is charged
    assert len(read_ledger(files.ledger).charges) == charged
    if charged:
        assert "once" in refused(*files.words())
    else:
        main(files.words())


# Other kinds of releases.


def test_random_stopping_needs_no_word_about_a_floor(
    files: Files, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    unchanged = files._replace(log=tmp_path / "unchanged.arrow", plan=tmp_path / "stopping.json")
    main(["demos", "collect", str(files.experts), "--out", str(unchanged.log), "--p-min", "0",
          "--trajectories", "5", "--param", "time_limit", "8"])  # fmt: skip
    main(["plan", *NUMBERS, "--stop-probability", "0.1", "--out", str(unchanged.plan)])
    main(unchanged.words())
    capsys.readouterr()
    main(["certificate", "show", str(unchanged.ledger), "--json"])
    assumed = {found["name"] for found in json.loads(capsys.readouterr().out)["assumptions"]}
    assert assumed == {
        "logs-from-queried-policies",
        "independent-trajectories",
        "common-world",
        "public-ends",
        "one-expert-each",
    }


def test_paper_mode_never_gets_a_certificate_that_holds(
    files: Files, capsys: pytest.CaptureFixture[str], refused: Refused, tmp_path: Path
) -> None:
    published = files._replace(plan=tmp_path / "paper.json")
    main(["plan", *NUMBERS, "--p-min", "0.1", "--mode", "paper", "--out", str(published.plan)])
    main(published.words())
    capsys.readouterr()
    main(["certificate", "show", str(files.ledger)])
    shown = capsys.readouterr().out
    assert "what came out is not certified" in shown
    assert "as published: epsilon = 20" in shown
    assert "mode paper" in refused("certificate", "verify", str(files.ledger), status=1)


def test_a_research_ledger_refuses_nothing_and_says_so(
    files: Files, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    research = files._replace(ledger=files.ledger.with_name("research.ledger"))
    main(["ledger", "create", str(research.ledger), "--research"])
    words = [word for word in research.words() if word not in ("--accept", *OPEN)]
    main(words)
    main([*words, "--overwrite"])
    fresh = files._replace(out=files.out.with_name("production.parquet"))
    assert "has begun already" in refused(*fresh.words())  # research used the pool up
    assert "delta" in refused("certificate", "show", str(research.ledger))
    capsys.readouterr()
    main(["certificate", "show", str(research.ledger), "--delta", "1e-3"])
    shown = capsys.readouterr().out
    assert "research ledger: its budget was not enforced" in shown
    assert "used more than once, so the claim does not hold" in shown
    assert "one-expert-each (NOT accepted)" in shown
    verify = ("certificate", "verify", str(research.ledger), "--delta", "1e-3")
    said = refused(*verify, status=1)
    assert "used more than once" in said
