"""What a report shows: public facts of one run, and nothing that was measured on private data.

A part that a run does not have is `Missing`, with the sentence that the report shows in its place.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

from quorum_rl.budget import Certificate
from quorum_rl.dictionary import Dictionary

SHOWN: Final = 5e-5  # of ε: less does not show
LARGEST_EPSILON: Final = 700.0  # e^ε is a double up to here

KnownT = TypeVar("KnownT")


def epsilon_text(epsilon: float) -> str:
    """An ε as people read it; certificates have rounded it up already."""
    return f"{epsilon:.4f}".rstrip("0").rstrip(".") if math.isfinite(epsilon) else "∞"


@dataclass(frozen=True)
class Missing:
    """Why a part is not there, and what would make it.

    A part that was never `meant` to be there has no section of its own.
    """

    why: str
    command: str | None = None
    meant: bool = True


Maybe: TypeAlias = KnownT | Missing


@dataclass(frozen=True)
class Notice:
    """Something that a reader must not overlook; `grave` if the guarantee itself is in doubt."""

    title: str
    text: str
    grave: bool = False


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What was learned and from whom, as declared: none of these numbers was counted."""

    method: str
    mode: str
    learner: str
    world: str | None
    minimum_experts: int | None
    action_count: int
    observation_size: int
    horizon: int
    p_min: float | None
    smoothing: str | None
    dictionary: Dictionary | None


@dataclass(frozen=True)
class Guarantee:
    """A certificate and the second opinion on it: in words, and whether it speaks against it.

    `outdated` if the ledger was charged again since.
    """

    certificate: Certificate
    check: str
    contradicted: bool = False
    outdated: bool = False

    @property
    def claims(self) -> bool:
        """Whether there is a finite ε, and nothing speaks against it."""
        return math.isfinite(self.certificate.epsilon) and not self.contradicted

    @property
    def answered_by(self) -> tuple[str, ...]:
        """Everybody who answers for an assumption, and since when."""
        everyone = (who for held in self.certificate.assumptions for who in held.accepted_by)
        return tuple(dict.fromkeys(f"{who.name} ({who.at})" for who in everyone))

    @property
    def unanswered(self) -> int:
        """How many assumptions were not accepted."""
        return sum(not held.accepted for held in self.certificate.assumptions)

    @property
    def best_accuracy(self) -> float:
        """How often the best guess at all is right, for an expert who takes part at even odds.

        (ε, δ)-indistinguishable outputs have a total variation of at most
        (e^ε − 1 + 2δ)/(e^ε + 1), and the best guess is right with (1 + that)/2.
        """
        return 1 - (1 - self.certificate.delta) / (1 + self._factor)

    def recognised_at(self, false_alarms: float) -> float:
        """The largest share of present experts that a test with so many false alarms finds.

        Both directions of the definition bound it: P ≤ e^ε·f + δ and 1 − f ≤ e^ε·(1 − P) + δ.
        """
        delta = self.certificate.delta
        grown = self._factor * false_alarms + delta
        return min(grown, 1 - (1 - delta - false_alarms) / self._factor, 1.0)

    @property
    def factor_text(self) -> str:
        """e^ε, rounded up to three digits."""
        digits = max(2 - math.floor(math.log10(self._factor)), -300)
        shown = math.ceil(self._factor * 10.0**digits) / 10.0**digits
        return f"{shown:,.{max(digits, 0)}f}" if shown < 1e7 else f"{shown:.3g}"

    @property
    def _factor(self) -> float:
        return math.exp(min(self.certificate.epsilon, LARGEST_EPSILON))


StageName = Literal["release", "private steps"]


@dataclass(frozen=True)
class ListedCharge:
    """One event that was paid for: its constants in words, and what it costs alone."""

    stage: StageName
    run: str
    at: str
    words: str
    epsilon: float


@dataclass(frozen=True)
class Stage:
    """All charges of one kind, and what they cost without the other kind."""

    name: StageName
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What was spent: every ε is at `delta`. `allowed` is None where a ledger has no budget."""

    delta: float
    stages: tuple[Stage, ...]
    together: float
    allowed: float | None
    charges: tuple[ListedCharge, ...]

    @property
    def added_up(self) -> float:
        return math.fsum(stage.epsilon for stage in self.stages)

    @property
    def unspent(self) -> float | None:
        if self.allowed is None:
            return None
        left = self.allowed - self.together
        return left if left > SHOWN else 0.0

    @property
    def runs(self) -> int:
        return len({charge.run for charge in self.charges})


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """How one way of learning did over several seeds; `epsilon` is None if it was not private."""

    name: str
    epsilon: float | None
    delta: float | None
    scores: tuple[float, ...]
    score: float
    interval: tuple[float, float] | None
    mean_return: float | None
    note: str | None
    private_steps: int | None
    plain_steps: int | None

    @property
    def steps(self) -> int:
        """How many it took, with noise and without."""
        return (self.private_steps or 0) + (self.plain_steps or 0)


@dataclass(frozen=True, kw_only=True)
class ComparedMethods:
    """Methods side by side. Scores: 0 is a random policy, 1 the world's reference policy."""

    world: str
    experts: int
    seeds: int
    methods: tuple[MethodResult, ...]

    @property
    def steps(self) -> dict[str, int]:
        """How many steps the methods took, by their names, where that was written down."""
        return {method.name: method.steps for method in self.methods if method.steps}

    @property
    def has_non_private(self) -> bool:
        return any(method.epsilon is None for method in self.methods)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What the policy earned in its world, which costs no privacy."""

    world: str
    episodes: int
    mean: float
    interval: tuple[float, float] | None
    score: float | None
    score_interval: tuple[float, float] | None
    protocol: str


@dataclass(frozen=True, kw_only=True)
class JudgedAnswer:
    """One thing that the judges were asked, and their answer with its 95% interval, within the
    bounds of what is possible; no estimate where the interval is too wide."""

    what: str
    estimate: float | None
    interval: tuple[float, float]
    bounds: tuple[float, float]


@dataclass(frozen=True)
class Judged:
    """What a part of the experts says of the policy, which the certificate covers; `better` says
    whether it is better than what is done today, if they were asked what it earns. They chose it
    from the `candidates`, the one of the number `chosen`, where there are some: what each earns."""

    share: float
    answers: tuple[JudgedAnswer, ...]
    by_action: tuple[JudgedAnswer, ...]
    better: str | None
    candidates: tuple[JudgedAnswer, ...] = ()
    chosen: int = 0

    @property
    def earned(self) -> tuple[JudgedAnswer, ...]:
        """The answers that are returns."""
        of_policy = -2 if self.candidates else -1  # one of the candidates is the policy
        return (*self.answers[:of_policy], *self.candidates)

    @property
    def shares(self) -> tuple[JudgedAnswer, ...]:
        """The answers that are shares of steps."""
        return (self.answers[-1], *self.by_action)


@dataclass(frozen=True)
class Prefixes:
    """How long the released prefixes are: `(length, how many)`, shortest first."""

    counts: tuple[tuple[int, int], ...]
    iterations: int | None

    @property
    def prefixes(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def transitions(self) -> int:
        return sum(length * count for length, count in self.counts)

    @property
    def longest(self) -> int:
        return max((length for length, _ in self.counts), default=0)


@dataclass(frozen=True)
class LearningCurve:
    """`(step, loss on released data)`; each is the mean of `averaged` lines of the metrics."""

    points: tuple[tuple[float, float], ...]
    averaged: int


@dataclass(frozen=True, kw_only=True)
class EpisodePicture:
    """One greedy episode, drawn: `svg` follows the colour of the text around it."""

    world: str
    steps: int
    total_reward: float
    svg: str


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything on the page."""

    name: str
    made_at: str
    learned: Learned
    notices: tuple[Notice, ...]
    guarantee: Maybe[Guarantee]
    spending: Maybe[Spending]
    evaluation: Maybe[Evaluation]
    judged: Maybe[Judged]
    comparison: Maybe[ComparedMethods]
    prefixes: Maybe[Prefixes]
    learning: Maybe[LearningCurve]
    episode: Maybe[EpisodePicture]
    repeat: str
    settings: tuple[tuple[str, str], ...]
    versions: tuple[tuple[str, str], ...]

    @property
    def covered(self) -> bool:
        """Whether the certificate covers all that the page shows, so that it may be published."""
        claims = isinstance(self.guarantee, Guarantee) and self.guarantee.claims
        return claims and isinstance(self.comparison, Missing)
