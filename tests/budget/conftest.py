"""Events to be charged: a release with the constants of a 400-iteration plan, and a training."""

from pathlib import Path

import pytest

from quorum_rl.privacy.events import ReleaseEvent, TrainingEvent


@pytest.fixture(scope="session")
def release() -> ReleaseEvent:
    """25 iterations, about ε = 2.1 at δ = 3e-4."""
    return ReleaseEvent(
        mode="tight",
        experts=3000,
        actions=2,
        p_min=0.02,
        stop_probability=0.0,
        horizon=200,
        prefix_cap=100,
        iterations=25,
        theta=229.8167,
        threshold=573.1553,
        threshold_epsilon=0.0553,
        query_epsilon=0.0445,
        pool_size=8,
    )


@pytest.fixture(scope="session")
def training() -> TrainingEvent:
    """About ε = 2.5 at δ = 3e-4."""
    return TrainingEvent(sampling_rate=0.04, noise_multiplier=2.0, steps=1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"
