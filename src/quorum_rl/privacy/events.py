"""What was done to private data: small frozen facts that the accounting interprets.

An event says what a mechanism *is*, constant by constant, never what somebody hoped it costs. Its
cost follows from these numbers alone; all of them are declared, none is measured from data.
"""

from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from quorum_rl.errors import QuorumError

Mode = Literal["tight", "paper"]
Part = Literal["everybody", "training", "judging"]

EVERYBODY: Final = "everybody"
LATTICE_BITS: Final = 32  # counts are whole multiples of 2**-LATTICE_BITS
# Beyond these an account would take hours or all memory, also that of a ledger from somebody else.
MOST_STEPS: Final = 10_000_000
MOST_DRAWS: Final = 1_000_000
MOST_TRIALS: Final = 10_000
MOST_COUNT: Final = 2**53  # floats tell whole numbers apart up to it
LEAST_RATE: Final = 1e-12
LARGEST: Final = 1e300
LEAST_NOISE, MOST_NOISE = 0.02, 1e6
_NOISE_RANGE: Final = f"a number from {LEAST_NOISE:g} to {MOST_NOISE:g}"


def largest_probability(actions: int, p_min: float) -> float:
    """p_max = 1 − (|A| − 1)·p_min: the most that an action can have above that floor."""
    return 1 - (actions - 1) * p_min


@dataclass(frozen=True, kw_only=True)
class ReleaseEvent:
    """`iterations` runs of the prefix query, as `docs/theory.md` defines them.

    Each draws one of at least `experts` experts uniformly and takes its next fresh trajectory. A
    prefix of k steps passes while its count plus query noise exceeds `threshold` plus threshold
    noise; both are discrete Laplace on the lattice of 2**-lattice_bits, with densities
    proportional to exp(−epsilon·|x|). In mode `tight` the count is normalised: an expert adds
    Π_j min(π(a_j|s_j)/p_max, 1), rounded down; in mode `paper` it adds Π_j π(a_j|s_j). Before
    every query the run ends with probability `stop_probability`, whatever the data. Trajectories
    end at `horizon` at the latest, prefixes at `prefix_cap`. An expert drawn more than `pool_size`
    times yields nothing.

    `theta` is the part of the threshold above which a prefix is safe to release; the rest of it
    makes a prefix below `theta` pass with small probability only.
    """

    mode: Mode
    experts: int
    actions: int
    p_min: float
    stop_probability: float
    horizon: int
    prefix_cap: int
    iterations: int
    theta: float
    threshold: float
    threshold_epsilon: float
    query_epsilon: float
    pool_size: int
    lattice_bits: int = LATTICE_BITS

    part: ClassVar[Part] = EVERYBODY  # it counts on the declared number of experts

    def __post_init__(self) -> None:
        _check(self, "mode", self.mode in get_args(Mode), "tight or paper")
        _check_numbers(self)
        for name in ("experts", "actions"):
            _check(self, name, getattr(self, name) >= 2, "at least 2")
        for name in ("horizon", "prefix_cap", "iterations", "lattice_bits"):
            _check(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("iterations", "pool_size"):
            _check(self, name, getattr(self, name) <= MOST_DRAWS, f"at most {MOST_DRAWS:,}")
        _check(self, "lattice_bits", self.lattice_bits <= 32, "at most 32: products have 64 bits")
        _check(self, "pool_size", self.pool_size >= 0, "0 or more")
        _check(self, "p_min", 0 <= self.p_min * self.actions <= 1, "between 0 and 1/actions")
        _check(self, "stop_probability", 0 <= self.stop_probability < 1, "from 0 to below 1")
        for name in ("threshold_epsilon", "query_epsilon"):
            _check(self, name, getattr(self, name) > 0, "a positive number")
        _check(self, "theta", self.theta > 1, "above 1")
        _check(self, "threshold", self.theta < self.threshold < float("inf"), "above theta")
        if self.p_min == 0 and (self.stop_probability == 0 or self.mode == "paper"):
            raise QuorumError(
                "a release needs a floor under the experts' probabilities or random stopping: give "
                "p_min above 0, or in mode tight a stop_probability above 0."
            )
        if self.p_min > 0 and self.stop_probability > 0:
            raise QuorumError(
                f"p_min is {self.p_min} and stop_probability {self.stop_probability}: the release "
                "rests on one of them, so give the other as 0."
            )

    @property
    def p_max(self) -> float:
        """The most probability that an action can have."""
        return largest_probability(self.actions, self.p_min)

    @property
    def threshold_noise_scale(self) -> float:
        return 1 / self.threshold_epsilon

    @property
    def query_noise_scale(self) -> float:
        return 1 / self.query_epsilon


@dataclass(frozen=True, kw_only=True)
class TrainingEvent:
    """`steps` sums of clipped contributions, each over a Poisson sample of experts.

    Every expert's contribution has norm at most C, and each sum gets Gaussian noise of standard
    deviation `noise_multiplier`·C. Which steps are private was drawn before, without the data.

    The sums are over the experts of `part` alone, where that is not everybody. Which part an expert
    is in follows from its name and a key that was drawn without the data, once for all events.
    """

    sampling_rate: float
    noise_multiplier: float
    steps: int
    part: Part = EVERYBODY

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check(self, "sampling_rate", 0 < self.sampling_rate <= 1, "above 0 and at most 1")
        _check(self, "sampling_rate", self.sampling_rate >= LEAST_RATE, f"at least {LEAST_RATE:g}")
        multiplier = self.noise_multiplier
        _check(self, "noise_multiplier", LEAST_NOISE <= multiplier <= MOST_NOISE, _NOISE_RANGE)
        _check(self, "steps", 1 <= self.steps <= MOST_STEPS, f"from 1 to {MOST_STEPS:,}")
        _check(self, "part", self.part in get_args(Part), f"one of {', '.join(get_args(Part))}")


@dataclass(frozen=True, kw_only=True)
class SelectionEvent:
    """The best of K such trainings, each with fresh noise, and nothing else of any of them.

    K is geometric, Pr[K = k] = (1 − 1/m)^(k−1)/m with m = `mean_trials`, and independent of the
    data. What sets the trainings apart was drawn for each by itself from one fixed distribution.
    The best is that of the highest score, which is a function of what a training returns and of
    public data.
    """

    sampling_rate: float
    noise_multiplier: float
    steps: int
    mean_trials: int

    part: ClassVar[Part] = EVERYBODY

    def __post_init__(self) -> None:
        _check_numbers(self)
        _ = self.training  # whose bounds are these
        most = f"from 1 to {MOST_TRIALS:,}"
        _check(self, "mean_trials", 1 <= self.mean_trials <= MOST_TRIALS, most)

    @classmethod
    def of(cls, training: TrainingEvent, mean_trials: int) -> "SelectionEvent":
        """The selection from trainings of which each is this event."""
        whole = training.part == EVERYBODY
        _check(training, "part", whole, f"{EVERYBODY}: a selection has no part")
        return cls(
            sampling_rate=training.sampling_rate,
            noise_multiplier=training.noise_multiplier,
            steps=training.steps,
            mean_trials=mean_trials,
        )

    @property
    def training(self) -> TrainingEvent:
        """One of the trainings."""
        return TrainingEvent(
            sampling_rate=self.sampling_rate,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
        )


Event: TypeAlias = ReleaseEvent | TrainingEvent | SelectionEvent

_KINDS: Final[dict[str, type[Event]]] = {
    "release": ReleaseEvent,
    "training": TrainingEvent,
    "selection": SelectionEvent,
}


def kind_of(event: Event) -> str:
    """What an event is called: release, training or selection."""
    return next(name for name, kind in _KINDS.items() if isinstance(event, kind))


_OF_PART: Final[dict[Part, str]] = {
    "everybody": "",
    "training": ", of those who do not judge",
    "judging": ", of those who judge",
}


def in_words(event: Event) -> str:
    """What was done, for people."""
    if isinstance(event, ReleaseEvent):
        floor = f"floor {event.p_min:g}" if event.p_min else f"stop {event.stop_probability:g}"
        return (
            f"{event.iterations:,} trajectories of at least {event.experts:,} experts, threshold "
            f"{event.threshold:.1f}, noise scales {event.threshold_noise_scale:.3g} and "
            f"{event.query_noise_scale:.3g}, {floor}, mode {event.mode}"
        )
    steps = (
        f"{event.steps:,} steps, each expert drawn with probability {event.sampling_rate:.4g}, "
        f"noise multiplier {event.noise_multiplier:.4g}{_OF_PART[event.part]}"
    )
    if isinstance(event, SelectionEvent):
        return f"the best of {event.mean_trials:,} trainings in the mean, each of {steps}"
    return steps


def event_to_json(event: Event) -> dict[str, Any]:
    """The event as plain data, with its kind, and with its part where that is not everybody."""
    facts = {"event": kind_of(event), **asdict(event)}
    if event.part == EVERYBODY:
        facts.pop("part", None)
    return facts


def event_from_json(facts: dict[str, Any]) -> Event:
    """What `event_to_json` made.

    Raises:
        QuorumError: if it is not an event that this version knows.
    """
    made = dict(facts) if isinstance(facts, dict) else {}
    kind = _KINDS.get(str(made.pop("event", "")))
    names = set() if kind is None else {field.name for field in fields(kind)}
    if made.get("part") in (None, EVERYBODY):  # there is one way to write everybody
        names -= {"part"}
    if kind is None or set(made) != names:
        raise QuorumError("an event in this ledger is not one that this version knows: update it.")
    try:
        return kind(**made)
    except TypeError as error:
        raise QuorumError(f"an event in this ledger is damaged ({error}).") from error


def _check_numbers(event: Event) -> None:
    """Every constant must be a number of its kind, and none so large that no float holds it."""
    for field in fields(event):
        value = getattr(event, field.name)
        if field.type is int:
            _check(event, field.name, type(value) is int, "a whole number")
            _check(event, field.name, value <= MOST_COUNT, f"at most {MOST_COUNT:,}")
        elif field.type is float:
            real = isinstance(value, Real) and not isinstance(value, bool)
            _check(event, field.name, real and abs(value) <= LARGEST, "a number")


def _check(event: Event, name: str, holds: bool, fix: str) -> None:
    if not holds:
        shown = " ".join(str(getattr(event, name)).split())[:60]
        raise QuorumError(f"{name.replace('_', ' ')} is {shown}: give {fix}.")
