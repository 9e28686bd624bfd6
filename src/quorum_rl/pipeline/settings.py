"""What a user may choose about a fit; the defaults are meant to be left alone."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from quorum_rl.errors import POSITIVE, SHARE, QuorumError, Rule, at_least, require, unknown_name
from quorum_rl.privacy import LEAST_NOISE, MOST_NOISE, Mode

if TYPE_CHECKING:  # they bring JAX, and the command line needs the names of settings only
    from quorum_rl.training import Contribution, Optimiser

MethodName = Literal["local", "solve", "dp-sgd", "selective", "non-private"]

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

    - `method`: `local` lets every expert learn from its own log and sums up, with noise, where each
      went; `solve` sums up last layers in closed form, once; `dp-sgd` sums up gradients;
      `selective`, the paper's, releases what it can and takes gradients of the rest; `non-private`
      is the upper bound, for synthetic experts.
    - `release_share`: the release's part of ε, and with 1 there is nothing else.
    - `private_share`: the private steps' part of all.
    - `private_steps` and `noise_multiplier`: the noise is calibrated to the steps; with a noise
      multiplier alone, steps are taken until the budget is spent.
    - `sampling_rate`: how likely an expert takes part in a private step. With replacement, so an
      expert with fewer than `transitions_per_expert` transitions counts some of them twice.
    - `local_steps` and `local_rate`: how many steps an expert takes by itself in a private step of
      the method local, each on `transitions_per_expert` transitions, and how large they are.
    - `private_learning_rate`: what the mean contribution is multiplied by. None takes it from the
      noise; mode `paper` has one rate for all steps.
    - `falling_rates`: both learning rates fall in a straight line to zero over the training, so
      that the last steps leave little noise behind; mode `paper` keeps them as they are.
    - `averaging`: the decay of the average over the parameters, which is the policy; 0 takes the
      last parameters, 1 the mean over the last half of the steps.
    - `optimiser`: adam, momentum, sgd, or in Python any `Optimiser`.
    - `contribution`: in Python, what an expert contributes to a private step, in the place of what
      the method has: any `training.Contribution`. The other numbers stay the method's.
    - `least_released`: where fewer transitions are expected of a release, there is none: on so few
      the steps without noise learn by heart what is not so. `least_reached`: nor where prefixes are
      expected to reach less than this share of the horizon, for how an episode begins says little
      of how it goes on.
    - `allow_noise`: train although the plan says that it would be on noise.
    - `stop_probability`: for experts without a floor. `iterations`, `prefix_cap`, `agreement` and
      `pool_limit` are the planner's; see `privacy.plan_release`.

    Raises:
        QuorumError: for a share outside (0, 1], a learning rate that is not positive, no steps, or
            a contribution that is none or stands beside what it says itself.
    """

    method: MethodName = "local"
    mode: Mode = "tight"
    release_share: float = 0.5
    private_share: float = 0.95
    private_steps: int | None = None
    noise_multiplier: float | None = None
    local_steps: int | None = None
    local_rate: float | None = None
    transitions_per_expert: int | None = None
    sampling_rate: float | None = None
    clip_norm: float | None = None
    normalised: bool | None = None
    learning_rate: float = 1e-3
    private_learning_rate: float | None = None
    falling_rates: bool = True
    batch_size: int = 256
    optimiser: "str | Optimiser | None" = None
    averaging: float | None = None
    release_only_steps: int = 4000
    least_released: int = 50
    least_reached: float = 0.008
    stop_probability: float | None = None
    iterations: int | None = None
    prefix_cap: int | None = None
    agreement: float = 0.9
    pool_limit: int = 8
    allow_noise: bool = False
    contribution: "Contribution | None" = None

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
