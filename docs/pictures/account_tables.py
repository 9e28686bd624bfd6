"""What of the paper's ε can be computed, and what a release gives by its account and by ours."""

from functools import cache
from itertools import product

import numpy as np
from paper_tables import CLAIMED, LEARNERS, WORLDS, Facts, bound_of, fraction, result, theirs
from rendering import hundredths, table

from quorum_rl.privacy.published import true_cost
from quorum_rl.privacy.published_settings import PublishedSetting
from reproduction.columns import RELEASE_ONLY, best_settings


@cache
def cost_of(setting: PublishedSetting) -> float:
    return true_cost(setting).total_epsilon


def setting_of(world: str, learner: str, epsilon: str) -> PublishedSetting:
    return next(one for one in best_settings(world, learner) if one.epsilon == float(epsilon))


def costs() -> str:
    """What of the ε of every best setting can be computed."""
    rows = []
    for world, learner in product(WORLDS, LEARNERS):
        each = [cost_of(setting_of(world, learner, epsilon)) for epsilon in CLAIMED]
        rows.append([f"{world}, {learner.upper()}", *map(hundredths, each)])
    return table(["ε that can be computed", *(f"claimed ε = {one}" for one in CLAIMED)], rows)


def releases() -> str:
    """Where the paper's method is its release alone: that, and a release of ours at the same ε."""
    rows = [
        _released(*one)
        for one in product(WORLDS, LEARNERS, CLAIMED)
        if setting_of(*one).private_share == 0
    ]
    head = ["world, learner, ε", "released as published", "fraction of the bound [95%]"]
    return table([*head, "released by our account", "fraction of the bound [95%]"], rows)


def release_only(world: str, learner: str, epsilon: str) -> Facts:
    """Our release with all of ε and nothing beside it."""
    found = result(world, f"{learner}-comparison")
    assert found is not None
    named = (RELEASE_ONLY, float(epsilon))
    return next(one for one in found["methods"] if (one["name"], one["epsilon"]) == named)


def _released(world: str, learner: str, epsilon: str) -> list[str]:
    bound = bound_of(world, learner)
    cells = []
    for one in (theirs(world, learner, epsilon)["Adam"], release_only(world, learner, epsilon)):
        cells.append(f"{min(one['released']):,} to {max(one['released']):,}")
        cells.append(fraction(np.array(one["scores"]), bound))
    return [f"{world}, {learner.upper()}, {epsilon}", *cells]
