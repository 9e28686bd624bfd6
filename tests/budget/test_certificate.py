"""The certificate: never less than was spent, and nothing that matters left out."""

import json
import math
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from ledger_records import DELTA, charged

from quorum_rl.budget import (
    ASSUMPTIONS,
    AT_SITES,
    OF_PARTS,
    Ledger,
    certificate,
    read_ledger,
    verify,
)
from quorum_rl.budget.certificates import rounded_up
from quorum_rl.budget.record import RELATION
from quorum_rl.budget.verifier import TOLERANCE
from quorum_rl.errors import QuorumError
from quorum_rl.privacy.accounting import total_epsilon
from quorum_rl.privacy.events import ReleaseEvent, TrainingEvent, event_to_json

# A few values each, so that what composes slowly is composed once.
iteration_counts = st.sampled_from([1, 4, 20])
trainings = st.builds(
    TrainingEvent,
    sampling_rate=st.sampled_from([0.01, 0.04]),
    noise_multiplier=st.sampled_from([1.5, 3.0]),
    steps=st.sampled_from([1, 100]),
)
few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@few
@given(st.lists(st.one_of(iteration_counts, trainings), min_size=1, max_size=4))
def test_a_certificate_never_shows_less_than_was_spent(
    release: ReleaseEvent, listed: list[int | TrainingEvent]
) -> None:
    events = [replace(release, iterations=e) if isinstance(e, int) else e for e in listed]
    shown = [certificate(charged(*events[:n])).epsilon for n in range(len(events) + 1)]
    assert shown[0] == 0
    assert all(before <= after for before, after in pairwise(shown))
    assert shown[-1] >= total_epsilon(events, DELTA)
    # By the other route too, of which this much is the grid.
    assert shown[-1] * (1 + TOLERANCE) >= verify(charged(*events)).epsilon
    torn = certificate(charged(*events, torn=True, epsilon=7.0))
    assert torn.epsilon >= max(7.0, shown[-1] if shown[-1] <= 7.0 else 0.0)


@few
@given(
    st.lists(st.one_of(iteration_counts, trainings), min_size=2, max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_charges_does_not_matter(
    release: ReleaseEvent, listed: list[int | TrainingEvent], random: Random
) -> None:
    events = [replace(release, iterations=e) if isinstance(e, int) else e for e in listed]
    shuffled = list(events)
    random.shuffle(shuffled)
    assert certificate(charged(*shuffled)).epsilon == certificate(charged(*events)).epsilon


@given(st.floats(0, 1e6))
def test_an_epsilon_is_rounded_up_and_hardly(epsilon: float) -> None:
    shown = Fraction(rounded_up(epsilon))
    assert Fraction(epsilon) <= shown < Fraction(epsilon) + Fraction(1, 10**4)
    assert float(rounded_up(epsilon)) >= epsilon


def test_a_certificate_comes_from_the_file_and_names_every_constant(
    path: Path, release: ReleaseEvent, training: TrainingEvent
) -> None:
    identity = Ledger.create(path, epsilon=9.0, delta=DELTA).identity
    with Ledger.open(path) as ledger:
        ledger.charge(release, run="one", facts={"pool": "secret pool"})
        ledger.charge(training, run="one")
        ledger.mark("reproducible noise: not private against someone who knows the seed")
    record = read_ledger(path)
    shown = json.loads(certificate(record).to_json())
    assert shown["identity"] == identity
    assert shown["ledger_head"] == record.head
    assert shown["relation"] == RELATION
    assert shown["modes"] == ["tight"]
    assert (shown["budget_epsilon"], shown["budget_delta"], shown["delta"]) == (9.0, DELTA, DELTA)
    assert total_epsilon([release, training], DELTA) <= shown["epsilon"] < 9
    assert asdict(release).items() <= shown["events"][0].items()
    assert event_to_json(training).items() <= shown["events"][1].items()
    assert "reproducible noise" in shown["marks"][0]
    assert shown["published"] is None
    assert not shown["torn"]
    assert "secret pool" not in json.dumps(shown)
    assert f"ε = {rounded_up(total_epsilon([release, training], DELTA))}" in shown["statement"]


def test_noise_in_floating_point_is_named_only_where_there_was_training(
    release: ReleaseEvent, training: TrainingEvent
) -> None:
    for events, named in (((release,), False), ((training,), True), ((release, training), True)):
        limitations = certificate(charged(*events)).limitations
        assert any("counter-based generator" in text for text in limitations) is named
        assert any("already holds a log" in text for text in limitations) is (release in events)


def test_assumptions_are_those_the_events_need_and_say_who_accepted_them(
    release: ReleaseEvent, training: TrainingEvent
) -> None:
    stopping = replace(release, p_min=0.0, stop_probability=0.2)
    needed = {
        event: {assumption.name for assumption in certificate(charged(event)).assumptions}
        for event in (release, stopping, training)
    }
    here = set(ASSUMPTIONS) - {*AT_SITES, *OF_PARTS}
    assert needed[release] == here
    assert needed[stopping] == here - {"floor-everywhere"}
    assert needed[training] == {"one-expert-each"}
    assert "start states, dynamics and rewards" in ASSUMPTIONS["common-world"]  # none is a secret

    accepting = charged(release, facts={"accepted": list(ASSUMPTIONS)})
    assert all(assumption.accepted for assumption in certificate(accepting).assumptions)
    assert not any(assumption.accepted for assumption in certificate(charged(release)).assumptions)
    mixed = replace(accepting, charges=accepting.charges + charged(training).charges)
    refused = [
        assumption.name for assumption in certificate(mixed).assumptions if not assumption.accepted
    ]
    assert refused == ["one-expert-each"]  # the training was run without it


def test_a_torn_ledger_certifies_that_all_was_spent(training: TrainingEvent) -> None:
    torn = certificate(charged(training, torn=True, epsilon=9.0))
    assert torn.epsilon == 9.0
    assert "all of the budget counts as spent" in torn.statement
    stricter = certificate(charged(training, torn=True, epsilon=9.0), delta=DELTA / 2)
    assert stricter.epsilon == math.inf
    assert json.loads(stricter.to_json())["epsilon"] is None
    assert "No finite ε" in stricter.statement


def test_a_research_certificate_says_so(release: ReleaseEvent) -> None:
    record = charged(release, release, kind="research", epsilon=None, delta=None)
    with pytest.raises(QuorumError, match="has no delta"):
        certificate(record)
    assert "research ledger" in certificate(record, delta=DELTA).statement
    assert "does not hold" not in certificate(record, delta=DELTA).statement
    first = record.charges[0]
    repeated = certificate(replace(record, charges=(first, first)), delta=DELTA)
    assert "more than once, so the claim does not hold" in repeated.statement
    assert any("was used 2 times" in text for text in repeated.not_accounted)
    assert repeated.epsilon == math.inf
    assert "No finite ε can be claimed" in repeated.statement


def test_mode_paper_shows_the_published_sum_and_why_it_is_not_valid(
    release: ReleaseEvent, training: TrainingEvent
) -> None:
    """The constants as the paper computes them from ε1 = 7.5, δ1 = 2e-4, T = 25, L = 200."""
    spread = 7.5 / math.sqrt(32 * 25 * math.log(2 / 2e-4))
    theta = 1 / (1 - math.exp(-spread)) / 0.02
    paper = replace(
        release,
        mode="paper",
        theta=theta,
        threshold=theta + 4 / spread * math.log(2 * 25 * 200 / 2e-4),
        threshold_epsilon=spread / 2,
        query_epsilon=spread / 4,
        pool_size=0,
    )
    shown = certificate(
        charged(paper, training, facts={"published": {"epsilon": 2.5, "delta": 1e-4}})
    )
    assert shown.modes == ("paper",)
    assert shown.published is not None
    assert shown.published.epsilon == pytest.approx(10, rel=1e-9)
    assert shown.published.delta == pytest.approx(3e-4, rel=1e-9)
    assert shown.published.complete
    assert "as published and is not valid" in shown.published.text
    assert "is not valid" in shown.statement
    incomplete = certificate(charged(paper, training)).published
    assert incomplete is not None
    assert not incomplete.complete
    assert incomplete.epsilon == pytest.approx(7.5, rel=1e-9)
