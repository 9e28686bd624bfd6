"""Who is trained on what, and who becomes an expert: the paper's scheme.

Every setting of a world gets several candidates, which differ in learning rate and batch size. They
are judged on their own setting; the best `experts / settings` of each setting become experts. Where
that is no whole number (HIV: 3000 of 2000 settings), the best of the next rank fill up.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.experts.ppo.agent import PpoRecipe, Tuning

MOST = 10**12  # of anything in a plan: more is a slip of the finger


@dataclass(frozen=True)
class Plan:
    """How many settings, candidates for each, and experts in the end.

    Candidate c has learning rate c modulo their number; when all rates have been used, the next
    batch size is. Three candidates thus differ in rates, six in batch sizes too.
    """

    settings: int
    candidates: int
    experts: int
    total_steps: int
    judging_episodes: int = 10
    learning_rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    batch_slices: tuple[int, ...] = (1, 2)  # batch sizes, in slices of the recipe

    def __post_init__(self) -> None:
        for name in ("settings", "candidates", "experts", "total_steps", "judging_episodes"):
            if not 1 <= getattr(self, name) <= MOST:
                raise QuorumError(f"{name} is {getattr(self, name)}: give 1 to {MOST:,}.")
        if not self.learning_rates or not all(0 < rate < math.inf for rate in self.learning_rates):
            raise QuorumError(
                f"learning_rates are {self.learning_rates}: give numbers above 0, all finite."
            )
        if not self.batch_slices or min(self.batch_slices) < 1:
            raise QuorumError(f"batch_slices are {self.batch_slices}: give whole numbers above 0.")
        if self.experts > self.agents:
            raise QuorumError(
                f"{self.experts} experts cannot be chosen from {self.agents} agents "
                f"({self.settings} settings × {self.candidates} candidates): ask for fewer experts "
                "or more candidates."
            )

    @property
    def agents(self) -> int:
        return self.settings * self.candidates

    def iterations(self, recipe: PpoRecipe) -> int:
        """As many as it takes to make `total_steps` steps in every agent's world."""
        return -(-self.total_steps // recipe.steps_per_iteration)


def tunings(world: AnyWorld, plan: Plan, recipe: PpoRecipe) -> Tuning:
    """One agent per setting and candidate, the candidates of a setting next to each other.

    With fewer settings than the world has, those chosen are spread evenly over its grid.
    """
    every = world.settings()
    available = len(every.time_limit)
    if plan.settings > available:
        raise QuorumError(
            f"{world.name} has {available} settings, not {plan.settings}: ask for fewer."
        )
    chosen = np.linspace(0, available - 1, plan.settings).round().astype(int)
    setting = np.repeat(chosen, plan.candidates)
    candidate = np.tile(np.arange(plan.candidates), plan.settings)
    rates, slices = len(plan.learning_rates), len(plan.batch_slices)
    for batch in plan.batch_slices[: -(-plan.candidates // rates)]:
        if recipe.slices % batch:
            raise QuorumError(
                f"a batch of {batch} slices does not divide the {recipe.slices} slices of an "
                "iteration: choose other batch sizes."
            )
    return Tuning(
        learning_rate=jnp.asarray(plan.learning_rates)[candidate % rates],
        slices_per_update=jnp.asarray(plan.batch_slices)[candidate // rates % slices],
        params=jax.tree.map(lambda leaf: np.asarray(leaf)[setting], every),
        number=jnp.arange(plan.agents),
    )


def chosen_agents(plan: Plan, returns: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The agents that become experts, in the order of their numbers.

    Shapes: `returns` is `(agents,)`, each on its agent's own setting; the result `(experts,)`.
    """
    by_setting = returns.reshape(plan.settings, plan.candidates)
    order = np.argsort(-by_setting, axis=1, kind="stable")
    agents = order + plan.candidates * np.arange(plan.settings)[:, None]
    whole, rest = divmod(plan.experts, plan.settings)
    sure = agents[:, :whole].ravel()
    if rest == 0:
        return np.sort(sure)
    runners_up = agents[:, whole]
    best = np.argsort(-returns[runners_up], kind="stable")[:rest]
    return np.sort(np.concatenate([sure, runners_up[best]]))
