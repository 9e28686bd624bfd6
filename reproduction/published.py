"""The published accounting as published, and what a published setting truly costs.

As published: advanced composition for the release, a sampling rate of p·b/m for training, and the
sums of both stages' ε and δ. What does not hold of that, and why, is in docs/theory.md, whose
numbers G1 to G13 are used here.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from dp_accounting.pld import privacy_loss_distribution as pld

from quorum_rl.errors import QuorumError
from quorum_rl.privacy.accounting import (
    FFT_ERROR,
    LARGEST_EPSILON,
    grid_width,
    least_epsilon,
    one_step_losses,
    release_losses,
    self_composed,
)
from quorum_rl.privacy.calibration import steps_for
from quorum_rl.privacy.constants import Setting, paper_event
from quorum_rl.privacy.events import ReleaseEvent, TrainingEvent
from quorum_rl.privacy.losses import NOTHING, Losses, from_library, joint_delta
from quorum_rl.privacy.pairs import Pair, composed_losses
from reproduction.published_settings import (
    EXPERTS,
    P_MIN,
    WORLDS,
    PublishedSetting,
    published_split,
)

GAPS: Final = {
    "G2": "training takes the tails of the trajectories that the release drew from",
    "G3": "the longest trajectory of the data is a constant of the release",
    "G4": "the number of experts, itself private, sets the sampling rate and delta",
    "G5": "batches are shuffled, not Poisson samples",
    "G6": "trajectories are drawn without replacement, the proof draws experts with it",
    "G7": "hyper-parameters are searched on the private data, and the search is not charged",
    "G9": "noise and sums are floating-point numbers",
}
OF_RELEASE: Final = ("G3", "G6")
OF_TRAINING: Final = ("G5",)
OF_BOTH: Final = ("G2",)

Stage = tuple[Losses, Losses]  # with the expert against without, and the reverse


class Claim(NamedTuple):
    """The (ε, δ) that is published for a setting."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class TrueCost:
    """What a published setting costs if its draws were fresh and its batches Poisson samples.

    `release_epsilon` and `training_epsilon` are of each stage alone at its published δ, 0 for a
    stage that there is not; `total_epsilon` is of both together at the published δ. No number
    covers the gaps in `uncovered` (keys of `GAPS`).
    """

    steps: int
    release_epsilon: float
    training_epsilon: float
    total_epsilon: float
    training_ratio: float | None
    total_ratio: float
    uncovered: tuple[str, ...]


def advanced_composition(epsilon: float, delta: float, iterations: int) -> Claim:
    """What one of `iterations` may cost so that all cost (epsilon, delta), as published.

    Corollary 3.21 of Dwork and Roth, with half of δ for the composition.
    """
    return Claim(
        epsilon / math.sqrt(8 * iterations * math.log(2 / delta)), delta / (2 * iterations)
    )


def exact_composition(each: Claim, iterations: int, delta: float) -> float:
    """The ε at `delta` of `iterations` mechanisms of which each is `each`-private: no less holds.

    The δ of each is lost outright in either direction; what is left is a pair without δ.
    """
    losses, _ = composed_losses(Pair(each.epsilon, each.epsilon, 0.0), iterations)
    kept = math.exp(iterations * math.log1p(-each.delta))
    return least_epsilon(
        lambda epsilon: 1 - kept * (1 - losses.delta(epsilon)) - delta, LARGEST_EPSILON
    )


def looseness(epsilon: float, delta: float, iterations: int) -> float:
    """How many times more advanced composition claims than exact composition needs (G8)."""
    each = advanced_composition(epsilon, delta, iterations)
    return epsilon / exact_composition(each, iterations, delta)


def published_cost(setting: PublishedSetting) -> Claim:
    """ε1 + ε2 and δ1 + δ2, as claimed."""
    split = published_split(setting)
    return Claim(
        split.release_epsilon + split.training_epsilon, split.release_delta + split.training_delta
    )


@lru_cache(maxsize=64)
def published_steps(setting: PublishedSetting) -> int:
    """The training steps that exhaust the budget by the published account, at q = p·b/m.

    Not published themselves: training went on "until the privacy budget is used up". 0 if no step
    is private, for then the budget ends nothing.
    """
    if setting.private_share == 0:
        return 0
    split = published_split(setting)
    return steps_for(
        noise_multiplier=_noise_multiplier(setting),
        sampling_rate=setting.private_share * setting.batch_size / EXPERTS,
        epsilon=split.training_epsilon,
        delta=split.training_delta,
    )


@lru_cache(maxsize=64)
def true_cost(setting: PublishedSetting) -> TrueCost:
    """What a published setting costs by exact composition, with each step's coin visible (G1)."""
    split, claim = published_split(setting), published_cost(setting)
    steps = published_steps(setting)
    release = release_losses([published_release(setting)]) if setting.iterations else None
    training = _training(setting, steps) if steps else None
    training_epsilon = _epsilon(None, training, split.training_delta)
    total = _epsilon(release, training, claim.delta)
    return TrueCost(
        steps=steps,
        release_epsilon=_epsilon(release, None, split.release_delta),
        training_epsilon=training_epsilon,
        total_epsilon=total,
        training_ratio=training_epsilon / split.training_epsilon if training else None,
        total_ratio=total / claim.epsilon,
        uncovered=_uncovered(release is not None, training is not None),
    )


def published_release(setting: PublishedSetting) -> ReleaseEvent:
    """The release of a setting, with the constants of the paper's Algorithm 2.

    Raises:
        QuorumError: if the setting releases nothing.
    """
    if not setting.iterations:
        raise QuorumError(
            f"{setting.world} at epsilon = {setting.epsilon:g} has no release: iterations is 0."
        )
    split, world = published_split(setting), WORLDS[setting.world]
    declared = Setting(
        experts=EXPERTS,
        actions=world.actions,
        p_min=P_MIN,
        stop_probability=0.0,
        horizon=world.horizon,
        prefix_cap=world.horizon,
        epsilon=split.release_epsilon,
        delta=split.release_delta,
        overflow_epsilon=setting.epsilon,
    )
    return paper_event(declared, setting.iterations)


def coin_losses(
    *, sampling_rate: float, noise_multiplier: float, private_share: float, steps: int
) -> Stage:
    """The losses of `steps` steps of which each is private with probability `private_share`.

    A step that is not private has no noise, so whoever sees the parameters before and after it sees
    the coin: the loss is that of a private step with probability `private_share`, and 0 otherwise.
    """
    event = TrainingEvent(
        sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps
    )
    width = grid_width([event])
    private = one_step_losses(sampling_rate, noise_multiplier, width)
    step = private.compute_mixture(pld.identity(width), private_share)
    return from_library(self_composed(step, steps), FFT_ERROR * steps)


def _training(setting: PublishedSetting, steps: int) -> Stage:
    return coin_losses(
        sampling_rate=setting.batch_size / EXPERTS,
        noise_multiplier=_noise_multiplier(setting),
        private_share=setting.private_share,
        steps=steps,
    )


def _noise_multiplier(setting: PublishedSetting) -> float:
    if setting.noise_multiplier is None:
        raise QuorumError(
            f"private share is {setting.private_share} and the noise multiplier is not given: give "
            "one, or a private share of 0."
        )
    return setting.noise_multiplier


def _epsilon(release: Stage | None, training: Stage | None, delta: float) -> float:
    """The ε of one stage or of both together at `delta`, the larger of both directions."""
    if release is None and training is None:
        return 0.0
    both = list(zip(release or (NOTHING, NOTHING), training or (NOTHING, NOTHING), strict=True))

    def excess(epsilon: float) -> float:
        return max(joint_delta(first, second, epsilon) for first, second in both) - delta

    return least_epsilon(excess, LARGEST_EPSILON)


def _uncovered(releases: bool, trains: bool) -> tuple[str, ...]:
    absent = {
        *(() if releases else OF_RELEASE),
        *(() if trains else OF_TRAINING),
        *(() if releases and trains else OF_BOTH),
    }
    return tuple(gap for gap in GAPS if gap not in absent)
