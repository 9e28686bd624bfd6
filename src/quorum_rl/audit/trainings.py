"""The product's own training, thousands of times in one program, scored by what each one shows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.audit.adversary import Looking, Watched, agreement, contributed, watched
from quorum_rl.audit.bounds import Floats
from quorum_rl.audit.cases import Case
from quorum_rl.audit.chain import CANARY_ACTION, CANARY_REWARD, FAR, Chain
from quorum_rl.audit.finding import ACTIONS, APART, ITERATES, REST, SPREAD
from quorum_rl.budget import SeededEntropy, jax_key_data
from quorum_rl.pipeline import Keys, Steps, fresh, runs_of, steps_of, train_runs
from quorum_rl.training import ExpertData, expert_data
from quorum_rl.types import Released, Transition

PUBLIC_SEED: Final = 0
NEAR: Final = 0.5  # of the canary's own number, below which a published one is small
USUAL: Final = 1.0  # zeros that random bits end in, on average

Scores = dict[str, Floats]
"""Of many trainings, by threat. Shapes: (runs,) each."""


def trained(case: Case, runs: int, present: bool, seed: int) -> Scores:
    """The scores of `runs` trainings of a few experts."""
    keys = np.random.default_rng([seed, present]).integers(2**32, size=(runs, 2), dtype=np.uint32)
    seen = watch(case, same_public(keys), _shared_steps(case, runs), present)
    scores = {ITERATES: seen.likelihood, APART: seen.likelihood}
    scores |= {SPREAD: seen.spread, REST: seen.rest}
    if ACTIONS in case.threats:
        scores[ACTIONS] = agreement(case.plan.learner, seen.params, case.chain.observation_size)
    return scores


def watch(case: Case, keys: Keys, steps: Steps, present: bool) -> Watched:
    """Train with all these keys under the eyes of the adversary, with the canary or without."""
    plan, chain = case.plan, case.trained_chain
    return watched(
        Looking(plan, *training_transitions(chain), apart=APART in case.threats),
        runs_of([plan], keys, steps),
        steps,
        (chain.observation_size, chain.actions),
        training_data(chain, present),
    )


def _shared_steps(case: Case, runs: int) -> Steps:
    """Those of one run, which are the same for all; plain steps see the others' transition."""
    chain, released = case.chain, []
    if case.plan.plain_steps:
        _, public = training_transitions(chain)
        only = Transition(*(leaf[None] for leaf in public))
        sizes = chain.observation_size, chain.actions, chain.horizon
        released = [Released(only, np.array([0, 1]), *sizes)]
    steps = steps_of(case.plan, 1, public_order(PUBLIC_SEED), released)
    return steps._replace(parts=runs * list(steps.parts), counts=runs * list(steps.counts))


def roundness(case: Case, runs: int, present: bool, seed: int) -> Floats:
    """What the last bits of published parameters tell (Mironov, 2012): how many more zeros than
    usual the small numbers end in, all together.

    A sum of floats remembers how large its terms were. Noise of about −c to which a canary's c is
    added gives a small number, but only whole multiples of what the last bit of c was worth: its
    own last bits are zeros. Noise that is small by itself has last bits as chance will have them.
    On a lattice of whole numbers both are multiples of the same unit, and all small numbers are as
    round. One private step of rate 1 from parameters that are zero publishes such sums.

    Shapes: (runs,).
    """
    plan, width = case.plan, case.chain.observation_size
    everybody = _canary_steps(np.stack([np.zeros(width), np.full(width, FAR)]))
    taking_part = jax.tree.map(lambda leaf: leaf[: 1 + present], everybody)
    keys = np.random.default_rng([seed, present]).integers(2**32, size=(runs, 2), dtype=np.uint32)
    steps = steps_of(plan, runs, public_order(PUBLIC_SEED))
    stacked = runs_of([plan], same_public(keys), steps)
    start = fresh(plan, stacked, (width, case.chain.actions))
    params, target = jax.tree.map(jnp.zeros_like, (start.params, start.target))
    first = jax.tree.map(lambda leaf: leaf[0], (params, target))  # copies, before they are taken
    start = replace(start, params=params, target=target)
    data = ExpertData(taking_part, jnp.arange(2 + present))
    last = train_runs(plan, stacked, steps, start, data, steps_at_once=1)
    canary = jax.tree.map(lambda leaf: leaf[1], everybody)
    own = _weights(contributed(plan.recipe, (*first, None), canary))
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


def training_data(chain: Chain, present: bool) -> ExpertData:
    """What private steps may read: one step of each expert."""
    return expert_data(chain.log(present, 0, np.random.default_rng(0)))


def training_transitions(chain: Chain) -> tuple[Transition, Transition]:
    """The canary's step and that of everybody else."""
    whole = jax.tree.map(np.asarray, training_data(chain, present=True).transitions)
    return Transition(*(leaf[-1] for leaf in whole)), Transition(*(leaf[0] for leaf in whole))


def _canary_steps(states: Floats) -> Transition:
    """One step in each state, as the canary takes it. Shapes: (canaries, observation_size)."""
    count = len(states)
    return Transition(
        observation=jnp.asarray(states, jnp.float32),
        action=jnp.full(count, CANARY_ACTION, jnp.int32),
        reward=jnp.full(count, CANARY_REWARD, jnp.float32),
        next_observation=jnp.zeros(states.shape, jnp.float32),
        terminated=jnp.ones(count, bool),
        truncated=jnp.zeros(count, bool),
    )


def public_order(seed: int) -> int:
    """The seed of the order of steps that a fit with this seed has."""
    return int(jax_key_data(SeededEntropy(seed), "public")[0])


def noise_keys(seeds: Sequence[int]) -> Any:
    """The words of the keys of noise that fits with these seeds have. Shapes: (runs, 2)."""
    return np.stack([jax_key_data(SeededEntropy(seed), "noise") for seed in seeds])


def same_public(noise: Any, seed: int = PUBLIC_SEED) -> Keys:
    """Keys of runs that differ in their noise alone: the guarantee holds whatever is public."""
    public = np.asarray(jax_key_data(SeededEntropy(seed), "public"))
    return Keys(noise, np.broadcast_to(public, (len(noise), 2)))
