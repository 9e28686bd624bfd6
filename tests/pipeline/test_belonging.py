"""One log and its experts have one ledger: attacks that would buy two certificates for one price.

Every attack would have a certificate of its full ε for each fit, and no ledger would see another.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dying_disk import KilledError
from fits import DELTA, EPSILON, SETTINGS, Crowd, crowd, fitted

from quorum_rl.budget import ASSUMPTIONS, Budget, Ledger, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.pipeline import Fitted, run

LOCAL: dict[str, Any] = {"settings": replace(SETTINGS, method="dp-sgd")}
OTHER: dict[str, Any] = {"accepted": ("one-expert-each", "other-experts")}
BELONGS = r"belongs? to the ledger .*, and another one would not count what that was charged"
OLDER = "is an older copy or a fork"


@pytest.fixture(scope="module", name="one")
def _one() -> Crowd:
    return crowd(identity="the log of an attack")


@pytest.fixture(name="filed")
def _filed(one: Crowd, tmp_path: Path) -> Crowd:
    """The crowd with its log in a file."""
    return saved(one, tmp_path / "log.arrow")


def saved(one: Crowd, path: Path, **declared: Any) -> Crowd:
    facts = replace(one.log.declared, **declared)
    save_demonstrations(replace(one.log, declared=facts), path)
    return one._replace(log=open_demonstrations(path))


def book(path: Path, times: float = 3.1) -> Budget:
    return Budget.create(path, epsilon=times * EPSILON, delta=times * DELTA)


def finite(made: Fitted) -> bool:
    return made.certificate is not None and made.certificate.epsilon <= EPSILON


def certificates(tries: list[Callable[[], Fitted]]) -> tuple[int, list[str]]:
    """How many of these fits gave a certificate of the whole ε, and what the others were told."""
    given, said = 0, []
    for each in tries:
        try:
            given += finite(each())
        except QuorumError as error:
            said.append(str(error))
    return given, said


def five_fits(one: Crowd, place: Path) -> tuple[int, list[str]]:
    return certificates([lambda n=n: fitted(one, place / f"{n}", **LOCAL) for n in range(5)])  # type: ignore[misc]


@pytest.mark.parametrize("in_a_file", [True, False])
def test_the_same_log_fitted_five_times_without_a_ledger(
    one: Crowd, filed: Crowd, tmp_path: Path, in_a_file: bool
) -> None:
    given, said = five_fits(filed if in_a_file else one, tmp_path / "runs")
    assert given == 1
    first = tmp_path / "runs" / "0" / "ledger.jsonl"
    assert len(said) == 4
    for sentence in said:
        assert f"charge this to it (--ledger {first})" in sentence
        assert "accept 'other-experts'. Nothing was charged." in sentence
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["0"]


def test_a_copied_log_under_another_ledger(filed: Crowd, tmp_path: Path) -> None:
    fitted(filed, tmp_path / "first", budget=book(tmp_path / "a"), **LOCAL)
    assert filed.log.source is not None
    shutil.copy(filed.log.source, tmp_path / "copy.arrow")
    copy = filed._replace(log=open_demonstrations(tmp_path / "copy.arrow"))
    other = book(tmp_path / "b")
    with pytest.raises(QuorumError, match=BELONGS):
        fitted(copy, tmp_path / "second", budget=other, **LOCAL)
    assert not other.record.charges
    fitted(copy, tmp_path / "third", budget=Budget.open(tmp_path / "a"), **LOCAL)


def test_a_ledger_restored_from_yesterdays_copy(filed: Crowd, tmp_path: Path) -> None:
    path = tmp_path / "a"
    book(path, 1.0)
    shutil.copy(path, tmp_path / "yesterday")
    fitted(filed, tmp_path / "first", budget=Budget(path), **LOCAL)
    shutil.copy(tmp_path / "yesterday", path)
    with pytest.raises(QuorumError, match=OLDER):
        fitted(filed, tmp_path / "second", budget=Budget(path), **LOCAL)


def test_the_log_itself_remembers_how_far_its_ledger_had_gone(
    filed: Crowd, tmp_path: Path, state: Path
) -> None:
    """As where the state folder is gone with a container, and the data is not."""
    path = tmp_path / "a"
    book(path, 1.0)
    shutil.copy(path, tmp_path / "yesterday")
    fitted(filed, tmp_path / "first", budget=Budget(path), **LOCAL)
    shutil.rmtree(state)
    shutil.copy(tmp_path / "yesterday", path)
    with pytest.raises(QuorumError, match=OLDER):
        fitted(filed, tmp_path / "second", budget=Budget(path), **LOCAL)


def test_two_logs_of_the_same_experts_under_two_ledgers(one: Crowd, tmp_path: Path) -> None:
    november, december = (
        saved(one, tmp_path / f"{month}.arrow", identity=month, experts_identity="the desks")
        for month in ("november", "december")
    )
    fitted(november, tmp_path / "first", budget=book(tmp_path / "a"), **LOCAL)
    for budget in (book(tmp_path / "b"), None):
        with pytest.raises(QuorumError, match=f"the experts of .*december.arrow' {BELONGS}"):
            fitted(december, tmp_path / "second", budget=budget, **LOCAL)
    assert not (tmp_path / "december.arrow.trained").exists()
    fitted(december, tmp_path / "third", budget=Budget(tmp_path / "a"), **LOCAL)


def test_a_ledger_that_was_copied_before_it_was_charged(one: Crowd, tmp_path: Path) -> None:
    """Of two logs, so that nothing but the ledger's own witness can tell."""
    book(tmp_path / "a")
    shutil.copy(tmp_path / "a", tmp_path / "fork")
    logs = [saved(one, tmp_path / f"{n}.arrow", identity=f"log {n}") for n in range(2)]
    fitted(logs[0], tmp_path / "first", budget=Budget(tmp_path / "a"), **LOCAL)
    with pytest.raises(QuorumError, match=OLDER):
        fitted(logs[1], tmp_path / "second", budget=Budget(tmp_path / "fork"), **LOCAL)
    fitted(logs[1], tmp_path / "second", budget=Budget(tmp_path / "a"), **LOCAL)


def test_a_copied_log_passes_once_everything_that_remembers_was_deleted(
    filed: Crowd, tmp_path: Path, state: Path
) -> None:
    """As docs/limits.md says."""
    fitted(filed, tmp_path / "first", **LOCAL)
    shutil.rmtree(state)
    (tmp_path / "log.arrow.trained").unlink()
    assert finite(fitted(filed, tmp_path / "second", **LOCAL))


@pytest.mark.parametrize("bug", ["_remember", "_refusal"])
def test_without_memory_or_refusal_the_first_attack_succeeds(
    filed: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    """The planted bugs: nothing is written down, or nothing is compared."""
    from quorum_rl.release import belonging  # here, so that the attacks run on older versions

    if bug == "_remember":
        monkeypatch.setattr(belonging, "_remember", lambda *_: None)
    else:
        monkeypatch.setattr(belonging, "check_belongs", lambda *_: ())
        monkeypatch.setattr(run, "check_belongs", lambda *_: ())
    assert five_fits(filed, tmp_path / "runs")[0] == 5


def test_whoever_says_that_these_are_other_experts_says_so_in_the_certificate(
    filed: Crowd, tmp_path: Path
) -> None:
    first = fitted(filed, tmp_path / "first", **LOCAL)
    made = fitted(filed, tmp_path / "second", **LOCAL | OTHER)
    assert first.certificate is not None
    assert made.certificate is not None
    words = "the owner says that these are other experts than those of the ledger "
    assert words + first.certificate.identity in " ".join(made.certificate.marks)
    assert words not in " ".join(first.certificate.marks)
    with pytest.raises(QuorumError, match=BELONGS):  # who does not say it again
        fitted(filed, tmp_path / "third", budget=Budget(made.folder / "ledger.jsonl"), **LOCAL)


def test_a_log_whose_ledger_was_deleted_says_what_to_do(filed: Crowd, tmp_path: Path) -> None:
    made = fitted(filed, tmp_path / "run", **LOCAL)
    shutil.move(made.folder / "ledger.jsonl", tmp_path / "backup")
    shutil.rmtree(made.folder)
    with pytest.raises(QuorumError, match=r"which is not there any more, .*: bring it back and na"):
        fitted(filed, tmp_path / "run", **LOCAL)
    budget = Budget.open(tmp_path / "backup")
    with pytest.raises(QuorumError, match="over the ledger's budget"):
        fitted(filed, tmp_path / "run", budget=budget, **LOCAL)


def test_a_run_that_never_charged_anything_may_be_deleted_and_begun_anew(
    filed: Crowd, tmp_path: Path, state: Path
) -> None:
    def charges(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Ledger, "charge", charges)
        fitted(filed, tmp_path / "run", **LOCAL)
    shutil.rmtree(tmp_path / "run")
    assert not [path for path in state.rglob("*") if path.is_file()]
    assert finite(fitted(filed, tmp_path / "run", **LOCAL))


def test_a_research_ledger_binds_nobody_and_refuses_nothing(
    filed: Crowd, tmp_path: Path, state: Path
) -> None:
    for name in ("r", "s"):
        budget = Budget.create(tmp_path / name, epsilon=None, delta=DELTA, kind="research")
        fitted(filed, tmp_path / f"research {name}", budget=budget, **LOCAL)
    assert not state.exists()
    fitted(filed, tmp_path / "run", **LOCAL)
    fitted(filed, tmp_path / "again", budget=Budget(tmp_path / "r"), **LOCAL)
    with pytest.raises(QuorumError, match=BELONGS):
        fitted(filed, tmp_path / "third", **LOCAL)


def dies_after_its_charge(one: Crowd, folder: Path, ledger: Budget) -> None:
    """A fit that dies when its ledger was charged and nothing was told of it."""

    def dies(*_: Any) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        patch.setattr("quorum_rl.release.belonging._remember", dies)
        fitted(one, folder, budget=ledger, **LOCAL)


def test_of_two_ledgers_the_one_whose_payer_died_before_it_was_known_does_not_go_on(
    filed: Crowd, tmp_path: Path
) -> None:
    a, b = book(tmp_path / "a"), book(tmp_path / "b")
    dies_after_its_charge(filed, tmp_path / "first", a)
    assert len(a.record.charges) == 1
    fitted(filed, tmp_path / "second", budget=b, **LOCAL)  # of which the first touched nothing
    with pytest.raises(QuorumError, match=BELONGS):
        fitted(filed, tmp_path / "first", budget=a, **LOCAL)
    made = fitted(filed, tmp_path / "first", budget=a, **LOCAL | OTHER)
    assert made.certificate is not None
    assert any("other experts" in mark for mark in made.certificate.marks)


def test_what_another_ledger_released_from_is_not_trained_on_whole_and_the_reverse(
    one: Crowd, tmp_path: Path
) -> None:
    """Whatever anybody says about the experts: these trajectories are the same."""
    everything = {"accepted": ("other-experts", *ASSUMPTIONS)}
    first, second = (
        saved(one, tmp_path / f"{name}.arrow", identity=name)
        for name in ("released first", "trained first")
    )
    fitted(first, tmp_path / "1")
    for settings in (LOCAL, dict[str, Any]()):
        with pytest.raises(QuorumError, match=BELONGS):
            fitted(first, tmp_path / "2", **settings)
    with pytest.raises(QuorumError, match="were released under another ledger"):
        fitted(first, tmp_path / "2", **LOCAL | everything)
    with pytest.raises(QuorumError, match=r"a release from .* has begun already"):
        fitted(first, tmp_path / "2", **everything)
    assert not (tmp_path / "2").exists()
    assert not (tmp_path / "released first.arrow.trained").exists()

    fitted(second, tmp_path / "3", **LOCAL)
    with pytest.raises(QuorumError, match=BELONGS):
        fitted(second, tmp_path / "5")
    with pytest.raises(QuorumError, match="none is fresh any more"):
        fitted(second, tmp_path / "5", **everything)
    assert not (tmp_path / "5").exists()
    assert not (tmp_path / "trained first.arrow.released").exists()


def test_a_memory_of_a_log_that_the_file_held_before_is_replaced(
    filed: Crowd, tmp_path: Path
) -> None:
    beside = tmp_path / "log.arrow.trained"
    for content in ('{"log": "another", "ledger": "some"}', '{"of": "another", "ledger": "some", '
                    '"kind": "production", "head": null, "lines": 3, "path": null}'):  # fmt: skip
        beside.write_text(content)
        small = book(tmp_path / f"small {len(content)}", 0.1)
        with pytest.raises(QuorumError, match="over the ledger's budget"):
            fitted(filed, tmp_path / "refused", budget=small, **LOCAL)
    fitted(filed, tmp_path / "run", **LOCAL)
    assert filed.log.declared.identity in beside.read_text()


def test_what_an_earlier_version_wrote_beside_a_log_still_counts(
    filed: Crowd, tmp_path: Path
) -> None:
    beside = tmp_path / "log.arrow.trained"
    beside.write_text('{"log": "the log of an attack", "ledger": "abcdef"}')
    with pytest.raises(QuorumError, match=r"to the ledger abcdef, .*: name it with --ledger; or"):
        fitted(filed, tmp_path / "run", **LOCAL)
    ledger = book(tmp_path / "a")
    beside.write_text(
        f'{{"log": "the log of an attack", "ledger": "{ledger.record.identity}", "after": "1"}}'
    )
    with pytest.raises(QuorumError, match=OLDER):
        fitted(filed, tmp_path / "run", budget=ledger, **LOCAL)
    beside.write_text(f'{{"log": "the log of an attack", "ledger": "{ledger.record.identity}"}}')
    fitted(filed, tmp_path / "run", budget=ledger, **LOCAL)


def test_where_nothing_can_be_written_a_training_says_so_and_nobody_releases(
    filed: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUORUM_STATE", "/proc/nowhere")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(QuorumError, match=r"nothing can be written beside .*log.arrow'"):
        fitted(filed, tmp_path / "run")
    made = fitted(filed, tmp_path / "run", **LOCAL)
    assert made.certificate is not None
    assert any("a state folder could not be written" in mark for mark in made.certificate.marks)
    assert len(read_ledger(made.folder / "ledger.jsonl").charges) == 1
