"""Events to be charged: a release with the constants of a 400-iteration plan, and a training."""

from dataclasses import replace
from pathlib import Path

import pytest
from ledger_files import FLOOR

from quorum_rl.privacy.events import ReleaseEvent, TrainingEvent


@pytest.fixture(scope="session")
def release() -> ReleaseEvent:
    """25 iterations, about ε = 2.1 at δ = 3e-4."""
    return replace(FLOOR, iterations=25)


@pytest.fixture(scope="session")
def training() -> TrainingEvent:
    """About ε = 2.5 at δ = 3e-4."""
    return TrainingEvent(sampling_rate=0.04, noise_multiplier=2.0, steps=1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"
