"""What the last bits of published parameters tell (Mironov, 2012).

A sum of floats remembers how large its terms were. Noise of about −c to which a canary's c is added
gives a small number, but only whole multiples of what the last bit of c was worth: its own last
bits are zeros. Noise that is small by itself has last bits as chance will have them. On a lattice
of whole numbers both are multiples of the same unit, and all small numbers are as round.

One private step of rate 1 from parameters that are zero publishes such sums, many at once.
"""

from dataclasses import replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.audit.adversary import contributed
from quorum_rl.audit.bounds import Floats, lower_bound
from quorum_rl.audit.chain import FAR
from quorum_rl.audit.finding import BITS, Finding, found
from quorum_rl.audit.trainings import (
    EVERYBODY,
    PUBLIC_SEED,
    TrainingCase,
    canary_steps,
    public_order,
    same_public,
)
from quorum_rl.pipeline import fresh, runs_of, steps_of, train_runs
from quorum_rl.training import ExpertData

ONE_STEP: Final = replace(
    EVERYBODY,
    name="training, one step",
    private_steps=1,
    plain_steps=0,
    observation_size=2048,
    threats=(BITS,),
)
NEAR: Final = 0.5  # of the canary's own number, below which a published one is small
USUAL: Final = 1.0  # zeros that random bits end in, on average


def audit_last_bits(runs: int, seed: int, case: TrainingCase = ONE_STEP) -> Finding:
    """Take one step `runs` times with the canary and without, and look at how round it came out."""
    here, away = (roundness(case, runs, present, seed) for present in (True, False))
    return found(
        lower_bound,
        here,
        away,
        case.delta,
        what=case.name,
        threat=BITS,
        canary="an expert who alone contributes to any parameter",
        claimed=case.claimed,
        runs=runs,
    )


def roundness(case: TrainingCase, runs: int, present: bool, seed: int) -> Floats:
    """How many more zeros than usual the small published numbers end in, all together.

    Shapes: (runs,).
    """
    plan, width = case.plan, case.observation_size
    everybody = canary_steps(np.stack([np.zeros(width), np.full(width, FAR)]))
    taking_part = jax.tree.map(lambda leaf: leaf[: 1 + present], everybody)
    keys = np.random.default_rng([seed, present]).integers(2**32, size=(runs, 2), dtype=np.uint32)
    steps = steps_of(plan, runs, public_order(PUBLIC_SEED))
    stacked = runs_of([plan], same_public(keys), steps)
    start = fresh(plan, stacked, (width, case.chain.actions))
    params, target = jax.tree.map(jnp.zeros_like, (start.params, start.target))
    one = jax.tree.map(lambda leaf: leaf[0], (params, target))  # copies, before they are taken over
    start = replace(start, params=params, target=target)
    data = ExpertData(taking_part, jnp.arange(2 + present))
    last = train_runs(plan, stacked, steps, start, data, steps_at_once=1)
    canary = jax.tree.map(lambda leaf: leaf[1], everybody)
    own = _weights(contributed(plan.recipe, (*one, None), canary))
    published = _weights(last.params)
    small = np.abs(published) < NEAR * np.abs(own) / np.linalg.norm(own)
    scores: Floats = np.where(small, trailing_zeros(published) - USUAL, 0.0).sum(axis=(1, 2))
    return scores


def _weights(params: Any) -> npt.NDArray[np.float32]:
    """The numbers that nobody but the canary contributes to: the other's state is zero."""
    (layer,) = params["action_values"]
    return np.asarray(layer.weight)


def trailing_zeros(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """How many zeros the significands end in; none for the number zero."""
    bits = numbers.view(np.uint32) & np.uint32(0x7FFFFF) | np.uint32(0x800000)
    lowest = bits & (~bits + np.uint32(1))
    found: npt.NDArray[np.int64] = np.log2(lowest).astype(np.int64)
    return np.where(numbers == 0, 0, found)
