"""What `quorum paper` can refuse before an hour of work, and before anything is written."""

import math
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from quorum_rl.cli.fit import Settings
from quorum_rl.cli.output import check_seed
from quorum_rl.errors import QuorumError, TooLittleBudgetError
from quorum_rl.pipeline.settings import FitSettings

if TYPE_CHECKING:
    from quorum_rl.envs import AnyWorld
    from reproduction.paper import Paper


def check_asked(paper: "Paper") -> None:
    """Fail if its flags can mean nothing, whatever the world.

    Raises:
        QuorumError: naming the flag.
    """
    check_seed(paper.first_seed)
    check_seed(paper.expert_seed)
    for name, given in (("learners", paper.learners), ("epsilons", paper.epsilons)):
        if not given:
            raise QuorumError(f"--{name} is empty: give at least one, or leave it out.")
        twice = [one for place, one in enumerate(given) if one in given[:place]]
        if twice:
            raise QuorumError(f"--{name} has {twice[0]} twice: give each once.")
    for name in ("seeds", "episodes", "bound_steps", "steps"):
        value = getattr(paper, name)
        if value is not None and value < 1:
            raise QuorumError(f"--{name.replace('_', '-')} is {value}: give at least 1.")
    for epsilon in paper.epsilons:
        if not 0 < epsilon < math.inf:
            raise QuorumError(f"--epsilons has {epsilon:g}: give positive numbers.")
    for name in ("method", "mode"):
        asked = getattr(paper.settings, name)
        if asked != getattr(Settings(), name):
            raise QuorumError(
                f"--{name} is {asked}, and quorum paper runs every method itself: leave it out."
            )


def check_numbers(paper: "Paper", world: "AnyWorld") -> None:
    """Fail if its learners or private steps cannot be: experts are not trained for nothing.

    Raises:
        QuorumError: naming the number.
    """
    from quorum_rl.experts.ppo.presets import preset
    from quorum_rl.logs import Declared
    from quorum_rl.pipeline import plan_fit
    from reproduction.columns import learner_of

    experts = preset(world, paper.preset).plan.experts
    declared = Declared(
        world.spaces.action_count,
        world.spaces.observation_size,
        int(world.default_params().time_limit),
        world=world.name,
        minimum_experts=experts - 1,
    )
    private = replace(FitSettings(**asdict(paper.settings)), method="dp-sgd")
    for name in paper.learners:
        learner = learner_of(declared, name, reward_scale=paper.reward_scale, raw=paper.raw)
        with suppress(TooLittleBudgetError):  # which a comparison calls infeasible
            plan_fit(
                declared, learner, epsilon=max(paper.epsilons), delta=1 / experts, settings=private
            )


def their_epsilons(
    stage: str, epsilons: tuple[float, ...], *, usual: tuple[float, ...]
) -> tuple[float, ...]:
    """At which ε the paper's settings, or its grid, are run: those of them that are asked for.

    Raises:
        QuorumError: for one at which there is nothing to run; all the usual ones are none.
    """
    from quorum_rl.privacy.published_settings import BEST_SETTINGS
    from reproduction.columns import GRID_EPSILONS

    best = sorted({one.epsilon for one in BEST_SETTINGS})
    there = GRID_EPSILONS if stage == "grid" else tuple(best)
    unknown = [one for one in epsilons if one not in there]
    if unknown and epsilons != usual:
        raise QuorumError(
            f"--epsilons has {unknown[0]:g}, and --stage {stage} is run at "
            f"{', '.join(f'{one:g}' for one in there)}: give some of those."
        )
    return tuple(one for one in there if one in epsilons)
