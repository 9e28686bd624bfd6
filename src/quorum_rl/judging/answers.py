"""From noisy sums to answers: an estimate, its interval, and whether that tells anything.

Everything here is made of what the judges' noisy sums are, so it costs nothing.

**Ratios.** An answer is a mean over judges: a noisy sum over their noisy number. Its interval is
Fieller's: all μ for which S − μN is no further from 0 than its deviation allows. That is exact for
Gaussian noise, also where the number of judges is hardly known; the delta method, which divides by
it as if it were certain, is not. Where the number might be zero every μ is possible.

**Two noises.** S − μN has the noise of both sums and the sampling of the judges: n times their
variance, which follows from the sum of squares. That is noisy itself, so half a deviation of its
noise is added. What is kept of it is its share of the most that numbers within their bounds can
have, 1 − μ²: at that most it is Wilson's interval, which also holds for few judges who all agree.

**Doubt.** What the policy earns rests on fitted values, whose error no log shows. In worlds where
the truth is known it was at most half of the share of steps in which the policy does otherwise, as
a part of the bounds, as long as it does the same in 70% of them (docs/judging.md). So intervals of
the value and of the gain are wider by somewhat more; they rule nothing out where it might be below
70%. Of continuous actions a policy that comes near may still be far worse than its
fitted values, and was never much better: its intervals end above and begin at the bounds.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from quorum_rl.dictionary import called
from quorum_rl.judging.plan import TELLS, JudgingPlan

Floats = npt.NDArray[np.float64]
Doubt: TypeAlias = tuple[float, float]
Better: TypeAlias = Literal["yes", "no", "cannot tell"]

COVERAGE: Final = 0.95
MARGIN: Final = 0.5  # deviations of its own noise, added to a variance
TELLS_OF_VALUES: Final = 0.3  # the same for a value, whose interval has its doubt
DOUBT: Final = 0.75  # of the share of steps in which the policy does otherwise
LEAST_AGREEMENT: Final = 0.7  # with confidence
DOUBT_OF_CONTINUOUS: Final = 0.5  # upwards; downwards nothing is known
SURE_NEARNESS: Final = 0.85  # the same for continuous actions
NO_DOUBT: Final[Doubt] = (0.0, 0.0)
CANNOT_TELL: Final = "cannot tell: too few judges for so much noise"


class Sum(NamedTuple):
    """A noisy sum, and the standard deviation of its noise."""

    value: float
    noise: float


@dataclass(frozen=True)
class Answer:
    """An estimate with its interval, and between which numbers the truth was known to lie.

    It `tells` something if the interval is narrow, also before it is cut to those bounds: a mean
    that lies at one of them is not known better for that.
    """

    estimate: float | None
    low: float
    high: float
    bounds: tuple[float, float]
    tells: bool

    def scaled(self, least: float, most: float) -> "Answer":
        """The same in other units, where it is between −1 and 1."""

        def at(number: float) -> float:
            return least + (number + 1) / 2 * (most - least)

        estimate = None if self.estimate is None else at(self.estimate)
        return Answer(estimate, at(self.low), at(self.high), (least, most), self.tells)

    def in_words(self) -> str:
        between = f"95%: {self.low:.4g} to {self.high:.4g}"
        return f"{self.estimate:.4g}, {between}" if self.tells else f"{CANNOT_TELL} ({between})"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """What the judges say of a policy: the experts' own mean return where bounds were declared, how
    often the policy does what the experts did, of all their steps and of those with each action
    (of continuous actions how near it comes to theirs, as a part of the bounds, in each number),
    and with fitted values what it earns (`value`) and how much more than they do (`gain`).

    Each interval covers the truth of the population that the experts are a sample of, 95 times in
    100; all of them together do so less often. Each does so for all policies at once that were
    asked about together, those of values and gains as far as the doubt of fitted values reaches.
    """

    mean_return: Answer | None
    agreement: Answer
    agreement_by_action: tuple[Answer, ...]
    value: Answer | None = None
    gain: Answer | None = None
    continuous: bool = False

    @property
    def better(self) -> Better | None:
        """Whether the policy is better than what is done today; None where nobody was asked."""
        if self.gain is None:
            return None
        return "yes" if self.gain.low > 0 else "no" if self.gain.high < 0 else "cannot tell"

    @property
    def _doubted(self) -> str:
        """Why fitted values are not believed; empty if they are, or nothing is known."""
        same = self.agreement
        if same.estimate is None or doubt_of(same, continuous=self.continuous)[1] < math.inf:
            return ""
        if self.continuous:
            return f", for it may be further off what they did than {1 - SURE_NEARNESS:.0%}"
        return f", for it may do otherwise in more than {1 - LEAST_AGREEMENT:.0%} of the steps"

    def to_json(self) -> dict[str, Any]:
        def facts(answer: Answer | None) -> dict[str, Any] | None:
            return None if answer is None else answer.to_json()

        return {
            "coverage": COVERAGE,
            "mean_return": facts(self.mean_return),
            "value": facts(self.value),
            "gain": facts(self.gain),
            "better": self.better,
            "agreement": facts(self.agreement),
            "agreement_by_action": [facts(answer) for answer in self.agreement_by_action],
        }

    def what_it_earns(self) -> str:
        """What the policy earns, in a line; empty if nobody was asked."""
        value, gain = self.value, self.gain
        if value is None or gain is None:
            return ""
        between = f"95%: {value.low:.4g} to {value.high:.4g}"
        known = f": cannot tell{self._doubted} ({between})"
        if value.tells:
            known = f" {value.estimate:.4g}, {between}"
        return (
            f"the policy earns{known}; better than what is done today: {self.better} "
            f"(95%: {gain.low:.4g} to {gain.high:.4g} more)"
        )

    def describe(self, labels: Sequence[str] = ()) -> str:
        """The answers in a few lines; actions by their labels, where they have some."""
        said = []
        if self.mean_return is not None:
            said.append(f"what the experts earn: {self.mean_return.in_words()}")
        if self.value is not None:
            said.append(self.what_it_earns())
        whole, each = in_words(self.continuous)
        said.append(f"{whole}: {self.agreement.in_words()}")
        said += [
            f"{each} {called(action, labels, continuous=self.continuous)}: {answer.in_words()}"
            for action, answer in enumerate(self.agreement_by_action)
        ]
        return "\n".join(said)


def in_words(continuous: bool) -> tuple[str, str]:
    """What agreement means, of all steps and of those with one action, or of one of its numbers."""
    if continuous:
        return "how near the policy comes to what they did, 1 being the same", "as near, in"
    return "the policy does what they did", "where they took"


def unknown(least: float, most: float) -> Answer:
    """The answer that rules nothing out."""
    return Answer(None, least, most, (least, most), tells=False)


def verdicts(sums: Floats, plan: JudgingPlan) -> tuple[Verdict, ...]:
    """The judges' answers on each policy, from their noisy sums. Shapes: (plan.size,)."""
    return tuple(_verdict(sums, plan, policy) for policy in range(plan.policies))


def best_of(said: Sequence[Verdict]) -> int:
    """The number of the policy that earns most as far as is known: the interval of its value begins
    highest. The first of those where nothing is known of any.

    The interval of whichever it is holds as often as it says, for those of values hold all at once.
    """
    lowest = [-math.inf if one.value is None else one.value.low for one in said]
    return lowest.index(max(lowest))


def _verdict(sums: Floats, plan: JudgingPlan, policy: int) -> Verdict:
    def of(name: str) -> Sum:
        block = plan.blocks[name]
        place = block.first + (policy if block.copies > 1 else 0)
        return Sum(float(sums[place]), plan.deviation(name))

    judges, bounds = of("judges"), plan.judges.return_bounds
    continuous = bool(plan.action_bounds)
    mean_return = value = gain = None
    level = 1 - (1 - COVERAGE) / plan.policies  # of what is said of a policy
    agreement = mean_answer(of("agreement"), of("spread_of_agreement"), judges, level)
    agreement = agreement.scaled(0, 1)
    if bounds is not None:
        low, high = bounds
        earned = of("mean_return")
        mean_return = mean_answer(earned, of("spread_of_returns"), judges).scaled(low, high)
        if plan.values is not None:
            worth = of("value")
            more = Sum((worth.value - earned.value) / 2, math.hypot(worth.noise, earned.noise) / 2)
            below, above = doubt_of(agreement, continuous=continuous)
            twice = 2 * below, 2 * above
            value = mean_answer(worth, of("spread_of_value"), judges, level, twice)
            value = value.scaled(low, high)
            gain = mean_answer(more, of("spread_of_gain"), judges, level, (below, above))
            gain = gain.scaled(low - high, high - low)
    both = sums[plan.blocks["actions"].place].reshape(plan.policies, 2, plan.action_count)
    same, other = both[policy]
    noise = plan.deviation("actions")
    each = tuple(
        share_answer(Sum(float(own), noise), Sum(float(rest), noise), level)
        for own, rest in zip(same, other, strict=True)
    )
    return Verdict(mean_return, agreement, each, value, gain, continuous)


def doubt_of(agreement: Answer, *, continuous: bool = False) -> Doubt:
    """How far below and above fitted values what is true may lie, as a part of the bounds of
    returns; infinite if nobody knows."""
    if continuous:
        return math.inf, math.inf if agreement.low < SURE_NEARNESS else DOUBT_OF_CONTINUOUS
    if agreement.estimate is None or agreement.low < LEAST_AGREEMENT:
        return math.inf, math.inf
    doubt = DOUBT * (1 - agreement.estimate)
    return doubt, doubt


def mean_answer(
    total: Sum, spread: Sum, judges: Sum, level: float = COVERAGE, doubt: Doubt = NO_DOUBT
) -> Answer:
    """The mean of numbers between −1 and 1, from the sums of x, of 2x² − 1 and of 1.

    `level` is how often the interval holds; with a `doubt` it is wider by that, below and above.
    """
    factor = float(stdtrit(max(judges.value - 1, 1.0), (1 + level) / 2))
    if judges.value <= max(factor * judges.noise, 1.0) or min(doubt) == math.inf:  # might be none
        return unknown(-1.0, 1.0)
    # No sum is larger than its judges are many: what noise puts beyond that is no knowledge.
    mean = min(max(total.value / judges.value, -1.0), 1.0)
    within = mean * judges.value
    squares = (spread.value / judges.value + 1) / 2
    squares_noise = math.hypot(spread.noise, (2 * squares - 1) * judges.noise) / judges.value / 2
    variance, most = max(squares - mean**2, 0.0) + MARGIN * squares_noise, 1 - mean**2
    sampled = judges.value * (variance / most if variance < most else 1.0)
    return _within(
        mean,
        # (S − μN)² ≤ factor²·(noise of S² + μ²·noise of N² + sampled·(1 − μ²))
        judges.value**2 - factor**2 * (judges.noise**2 - sampled),
        -2 * within * judges.value,
        within**2 - factor**2 * (total.noise**2 + sampled),
        (-1.0, 1.0),
        doubt,
    )


def share_answer(same: Sum, other: Sum, level: float = COVERAGE) -> Answer:
    """The share U/(U + V), from the sums of u and v that are 0 or more and add up to 1 at most.

    A judge's u(1 − R) − vR has a variance of at most (u + v)·R(1 − R) in the mean, whatever the
    judges are: nothing else needs to be asked for it.
    """
    factor = float(ndtri((1 + level) / 2))
    if same.value + other.value <= factor * math.hypot(same.noise, other.noise):
        return unknown(0.0, 1.0)
    agreeing = max(same.value, 0.0)  # neither is negative but for noise
    whole = agreeing + max(other.value, 0.0)
    square = factor**2
    # (U − RF)² ≤ square·(noise²·((1 − R)² + R²) + F·R(1 − R))
    return _within(
        agreeing / whole,
        whole**2 - square * (same.noise**2 + other.noise**2 - whole),
        -2 * agreeing * whole + square * (2 * same.noise**2 - whole),
        agreeing**2 - square * same.noise**2,
        (0.0, 1.0),
    )


def _within(
    estimate: float,
    a: float,
    b: float,
    c: float,
    bounds: tuple[float, float],
    doubt: Doubt = NO_DOUBT,
) -> Answer:
    """The interval where a μ² + b μ + c ≤ 0, wider by a doubt, as far as the bounds allow."""
    least, most = bounds
    root = math.sqrt(max(b**2 - 4 * a * c, 0.0))
    low, high = ((-b + sign * root) / (2 * a) for sign in (-1, 1))
    low, high = low - doubt[0], high + doubt[1]
    tells = high - low <= (TELLS_OF_VALUES if any(doubt) else TELLS) * (most - least)
    low, high = min(max(low, least), estimate), max(min(high, most), estimate)
    return Answer(estimate, low, high, bounds, tells)
