"""A made-up run folder with every file a report reads, written by the functions that write it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from ledger_files import FLOOR

from quorum_rl.budget import ASSUMPTIONS, Ledger, certificate, read_ledger
from quorum_rl.logs import Declared
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.policy import Layer, Policy
from quorum_rl.privacy import TrainingEvent, event_to_json
from quorum_rl.release import save_released
from quorum_rl.types import Released, Transition

DELTA = 3e-4
RELEASE = replace(FLOOR, experts=2999, iterations=25)
TRAINING = TrainingEvent(sampling_rate=0.04, noise_multiplier=2.0, steps=1000)
COMPARISON: dict[str, Any] = {
    "world": "CartPole",
    "experts": 3000,
    "seeds": 3,
    "reference_return": 1000.0,
    "random_return": 22.0,
    "methods": [
        {"name": "selective", "epsilon": 2.5, "delta": DELTA, "scores": [0.61, 0.68, 0.72],
         "score": 0.67, "interval": [0.53, 0.81], "mean_return": 677.0, "note": ""},
        {"name": "dp-sgd", "epsilon": 2.5, "delta": DELTA, "scores": [0.12, 0.16, 0.2],
         "score": 0.16, "interval": [0.06, 0.26], "mean_return": 178.0, "note": ""},
        {"name": "selective", "epsilon": 5.0, "delta": DELTA, "scores": [0.8, 0.83, 0.86],
         "score": 0.83, "interval": [0.76, 0.9], "mean_return": 834.0, "note": ""},
        {"name": "dp-sgd", "epsilon": 5.0, "delta": DELTA, "scores": [0.2, 0.28, 0.31],
         "score": 0.263, "interval": [0.12, 0.41], "mean_return": 280.0, "note": ""},
        {"name": "non-private", "epsilon": None, "delta": None, "scores": [0.93, 0.96, 0.98],
         "score": 0.957, "interval": [0.89, 1.02], "mean_return": 958.0, "note": "no noise",
         "private_steps": 0, "plain_steps": 4000},
    ],
}  # fmt: skip
EVALUATION: dict[str, Any] = {
    "world": "CartPole", "episodes": 20, "returns": [800.0, 860.0], "mean": 834.0,
    "interval": [790.0, 878.0], "score": 0.83, "score_interval": [0.785, 0.875],
    "protocol": "final",
}  # fmt: skip

_TOLD: dict[str, Any] = {
    "estimate": 0.9,
    "low": 0.85,
    "high": 0.94,
    "tells": True,
    "bounds": [0, 1],
}
_UNTOLD = _TOLD | {"estimate": 0.4, "low": 0.0, "high": 1.0, "tells": False}
JUDGING: dict[str, Any] = {
    "judges": {"share": 0.15, "return_bounds": [0, 200], "noise_multiplier": 1.0},
    "coverage": 0.95,
    "mean_return": _TOLD | {"estimate": 151.0, "low": 148.0, "high": 154.0, "bounds": [0, 200]},
    "value": _TOLD | {"estimate": 187.0, "low": 165.0, "high": 200.0, "bounds": [0, 200]},
    "gain": _TOLD | {"estimate": 36.0, "low": 14.0, "high": 58.0, "bounds": [-200, 200]},
    "better": "yes",
    "agreement": _TOLD,
    "agreement_by_action": [_TOLD, _UNTOLD],
}


def write_run(folder: Path, **settings: Any) -> Path:
    """A finished run on CartPole, with a research ledger and everything that is optional."""
    folder.mkdir(parents=True)
    declared = Declared(2, 4, 200, p_min=0.02, smoothing="greedy", world="CartPole",
                        minimum_experts=2999, identity="a log")  # fmt: skip
    configuration = {
        "epsilon": 5.0,
        "delta": DELTA,
        "settings": asdict(FitSettings(**settings)),
        "learner": "Cql(hidden_sizes=(256, 256))",
        "declared": asdict(declared),
        "events": [event_to_json(event) for event in (RELEASE, TRAINING)],
        "reproducible": False,
    }
    write_json(folder / "config.json", configuration)
    (folder / "config.toml").write_text('[fit]\ndemonstrations = "cartpole.arrow"\nepsilon = 5.0\n')
    charge(folder)
    write_prefixes(folder)
    rng = np.random.default_rng(0)
    steps = np.arange(0, 4000, 5)
    losses = 0.2 + 1.3 * np.exp(-steps / 500) + rng.normal(0, 0.03, len(steps))
    (folder / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"step": int(step), "loss_on_released": float(loss)}) + "\n"
            for step, loss in zip(steps, losses, strict=True)
        )
    )
    lean = np.array([[0.1, 0.3, 1.0, 1.0]], np.float32).T
    layer = Layer(np.concatenate([-lean, lean], axis=1), np.zeros(2, np.float32))
    Policy(networks={"values": (layer,)}, highest="values", learner="cql").save(
        folder / "policy.safetensors"
    )
    write_json(folder / "evaluation.json", EVALUATION)
    write_json(folder / "comparison.json", COMPARISON)
    write_json(folder / "judging.json", JUDGING)
    return folder


def charge(folder: Path) -> None:
    """A research ledger with both stages, one assumption not accepted, and its certificate."""
    book = folder / "ledger.jsonl"
    Ledger.create(book, epsilon=5.0, delta=DELTA, kind="research")
    accepted = [name for name in ASSUMPTIONS if name != "one-expert-each"]
    with Ledger.open(book) as ledger:
        ledger.charge(RELEASE, run="fit-1", facts={"pool": "a log", "accepted": accepted})
        ledger.charge(TRAINING, run="fit-1", facts={"accepted": accepted})
        ledger.mark("reproducible noise: not private against someone who knows the seed")
    made = certificate(read_ledger(book), delta=DELTA)
    (folder / "certificate.json").write_text(made.to_json())


def write_prefixes(folder: Path) -> None:
    lengths = np.random.default_rng(1).integers(3, 40, 21)
    total = int(lengths.sum())
    nothing: Any = np.zeros(total, bool)
    states: Any = np.zeros((total, 4), np.float32)
    whole: Any = np.zeros(total, np.int32)
    rewards: Any = np.ones(total, np.float32)
    released = Released(
        transitions=Transition(states, whole, rewards, states, nothing, nothing),
        offsets=np.concatenate([[0], lengths.cumsum()]),
        observation_size=4,
        action_count=2,
        horizon=200,
    )
    save_released(released, folder / "released.parquet")


def write_json(path: Path, facts: Any) -> None:
    path.write_text(json.dumps(facts))


def change_json(path: Path, **changes: Any) -> None:
    write_json(path, json.loads(path.read_text()) | changes)
