"""How a training goes, as far as it may be shown: the loss on released data, never on private."""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing
from quorum_rl.training import Recipe, TrainState, at, flat_transitions, result_of
from quorum_rl.types import Released

MOST_TRANSITIONS: Final = 4096  # looked at; of more, so many evenly spaced


class LossCurve:
    """A file with a line of JSON for every chunk: `step` and `loss_on_released`.

    The loss is that of the parameters which training would return then.

    Guarantee: a function of released data and of parameters that the guarantee covers at every
    step, so it may be shown and costs nothing.
    """

    def __init__(self, path: Path, recipe: Recipe, released: Released, *, begun_at: int) -> None:
        """Go on with a curve whose training goes on at a step: later lines are taken again."""
        self._path, self._recipe = path, recipe
        count = int(released.offsets[-1])
        chosen = np.linspace(0, count - 1, min(count, MOST_TRANSITIONS)).round().astype(int)
        self._transitions = at(flat_transitions(released), jnp.asarray(chosen))
        with replacing(path) as temporary:
            temporary.write_text("".join(_lines_until(path, begun_at)))

    def add(self, standing: TrainState, step: int) -> None:
        """Write down the loss where training stands, after so many steps."""
        params, target = jax.tree.map(
            lambda leaf: leaf[0], (result_of(self._recipe, standing), standing.target)
        )
        learner: Any = self._recipe.learner
        loss = float(_mean_loss(learner)(params, target, self._transitions))
        line = json.dumps({"step": step, "loss_on_released": loss}) + "\n"
        try:
            with self._path.open("a") as file:
                file.write(line)
        except OSError as error:
            raise QuorumError(
                f"{str(self._path)!r} cannot be written: {error.strerror}."
            ) from error


def _lines_until(path: Path, step: int) -> list[str]:
    """The whole lines of a curve up to a step; the last one may have been cut off."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    return [line for line in whole if json.loads(line)["step"] <= step]


@lru_cache(maxsize=16)
def _mean_loss(learner: Any) -> Callable[..., Any]:
    def mean(params: Any, target: Any, transitions: Any) -> Any:
        keys = jax.random.split(jax.random.key(0), len(transitions.reward))
        return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, transitions, keys).mean()

    return jax.jit(mean)
