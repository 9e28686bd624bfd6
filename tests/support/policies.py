"""Policies for tests: of every learner, and random ones in whole numbers, whose sums are exact."""

import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st
from scipy.special import softmax
from standardising import STANDARDISING

from quorum_rl.learners import Bc, Bcq, Cql, DenseLearner, DoubleDqn
from quorum_rl.policy import Layer, Network, Policy

OWN_LEARNER = Path(__file__).parents[2] / "examples" / "own_learner.py"
INPUTS, ACTIONS = 3, 4

LEARNERS: list[DenseLearner] = [
    Cql(hidden_sizes=(16, 8)),
    Bcq(hidden_sizes=(16, 8), threshold=0.8, **STANDARDISING),
    Bcq(hidden_sizes=(16, 8), threshold=0.0),
    Bc(hidden_sizes=()),
    DoubleDqn(hidden_sizes=(32,), **STANDARDISING),
    runpy.run_path(str(OWN_LEARNER))["Iql"](hidden_sizes=(16,), **STANDARDISING),
]


def random_params(learner: DenseLearner, seed: int = 0) -> dict[str, Any]:
    return learner.init(jax.random.key(seed), INPUTS, ACTIONS)


def random_observations(rows: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(rows, INPUTS)).astype(np.float32)


def network_of(widths: tuple[int, ...], seed: int) -> Network:
    """Small whole numbers: float32 adds and multiplies them exactly, in whatever order."""
    random = np.random.default_rng(seed)
    return tuple(
        Layer(
            random.integers(-1, 2, (inputs, outputs)).astype(np.float32),
            random.integers(-1, 2, outputs).astype(np.float32),
        )
        for inputs, outputs in pairwise(widths)
    )


@st.composite
def whole_policies(draw: st.DrawFn) -> Policy:
    """Policies of many shapes, with and without a second network, that tie often."""
    inputs, actions = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    hidden = st.lists(st.integers(1, 7), max_size=3)
    seed = draw(st.integers(0, 2**32 - 1))
    values = network_of((inputs, *draw(hidden), actions), seed)
    if not draw(st.booleans()):
        return Policy(networks={"values": values}, highest="values", learner="made-up")
    likely = network_of((inputs, *draw(hidden), actions), seed + 1)
    return Policy(
        networks={"values": values, "likely": likely},
        highest="values",
        among_likely="likely",
        # Far from every exp of a whole number, so that no rounding decides.
        threshold=draw(st.sampled_from([0.01, 0.08, 0.3, 0.6])),
        learner="made-up",
    )


def whole_observations(policy: Policy, rows: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    random = np.random.default_rng(policy.observation_size + 10 * policy.action_count)
    return random.integers(-2, 3, (rows, policy.observation_size)).astype(np.float32)


def values_in_float64(policy: Policy, observations: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values again, written apart and in double precision."""
    outputs = {}
    for name, network in policy.networks.items():
        flow = np.asarray(observations, np.float64)
        for number, (weight, bias) in enumerate(network):
            flow = np.einsum("...i,io->...o", flow, weight.astype(np.float64)) + bias
            if number < len(network) - 1:
                flow = np.where(flow > 0, flow, 0)
        outputs[name] = flow
    assert policy.highest is not None
    values = outputs[policy.highest]
    if policy.among_likely is None:
        return values
    likelihood = softmax(outputs[policy.among_likely], axis=-1)
    ratio = likelihood / likelihood.max(axis=-1, keepdims=True)
    return np.where(ratio > policy.threshold, values, -np.inf)
