"""Sanity checks at the border where policies that others wrote come in.

The floor p_min is a promise about the whole class of policies: every action, in every state that
could ever be reached. Checking it on the states that were queried can find a broken promise but
never prove a kept one, and the guarantee rests on the promise alone.

The messages name an expert's index and its worst value, so they are for the data owner's eyes:
they must not be published or shown to whoever receives the policy.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError

if TYPE_CHECKING:
    from quorum_rl.experts.expert_set import ExpertSet

Observations = npt.NDArray[np.float32]  # (rows, observation_size)
Probabilities = npt.NDArray[np.float64]  # (experts, rows, action_count)

SUM_TOLERANCE: Final = 1e-5  # how far from one the probabilities of a state may sum
LARGEST_SPREAD: Final = 700.0  # the logarithm of a deviation that is hardly a number
FLOOR_TOLERANCE: Final = 1e-6  # relative: what single precision may take off a declared floor


def checked_observations(observations: npt.ArrayLike, observation_size: int) -> Observations:
    """The observations as every expert sees them: single precision, one row per state.

    Raises:
        QuorumError: if the shape is not `(rows, observation_size)`.
    """
    made = np.asarray(observations, dtype=np.float32)
    if made.ndim != 2 or made.shape[1] != observation_size:
        raise QuorumError(
            f"observations have shape {made.shape}: these experts take (rows, {observation_size})."
        )
    return made


def checked_probabilities(
    answers: npt.ArrayLike,
    experts: Sequence[int],
    *,
    rows: int,
    action_count: int,
    names: Sequence[str] | None = None,
) -> Probabilities:
    """What the experts answered, as distributions: checked, then divided by their sums.

    Dividing here, in double precision, gives π_i one meaning for whoever draws from it and for
    whoever queries it. See the module's text for what a passed check does not prove.

    Shapes: `answers` and the result are `(len(experts), rows, action_count)`; `names`, one for
        each of `experts`, are added to messages.

    Raises:
        QuorumError: for another shape, a value that is not finite, a negative one, or a sum further
            than SUM_TOLERANCE from one.
    """
    made: Probabilities = np.array(answers, dtype=np.float64)  # a copy, divided in place below
    if made.shape != (len(experts), rows, action_count):
        raise QuorumError(
            f"{len(experts)} experts answered {rows} states with probabilities of shape "
            f"{made.shape}: expected {(len(experts), rows, action_count)}."
        )
    if made.size == 0:
        return made

    def where(position: tuple[np.intp, ...]) -> str:
        return _where(position, experts, names)

    finite = np.isfinite(made)
    if not finite.all():
        worst = np.unravel_index(np.argmin(finite), made.shape)
        raise QuorumError(
            f"{where(worst)} has probability {made[worst]}: every probability must be finite; "
            "look for NaN in the policy's weights or inputs."
        )
    worst = np.unravel_index(np.argmin(made), made.shape)
    if made[worst] < 0:
        raise QuorumError(
            f"{where(worst)} has probability {made[worst]:.6g}: probabilities must not be "
            "negative; if the policy returns logits, apply softmax."
        )
    sums = made.sum(axis=-1)
    worst = np.unravel_index(np.argmax(np.abs(sums - 1)), sums.shape)
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        raise QuorumError(
            f"{where(worst)} has probabilities that sum to {sums[worst]:.6g}: they must sum to "
            f"one within {SUM_TOLERANCE:g}; if the policy returns logits, apply softmax."
        )
    made /= sums[..., None]
    return made


def checked_gaussians(
    answers: npt.ArrayLike, experts: Sequence[int], names: Sequence[str] | None = None
) -> npt.NDArray[np.float64]:
    """Means and logarithms of standard deviations, checked to be numbers. A logarithm may be -inf:
    who has no spread does what the mean says.

    Shapes: `(len(experts), rows, 2 · action_count)`, in and out.

    Raises:
        QuorumError: for one that is not finite, or a deviation beyond all numbers.
    """
    made = np.asarray(answers, dtype=np.float64)
    mean, log_deviation = np.split(made, 2, axis=-1)
    finite = np.concatenate([np.isfinite(mean), log_deviation < LARGEST_SPREAD], axis=-1)
    if not finite.all():
        worst = np.unravel_index(np.argmin(finite), made.shape)
        raise QuorumError(
            f"{_where(worst[:2], experts, names)} answers {made[worst]}: a mean and a spread must "
            "be finite; look for NaN in the policy's weights or inputs."
        )
    return made


def as_gaussians(answers: npt.ArrayLike, action_count: int) -> npt.NDArray[np.float64] | None:
    """What a continuous policy answered, as means and logarithms of standard deviations: an action
    alone has no spread. None where it has another form.

    Shapes: `(rows, action_count)` or `(rows, 2 · action_count)` to `(rows, 2 · action_count)`.
    """
    made = np.asarray(answers, dtype=np.float64)
    if made.ndim != 2 or made.shape[1] not in (action_count, 2 * action_count):
        return None
    if made.shape[1] == action_count:
        made = np.concatenate([made, np.full_like(made, -np.inf)], axis=1)
    return made


def distributions_or_nan(answers: npt.ArrayLike, p_min: float) -> Probabilities:
    """The same answers, with NaN for those that are no distribution or go below the floor.

    For a release, which counts such an answer as 0: whether it runs must not depend on what an
    expert answers.

    Shapes: `(..., action_count)`, in and out.
    """
    made: Probabilities = np.array(answers, dtype=np.float64)
    with np.errstate(all="ignore"):  # NaN and infinity fail these comparisons
        valid = np.abs(made.sum(axis=-1) - 1) <= SUM_TOLERANCE
        valid &= (made >= p_min * (1 - FLOOR_TOLERANCE)).all(axis=-1)
    made[~valid] = np.nan
    return made


def check_floor(probabilities: Probabilities, experts: Sequence[int], p_min: float) -> None:
    """Fail if a probability is below the declared floor, by more than single precision explains.

    For the owner, while experts act; for a release see `distributions_or_nan`.

    Shapes: `probabilities` is `(len(experts), rows, actions)`.

    Raises:
        QuorumError: naming the worst expert, state and action.
    """
    if probabilities.size == 0:
        return
    worst = np.unravel_index(np.argmin(probabilities), probabilities.shape)
    if probabilities[worst] < p_min * (1 - FLOOR_TOLERANCE):
        raise QuorumError(
            f"{_where(worst, experts, None)} has probability {probabilities[worst]:.6g}, below the "
            f"declared floor p_min = {p_min:g}: declare the true floor, or smooth the experts "
            "before collecting."
        )


def checked_floor(p_min: float, action_count: int) -> float:
    """The floor itself, if some policy over `action_count` actions can have it.

    Raises:
        QuorumError: if `p_min` is outside (0, 1 / action_count].
    """
    if not 0 < p_min <= 1 / action_count:
        raise QuorumError(
            f"p_min is {p_min}: with {action_count} actions choose a floor above 0 and at most "
            f"1/{action_count}."
        )
    return float(p_min)


def no_floor() -> QuorumError:
    """The error for a floor under what experts of continuous actions do."""
    return QuorumError(
        "these experts' actions are continuous, and densities have no floor p_min: leave it out, "
        "and they act with the spread that they have."
    )


def check_batch_independence(
    experts: "ExpertSet", observations: npt.ArrayLike, *, tolerance: float = 0.0
) -> None:
    """Fail if an expert's answer in a state depends on what else is asked at the same time.

    The release needs π_i(a|s) to be one number: the same whether the state comes alone or among
    others, the expert alone or among others. Matrix products and batch normalisation in training
    mode are the usual offenders. Passing on some states is evidence, not proof.

    Raises:
        QuorumError: naming the expert and state where two answers differ by more than `tolerance`.
    """
    states = checked_observations(observations, experts.observation_size)
    together = experts.probabilities(states)
    for row in range(len(states)):
        alone = experts.probabilities(states[row : row + 1])
        _check_same(alone, together[:, row : row + 1], 0, row, tolerance, "state is asked alone")
    for expert in range(len(experts)):
        alone = experts.probabilities_of(slice(expert, expert + 1), states)
        _check_same(
            alone, together[expert : expert + 1], expert, 0, tolerance, "expert is asked alone"
        )


def _check_same(
    alone: Probabilities,
    together: Probabilities,
    first_expert: int,
    first_row: int,
    tolerance: float,
    how: str,
) -> None:
    difference = np.abs(alone - together)
    worst = np.unravel_index(np.argmax(difference), difference.shape)
    if difference[worst] > tolerance:
        raise QuorumError(
            f"expert {first_expert + int(worst[0])} in state {first_row + int(worst[1])} answers "
            f"{alone[worst]:.9g} for action {int(worst[2])} when the {how} but "
            f"{together[worst]:.9g} in a batch: put the policy in evaluation mode, or evaluate it "
            "with row_by_row=True."
        )


def _where(
    position: tuple[np.intp, ...], experts: Sequence[int], names: Sequence[str] | None
) -> str:
    """An expert, a state and perhaps an action, in words."""
    expert, row, *action = (int(part) for part in position)
    name = f" ({names[expert]})" if names is not None else ""
    last = f", action {action[0]}" if action else ""
    return f"expert {experts[expert]}{name} in state {row}{last}"
