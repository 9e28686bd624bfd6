"""What a site sends, or does not, and a coordinator that is killed; planted bugs beside each."""

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from at_sites import (
    ACCEPTED,
    MOST,
    ROUNDS,
    SETTINGS,
    Change,
    Failing,
    fitted_at_sites,
    logs_at,
    sites,
    whole_log,
)
from fits import same_weights
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from quorum_rl.budget import Budget, in_state, read_ledger
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.pipeline import Fitted
from quorum_rl.sites import Answer, Question, Site, SitesHere
from quorum_rl.sites.sums import ROUNDS as ROOM, SumsOfRounds, squares_of
from quorum_rl.training import AskedSum

BAD = "south"
Sent = list[tuple[str, Answer]]


def of_bad(change: Callable[[Answer], list[Answer]]) -> Change:
    """Change what one of the sites sends."""

    def changed(name: str, _: Question, answer: Answer) -> Sent:
        return [(name, sent) for sent in (change(answer) if name == BAD else [answer])]

    return changed


def with_arrays(change: Callable[[np.ndarray[Any, Any]], Any]) -> Change:
    return of_bad(lambda answer: [answer._replace(arrays=[change(leaf) for leaf in answer.arrays])])


def too_long(leaf: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.full_like(leaf, 2**30)


NOTHING: dict[str, Change] = {
    "dies": of_bad(lambda _: []),
    "refuses": of_bad(lambda answer: [answer._replace(refuses=True)]),
    "is late": of_bad(lambda answer: [answer._replace(number=answer.number - 1)]),
    "speaks of another run": of_bad(lambda answer: [answer._replace(run="another")]),
    "sends NaN": with_arrays(lambda leaf: np.full(leaf.shape, np.nan)),
    "sends NaN as float32": with_arrays(lambda leaf: np.full(leaf.shape, np.nan, np.float32)),
    "sends another shape": with_arrays(lambda leaf: leaf[..., None]),
    "sends one array too few": of_bad(lambda answer: [answer._replace(arrays=answer.arrays[1:])]),
    "sends no arrays": of_bad(lambda answer: [answer._replace(arrays="none")]),  # type: ignore[arg-type]
    "sends another kind": with_arrays(lambda leaf: leaf.astype(np.int64)),
    "sends too long a vector": with_arrays(too_long),
    "lies, then mends it": of_bad(
        lambda answer: [answer._replace(arrays=[too_long(leaf) for leaf in answer.arrays]), answer]
    ),
}


@pytest.fixture(scope="module", name="without")
def _without(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """The fit of the other sites, whose bad one is not there."""
    return fitted_at_sites(Failing(NOTHING["dies"]), tmp_path_factory.mktemp("without") / "run")


@pytest.mark.parametrize("fault", NOTHING)
def test_a_site_that_fails_counts_as_nothing(fault: str, without: Fitted, tmp_path: Path) -> None:
    made = fitted_at_sites(Failing(NOTHING[fault]), tmp_path / "run")
    assert same_weights(made, without)
    assert made.certificate is not None
    assert without.certificate is not None
    assert made.certificate.epsilon == without.certificate.epsilon


def test_a_site_that_answers_twice_counts_once(tmp_path: Path) -> None:
    twice = fitted_at_sites(Failing(of_bad(lambda answer: [answer, answer])), tmp_path / "twice")
    assert same_weights(twice, fitted_at_sites(Failing(), tmp_path / "once"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("sends too long a vector", f"a vector that is longer than {MOST[BAD]} experts' can be"),
        ("refuses", "a refusal (ask those who run it)"),
    ],
)
def test_what_is_said_of_a_bad_site_names_it_and_the_fault(
    fault: str, words: str, tmp_path: Path
) -> None:
    said: list[str] = []
    fitted_at_sites(Failing(NOTHING[fault]), tmp_path / "run", report=said.append)
    assert f"round 1: {BAD} sent {words}, which counts as zero" in said


# --- whatever a site sends ---


def asked_of(reached: Failing, folder: Path) -> tuple[SumsOfRounds, AskedSum]:
    """The sums of a run whose first round was asked for, and that round."""
    held: list[tuple[SumsOfRounds, AskedSum]] = []

    def ask(self: SumsOfRounds, asked: AskedSum) -> Any:
        held.append((self, asked))
        raise Interrupted("that is enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SumsOfRounds, "ask", ask)
        with pytest.raises(Interrupted):
            fitted_at_sites(reached, folder)
    return held[0]


LEAVES = st.one_of(
    arrays.arrays(
        st.sampled_from([np.int32, np.int64, np.float32, np.uint8]),
        arrays.array_shapes(max_dims=3, max_side=5),
    ),
    st.none(),
    st.integers(),
    st.text(),
)


@pytest.fixture(scope="module", name="round_one")
def _round_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Failing, SumsOfRounds, AskedSum, list[Any]]:
    """A run that stopped before its first round, and the sum of the honest sites in that."""
    reached = Failing(NOTHING["dies"])
    sums, asked = asked_of(reached, tmp_path_factory.mktemp("round") / "run")
    found = sums._answers(asked)
    assert sorted(found) == sorted(name for name in MOST if name != BAD)
    return reached, sums, asked, [sum(leaves) for leaves in zip(*found.values(), strict=True)]


@given(
    sent=st.one_of(st.lists(LEAVES, max_size=6), st.none()),
    scale=st.integers(-(2**31), 2**31 - 1),
    honest=st.booleans(),
)
@settings(max_examples=60)
def test_whatever_a_site_sends_the_others_sum_is_in_the_total(
    round_one: tuple[Failing, SumsOfRounds, AskedSum, list[Any]],
    sent: Any,
    scale: int,
    honest: bool,
) -> None:
    reached, sums, asked, others = round_one

    def change(answer: Answer) -> list[Answer]:
        if honest:  # of the right shapes, as long as it likes
            return [answer._replace(arrays=[np.full_like(leaf, scale) for leaf in answer.arrays])]
        return [answer._replace(arrays=sent)]

    reached.change = of_bad(change)
    found = sums._answers(asked)
    bad = found.pop(BAD, None)
    honest_sum = [sum(leaves) for leaves in zip(*found.values(), strict=True)]
    for mine, theirs in zip(honest_sum, others, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if bad is not None:
        task = sums._tasks[BAD]
        assert squares_of(bad) <= (task.most * task.units) ** 2


@given(arrays.arrays(np.int32, arrays.array_shapes(max_dims=2, max_side=6)))
def test_a_squared_norm_is_exact(leaf: np.ndarray[Any, Any]) -> None:
    assert squares_of([leaf, leaf]) == 2 * sum(int(number) ** 2 for number in leaf.ravel())


# --- planted bugs: each is caught by what is tested above ---


def no_norm_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("quorum_rl.sites.sums.squares_of", lambda _: 0)


def test_without_its_norm_check_a_long_vector_would_count(
    without: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_norm_check(monkeypatch)
    made = fitted_at_sites(Failing(NOTHING["sends too long a vector"]), tmp_path / "run")
    assert not same_weights(made, without)


def test_a_missing_site_does_not_change_what_the_sum_is_divided_by(
    tmp_path: Path, without: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros in the place of its sum are the same; a sum scaled by who answered is not."""
    zero = with_arrays(np.zeros_like)
    assert same_weights(fitted_at_sites(Failing(zero), tmp_path / "zero"), without)
    before = SumsOfRounds._answers

    def divided(self: SumsOfRounds, asked: AskedSum) -> Any:
        found = before(self, asked)
        scaled = len(MOST) / len(found)
        return {
            name: [np.rint(leaf * scaled).astype(np.int32) for leaf in leaves]
            for name, leaves in found.items()
        }

    monkeypatch.setattr(SumsOfRounds, "_answers", divided)
    planted = fitted_at_sites(Failing(NOTHING["dies"]), tmp_path / "planted")
    assert not same_weights(planted, without)


# --- too few sites, and a coordinator that is killed ---


def test_below_its_minimum_of_sites_a_run_stops_and_goes_on_to_the_same_bits(
    tmp_path: Path,
) -> None:
    one = of_bad(lambda answer: [] if answer.number == 3 else [answer])
    with pytest.raises(Interrupted, match="round 3: 2 of 3 sites sent a sum, and 3 must"):
        fitted_at_sites(Failing(one), tmp_path / "run", minimum_sites=3)
    made = fitted_at_sites(Failing(), tmp_path / "run", minimum_sites=3)
    assert same_weights(made, fitted_at_sites(Failing(), tmp_path / "whole", minimum_sites=3))
    assert len(read_ledger(made.folder / "ledger.jsonl").charges) == 1


class Killed(Exception):  # noqa: N818 - nothing that anybody handles
    """In the place of a power cut."""


class Dying(Failing):
    """Sites whose coordinator dies while it asks in this round, or when it has half the answers."""

    def __init__(self, number: int, after: int, change: Change | None = None) -> None:
        super().__init__(*([] if change is None else [change]))
        self.number, self.after = number, after

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        number = next(iter(questions.values())).number
        for count, sent in enumerate(super().ask(questions)):
            if (number, count) == (self.number, self.after):
                raise Killed
            yield sent


def left(attempts: list[Failing]) -> list[dict[int, list[bytes]]]:
    """What left the coordinator in each attempt, by round."""
    return [dict(attempt.asked) for attempt in attempts]


def killed_and_gone_on(folder: Path, number: int) -> tuple[Fitted, list[Failing]]:
    """A run that is killed in a round; when it goes on, one of its sites is gone."""
    first = Dying(number, after=1)
    with pytest.raises(Killed):
        fitted_at_sites(first, folder)
    second = Failing(NOTHING["dies"])
    return fitted_at_sites(second, folder), [first, second]


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_killed_in_any_round_a_coordinator_says_nothing_twice_with_the_same_noise(
    number: int, tmp_path: Path
) -> None:
    """Rounds that are done are not asked for again, so a site that left changes none of them."""
    _, attempts = killed_and_gone_on(tmp_path / "run", number)
    first, second = left(attempts)
    assert sorted(first) == list(range(1, number + 1))
    assert sorted(second) == list(range(number, ROUNDS + 1))
    assert first[number] == second[number]


def test_without_kept_sums_a_repeated_round_would_tell_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: the same noise on a sum that a site has left meanwhile."""
    for step in ("_keep", "_tell"):  # the witness alone would refuse the round
        monkeypatch.setattr(SumsOfRounds, step, lambda *_: None)
    _, attempts = killed_and_gone_on(tmp_path / "run", ROUNDS)
    first, second = left(attempts)
    assert first[ROUNDS] != second[ROUNDS]


def copied_and_gone_on(
    folder: Path, number: int, meanwhile: Callable[[], Any] = lambda: None
) -> list[Failing]:
    """A run of which a copy is made before a round; in the copy, one of the sites is gone."""
    first = Dying(number, after=0)
    with pytest.raises(Killed):
        fitted_at_sites(first, folder)
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    ledger = Budget.open(folder / "ledger.jsonl")  # of both
    attempts = [Failing(), Failing(NOTHING["dies"])]
    fitted_at_sites(attempts[0], folder, budget=ledger)
    meanwhile()
    fitted_at_sites(attempts[1], copy, budget=ledger)
    return attempts


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_a_copy_of_a_coordinators_folder_does_no_round_a_second_time(
    number: int, tmp_path: Path
) -> None:
    """Sites are told all parameters: two sums under one noise are the sum of who was gone."""
    with pytest.raises(QuorumError, match=rf"^round {number} of 'fit-\w+' was done already, in"):
        copied_and_gone_on(tmp_path / "run", number)


def test_without_a_witness_of_rounds_a_copy_tells_what_a_site_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: the parameters of the next round differ by that sum, without noise."""
    monkeypatch.setattr(SumsOfRounds, "_check_not_done", lambda *_: None)
    first, second = left(copied_and_gone_on(tmp_path / "run", ROUNDS - 1))
    assert first[ROUNDS - 1] == second[ROUNDS - 1]
    assert first[ROUNDS] != second[ROUNDS]


def test_once_the_state_folder_is_gone_a_copy_does_a_round_a_second_time(tmp_path: Path) -> None:
    def forget() -> None:
        for path in in_state(ROOM, "a run"):
            shutil.rmtree(path.parent)

    first, second = left(copied_and_gone_on(tmp_path / "run", ROUNDS - 1, forget))
    assert first[ROUNDS] != second[ROUNDS]


def test_of_two_copies_that_ask_at_once_one_makes_something_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, other = SumsOfRounds._asked_of_sites, SumsOfRounds._tell

    def meanwhile(self: SumsOfRounds, question: AskedSum) -> Any:
        found = asked(self, question)
        other(self, question.number)  # the copy was faster
        return found

    monkeypatch.setattr(SumsOfRounds, "_asked_of_sites", meanwhile)
    with pytest.raises(QuorumError, match=r"round 1 of .* was done already"):
        fitted_at_sites(Failing(), tmp_path / "run")
    assert not list((tmp_path / "run").rglob("sum-*"))


def test_sites_refuse_a_round_that_is_over_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second guard, where the coordinator has no witness: as long as sites run."""
    monkeypatch.setattr(SumsOfRounds, "_check_not_done", lambda *_: None)
    first, second, third = Dying(2, after=2), Failing(), Failing(NOTHING["dies"])
    with pytest.raises(Killed):
        fitted_at_sites(first, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    second._sites = third._sites = first._sites
    ledger = Budget.open(tmp_path / "run" / "ledger.jsonl")
    fitted_at_sites(second, tmp_path / "run", budget=ledger)
    with pytest.raises(QuorumError, match="or for one of a round that is over"):
        fitted_at_sites(third, tmp_path / "copy", budget=ledger)


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_killed_in_any_round_with_its_sites_there_it_has_the_same_bits(
    number: int, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        fitted_at_sites(Dying(number, after=2), tmp_path / "run")
    made = fitted_at_sites(Failing(), tmp_path / "run")
    assert same_weights(made, fitted_at_sites(Failing(), tmp_path / "whole"))
    assert len(read_ledger(made.folder / "ledger.jsonl").charges) == 1


# --- refusals, which cost nothing ---


@pytest.mark.parametrize("other", [{"action_count": 4}, {"world_params": {"gravity": 1.6}}])
def test_sites_whose_logs_have_other_columns_or_worlds_are_refused(
    other: dict[str, Any], tmp_path: Path
) -> None:
    log = logs_at(whole_log())["east"]
    east = replace(log, declared=replace(log.declared, **other))
    with pytest.raises(QuorumError, match="'north' and 'east' declare different"):
        fitted_at_sites(SitesHere(sites(east=east)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Boasting(Failing):
    """Sites that declare a number which no float can hold."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.fact = name

    def facts(self, wanted: Collection[str]) -> Mapping[str, Any]:
        def huge(said: Any) -> Any:
            return said | {
                "declared": json.dumps(json.loads(said["declared"]) | {self.fact: 10**400})
            }

        return {name: huge(said) for name, said in super().facts(wanted).items()}


@pytest.mark.parametrize("name", ["horizon", "observation_size", "action_count"])
def test_a_site_that_declares_a_huge_number_is_refused_in_a_sentence(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match="what the site 'north' says of itself is unreadable"):
        fitted_at_sites(Boasting(name), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_site_with_more_experts_than_it_declares_does_not_start() -> None:
    with pytest.raises(QuorumError, match="more experts than the 19"):
        Site("east", logs_at(whole_log())["east"], most_experts=19)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"minimum_experts": 61}, "the sites declare 60 at most"),
        ({"minimum_sites": 4}, "minimum_sites is 4, and there are 3"),
        ({"settings": replace(SETTINGS, sampling_rate=0.5)},
         "sites would know who is drawn"),
        ({"settings": replace(SETTINGS, method="selective")},
         "does not go with sites"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_is_written(
    choices: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match=said):
        fitted_at_sites(SitesHere(sites()), tmp_path / "run", **choices)
    assert not (tmp_path / "run").exists()


def test_too_few_sites_are_refused_before_the_charge(tmp_path: Path) -> None:
    some = SitesHere([site for site in sites() if site.name == "east"])
    with pytest.raises(QuorumError, match=r"1 of the sites are there \(east\), and 2 must be"):
        fitted_at_sites(some, tmp_path / "run", minimum_sites=2)
    assert not (tmp_path / "run").exists()


def test_a_log_that_belongs_to_another_ledger_sends_nothing(tmp_path: Path) -> None:
    """Whatever the coordinator accepts: it is for the site to say that these are others."""
    fitted_at_sites(SitesHere(sites()), tmp_path / "first")
    said = (
        "these demonstrations belong to the ledger .* accept 'other-experts' here. No sum was sent"
    )
    with pytest.raises(QuorumError, match=said):
        fitted_at_sites(SitesHere(sites()), tmp_path / "second")


def test_a_ledger_that_is_older_than_the_logs_remember_gets_no_sum(tmp_path: Path) -> None:
    """The coordinator's own witnesses may be gone: the sites have theirs."""
    path = tmp_path / "experts.ledger"
    budget = Budget.create(path, epsilon=9.0, delta=1e-3)
    before = path.read_bytes()
    fitted_at_sites(SitesHere(sites()), tmp_path / "first", budget=budget)
    fitted_at_sites(SitesHere(sites()), tmp_path / "second", budget=budget)
    path.write_bytes(before)
    for room in ("ledgers", "logs", "experts"):
        for file in (Path(os.environ["QUORUM_STATE"]) / room).glob("*.json"):
            if json.loads(file.read_text())["path"] is not None:  # a site knows no path
                file.unlink()
    with pytest.raises(QuorumError, match="is an older copy"):
        fitted_at_sites(SitesHere(sites()), tmp_path / "third", budget=budget)


def test_a_run_goes_on_with_the_sites_that_it_began_with(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fitted_at_sites(Dying(2, after=1), tmp_path / "run")
    with pytest.raises(QuorumError, match=r"begun with sites\.minimum_sites = 1, not 2"):
        fitted_at_sites(Failing(), tmp_path / "run", minimum_sites=2)


def test_sites_that_fitted_once_belong_to_that_ledger(tmp_path: Path) -> None:
    fitted_at_sites(SitesHere(sites()), tmp_path / "first", accepted=ACCEPTED)
    with pytest.raises(QuorumError, match=r"first/ledger\.jsonl"):
        fitted_at_sites(SitesHere(sites()), tmp_path / "second", accepted=ACCEPTED)
