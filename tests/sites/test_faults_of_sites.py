"""What a site sends, or does not, and what is refused; planted bugs beside each."""

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from at_sites import (
    ACCEPTED,
    BAD,
    MOST,
    SETTINGS,
    Change,
    Failing,
    fitted_at_sites,
    logs_at,
    of_bad,
    sites,
    whole_log,
)
from fits import same_weights
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from quorum_rl.budget import Budget
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.pipeline import Fitted
from quorum_rl.sites import Answer, Site, SitesHere
from quorum_rl.sites.sums import SumsOfRounds, squares_of
from quorum_rl.training import AskedSum


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


def test_sites_that_fitted_once_belong_to_that_ledger(tmp_path: Path) -> None:
    fitted_at_sites(SitesHere(sites()), tmp_path / "first", accepted=ACCEPTED)
    with pytest.raises(QuorumError, match=r"first/ledger\.jsonl"):
        fitted_at_sites(SitesHere(sites()), tmp_path / "second", accepted=ACCEPTED)
