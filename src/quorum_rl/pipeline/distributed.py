"""A fit of several processes: the first one fits, the others help.

The first process alone has the folder, the ledger and the noise's key: it charges, releases, trains
and writes as it would by itself. The others wait for what it tells them, and do their share: they
count experts for a release, and train on their devices' part of the data with the first one's keys.
What travels between them is SENSITIVE: counts and sums without noise, who is left to train on, and
the key.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from quorum_rl.distributed import Named, all_say, from_the_first, is_first, is_single_process
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.logs import Demonstrations, Episodes
from quorum_rl.pipeline.context import planned, said_by_all
from quorum_rl.pipeline.driver import Keys, Steps, fresh, runs_of, train_runs
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.release import count_as_told
from quorum_rl.training import spread_data
from quorum_rl.types import Transition

NO_KEY = np.zeros((1, 2), np.uint32)  # in the place of the first one's, which comes later


@contextmanager
def helped(run: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """The first process's run, with the help of the others until the block ends.

    `run` gives what all of them say of the run (`said_by_all`); nobody else asks for it.

    Raises:
        QuorumError: before anything is charged, if they were told of another run, or if this is
            not the first process.
    """
    if not is_first():
        raise QuorumError(
            "only the first process fits, because noise of its own in each would be as many runs: "
            "call help_fit in the others."
        )
    if is_single_process():
        yield
        return
    _check_same(run())
    try:
        yield
    finally:
        from_the_first({})


def let_others_train(remaining: Demonstrations, steps: Steps) -> None:
    """Have the other processes, if there are any, take part in a training that begins now."""
    if is_single_process():
        return
    told: Named = {"schedule": steps.schedule}
    told |= {f"episodes {name}": leaf for name, leaf in remaining.episodes._asdict().items()}
    if steps.plain is not None:
        told |= {f"plain {name}": np.asarray(leaf) for name, leaf in steps.plain._asdict().items()}
    from_the_first(told)


def help_fit(
    demonstrations: Demonstrations,
    experts: LoggedExperts | UnloggedExperts | None = None,
    *,
    epsilon: float,
    delta: float,
    minimum_experts: int | None = None,
    minimum_trajectories: int | None = None,
    learner: str | type[DenseLearner] | Learner = "auto",
    learner_settings: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    seed: int | None = None,
    diagnostics_not_private: bool = False,
) -> None:
    """Do this process's share of a fit of the first one, until that ends.

    Call it in every other process, with what the first gives to `fit` of these. It writes nothing,
    charges nothing and draws no noise: it counts its share of the experts, and trains on its share
    of the data as the first one says.

    Raises:
        QuorumError: if this is the first process, or it was told otherwise.
    """
    if is_first():
        raise QuorumError("the first process fits, so it cannot help: call fit there.")
    plan, demonstrations, experts = planned(
        demonstrations,
        experts,
        epsilon=epsilon,
        delta=delta,
        minimum_experts=minimum_experts,
        minimum_trajectories=minimum_trajectories,
        learner=learner,
        learner_settings=learner_settings,
        settings=settings,
        diagnostics_not_private=diagnostics_not_private,
    )
    _check_same(said_by_all(plan, demonstrations, experts, seed))
    while told := from_the_first():
        if "schedule" in told:
            with suppress(QuorumError):  # training diverged: the first one says so
                _train_as_told(plan, demonstrations, told)
        else:
            assert experts is not None  # or nothing would be released
            count_as_told(experts, told)


def _check_same(run: dict[str, Any]) -> None:
    if not all_say(json.dumps(run, sort_keys=True, default=str)):
        raise QuorumError(
            "the processes were told of different runs: give all of them the same data, experts "
            "and settings, on machines of one kind; nothing was charged."
        )


def _train_as_told(plan: FitPlan, demonstrations: Demonstrations, told: Named) -> None:
    """Train with the first process; what comes out is written down there."""
    declared = demonstrations.declared
    remaining = replace(demonstrations, episodes=Episodes(**_part(told, "episodes")))
    released = _part(told, "plain")
    schedule = told["schedule"]
    plain = Transition(**released) if released else None
    steps = Steps(schedule, plain, [(0, 0)], [len(schedule)])
    # As the first one has them: only the shapes count here.
    runs = runs_of([plan], Keys(NO_KEY, NO_KEY), steps)
    start = fresh(plan, runs, (declared.observation_size, declared.action_count))
    train_runs(plan, runs, steps, start, spread_data(remaining))


def _part(told: Named, name: str) -> dict[str, Any]:
    start = f"{name} "
    return {key.removeprefix(start): leaf for key, leaf in told.items() if key.startswith(start)}
