"""What a release will give, before any data is touched.

A stated model stands in for the experts: all of them act alike in the first state, and of those who
agreed up to a step the share `agreement` also agrees at the next. A trajectory is drawn from one of
the agreeing experts; with a floor p_min it takes one of the other actions at every step with
probability (|A| − 1)·p_min, where all who agreed had only p_min to give.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from quorum_rl.privacy.events import ReleaseEvent

Floats = npt.NDArray[np.float64]

MOST_DEVIATIONS: Final = 3  # after which no count passes that the first ones left any of
THRESHOLD_DRAWS: Final = 64  # equally likely values that stand for the threshold's noise


def expected_lengths(event: ReleaseEvent, agreement: float) -> Floats:
    """How likely one iteration releases at least k steps, for k = 1 … prefix cap."""
    steps = min(event.prefix_cap, event.horizon)
    counts = _model_counts(event, agreement, steps)
    noise = laplace_quantile(
        (np.arange(THRESHOLD_DRAWS) + 0.5) / THRESHOLD_DRAWS, event.threshold_noise_scale
    )
    levels = event.threshold + noise
    deviation = (event.actions - 1) * event.p_min
    alive = np.zeros((MOST_DEVIATIONS + 1, THRESHOLD_DRAWS))
    alive[0] = 1 / THRESHOLD_DRAWS
    chance = np.zeros(steps)
    for step in range(steps):
        moved = alive * (1 - deviation)
        moved[1:] += alive[:-1] * deviation
        passes = laplace_tail(levels - counts[step][:, None], event.query_noise_scale)
        alive = moved * passes * (1 - event.stop_probability)
        chance[step] = alive.sum()
        if chance[step] < 1e-12:
            break
    return chance


def expected_transitions(event: ReleaseEvent, agreement: float) -> float:
    """How many transitions all iterations are expected to release together."""
    return float(event.iterations * expected_lengths(event, agreement).sum())


def longest_prefix(event: ReleaseEvent, agreement: float) -> int:
    """The longest prefix whose count, without noise, is above the threshold; 0 if none is."""
    steps = min(event.prefix_cap, event.horizon)
    undisturbed = _model_counts(event, agreement, steps)[:, 0]
    below = np.flatnonzero(undisturbed <= event.threshold)
    return int(below[0]) if len(below) else steps


def _model_counts(event: ReleaseEvent, agreement: float, steps: int) -> Floats:
    """The count after each step and number of deviations. Shapes: (steps, deviations)."""
    kept = agreement * (event.p_max if event.mode == "paper" else 1.0)
    length = np.arange(1, steps + 1)[:, None]
    deviations = np.arange(MOST_DEVIATIONS + 1)[None]
    made: Floats = event.experts * kept**length * (event.p_min / event.p_max) ** deviations
    return made


def laplace_tail(value: Floats, scale: float) -> Floats:
    """Pr[Lap(scale) > value]."""
    half = 0.5 * np.exp(-np.abs(value) / scale)
    made: Floats = np.where(value >= 0, half, 1 - half)
    return made


def laplace_quantile(chance: Floats, scale: float) -> Floats:
    """The value that Lap(scale) stays below with probability `chance`."""
    centred = chance - 0.5
    made: Floats = -scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))
    return made
