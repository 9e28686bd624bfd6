"""Sweeps that take no time: their programs are not trained, and the score is what was chosen."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from fits import DELTA, LEARNER, SETTINGS, crowd

from quorum_rl.budget import ASSUMPTIONS
from quorum_rl.policy import Layer, Policy
from quorum_rl.sweep import Common, Search, SweepOptions, Swept, sweep
from quorum_rl.sweep.programs import Found, Inputs, TrialResult
from quorum_rl.sweep.trials import Program

CLOCK: Final = f"{Path(__file__).with_name('clock_world.py')}:WORLD"
CLIPS: Final = (0.5, 1.0, 2.0)
BATCHES: Final = (8, 16)  # each a shape of its own
PRIVATE: Final = replace(SETTINGS, method="dp-sgd")


def asked(identity: str = "a swept log", **choices: Any) -> SweepOptions:
    """Six trials of two shapes, unless told otherwise."""
    people = crowd(identity=hashlib.sha256(identity.encode()).hexdigest()[:32])
    usual: dict[str, Any] = {
        "search": Search(grid={"clip-norm": CLIPS, "batch_size": BATCHES}),
        "common": Common(5.0, DELTA, PRIVATE, hidden_sizes=LEARNER.hidden_sizes),
        "log": people.log,
        "experts": people.experts,
        "world": CLOCK,
        "accepted": tuple(ASSUMPTIONS),
    }
    return SweepOptions(**{**usual, **choices})


def untrained(inputs: Inputs, program: Program) -> Found:
    """As if trained: a larger clip norm is better, and a smaller batch; the key shows as weight."""
    judged, policies = [], []
    for trial in program.trials:
        choices, keys = trial.choices, inputs.keys
        score = float(choices["clip_norm"]) - float(choices.get("batch_size", 0)) / 100
        scores = tuple(score for _ in inputs.seeds)
        judged.append(TrialResult(trial.number, scores, scores))
        weight = 0.0 if keys is None else keys[trial.number] / 2**256
        layer = Layer(np.full((1, 2), weight, np.float32), np.array([score, 0], np.float32))
        policies.append(Policy(networks={"q": (layer,)}, highest="q", learner="cql"))
    best = max(range(len(judged)), key=lambda place: judged[place].score)
    return Found(program.number, tuple(judged), policies[best])


def spreading(
    seen: list[int], work: Callable[[Inputs, Program], Found] = untrained
) -> Callable[..., Iterator[Found]]:
    """Runs programs one by one and notes their numbers."""

    def spread(inputs: Inputs, programs: Sequence[Program], progress: Any) -> Iterator[Found]:
        del progress
        for program in programs:
            seen.append(program.number)
            yield work(inputs, program)

    return spread


def swept(planned: SweepOptions, folder: Path, **options: Any) -> Swept:
    usual: dict[str, Any] = {"spread": spreading([]), "report": lambda _: None}
    return sweep(planned, folder, **{**usual, **options})
