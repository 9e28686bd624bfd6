"""A recurrent cell over histories learns what no single observation shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from own_networks import Imitating

from quorum_rl.logs import Declared, StepArrays, from_step_arrays, with_history
from quorum_rl.pipeline import FitSettings, fit
from quorum_rl.policy import Policy

STEPS: Final = 4


@dataclass(frozen=True)
class Recurrent(Imitating):
    """Imitation by a cell that reads one observation of the history after the other."""

    steps: int = STEPS
    cells: int = 6

    def init(self, key: Array, observation_size: int, action_count: int) -> dict[str, Array]:
        keys, size = jax.random.split(key, 3), observation_size // self.steps
        return {
            "reads": jax.random.normal(keys[0], (size, self.cells)),
            "keeps": jax.random.normal(keys[1], (self.cells, self.cells)) / self.cells**0.5,
            "head": jax.random.normal(keys[2], (self.cells, action_count)) / self.cells**0.5,
            "bias": jnp.zeros(action_count),
        }

    def outputs(self, params: dict[str, Array], observations: Array) -> Array:
        history = observations.reshape(*observations.shape[:-1], self.steps, -1)

        def read(kept: Array, seen: Array) -> tuple[Array, None]:
            return jnp.tanh(seen @ params["reads"] + kept @ params["keeps"]), None

        kept = jnp.zeros((*observations.shape[:-1], self.cells))
        kept, _ = jax.lax.scan(read, kept, jnp.moveaxis(history, -2, 0))
        outputs: Array = kept @ params["head"] + params["bias"]
        return outputs


def moving(experts: int, seed: int) -> StepArrays:
    """Things that move left or right; an action says which, and a place alone says little."""
    rng, length = np.random.default_rng(seed), 8
    count = experts * 6
    way = rng.choice([-1.0, 1.0], (count, 1))
    places = rng.uniform(-3, 3, (count, 1)) + 0.3 * way * np.arange(length + 1)
    places = places[:, :, None].astype(np.float32)
    ones = np.ones((count, length))
    ends = np.tile(np.arange(length) == length - 1, count)
    return StepArrays(
        places[:, :-1].reshape(-1, 1),
        ((way > 0) * ones).ravel().astype(int),
        ones.ravel(),
        0 * ends,
        ends,
        np.repeat(np.arange(experts), 6 * length),
        places[:, 1:].reshape(-1, 1),
    )


def test_it_knows_which_way_things_move(tmp_path: Path) -> None:
    """In the first step of an episode nobody can; after it, it was right in 94 of 100."""
    declared = Declared(2, STEPS, horizon=8, minimum_experts=60)
    made = fit(
        from_step_arrays(with_history(moving(60, seed=0), STEPS), declared),
        epsilon=5,
        delta=1e-3,
        learner=Recurrent(),
        settings=FitSettings(private_steps=20, local_steps=10, transitions_per_expert=16),
        folder=tmp_path / "run",
        accepted=["one-expert-each"],
        seed=0,
        report=lambda _: None,
    )
    policy = Policy.load(made.folder / "policy.safetensors", learner=Recurrent())
    later = with_history(moving(50, seed=1), STEPS)
    right = (policy.act(later.observations) == later.actions).reshape(-1, 8)
    alone = (later.observations[:, -1] > 0) == later.actions
    assert alone.mean() < 0.75
    assert right[:, 1:].mean() > 0.85
