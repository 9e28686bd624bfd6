"""A small population who agree, what they did, and a fit of it that takes seconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import pytest
from tree_logs import table_experts

from quorum_rl.budget import ASSUMPTIONS
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import get_learner
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.pipeline import FitSettings, Fitted, fit

EXPERTS, TRAJECTORIES, HORIZON = 400, 6, 5
EPSILON, DELTA = 5.0, 0.01
LEARNER: Final = get_learner("cql", hidden_sizes=(4,))
SETTINGS: Final = FitSettings(
    method="selective",
    iterations=6,
    private_share=0.5,
    private_steps=10,
    sampling_rate=0.1,
    transitions_per_expert=2,
    batch_size=8,
    release_only_steps=10,
    least_released=0,
    averaging=0.5,
)

LONG: Final = replace(SETTINGS, private_steps=1000)  # with as many plain ones: eight chunks


class Crowd(NamedTuple):
    experts: LoggedExperts
    log: Demonstrations


def crowd(preference: float = 0.9, identity: str = "a log", minimum: int = EXPERTS - 1) -> Crowd:
    """Experts who take action 0 with this probability; the state is the time, in a world of five
    steps."""
    rng = np.random.default_rng(0)
    episodes = EXPERTS * TRAJECTORIES
    steps = episodes * HORIZON
    log = from_episodes(
        Declared(
            2,
            1,
            HORIZON,
            p_min=0.1,
            minimum_experts=minimum,
            minimum_trajectories=TRAJECTORIES,
            identity=identity,
        ),
        expert=np.repeat(np.arange(EXPERTS), TRAJECTORIES),
        length=np.full(episodes, HORIZON),
        observations=np.tile(np.arange(HORIZON + 1.0), episodes)[:, None],
        actions=(rng.random(steps) >= preference).astype(np.int64),
        rewards=rng.random(steps),
        terminated=np.zeros(episodes, bool),
        truncated=np.ones(episodes, bool),
    )
    tables = np.broadcast_to([preference, 1 - preference], (EXPERTS, HORIZON + 1, 2))
    return Crowd(table_experts(tables, 0.1), log)


def named(crowd: Crowd, identity: str) -> Crowd:
    """The same crowd with a log of its own, because one log is released from once."""
    declared = replace(crowd.log.declared, identity=identity)
    return crowd._replace(log=replace(crowd.log, declared=declared))


def fitted(crowd: Crowd, folder: Path, **choices: Any) -> Fitted:
    """A fit of the crowd with the small settings, unless told otherwise."""
    usual: dict[str, Any] = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "learner": LEARNER,
        "settings": SETTINGS,
        "accepted": tuple(ASSUMPTIONS),
        "seed": 1,
        "units": "public",
        "report": lambda _: None,
    }
    experts = choices.pop("experts", crowd.experts)
    return fit(crowd.log, experts, folder=folder, **{**usual, **choices})


class PowerCutError(Exception):
    """Whatever ends a process."""


def cut(*_: Any, **__: Any) -> Any:
    raise PowerCutError


def interrupted(
    crowd: Crowd, folder: Path, at: str, monkeypatch: pytest.MonkeyPatch, **choices: Any
) -> None:
    """Run until the function `at` of the fit is called, or of a class named there."""
    with monkeypatch.context() as patched:
        patched.setattr(at, cut)
        with pytest.raises(PowerCutError):
            fitted(crowd, folder, **choices)


def weights(made: Fitted) -> list[npt.NDArray[np.float32]]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(made.params)]


def same_weights(first: Fitted, other: Fitted) -> bool:
    """To the bit."""
    pairs = zip(weights(first), weights(other), strict=True)
    return all((a == b).all() for a, b in pairs)
