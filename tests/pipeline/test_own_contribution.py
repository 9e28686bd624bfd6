"""A contribution of one's own in a fit: what it is taken for, and when it is refused."""

import json
import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from quorum_rl.budget import Budget, read_ledger
from quorum_rl.cli.fit import Fit
from quorum_rl.cli.parser import flags_of
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc
from quorum_rl.logs import Declared, Demonstrations, StepArrays, from_step_arrays
from quorum_rl.pipeline import FitSettings, Fitted, fit
from quorum_rl.sweep import Search
from quorum_rl.training import Gradient, TrainsEverything, mean_gradient

LEARNER = Bc(hidden_sizes=(3,))


@dataclass(frozen=True)
class Own(TrainsEverything):
    """The mean gradient, times a number: 1 is `Gradient`."""

    transitions: int = 4
    times: float = 1.0

    def __call__(self, *told: Any) -> Any:
        return jax.tree.map(lambda leaf: self.times * leaf, mean_gradient(*told))


@dataclass(frozen=True)
class OneNumber(Own):
    """What broadcasts to the parameters, and is none of theirs."""

    def __call__(self, *told: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.sum(), super().__call__(*told))


@dataclass(frozen=True)
class OneMark(Own):
    def trained(self, learner: Any, params: Any) -> Any:
        del learner, params
        return True


@dataclass
class Thawed(TrainsEverything):
    """It could change under the programs that are kept by it."""

    transitions: int = 4


@pytest.fixture(scope="module", name="log")
def _log() -> Demonstrations:
    """Twenty experts with three episodes of two steps."""
    rng = np.random.default_rng(0)
    steps = 20 * 3 * 2
    seen, ends = rng.normal(size=(steps + 1, 2)), np.tile([0, 1], steps // 2)
    actions, who = rng.integers(0, 2, steps), np.repeat(np.arange(20), 6)
    after = np.where(ends[:, None], 0, seen[1:])
    arrays = StepArrays(seen[:-1], actions, np.ones(steps), ends, 0 * ends, who, after)
    return from_step_arrays(arrays, Declared(2, 2, horizon=5, minimum_experts=19))


def fitted(
    log: Demonstrations, folder: Path, budget: Budget | None = None, **chosen: Any
) -> Fitted:
    numbers: dict[str, Any] = {"method": "dp-sgd", "private_steps": 3, "sampling_rate": 1.0}
    return fit(
        log,
        epsilon=5,
        delta=1e-3,
        learner=LEARNER,
        budget=budget,
        settings=FitSettings(allow_noise=True, **numbers | chosen),
        folder=folder,
        accepted=["one-expert-each"],
        seed=1,
        report=lambda _: None,
    )


def test_it_takes_the_place_of_what_the_method_has(log: Demonstrations, tmp_path: Path) -> None:
    budget = Budget.create(tmp_path / "ledger", epsilon=50, delta=1e-2)
    usual = fitted(log, tmp_path / "usual", budget, transitions_per_expert=4)
    own = fitted(log, tmp_path / "own", budget, contribution=Own())
    other = fitted(log, tmp_path / "other", budget, contribution=Own(times=-1))
    leaves, same, not_same = (jax.tree.leaves(made.params) for made in (usual, own, other))
    assert all(np.array_equal(*pair) for pair in zip(leaves, same, strict=True))
    assert not all(np.array_equal(*pair) for pair in zip(leaves, not_same, strict=True))
    assert own.plan.events == usual.plan.events
    assert "Own of 4 transitions" in own.plan.describe()


def test_the_run_says_which_it_was(log: Demonstrations, tmp_path: Path) -> None:
    fitted(log, tmp_path / "run", contribution=Own(times=2.0))
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert settings["contribution"] == {"name": "Own", "transitions": 4, "times": 2.0}
    assert "contribution" not in FitSettings().to_json()  # runs that were begun before go on


@pytest.mark.parametrize("contribution", [OneNumber(), OneMark(), Own(transitions=0)])
def test_one_that_does_not_fit_is_refused_before_it_is_paid_for(
    contribution: Own, log: Demonstrations, tmp_path: Path
) -> None:
    budget = Budget.create(tmp_path / "ledger", epsilon=5, delta=1e-3)
    with pytest.raises(QuorumError, match=contribution.__class__.__name__):
        fitted(log, tmp_path / "run", budget, contribution=contribution)
    assert not read_ledger(budget.ledger).charges
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"contribution": Own}, "give an instance of a frozen dataclass"),
        ({"contribution": Thawed()}, "give an instance of a frozen dataclass"),
        ({"contribution": "gradient"}, "give an instance of a frozen dataclass"),
        ({"contribution": Gradient(), "local_steps": 3}, "local_steps would change nothing"),
        ({"contribution": Gradient(), "method": "non-private"}, "goes with neither"),
        ({"contribution": Gradient(), "method": "dp-sgd", "mode": "paper"}, "goes with neither"),
    ],
)
def test_settings_refuse_what_is_none_or_would_have_no_effect(
    chosen: dict[str, Any], says: str
) -> None:
    with pytest.raises(QuorumError, match=says):
        FitSettings(**chosen)


def test_only_python_can_say_it() -> None:
    assert "contribution" not in [flag.field for flag in flags_of(Fit)]
    with pytest.raises(QuorumError, match="contribution"):
        Search({"contribution": ["gradient"]})


def test_the_example_learns_privately(capsys: pytest.CaptureFixture[str]) -> None:
    """In 4 such fits it pushed 97% or more to the middle; half is guessing."""
    example = Path(__file__).parents[2] / "examples" / "own_contribution.py"
    runpy.run_path(str(example), run_name="__main__")
    (right,) = re.findall(r"pushes (\d+)%", capsys.readouterr().out)
    assert int(right) > 80
