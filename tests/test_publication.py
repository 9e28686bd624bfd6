"""A bundle: what may leave the building, and nothing else of a run."""

import hashlib
import html
import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import pyarrow.parquet as pq
import pytest
from fits import crowd, fitted, named
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ledger_files import (
    BOTH,
    DELTA,
    FLOOR,
    TRAINING,
    certificate_in,
    charge,
    ledger_of,
    mark,
    pool,
    research,
)
from reported_runs import COMPARISON
from run_folders import USUAL, Making, names, some_prefixes, unpublished
from safetensors import safe_open

from quorum_rl.budget import ASSUMPTIONS, Ledger, certificate_of, ledger
from quorum_rl.budget.certificates import WHOLE_LOGS
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import FitSettings
from quorum_rl.policy import Policy
from quorum_rl.privacy.events import event_to_json
from quorum_rl.release import read_released, save_released
from quorum_rl.report import check_bundle, publish, write_report


@pytest.fixture
def making(tmp_path: Path) -> Making:
    return Making(tmp_path)


@pytest.fixture
def run(making: Making) -> Path:
    return making(ledger_of(*BOTH), FLOOR, TRAINING)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


def test_a_bundle_has_what_may_leave_and_nothing_else(run: Path, out: Path) -> None:
    for name in ("notes.txt", "metrics.jsonl", "comparison.json", "evaluation.json", "desk.key"):
        (run / name).write_text("HIDDEN")
    (run / "config.toml").write_text("folder = '/home/alice'")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "standing.safetensors").write_text("HIDDEN")
    made = publish(run, out)
    assert names(out) == USUAL == set(made.files)
    assert set(made.stayed) == names(run) - USUAL
    assert {"config.json", "comparison.json", "checkpoints", "desk.key"} <= set(made.stayed)
    for path in out.iterdir():
        content = path.read_bytes()
        for word in (b"HIDDEN", b"alice", b"desk-7", str(run).encode()):
            assert word not in content, path.name


def test_what_is_published_is_what_the_run_made(run: Path, out: Path) -> None:
    publish(run, out)
    certificate = (out / "certificate.json").read_bytes()
    assert certificate == (run / "certificate.json").read_bytes()
    assert (out / "policy.safetensors").read_bytes() == (run / "policy.safetensors").read_bytes()
    assert (out / "ledger.jsonl").read_bytes() == (run / "ledger.jsonl").read_bytes()
    digest = hashlib.sha256(certificate).hexdigest()
    assert Policy.load(out / "policy.safetensors").certificate == digest
    schema = json.loads((out / "certificate.schema.json").read_text())
    Draft202012Validator(schema).validate(json.loads(certificate))
    listed = json.loads((out / "MANIFEST.json").read_text())["files"]
    assert set(listed) == USUAL - {"MANIFEST.json"}
    for name, facts in listed.items():
        content = (out / name).read_bytes()
        assert facts == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    said = (out / "README.txt").read_text()
    assert certificate_in(ledger_of(*BOTH)).statement in said
    assert "research" not in said
    for name in USUAL:
        assert f"\n- {name}: " in said
    assert check_bundle(out).files == len(listed)


def test_two_bundles_of_one_run_are_the_same(run: Path, tmp_path: Path) -> None:
    """No times, no random names: nothing in it depends on when and where it was made."""
    publish(run, tmp_path / "one")
    publish(run, tmp_path / "two")
    for name in USUAL:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_unfinished_run_is_refused(run: Path, out: Path) -> None:
    (run / "private").mkdir()
    assert "is not finished" in unpublished(run, out)
    (run / "private").rmdir()
    (run / "policy.safetensors").unlink()
    assert "no policy" in unpublished(run, out)
    assert "there is no run" in unpublished(run / "none", out)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("certificate.json", "nothing that is guaranteed"),
        ("ledger.jsonl", "say with --ledger where"),
        ("config.json", "no run of 'quorum fit'"),
    ],
)
def test_a_run_without_its_files_is_refused(run: Path, out: Path, name: str, said: str) -> None:
    (run / name).unlink()
    assert said in unpublished(run, out)


def test_a_certificate_that_the_ledger_does_not_bear_out_is_refused(run: Path, out: Path) -> None:
    path = run / "certificate.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"epsilon": 0.1}))
    assert "epsilon does not agree" in unpublished(run, out)
    path.write_text(json.dumps(facts | {"budget_epsilon": 0.1}))
    assert "budget_epsilon is 0.1" in unpublished(run, out)
    path.write_text(json.dumps(facts | {"extra": 1}))
    assert "extra" in unpublished(run, out)


def test_a_policy_with_the_certificate_of_another_is_refused(
    run: Path, out: Path, making: Making
) -> None:
    path = run / "certificate.json"
    path.write_text(path.read_text() + "\n")
    assert "does not name the certificate beside it" in unpublished(run, out)
    making.save_policy(run)
    publish(run, out)


@pytest.mark.parametrize(
    ("charged", "planned", "choices", "said"),
    [
        ([charge(FLOOR, 1)], [FLOOR, TRAINING], {}, "does not name all that the run"),
        ([*BOTH], [], {"method": "non-private"}, "without noise"),
        ([charge(FLOOR, 1), charge(FLOOR, 1)], [FLOOR], {}, "claims no finite epsilon"),
    ],
)
def test_what_the_certificate_does_not_guarantee_is_refused(
    making: Making, out: Path, charged: Any, planned: Any, choices: Any, said: str
) -> None:
    """One of somebody else's run under a shared ledger, of no noise, and of no finite epsilon."""
    assert said in unpublished(making(ledger_of(*charged), *planned, **choices), out)


@pytest.mark.parametrize(
    "text", ["reproducible noise: not private", "diagnostics: looked at without noise"]
)
def test_marked_certificates_are_refused(making: Making, out: Path, text: str) -> None:
    run = making(ledger_of(*BOTH, mark(text)), FLOOR, TRAINING)
    assert f"is marked {text!r}" in unpublished(run, out)
    assert "leave out --research" in unpublished(run, out, research=True)


def test_research_is_published_only_as_research(making: Making, out: Path) -> None:
    run = making(research(*BOTH, mark("reproducible noise")), FLOOR, TRAINING)
    assert "--research-not-private" in unpublished(run, out)
    publish(run, out, research=True)
    said = (out / "README.txt").read_text()
    assert said.splitlines()[0] == "research: not private"
    assert "reproducible noise" in said
    assert names(out) == USUAL
    assert any("research" in sentence for sentence in check_bundle(out).sentences())


def test_a_bundle_that_guarantees_nothing_never_passes_a_check(
    making: Making, tmp_path: Path
) -> None:
    """It may be written as research, but a script that checks it is not told that all is well."""
    run = making(research(charge(FLOOR, 1), charge(FLOOR, 1)), FLOOR)
    for without_ledger in (False, True):
        folder = tmp_path / f"{without_ledger}"
        publish(run, folder, research=True, without_ledger=without_ledger)
        with pytest.raises(QuorumError, match="does not hold"):
            check_bundle(folder)


def test_nothing_is_ever_replaced(run: Path, out: Path, tmp_path: Path) -> None:
    out.mkdir()
    assert "exists already" in unpublished(run, out)
    assert "exists already" in unpublished(run, run / "config.json")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert "exists already" in unpublished(run, tmp_path / "dangling")
    with pytest.raises(QuorumError, match="there is no folder"):
        publish(run, tmp_path / "no" / "bundle")


@pytest.mark.parametrize(
    "name",
    ["policy.safetensors", "certificate.json", "ledger.jsonl", "evaluation.json", "config.json"],
)
def test_links_to_elsewhere_are_refused(run: Path, out: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if (run / name).exists():
        (run / name).rename(elsewhere)
    else:
        elsewhere.write_bytes(b"<html></html>")
    (run / name).symlink_to(elsewhere)
    assert "is not a plain file" in unpublished(run, out)
    (run / name).unlink()
    (run / name).mkdir()
    assert "is not a plain file" in unpublished(run, out)


def test_a_ledger_from_elsewhere_comes_as_far_as_the_certificate(
    making: Making, out: Path, tmp_path: Path
) -> None:
    covered = ledger_of(*BOTH)
    run = making(covered, FLOOR, TRAINING)
    (run / "ledger.jsonl").unlink()
    book = tmp_path / "desks.ledger"
    book.write_bytes(ledger_of(*BOTH, charge(TRAINING, 8), mark("diagnostics: later"), torn=b"{"))
    made = publish(run, out, ledger=book)
    assert (out / "ledger.jsonl").read_bytes() == covered
    assert any("has gone on since" in remark for remark in made.remarks)
    assert b"diagnostics" not in b"".join(path.read_bytes() for path in out.iterdir())
    check_bundle(out)
    later = check_bundle(out, ledger=book)
    assert any(
        "2 more entries and a line that was cut off" in sentence for sentence in later.sentences()
    )
    assert "there is no ledger" in unpublished(run, out.with_name("b"), ledger=tmp_path / "none")
    book.write_bytes(ledger_of(*BOTH, identity="cd" * 16))
    assert "of another ledger" in unpublished(run, out.with_name("b"), ledger=book)


def test_what_a_torn_line_held_does_not_leave(making: Making, out: Path) -> None:
    run = making(ledger_of(*BOTH, torn=b'{"entry":{"facts":{"owner":"alice"'), FLOOR, TRAINING)
    publish(run, out)
    assert b"alice" not in (out / "ledger.jsonl").read_bytes()
    assert check_bundle(out).certificate.torn


@pytest.mark.parametrize(
    "facts",
    [
        {"owner": "alice"},
        {"pool": "the logs of alice"},
        {"whole_log": "/home/alice/log"},
        {"accepted": ["Alice said so"]},
        {"accepted": "one-expert-each"},
        {"published": {"epsilon": 1, "by": "alice"}},
        {"training_minimum": "alice"},
    ],
)
def test_facts_that_quorum_did_not_write_keep_a_ledger_at_home(
    making: Making, out: Path, facts: dict[str, Any]
) -> None:
    run = making(ledger_of(charge(FLOOR, 1, **facts)), FLOOR)
    assert f"has a fact {next(iter(facts))!r}" in unpublished(run, out)
    publish(run, out, without_ledger=True)
    assert names(out) == USUAL - {"ledger.jsonl"}
    assert b"alice" not in b"".join(path.read_bytes() for path in out.iterdir())
    checked = check_bundle(out)
    assert checked.consistency is None
    assert any("was not compared with its ledger" in sentence for sentence in checked.sentences())


def test_released_prefixes_leave_only_if_asked_for_and_charged(
    run: Path, out: Path, tmp_path: Path
) -> None:
    assert "nothing that was released" in unpublished(run, out, with_released=True)
    path = run / "released.parquet"
    facts = {"ledger": "ab" * 16, **event_to_json(FLOOR)}
    for wrong in (
        facts | {"iterations": 5},
        facts | {"ledger": "cd" * 16},
        facts | {"by": "me"},
        {},
    ):
        save_released(some_prefixes(), path, wrong)
        assert "names no release that gave" in unpublished(run, out, with_released=True)
    save_released(some_prefixes(), path, facts)
    assert "released.parquet" in publish(run, out).stayed
    publish(run, tmp_path / "second", with_released=True)
    assert names(tmp_path / "second") == USUAL | {"released.parquet"}
    assert len(read_released(tmp_path / "second" / "released.parquet")) == 1
    assert "raw states" in (tmp_path / "second" / "README.txt").read_text()
    check_bundle(tmp_path / "second")


def test_metadata_that_is_not_quorums_does_not_come_through(run: Path, out: Path) -> None:
    """Files are written anew: what somebody else put into their headers stays."""
    path = run / "released.parquet"
    save_released(some_prefixes(), path, event_to_json(FLOOR))
    table = pq.read_table(path)
    extra = {**table.schema.metadata, b"made_by": b"alice on desk-7"}
    pq.write_table(table.replace_schema_metadata(extra), path)
    header = (run / "policy.safetensors").read_bytes()
    size = int.from_bytes(header[:8], "little")
    facts = json.loads(header[8 : 8 + size])
    facts["__metadata__"]["made_by"] = "alice"
    longer = json.dumps(facts).encode()
    (run / "policy.safetensors").write_bytes(
        len(longer).to_bytes(8, "little") + longer + header[8 + size :]
    )
    publish(run, out, with_released=True)
    assert b"alice" not in b"".join(path.read_bytes() for path in out.iterdir())


@pytest.fixture(scope="module")
def fitted_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A true fit, with a noise that nobody can draw again."""
    folder = tmp_path_factory.mktemp("alice-desk-7") / "run"
    settings = FitSettings(method="dp-sgd", private_steps=3, sampling_rate=0.1, batch_size=8)
    fitted(named(crowd(), pool(7)), folder, settings=settings, seed=None, experts=None)
    yield folder
    shutil.rmtree(folder)


def test_a_true_fit_is_published_without_a_trace_of_who_made_it_where(
    fitted_run: Path, tmp_path: Path
) -> None:
    publish(fitted_run, tmp_path / "bundle")
    out = tmp_path / "bundle"
    assert names(out) == USUAL | {"report.html"}
    assert check_bundle(out).certificate.kind == "production"
    with safe_open(out / "policy.safetensors", "numpy") as file:
        assert set(file.metadata()) == {"quorum_rl.policy"}
        said = json.loads(file.metadata()["quorum_rl.policy"])
    assert set(said) == {
        "format", "activation", "networks", "decision", "learner", "world", "certificate", "sha256",
    }  # fmt: skip
    model = onnx.load(out / "policy.onnx")
    assert {prop.key for prop in model.metadata_props} <= {"learner", "world", "certificate"}
    assert model.producer_name == "quorum-rl"
    assert [model.doc_string, model.graph.doc_string, model.domain] == ["", "", ""]
    assert not any(node.doc_string for node in model.graph.node)
    who = [str(fitted_run), "alice-desk-7", str(tmp_path)]
    for path in out.iterdir():
        for word in who:
            assert word.encode() not in path.read_bytes(), (path.name, word)


def assert_no_times_of_day(*folders: Path) -> None:
    times = re.compile(rb"%s[T ]\d\d:\d\d" % datetime.now(UTC).date().isoformat().encode())
    for path in (path for folder in folders for path in folder.iterdir()):
        assert times.search(path.read_bytes()) is None, path


def test_nobody_learns_from_a_bundle_or_a_run_how_long_a_stage_took(
    fitted_run: Path, tmp_path: Path
) -> None:
    """Two charges with their times tell how slow the experts were: dates are all there is."""
    write_report(fitted_run)
    made = publish(fitted_run, tmp_path / "bundle")
    assert "report.html" in made.files
    assert made.remarks == ()
    assert_no_times_of_day(tmp_path / "bundle", fitted_run)
    (fitted_run / "report.html").unlink()
    certificate = json.loads((fitted_run / "certificate.json").read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", certificate["events"][0]["at"])


def test_a_ledger_that_keeps_the_time_of_day_is_seen(
    making: Making, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug, as it was: both charges to the second."""
    monkeypatch.setattr(ledger, "_today", lambda: datetime.now(UTC).isoformat())
    book = tmp_path / "timed"
    Ledger.create(book, epsilon=50.0, delta=DELTA)
    with Ledger.open(book) as opened:
        opened.charge(TRAINING, run="fit-0", facts={"accepted": list(ASSUMPTIONS)})
    run = making(book.read_bytes(), TRAINING)
    publish(run, out)
    for folder in (run, out):
        with pytest.raises(AssertionError, match=r"ledger\.jsonl"):
            assert_no_times_of_day(folder)


def test_a_bundle_of_an_earlier_ledger_says_that_times_leave_with_it(
    making: Making, out: Path
) -> None:
    timed = [{**entry, "at": "2030-01-01T08:00:06Z"} for entry in BOTH]
    run = making(ledger_of(*timed), FLOOR, TRAINING)
    assert any("time of day" in remark for remark in publish(run, out).remarks)
    assert b"08:00" not in (out / "certificate.json").read_bytes()


def test_the_report_is_made_anew_and_not_taken_from_the_folder(
    fitted_run: Path, tmp_path: Path
) -> None:
    """Whoever can write into the run's folder cannot put a page of his own into the bundle."""
    head = certificate_of((fitted_run / "certificate.json").read_bytes(), fitted_run).ledger_head
    forged = f'<meta name="quorum:covered" content="{head}"><script>steal()</script>ε = 0.00123'
    (fitted_run / "report.html").write_text(forged)
    (fitted_run / "comparison.json").write_text(json.dumps(COMPARISON))
    publish(fitted_run, tmp_path / "one")
    publish(fitted_run, tmp_path / "two")
    page = (tmp_path / "one" / "report.html").read_text()
    assert "steal" not in page
    assert "ε = 0.00123" not in page
    assert "Comparisons are not published." in page
    made = certificate_in((fitted_run / "ledger.jsonl").read_bytes(), None)
    assert made.statement in html.unescape(page)
    assert page == (tmp_path / "two" / "report.html").read_text()


def test_a_run_without_a_release_says_nothing_of_prefixes_and_what_holds_instead(
    fitted_run: Path, tmp_path: Path
) -> None:
    write_report(fitted_run)
    publish(fitted_run, tmp_path / "bundle")
    for name in ("certificate.json", "README.txt", "report.html"):
        said = (tmp_path / "bundle" / name).read_text()
        assert WHOLE_LOGS.replace("'", "&#39;" if name == "report.html" else "'") in said, name
        assert not re.search(r"(released|raw) (prefix|state)|prefix of it|logs secret", said), name
    (fitted_run / "report.html").unlink()


def test_a_run_with_a_release_does_not_promise_that_whole_logs_are_protected(
    run: Path, out: Path
) -> None:
    publish(run, out)
    for name in ("certificate.json", "README.txt"):
        said = (out / name).read_text()
        assert "recognises a released prefix" in said
        assert WHOLE_LOGS not in said
