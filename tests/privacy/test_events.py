"""Events as plain data: round trips through JSON, and what no event may be."""

import json
from dataclasses import replace
from typing import Any

import pytest
from claims import USUAL

from quorum_rl.errors import QuorumError
from quorum_rl.privacy import (
    Event,
    SelectionEvent,
    TrainingEvent,
    event_from_json,
    event_to_json,
    total_epsilon,
)

RELEASE = replace(USUAL, prefix_cap=100, pool_size=4)
STOPPING = replace(RELEASE, p_min=0.0, stop_probability=0.05)
PAPER = replace(RELEASE, mode="paper", pool_size=0)
TRAINING = TrainingEvent(sampling_rate=128 / 3000, noise_multiplier=20.0, steps=374_780)
SELECTION = SelectionEvent.of(TRAINING, 10)


@pytest.mark.parametrize("event", [RELEASE, STOPPING, PAPER, TRAINING, SELECTION])
def test_an_event_comes_back_from_json_bit_for_bit(event: Event) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_a_changed_digit_in_json_is_another_event_with_another_cost() -> None:
    changed = event_from_json(event_to_json(RELEASE) | {"query_epsilon": 0.14})
    assert total_epsilon([changed], 3e-4) > total_epsilon([RELEASE], 3e-4)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"event": "selection"},
        {**event_to_json(TRAINING), "event": "release"},
        {**event_to_json(TRAINING), "clip": 1.0},
        {key: value for key, value in event_to_json(RELEASE).items() if key != "pool_size"},
    ],
)
def test_what_this_version_does_not_know_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(QuorumError, match="not one that this version knows"):
        event_from_json(facts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "loose"}, "mode is loose"),
        ({"experts": 1}, "experts is 1"),
        ({"experts": 3000.5}, "experts is 3000.5"),
        ({"actions": 1}, "actions is 1"),
        ({"horizon": 0}, "horizon is 0"),
        ({"prefix_cap": 0}, "prefix cap is 0"),
        ({"iterations": 0}, "iterations is 0"),
        ({"iterations": 2.5}, "iterations is 2.5"),
        ({"iterations": 10**9}, "at most 1,000,000"),
        ({"pool_size": 5 * 10**7}, "at most 1,000,000"),
        ({"lattice_bits": 0}, "lattice bits is 0"),
        ({"pool_size": -1}, "pool size is -1"),
        ({"p_min": 0.6}, "p min is 0.6"),
        ({"p_min": float("nan")}, "p min is nan"),
        ({"stop_probability": 1.0}, "stop probability is 1.0"),
        ({"threshold_epsilon": 0.0}, "threshold epsilon is 0.0"),
        ({"query_epsilon": float("inf")}, "query epsilon is inf"),
        ({"theta": 1.0}, "theta is 1.0"),
        ({"threshold": 69.0}, "threshold is 69.0"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"p_min": 0.0}, "needs a floor"),
        ({"stop_probability": 0.05}, "rests on one of them"),
        ({"p_min": 0.0, "stop_probability": 0.05, "mode": "paper"}, "needs a floor"),
    ],
)
def test_a_release_with_a_bad_value_is_refused_by_name(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(QuorumError, match=message):
        event_from_json(event_to_json(RELEASE) | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 0.0}, "sampling rate is 0.0"),
        ({"sampling_rate": 1.1}, "sampling rate is 1.1"),
        ({"noise_multiplier": 0.0}, "noise multiplier is 0.0"),
        ({"noise_multiplier": float("nan")}, "noise multiplier is nan"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"steps": 10**15}, "from 1 to 10,000,000"),
        ({"noise_multiplier": 1e-300}, "from 0.02 to 1e"),
    ],
)
def test_a_training_with_a_bad_value_is_refused_by_name(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(QuorumError, match=message):
        event_from_json(event_to_json(TRAINING) | change)


def test_a_value_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(QuorumError, match="sampling rate is often: give a number"):
        event_from_json(event_to_json(TRAINING) | {"sampling_rate": "often"})
