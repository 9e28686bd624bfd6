"""Two parts of experts: every whole is enumerated, coins included, and never exceeds the claim."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from claims import USUAL
from dp_accounting.pld import privacy_loss_distribution as pld
from enumeration import hockey_stick
from hypothesis import given, settings, strategies as st
from trees import Floats

from quorum_rl.errors import QuorumError
from quorum_rl.privacy import (
    Event,
    Part,
    SelectionEvent,
    TrainingEvent,
    event_from_json,
    event_to_json,
    total_delta,
    total_epsilon,
)
from quorum_rl.privacy.accounting import losers

PLAIN = TrainingEvent(sampling_rate=1.0, noise_multiplier=4.0, steps=3)
LEARNED = TrainingEvent(sampling_rate=0.3, noise_multiplier=3.0, steps=20, part="training")
JUDGED = TrainingEvent(sampling_rate=1.0, noise_multiplier=2.5, steps=2, part="judging")


# ---- The account, against dp-accounting composed by hand -------------------------------------


def by_hand(*events: TrainingEvent) -> pld.PrivacyLossDistribution:
    whole = pld.identity(1e-4)
    for event in events:
        one = pld.from_gaussian_mechanism(
            event.noise_multiplier,
            sampling_prob=event.sampling_rate,
            value_discretization_interval=1e-4,
        )
        whole = whole.compose(one.self_compose(event.steps))
    return whole


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_whole_costs_what_the_dearer_part_has_lost_with_what_everybody_has(
    delta: float,
) -> None:
    sides = [by_hand(PLAIN, LEARNED), by_hand(PLAIN, JUDGED)]
    expected = max(side.get_epsilon_for_delta(delta) for side in sides)
    assert total_epsilon([JUDGED, PLAIN, LEARNED], delta) == pytest.approx(expected, rel=2e-3)
    for epsilon in (0.5, 1.5):
        most = max(side.get_delta_for_epsilon(epsilon) for side in sides)
        assert total_delta([JUDGED, PLAIN, LEARNED], epsilon) == pytest.approx(most, rel=5e-3)


def test_a_release_is_on_everybody_and_composes_with_either_part() -> None:
    sides: list[list[Event]] = [
        [USUAL, replace(one, part="everybody")] for one in (LEARNED, JUDGED)
    ]
    for epsilon in (1.0, 3.0):
        expected = max(total_delta(side, epsilon) for side in sides)
        assert total_delta([LEARNED, USUAL, JUDGED], epsilon) == expected


def test_one_part_alone_costs_what_it_would_on_everybody() -> None:
    for event in (LEARNED, JUDGED):
        assert total_epsilon([event], 1e-4) == total_epsilon(
            [replace(event, part="everybody")], 1e-4
        )


parts = st.sampled_from(["everybody", "training", "judging"])


@settings(max_examples=30, derandomize=True)
@given(listed=st.lists(parts, max_size=5), one=st.sampled_from(["training", "judging"]))
def test_moving_events_to_everybody_never_costs_less(listed: list[Part], one: Part) -> None:
    moved: list[Part] = ["everybody" if part == one else part for part in listed]
    before, after = ([replace(PLAIN, part=part) for part in where] for where in (listed, moved))
    assert total_epsilon(before, 1e-4) <= total_epsilon(after, 1e-4) * (1 + 1e-9)


# ---- The whole, enumerated --------------------------------------------------------------------

Queries = Sequence[tuple[float, Part]]  # the ε of each, and whom it is asked of
Names = dict[str, int]  # what each expert who takes part has done: 0 or 1
Coins = Mapping[str, bool]  # of every name, whether it judges
Sides = Callable[[Sequence[Event]], list[list[Event]]]  # who has lost to what
Seats = Callable[[Names, Coins, int], Mapping[str, set[Part]]]  # in a run, who sits where

QUERIES: Queries = ((0.3, "everybody"), (0.8, "training"), (0.7, "judging"))
TWO_RUNS: Queries = ((0.9, "training"), (0.1, "judging"), (0.1, "training"), (0.9, "judging"))
SHARE = 0.4
EPSILONS = np.linspace(0, 2.5, 51)
OTHERS = {"a": 1, "c": 0}
CASES = [(OTHERS, act) for act in (0, 1)] + [({"a": 1, "c": 1}, 0), ({"d": 0, "e": 0}, 1)]


def by_own_coin(names: Names, coins: Coins, _run: int) -> Mapping[str, set[Part]]:
    return {name: {"judging" if coins[name] else "training"} for name in names}


def by_position(names: Names, _coins: Coins, _run: int) -> Mapping[str, set[Part]]:
    return {
        name: {"judging" if place % 2 else "training"} for place, name in enumerate(sorted(names))
    }


def by_what_all_did(names: Names, _coins: Coins, _run: int) -> Mapping[str, set[Part]]:
    mean = sum(names.values()) / len(names)
    return {name: {"judging" if done >= mean else "training"} for name, done in names.items()}


def in_both(names: Names, _coins: Coins, _run: int) -> Mapping[str, set[Part]]:
    return {name: {"judging", "training"} for name in names}


def by_a_fresh_coin(names: Names, coins: Coins, run: int) -> Mapping[str, set[Part]]:
    return {name: {"judging" if coins[f"{name}{run}"] else "training"} for name in names}


def whole(
    names: Names, queries: Queries, seats: Seats = by_own_coin, published: bool = False
) -> dict[tuple[object, ...], float]:
    """The probability of every sequence of answers.

    An answer is a count with geometric noise, cut to what a count can be. What is counted depends
    on the answer before: ones after an even one, else zeros. A run asks each part once.
    """
    made: dict[tuple[object, ...], float] = {}
    runs = ("0", "1") if seats is by_a_fresh_coin else ("",)
    thrown = [name + run for name in names for run in runs]
    for faces in product([False, True], repeat=len(thrown)):
        coins = dict(zip(thrown, faces, strict=True))
        chance = math.prod(SHARE if face else 1 - SHARE for face in faces)
        reached: dict[tuple[object, ...], float] = {(): chance}
        asked: list[Part] = []
        for epsilon, part in queries:
            sits = seats(names, coins, asked.count(part))
            asked.append(part)
            here = [done for name, done in names.items() if part in {"everybody", *sits[name]}]
            following: dict[tuple[object, ...], float] = {}
            for before, so_far in reached.items():
                wanted = 1 if not before or int(str(before[-1])) % 2 == 0 else 0
                for answer, share in enumerate(geometric(here.count(wanted), epsilon)):
                    after = (*before, answer)
                    following[after] = following.get(after, 0.0) + so_far * share
            reached = following
        shown = tuple((name, coins[name]) for name in sorted(names)) if published else ()
        for answers, so_far in reached.items():
            made[*shown, *answers] = made.get((*shown, *answers), 0.0) + so_far
    return made


def geometric(count: int, epsilon: float) -> list[float]:
    """`count` plus two-sided geometric noise, cut to 0 … 3."""
    away, norm = math.exp(-epsilon), (1 + math.exp(-epsilon))
    far = np.arange(-60, 64)
    mass = (1 - away) / norm * away ** np.abs(far - count)
    cut = np.clip(far, 0, 3)
    return [float(mass[cut == value].sum()) for value in range(4)]


def worst(queries: Queries, seats: Seats = by_own_coin, published: bool = False) -> Floats:
    """δ at every ε of `EPSILONS`, the largest of all cases and both directions."""
    found = np.zeros(len(EPSILONS))
    for others, act in CASES:
        with_it = whole({**others, "b": act}, queries, seats, published)
        without = whole(others, queries, seats, published)
        outputs = sorted(with_it.keys() | without.keys(), key=repr)
        p, q = (np.array([law.get(one, 0.0) for one in outputs]) for law in (with_it, without))
        for first, second in ((p, q), (q, p)):
            deltas = [hockey_stick(first, second, epsilon) for epsilon in EPSILONS]
            found = np.maximum(found, deltas)
    return found


def claimed(queries: Queries, sides: Sides = losers) -> Floats:
    """δ by the account's own rule of who has lost to what.

    With geometric noise one expert changes a count's law by e^ε or e^−ε exactly: a coin that falls
    right e^ε times as often as wrong dominates it, and products of such coins compose.
    """
    numbered = enumerate(queries, start=1)  # an event's steps are its number
    kinds: list[Event] = [replace(PLAIN, steps=number, part=part) for number, (_, part) in numbered]
    found = np.zeros(len(EPSILONS))
    for side in sides(kinds):
        own = [queries[event.steps - 1][0] for event in side if isinstance(event, TrainingEvent)]
        first = np.ones(1)
        second = np.ones(1)
        for epsilon in own:
            right = math.exp(epsilon) / (1 + math.exp(epsilon))
            first = np.multiply.outer(first, [right, 1 - right]).ravel()
            second = np.multiply.outer(second, [1 - right, right]).ravel()
        deltas = [hockey_stick(first, second, epsilon) for epsilon in EPSILONS]
        found = np.maximum(found, deltas)
    return found


@pytest.mark.parametrize("queries", [QUERIES, TWO_RUNS])
def test_no_whole_costs_more_than_its_claim(queries: Queries) -> None:
    assert (worst(queries) <= claimed(queries) + 1e-12).all()


def test_the_claim_is_not_far_from_what_an_expert_in_one_part_has_lost() -> None:
    """What geometric noise allows is nearly reached, so a much smaller claim would be caught."""
    learned = [(epsilon, part) for epsilon, part in QUERIES if part != "judging"]
    certain = worst(learned, lambda names, *_: {name: {"training"} for name in names})
    assert certain.max() > 0.7 * claimed(QUERIES).max()


@pytest.mark.parametrize(
    ("seats", "queries"),
    [
        (by_position, QUERIES),
        (by_what_all_did, QUERIES),
        (in_both, QUERIES),
        (by_a_fresh_coin, TWO_RUNS),
    ],
)
def test_another_rule_of_who_sits_where_is_caught(seats: Seats, queries: Queries) -> None:
    assert (worst(queries, seats) > 1.02 * claimed(queries) + 1e-6).any()


def test_a_split_that_is_published_is_caught() -> None:
    assert worst(QUERIES, published=True)[-1] == pytest.approx(1)


@pytest.mark.parametrize(
    "sides",
    [
        lambda events: [[event] for event in events],  # parts not joined with everybody
        lambda events: losers(events)[:1],  # one part forgotten
        lambda events: [[event for event in events if event.part != "everybody"]],
    ],
)
def test_an_account_that_joins_too_little_is_caught(
    sides: Sides,
) -> None:
    uneven: Queries = ((0.6, "everybody"), (1.2, "training"), (0.2, "judging"))
    assert (worst(uneven) > 1.02 * claimed(uneven, sides) + 1e-6).any()


# ---- Written down -----------------------------------------------------------------------------


def test_an_event_says_its_part_where_that_is_not_everybody() -> None:
    assert "part" not in event_to_json(PLAIN)
    assert event_to_json(JUDGED)["part"] == "judging"
    for event in (PLAIN, JUDGED, LEARNED, USUAL):
        assert event_from_json(event_to_json(event)) == event
    for wrong in ("everybody", "both", None, 3, ["judging"]):
        with pytest.raises(QuorumError):
            event_from_json(event_to_json(PLAIN) | {"part": wrong})
    with pytest.raises(QuorumError):
        event_from_json(event_to_json(USUAL) | {"part": "judging"})
    with pytest.raises(QuorumError, match="a selection has no part"):
        SelectionEvent.of(JUDGED, 3)
