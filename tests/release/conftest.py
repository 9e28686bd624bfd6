"""Many experts who agree, releases for them, and ledgers to charge."""

from dataclasses import replace
from pathlib import Path

import pytest
from numbered_logs import HORIZON, TRAJECTORIES, Scene, scene

from quorum_rl.budget import Ledger
from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.planner import ReleasePlan

SHARP = 1000.0  # noise of a thousandth: next to none


@pytest.fixture(scope="session", name="many")
def _many() -> Scene:
    """As many experts as the plan declares, all with a trajectory or two to spare."""
    return scene([TRAJECTORIES] * 400)


@pytest.fixture(scope="session", name="plan")
def _plan() -> ReleasePlan:
    """Twelve iterations for about ε = 5; 400 agreeing experts lie just above the threshold."""
    event = ReleaseEvent(
        mode="tight",
        experts=400,
        actions=2,
        p_min=0.1,
        stop_probability=0.0,
        horizon=HORIZON,
        prefix_cap=HORIZON,
        iterations=12,
        theta=20.0,
        threshold=392.0,
        threshold_epsilon=0.3,
        query_epsilon=0.3,
        pool_size=3,
    )
    return ReleasePlan(event, epsilon=5.0, delta=0.01, agreement=0.9)


@pytest.fixture(scope="session", name="sharp")
def _sharp(plan: ReleasePlan) -> ReleasePlan:
    """Without noise to speak of: what more than one expert and a half would do comes out."""
    event = replace(
        plan.event, theta=1.2, threshold=1.5, threshold_epsilon=SHARP, query_epsilon=SHARP
    )
    return replace(plan, event=event)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger whose budget allows the plan once."""
    made = tmp_path / "ledger.jsonl"
    Ledger.create(made, epsilon=6.0, delta=0.01)
    return made


@pytest.fixture
def research(tmp_path: Path) -> Path:
    made = tmp_path / "research.jsonl"
    Ledger.create(made, epsilon=None, delta=None, kind="research")
    return made
