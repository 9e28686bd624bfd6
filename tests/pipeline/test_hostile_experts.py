"""What one expert's log holds stops no run that is paid for."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from fits import EXPERTS, Crowd, fitted, named

from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.pipeline import Fitted
from quorum_rl.release import read_released
from quorum_rl.report import gather

LARGEST: Final = float(np.finfo(np.float32).max)


def with_all_of_a_released_trajectory(one: Crowd, run: Path, **values: float) -> Crowd:
    """The crowd, where a trajectory that came out holds these numbers throughout."""
    released: Any = read_released(run / "released.parquet").transitions
    where, columns = one.log.episodes, one.log.columns
    step = int(np.flatnonzero(columns.rewards == released.reward[0])[0])
    episode = int(np.searchsorted(where.first_step, step, side="right")) - 1
    changed = {}
    for name, value in values.items():
        column = getattr(columns, name).copy()
        first = (where.first_state if name == "observations" else where.first_step)[episode]
        column[first : first + where.length[episode]] = value
        changed[name] = column
    return one._replace(log=replace(one.log, columns=columns._replace(**changed)))


class Certain(UnloggedExperts):
    """Who take action 0 as often as the crowd does, whatever they see."""

    def __len__(self) -> int:
        return EXPERTS

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Any:
        asked = len(range(EXPERTS)[experts]), len(np.asarray(observations))
        return np.broadcast_to([0.9, 0.1], (*asked, 2))


@pytest.mark.parametrize(
    "values", [{"rewards": LARGEST}, {"observations": -LARGEST}, {"observations": -1e30}]
)
def test_numbers_without_measure_in_a_released_prefix_stop_no_fit_and_no_report(
    values: dict[str, float], done: Fitted, everyone: Crowd, tmp_path: Path
) -> None:
    """A release passes by what experts do; what was seen and earned there is one expert's own."""
    hostile = with_all_of_a_released_trajectory(everyone, done.folder, **values)
    acting = LoggedExperts(Certain(observation_size=1, action_count=2, p_min=0.1))
    made = fitted(named(hostile, str(values)), tmp_path / "run", experts=acting)
    found: Any = read_released(made.folder / "released.parquet").transitions
    came_out = found.reward if "rewards" in values else found.observation
    assert np.isin(np.array([*values.values()], np.float32), came_out).all()
    layers = [layer for network in made.policy.networks.values() for layer in network]
    assert all(np.isfinite(leaf).all() for layer in layers for leaf in layer)
    gather(made.folder)
