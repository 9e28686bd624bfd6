"""Bugs planted on purpose, so that everybody can see that an audit finds them. NEVER private.

Each replaces one name of the product while it is open, or two, and changes nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import Entropy
from quorum_rl.errors import unknown_name
from quorum_rl.privacy import ReleaseEvent, TrainingEvent
from quorum_rl.release import Noise, released_lengths
from quorum_rl.training import (
    PrivateStep,
    StepKeys,
    StepNumbers,
    StepShape,
    keys_of,
    lattice_sum,
    private_mean,
    rounded_noise,
    step_key,
    who_is_drawn,
)

_RELEASE: Final = import_module("quorum_rl.release.run")  # the room has a function of that name
_CHUNKS: Final = import_module("quorum_rl.training.chunks")
_LOOP: Final = import_module("quorum_rl.training.loop")
_MECHANISM: Final = import_module("quorum_rl.training.mechanism")
_NUMBERS: Final[Any] = PrivateStep.numbers
_NOISE_SCALE: Final[Any] = PrivateStep.noise_scale
BEYOND: Final = 4096  # clip norms, which no contribution of an audit has

Array = jax.Array


class Patch(NamedTuple):
    """A name of the product, and what stands there instead."""

    owner: Any
    name: str
    in_its_place: Any


@dataclass(frozen=True)
class Bug:
    """What is wrong, and where it is planted: `compiled` if programs of training hold it."""

    said: str
    patches: tuple[Patch, ...] = field(repr=False)
    compiled: bool = False


def _less_noise(step: PrivateStep) -> float:
    scale: float = _NOISE_SCALE.fget(step)
    return scale / 2


def _no_clipping(step: PrivateStep) -> StepNumbers:
    """A bound that no contribution reaches, on the lattice as it was."""
    found: StepNumbers = _NUMBERS.fget(step)
    return found._replace(clip_norm=BEYOND * found.clip_norm, units=BEYOND * found.units)


def _coin_taken_for_hidden(step: PrivateStep, steps: int) -> TrainingEvent:
    """All steps, of which half are private, as if each were private by a coin that nobody sees."""
    return TrainingEvent(
        sampling_rate=step.sampling_rate / 2,
        noise_multiplier=step.noise_multiplier,
        steps=2 * steps,
    )


def _the_first_noise(noise_keys: Any, scales: Any, first: int, steps: int, count: int) -> Array:
    del first
    return jnp.repeat(rounded_noise(noise_keys, scales, 1, 1, count), steps, axis=0)


def _divided_by_drawn(*given: Any) -> Any:
    learner, params, target, data, keys, noise, numbers, *rest = given
    drawn = who_is_drawn(data, keys.sampling, numbers.last_drawn).sum().clip(1)
    numbers = numbers._replace(expected_batch=drawn.astype(jnp.float32))
    return private_mean(learner, params, target, data, keys, noise, numbers, *rest)


def _float_noise(noise_keys: Any, scales: Any, first: int, steps: int, count: int) -> Array:
    """Gaussian noise in float32, in units of the lattice that it is not on."""

    def of_one(words: Array, number: Array) -> Array:
        return jax.random.normal(keys_of(step_key(words, number)).noise, (count,))

    of_runs = jax.vmap(of_one, (0, None))
    drawn = jax.vmap(of_runs, (None, 0))(noise_keys, jnp.arange(first, first + steps))
    return drawn * np.asarray(scales, np.float32)[:, None]


def _sum_of_floats(
    learner: Any,
    params: Any,
    target: Any,
    data: Any,
    keys: StepKeys,
    noise: Array,
    numbers: StepNumbers,
    shape: StepShape,
    *_rest: Any,
) -> Any:
    """A sum that begins at its noise; contributions are clipped, and added as they are."""
    everybody = jnp.arange(data.expert_count)
    drawn = who_is_drawn(data, keys.sampling, numbers.last_drawn)
    shown = data.read(everybody, everybody, keys.transitions, shape.contribution.transitions)

    def clipped(transitions: Any, number: Array, is_drawn: Array) -> Array:
        key = jax.random.fold_in(keys.contribution, number)
        made = shape.contribution(learner, params, target, transitions, key)
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(made)])
        size = jnp.linalg.norm(flat)
        share = jnp.minimum(1, numbers.clip_norm / jnp.where(size > 0, size, 1))
        return jnp.where(is_drawn, flat * share, 0)

    def add(total: Array, contribution: Array) -> tuple[Array, None]:
        return total + contribution, None

    each = jax.vmap(clipped)(shown, everybody, drawn)
    start = noise * (numbers.clip_norm / numbers.units)
    total, _ = jax.lax.scan(add, start, each)
    leaves, structure = jax.tree.flatten(params)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = jnp.split(total / numbers.expected_batch, ends)
    return jax.tree.unflatten(
        structure, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    )


def _clipped_apart(contributions: list[Array], *rest: Any) -> list[Array]:
    """The networks of a learner that has two have as many leaves each."""
    half = len(contributions) // 2
    return lattice_sum(contributions[:half], *rest) + lattice_sum(contributions[half:], *rest)


def _half_the_offset(event: ReleaseEvent, *rest: Any) -> Any:
    return released_lengths(replace(event, threshold=(event.theta + event.threshold) / 2), *rest)


def _less_query_noise(entropy: Entropy, event: ReleaseEvent) -> Noise:
    return Noise(entropy, replace(event, query_epsilon=2 * event.query_epsilon))


BUGS: Final[dict[str, Bug]] = {
    "noise-halved": Bug(
        "private steps add half of the noise",
        (Patch(PrivateStep, "noise_scale", property(_less_noise)),),
    ),
    "noise-reused": Bug(
        "every private step adds the noise of the first",
        (Patch(_CHUNKS, "rounded_noise", _the_first_noise),),
    ),
    "clipping-off": Bug(
        "contributions are not clipped",
        (Patch(PrivateStep, "numbers", property(_no_clipping)),),
    ),
    "clipped-apart": Bug(
        "each of two networks is clipped by itself, and charged once",
        (Patch(_MECHANISM, "lattice_sum", _clipped_apart),),
        compiled=True,
    ),
    "divided-by-drawn": Bug(
        "the sum is divided by how many were drawn",
        (Patch(_LOOP, "private_mean", _divided_by_drawn),),
        compiled=True,
    ),
    "lattice-off": Bug(
        "contributions are not rounded, and the noise is Gaussian in float32",
        (
            Patch(_CHUNKS, "rounded_noise", _float_noise),
            Patch(_LOOP, "private_mean", _sum_of_floats),
        ),
        compiled=True,
    ),
    "coin-accounting": Bug(
        "training is accounted with q = p·b/m at p = 0.5, as if nobody saw which steps are private",
        (Patch(PrivateStep, "event", _coin_taken_for_hidden),),
    ),
    "offset-halved": Bug(
        "the threshold lies half as far above theta",
        (Patch(_RELEASE, "released_lengths", _half_the_offset),),
    ),
    "query-noise-halved": Bug(
        "queries get half of the noise",
        (Patch(_RELEASE, "Noise", _less_query_noise),),
    ),
}


def bug_named(name: str) -> Bug:
    """A bug that can be planted.

    Raises:
        QuorumError: if there is none of that name.
    """
    if name not in BUGS:
        raise unknown_name("planted bug", name, BUGS)
    return BUGS[name]


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """Plant a bug while the block runs.

    Raises:
        QuorumError: as `bug_named`.
    """
    bug = bug_named(name)
    before = [vars(patch.owner)[patch.name] for patch in bug.patches]
    _replace(bug, [patch.in_its_place for patch in bug.patches])
    try:
        yield bug
    finally:
        _replace(bug, before)


def _replace(bug: Bug, values: list[Any]) -> None:
    for patch, value in zip(bug.patches, values, strict=True):
        setattr(patch.owner, patch.name, value)
    if bug.compiled:  # programs are kept by their recipe, and would stay as they are
        _LOOP._compiled.cache_clear()
