"""Where training takes its transitions from: those of each expert, and those that were released."""

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations
from quorum_rl.pytree import pytree
from quorum_rl.training.generator import random_words
from quorum_rl.types import Released, Transition

Array = jax.Array


@pytree
class ExpertData:
    """The transitions of all experts, on the device. SENSITIVE, the number of experts included.

    Shapes: the fields of `transitions` (transitions, …), one expert after the other; `offsets`
    (experts + 1,), expert i having the transitions from offset i up to offset i + 1.
    """

    transitions: Transition
    offsets: Array

    def __repr__(self) -> str:
        return "ExpertData(sensitive)"

    @property
    def expert_count(self) -> int:
        return len(self.offsets) - 1


def expert_data(demonstrations: Demonstrations) -> ExpertData:
    """All transitions of the demonstrations, put on the device once.

    Raises:
        QuorumError: if there is no expert, or more transitions than the device can number.
    """
    if demonstrations.expert_count == 0:
        raise QuorumError("there is no expert to learn from: give demonstrations that hold some.")
    # A device counts in 32 bits unless JAX was told otherwise.
    most = np.iinfo(jax.dtypes.canonicalize_dtype(np.int64)).max
    if demonstrations.transition_count > most:
        raise QuorumError(
            f"there are more than {most} transitions: set JAX_ENABLE_X64=1 to number them all."
        )
    everything = demonstrations.transitions(np.arange(demonstrations.transition_count))
    return ExpertData(
        Transition(*map(jnp.asarray, everything)),
        jnp.asarray(demonstrations.expert_transition_offsets),
    )


def transitions_of(data: ExpertData, experts: Array, key: Array, per_expert: int) -> Transition:
    """Some transitions of each expert, uniformly and with replacement.

    With replacement, so that an expert with few transitions needs no case of its own. What is
    drawn for an expert depends on the key and the expert, not on who is asked for beside it.

    Shapes: `experts` (b,); every field (b, per_expert, …).
    """

    numbers = jnp.broadcast_to(jnp.arange(per_expert), (len(experts), per_expert))
    bits, _ = random_words(key, experts[:, None], numbers)
    first, end = data.offsets[experts], data.offsets[experts + 1]
    # The remainder favours an expert's first transitions by at most its count over 2³², which
    # nobody will notice.
    within = bits % (end - first).astype(jnp.uint32)[:, None]
    return at(data.transitions, first[:, None] + within.astype(first.dtype))


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


def at(transitions: Transition, numbers: Array) -> Transition:
    """Transitions by number; every field has the shape of `numbers` in place of its first axis."""
    return Transition(*(field[numbers] for field in transitions))
