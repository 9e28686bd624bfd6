"""What a user may choose about a fit; the defaults are meant to be left alone."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from quorum_rl.errors import POSITIVE, SHARE, QuorumError, Rule, at_least, require, unknown_name
from quorum_rl.own_code import code_digest
from quorum_rl.privacy import LEAST_NOISE, MOST_NOISE, Mode

if TYPE_CHECKING:  # they bring JAX, and the command line needs the names of settings only
    from quorum_rl.training import Contribution, Optimiser

MethodName = Literal["local", "solve", "dp-sgd", "selective", "non-private"]
UnitsName = Literal["auto", "private", "public"]

# The defaults of each method. DP-SGD and selective training are as measured in
# docs/reproduction.md, local updates and solving as in docs/few-experts.md.
_STEPS: Final[dict[str, Any]] = {
    "private_steps": 8000,
    "transitions_per_expert": 64,
    "sampling_rate": 0.05,
    "clip_norm": 0.1,
    "optimiser": "adam",
    "averaging": 0.995,
    "normalised": False,
}
# What a contribution of one's own says itself.
OF_CONTRIBUTIONS: Final = ("local_steps", "local_rate", "transitions_per_expert")
USUAL: Final[dict[str, dict[str, Any]]] = {
    "local": {
        "private_steps": 60,
        "local_steps": 60,
        "local_rate": 0.5,
        "private_learning_rate": 1.5,
        "transitions_per_expert": 64,
        "sampling_rate": 1.0,
        "clip_norm": 0.3,
        "optimiser": "sgd",
        "averaging": 1.0,
        "normalised": False,
    },
    "solve": {
        "private_steps": 1,
        "transitions_per_expert": 1024,
        "sampling_rate": 1.0,
        "clip_norm": 1.0,
        "private_learning_rate": 100.0,
        "falling_rates": False,
        "optimiser": "sgd",
        "averaging": 0.0,
        "normalised": True,
    },
    "dp-sgd": _STEPS,
    "selective": _STEPS,
    "non-private": _STEPS,
}
RULES: Final[dict[str, Rule]] = {
    "release_share private_share sampling_rate": SHARE,
    "learning_rate private_learning_rate local_rate clip_norm": POSITIVE,
    "private_steps local_steps transitions_per_expert release_only_steps": at_least(1),
    "noise_multiplier": Rule(
        f"a number from {LEAST_NOISE:g} to {MOST_NOISE:g}",
        lambda noise: LEAST_NOISE <= noise <= MOST_NOISE,
    ),
}


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How to fit. What is None is chosen by the method, from declared numbers (`plan_fit`).

    With a `noise_multiplier` and no `private_steps`, steps are taken until the budget is spent;
    with a `release_share` of 1 there are none. Experts draw with replacement: who has fewer than
    `transitions_per_expert` counts some twice. Mode `paper` has one learning rate, which stays as
    it is. A small release is left out (`least_released`, `least_reached`): steps without noise
    would learn it by heart, and how an episode begins says little of how it goes on. In Python
    `optimiser` may be any `Optimiser`. `privacy.plan_release` says more of what a release takes.

    Raises:
        QuorumError: for a share outside (0, 1], a learning rate that is not positive, no steps, or
            a contribution that is none or stands beside what it says itself.
    """

    method: MethodName = "local"
    """How to train: local adds up, with noise, what experts learn by themselves, solve their last
    layers, dp-sgd their gradients; selective, the paper's, releases prefixes first; non-private has
    no noise, and needs --diagnostics-not-private."""
    mode: Mode = "tight"
    """Our analysis, or the published one, which is for reproduction only."""
    release_share: float = 0.5
    """The release's part of epsilon."""
    private_share: float = 0.95
    """The private steps' part of all steps."""
    private_steps: int | None = None
    """How many steps have noise."""
    noise_multiplier: float | None = None
    """The noise of a private step; calibrated unless given."""
    local_steps: int | None = None
    """Steps that an expert takes by itself in a private step."""
    local_rate: float | None = None
    """The learning rate of an expert by itself."""
    transitions_per_expert: int | None = None
    """Transitions of an expert in a gradient or a step of its own."""
    sampling_rate: float | None = None
    """How likely an expert takes part in a private step."""
    clip_norm: float | None = None
    """What an expert's contribution is clipped to."""
    normalised: bool | None = None
    """Scale every expert's contribution to the clip norm, small ones too."""
    learning_rate: float = 1e-3
    """The learning rate of steps without noise."""
    private_learning_rate: float | None = None
    """That of private steps; chosen for their noise unless given."""
    falling_rates: bool = True
    """Both learning rates fall to zero over the training, or else stay as they are."""
    batch_size: int = 256
    """Released transitions in a step without noise."""
    optimiser: "str | Optimiser | None" = None
    """How sums become steps."""
    averaging: float | None = None
    """Decay of the average over the parameters, which is the policy; 0 for the last, 1 for the mean
    of the last half."""
    release_only_steps: int = 4000
    """Steps without noise, where no step is private."""
    least_released: int = 50
    """Where fewer released transitions are expected, every step is private."""
    least_reached: float = 0.008
    """Where prefixes reach less of the horizon than this, every step is private."""
    stop_probability: float | None = None
    """For experts without a floor: how often a release stops before a query."""
    iterations: int | None = None
    """How many trajectories the release tries; chosen unless given."""
    prefix_cap: int | None = None
    """The most steps of a trajectory that may come out; the horizon unless given."""
    agreement: float = 0.9
    """Of the experts who agree up to a step, the share expected to agree at the next."""
    pool_limit: int = 8
    """The most trajectories per expert that the release may reserve."""
    allow_noise: bool = False
    """Train although the plan says that it would be on noise."""
    contribution: "Contribution | None" = None
    """In Python: what an expert contributes to a private step, in the place of what the method has,
    any `training.Contribution`. The other numbers stay the method's."""

    def __post_init__(self) -> None:
        if self.method not in get_args(MethodName):
            raise unknown_name("method", self.method, get_args(MethodName))
        if self.mode == "paper" and (self.is_local or self.method == "solve"):
            raise QuorumError(
                "mode paper is the published method, which has neither local steps nor solve: give "
                "method selective, dp-sgd or non-private, without local_steps."
            )
        if self.method == "solve" and (self.local_steps or self.local_rate):
            raise QuorumError(
                "method solve takes no local steps: leave local_steps and local_rate out."
            )
        self._check_contribution()
        for names, rule in RULES.items():
            for name in names.split():
                value = getattr(self, name)
                # The paper's p = 0 is allowed in its mode, whatever the release's share.
                is_papers = name == "private_share" and value == 0 and self.mode == "paper"
                if value is not None and not is_papers:
                    require(name, value, rule)

    def _check_contribution(self) -> None:
        if self.contribution is None:
            return
        if self.mode == "paper" or self.method == "non-private":
            raise QuorumError(
                "a contribution of your own goes with neither mode paper nor the method "
                "non-private: leave it out."
            )
        kind: Any = type(self.contribution)
        if not is_dataclass(kind) or kind.__hash__ is None:
            raise QuorumError(
                f"the contribution is {self.contribution!r}: give an instance of a frozen "
                "dataclass, as quorum_rl.training.Gradient is one."
            )
        beside = [name for name in OF_CONTRIBUTIONS if getattr(self, name) is not None]
        if beside:
            raise QuorumError(
                f"{' and '.join(beside)} would change nothing, for the contribution is your own: "
                "leave them out."
            )

    def filled(self) -> "FitSettings":
        """The same with what is None as the method usually has it."""
        usual = dict(USUAL["local" if self.is_local else self.method])
        if self.noise_multiplier is not None:
            usual["private_steps"] = None  # as many as the budget allows
        if self.contribution is not None:
            usual |= dict.fromkeys(OF_CONTRIBUTIONS)
        chosen = {
            name: value
            for name, value in usual.items()
            if getattr(self, name) is None or name == "falling_rates"
        }
        return replace(self, **chosen)

    @property
    def is_local(self) -> bool:
        """Whether experts take steps by themselves: also beside a release, if told how many."""
        return self.method == "local" or (
            self.local_steps is not None and self.method in ("selective", "dp-sgd")
        )

    @property
    def code(self) -> dict[str, str]:
        """Of a contribution or an optimiser of one's own, which code that is."""
        own: dict[str, Any] = {"contribution": self.contribution}
        if not isinstance(self.optimiser, str | None):
            own["optimiser"] = self.optimiser.transformation
        return {f"{name}_code": code_digest(it) for name, it in own.items() if it is not None}

    def to_json(self) -> dict[str, Any]:
        """The settings as plain facts; a contribution only where it is one's own."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        if facts.pop("contribution") is not None:
            facts["contribution"] = {"name": type(self.contribution).__name__} | {
                field.name: getattr(self.contribution, field.name)
                for field in fields(self.contribution)  # type: ignore[arg-type]
            }
        if self.optimiser is not None:
            from quorum_rl.training import optimiser_of

            facts["optimiser"] = optimiser_of(self.optimiser).name
        return facts
