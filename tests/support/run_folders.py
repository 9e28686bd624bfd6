"""Run folders as a fit leaves them, made without fitting."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from ledger_files import DELTA, certificate_in
from refusals import refusal

from quorum_rl.policy import Layer, Policy
from quorum_rl.privacy.events import Event, event_to_json
from quorum_rl.report import publish
from quorum_rl.types import Released, Transition

USUAL: Final = {
    "MANIFEST.json",
    "README.txt",
    "certificate.json",
    "certificate.schema.json",
    "ledger.jsonl",
    "policy.onnx",
    "policy.safetensors",
}


@dataclass(frozen=True)
class Making:
    """Makes run folders as a fit leaves them, without fitting."""

    folder: Path

    def __call__(self, ledger: bytes, *planned: Event, method: str = "selective") -> Path:
        run = self.folder / "run"
        run.mkdir()
        (run / "ledger.jsonl").write_bytes(ledger)
        (run / "certificate.json").write_text(certificate_in(ledger, DELTA).to_json())
        config = {
            "settings": {"method": method},
            "events": [event_to_json(event) for event in planned],
            "declared": {"machine": "cpu of alice@desk-7", "path": "/home/alice/logs"},
        }
        (run / "config.json").write_text(json.dumps(config))
        self.save_policy(run)
        return run

    def save_policy(self, run: Path) -> None:
        """A policy that names the certificate as it is now."""
        layer = Layer(np.ones((3, 2), np.float32), np.zeros(2, np.float32))
        digest = hashlib.sha256((run / "certificate.json").read_bytes()).hexdigest()
        policy = Policy(networks={"values": (layer,)}, highest="values", learner="cql")
        Policy(**(vars(policy) | {"certificate": digest})).save(run / "policy.safetensors")


def names(folder: Path) -> set[str]:
    """What is in a folder."""
    return {path.name for path in folder.iterdir()}


def unpublished(run: Path, out: Path, **choices: Any) -> str:
    """Why this is not published; nothing may be left behind."""
    around = names(out.parent)
    said = refusal(publish, run, out, **choices)
    assert names(out.parent) == around
    return said


def some_prefixes() -> Released:
    """One released prefix of two steps."""
    steps: dict[str, Any] = {  # NumPy's arrays will do
        "observation": np.ones((2, 3), np.float32),
        "action": np.zeros(2, np.int32),
        "reward": np.ones(2, np.float32),
        "next_observation": np.ones((2, 3), np.float32),
        "terminated": np.zeros(2, bool),
        "truncated": np.array([False, True]),
    }
    return Released(
        Transition(**steps), np.array([0, 2]), observation_size=3, action_count=2, horizon=200
    )
