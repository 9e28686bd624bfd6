"""What a user may choose about a fit; the defaults are meant to be left alone."""

from dataclasses import dataclass
from typing import Literal

from quorum_rl.errors import QuorumError
from quorum_rl.privacy.events import Mode
from quorum_rl.training.recipe import Optimiser

Method = Literal["selective", "dp-sgd", "non-private"]


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How to fit.

    - `method`: `selective` releases what it can and trains on the rest with noise; `dp-sgd` does
      everything with noise; `non-private` is the upper bound, for synthetic experts.
    - `release_share`: the release's part of ε, and with 1 there is nothing else.
    - `private_share`: the private steps' part of all.
    - `private_steps` and `noise_multiplier`: with the first alone the noise is calibrated, with the
      second alone steps are taken until the budget is spent.
    - `sampling_rate`: how likely an expert takes part in a private step. With replacement, so an
      expert with fewer than `transitions_per_expert` transitions counts some of them twice.
    - `private_learning_rate`: None takes it from the noise, see `stages.rate_for`; mode `paper` has
      one rate for all steps.
    - `falling_rates`: both learning rates fall in a straight line to zero over the training, so
      that the last steps leave little noise behind; mode `paper` keeps them as they are.
    - `least_released`: where fewer transitions are expected of a release, there is none: on so few
      the steps without noise learn by heart what is not so. `least_reached`: nor where prefixes are
      expected to reach less than this share of the horizon, for how an episode begins says little
      of how it goes on.
    - `stop_probability`: for experts without a floor. `iterations`, `prefix_cap`, `agreement` and
      `pool_limit` are the planner's; see `privacy.plan_release`.

    Raises:
        QuorumError: for a share outside (0, 1], a learning rate that is not positive, or no steps.
    """

    method: Method = "selective"
    mode: Mode = "tight"
    release_share: float = 0.5
    private_share: float = 0.95
    private_steps: int | None = 8000
    noise_multiplier: float | None = None
    transitions_per_expert: int = 64
    sampling_rate: float = 0.05
    clip_norm: float = 0.1
    normalised: bool = False
    learning_rate: float = 1e-3
    private_learning_rate: float | None = None
    falling_rates: bool = True
    batch_size: int = 256
    optimiser: Optimiser = "adam"
    averaging: float = 0.995
    release_only_steps: int = 4000
    least_released: int = 50
    least_reached: float = 0.008
    stop_probability: float | None = None
    iterations: int | None = None
    prefix_cap: int | None = None
    agreement: float = 0.9
    pool_limit: int = 8

    def __post_init__(self) -> None:
        for name in ("release_share", "private_share", "sampling_rate"):
            value = getattr(self, name)
            if name == "private_share" and value == 0 and self.mode == "paper":
                continue  # the paper's p = 0, whatever the release's share
            if not 0 < value <= 1:
                raise QuorumError(f"{name} is {value}: give a number above 0 and at most 1.")
        if self.method not in ("selective", "dp-sgd", "non-private"):
            raise QuorumError(
                f"the method is {self.method!r}: choose selective, dp-sgd or non-private."
            )
        for name in ("learning_rate", "private_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise QuorumError(f"{name} is {value}: give a positive number.")
        for name in ("private_steps", "release_only_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise QuorumError(f"{name} is {value}: give at least 1.")
