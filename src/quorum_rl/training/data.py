"""Where training takes its transitions from: those of each expert, and those that were released."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.logs import Declared, Demonstrations
from quorum_rl.pytree import pytree
from quorum_rl.training.randomness import Array, random_words
from quorum_rl.types import Released, Transition


@pytree
class ExpertData:
    """The transitions of all experts, on the device. SENSITIVE, the number of experts included.

    Or of consecutive ones, from number `first` on: a device's part of experts that are spread over
    several (`sources.py`). Places without transitions are padding, and are never drawn.

    Shapes: the fields of `transitions` (transitions, …), one expert after the other; `offsets`
    (experts + 1,), expert i having the transitions from offset i up to offset i + 1; `first` a
    scalar or (1,).
    """

    transitions: Transition
    offsets: Array
    first: Array | int = 0

    def __repr__(self) -> str:
        return "ExpertData(sensitive)"

    @property
    def expert_count(self) -> int:
        return len(self.offsets) - 1

    @property
    def has_transitions(self) -> Array:
        """True for experts, False for padding. Shapes: (experts,)."""
        return self.offsets[1:] > self.offsets[:-1]

    begin: ClassVar[int] = 0

    @property
    def end(self) -> int:
        """The place behind the last that may be drawn."""
        return self.expert_count

    def read(self, experts: Array, _places: Array, key: Array, per_expert: int) -> Transition:
        """What these experts show in a step; see `transitions_of`."""
        return transitions_of(self, experts, key, per_expert)


@pytree
class ChosenData:
    """What one private step will read, chosen before by the very same draws. SENSITIVE.

    Or what a part of the drawn experts show in it, from place `begin` among them on.

    Shapes: the fields of `transitions` (places, per_expert, …), one drawn expert after the other;
    `counts` (experts,), how many transitions each has.
    """

    transitions: Transition
    counts: Array
    begin: Array | int = 0

    first: ClassVar[int] = 0

    def __repr__(self) -> str:
        return "ChosenData(sensitive)"

    @property
    def expert_count(self) -> int:
        return len(self.counts)

    @property
    def has_transitions(self) -> Array:
        return self.counts > 0

    @property
    def end(self) -> Array | int:
        """The place behind the last that is here."""
        return self.begin + len(self.transitions.reward)

    def read(self, _experts: Array, places: Array, _key: Array, _per_expert: int) -> Transition:
        """What the experts at these places among the drawn ones show in the step."""
        own = places - self.begin
        return at(self.transitions, own.clip(max=len(self.transitions.reward) - 1))


def expert_data(demonstrations: Demonstrations) -> ExpertData:
    """All transitions of the demonstrations, put on the device once.

    Raises:
        QuorumError: if there is no expert, or more transitions than the device can number.
    """
    check_numbered(demonstrations, demonstrations.transition_count)
    everything = demonstrations.transitions(np.arange(demonstrations.transition_count))
    return ExpertData(
        Transition(*map(jax.device_put, everything)),
        jax.device_put(demonstrations.expert_transition_offsets),
    )


def nobody(declared: Declared) -> ExpertData:
    """The data of no expert at all: one place without transitions, which is never drawn.

    For a part of the experts, which may be empty: that must look as if it were not.
    """
    return ExpertData(blank_transitions(declared, 1), jnp.zeros(2, jnp.int32))


def blank_transitions(declared: Declared, count: int) -> Transition:
    """Transitions of nothing but zeros, shaped as those of these logs."""
    seen, none = jnp.zeros((count, declared.observation_size)), jnp.zeros(count)
    wide = (count, declared.action_count)
    action = jnp.zeros(wide) if declared.continuous else none.astype(jnp.int32)
    return Transition(seen, action, none, seen, none > 0, none > 0)


def check_numbered(demonstrations: Demonstrations, on_a_device: int) -> None:
    """Refuse demonstrations without experts, and more transitions than a device can number.

    Raises:
        QuorumError: for either.
    """
    if demonstrations.expert_count == 0:
        raise QuorumError("there is no expert to learn from: give demonstrations that hold some.")
    # A device counts in 32 bits unless JAX was told otherwise.
    most = np.iinfo(jax.dtypes.canonicalize_dtype(np.int64)).max
    if on_a_device > most:
        raise QuorumError(
            f"there are more than {most} transitions: set JAX_ENABLE_X64=1 to number them all."
        )


def transitions_of(data: ExpertData, experts: Array, key: Array, per_expert: int) -> Transition:
    """Some transitions of each expert, uniformly and with replacement.

    With replacement, so that an expert with few transitions needs no case of its own. What is
    drawn for an expert depends on the key and the expert, not on who is asked for beside it.

    Shapes: `experts` (b,), places in `data`; every field (b, per_expert, …).
    """
    first, end = data.offsets[experts], data.offsets[experts + 1]
    within = chosen_within(end - first, data.first + experts, key, per_expert)
    return at(data.transitions, first[:, None] + within.astype(first.dtype))


def chosen_within(counts: Array, numbers: Array, key: Array, per_expert: int) -> Array:
    """Which of their own transitions experts of these numbers show, having `counts` of them.

    Shapes: `counts` and `numbers` (b,); (b, per_expert), uint32.
    """
    each = jnp.broadcast_to(jnp.arange(per_expert), (len(numbers), per_expert))
    bits, _ = random_words(key, numbers[:, None], each)
    # The remainder favours an expert's first transitions, by at most its count over 2³².
    return bits % counts.astype(jnp.uint32)[:, None]


def flat_transitions(released: Released) -> Transition:
    """All released transitions, on the device.

    Raises:
        QuorumError: if nothing was released.
    """
    if released.offsets[-1] == 0:
        raise QuorumError(
            "the release is empty, so no step can do without noise: train with every step private, "
            "or give the release more of the budget."
        )
    return Transition(*map(jnp.asarray, released.transitions))


def plain_batch(
    transitions: Transition, key: Array, size: int, part: tuple[Array, Array] | None = None
) -> Transition:
    """`size` transitions, uniformly and with replacement; of a part of them, from first to end.

    Shapes: the fields of `transitions` (n, …) become (size, …).
    """
    first, end = (0, len(transitions.reward)) if part is None else part
    return at(transitions, jax.random.randint(key, (size,), first, end))


def at(transitions: Transition, numbers: Array) -> Transition:
    """Transitions by number; every field has the shape of `numbers` in place of its first axis."""
    return Transition(*(field[numbers] for field in transitions))
