"""A fit of several processes: the first one fits, the others help."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from fits import DELTA, EPSILON, SETTINGS, Crowd, crowd, fitted, named, weights

from quorum_rl.distributed import is_first
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.learners import get_learner
from quorum_rl.pipeline import help_fit, planning
from quorum_rl.privacy import plan_release

SMALL: Final = get_learner("bc", hidden_sizes=())  # what it learns is not the point: soon compiled


def fitted_together(folder: Path) -> dict[str, Any]:
    """What comes of four fits in one folder, and what each process says to the first three.

    Of the first two each process was told differently, of another learner and of other experts; the
    third is stopped before its first step, and the last goes on from there.
    """
    planning.plan_release = lru_cache(plan_release)  # type: ignore[attr-defined]  # it takes long
    everyone = named(crowd(), "together")
    other = SMALL if is_first() else get_learner("bc", hidden_sizes=(5,))
    said = []
    whom = {} if is_first() else {"experts": crowd(preference=0.8).experts}
    for choices in ({"learner": other}, whom, {"progress": lambda *_: True}):
        try:
            _take_part(everyone, folder, choices)
        except (QuorumError, Interrupted) as error:
            said.append(str(error))
    return {"said": np.array(said)} | _take_part(everyone, folder, {})


def _take_part(everyone: Crowd, folder: Path, choices: dict[str, Any]) -> dict[str, Any]:
    if is_first():
        made = fitted(everyone, folder, **{"learner": SMALL, **choices})
        assert made.released is not None
        found: dict[str, Any] = {f"fitted {i}": leaf for i, leaf in enumerate(weights(made))}
        return found | {"observations released": made.released.transitions.observation}
    usual: dict[str, Any] = {"learner": SMALL, "settings": SETTINGS, "seed": 1}
    told = {"epsilon": EPSILON, "delta": DELTA} | usual | choices
    told.pop("progress", None)  # the first one alone watches
    help_fit(everyone.log, told.pop("experts", everyone.experts), **told)
    return {}
