"""The settings that every method is offered before it is compared, and which of them it takes.

As many for each method and learner: optimiser, reward scale (imitation has no rewards, and is
offered networks instead), averaging, rate, and whether rates fall. What earns most on the experts
that are for tuning is taken, at every ε and number of experts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product
from typing import Any, Final, NamedTuple

import numpy as np

from quorum_rl.learners.defaults import HIDDEN_SIZES
from quorum_rl.pipeline import FitSettings
from reproduction.studies.few_ways import Way

LEARNERS: Final = ("bc", "cql", "bcq")
FREE, THEIRS, PAPERS = "non-private", "DP-SGD", "the paper's step"
METHODS: Final[Mapping[str, FitSettings]] = {
    FREE: FitSettings(method="non-private"),
    THEIRS: FitSettings(method="dp-sgd"),
    PAPERS: FitSettings(method="dp-sgd", transitions_per_expert=1, clip_norm=1.0),
}
SCALES: Final = (None, 0.3, 1.0)  # of rewards; None is that of the world's units
NETWORKS: Final = ((32,), (64,), HIDDEN_SIZES)
# Adam's private rate may follow from the noise. A plain step is at most its rate times the clip
# norm long, so those rates are given for a clip norm of one.
RATES: Final[Mapping[tuple[str, bool], tuple[float | None, float | None]]] = {
    ("adam", False): (1e-3, 3e-3),
    ("adam", True): (None, 1e-3),
    ("sgd", False): (0.1, 1.0),
    ("sgd", True): (0.1, 1.0),
}
TUNED_AT: Final = 1.0  # ε


class Offer(NamedTuple):
    """One setting, and its number among those of its method and learner."""

    number: int
    way: Way

    @property
    def program(self) -> str:
        """Equal for settings that are trained together."""
        chosen = self.way.settings
        return repr((self.way.options, chosen.optimiser, chosen.averaging))


def offered(
    method: str, learner: str, steps: int | None = None, few: int | None = None
) -> list[Offer]:
    """All of them, those of one program together.

    For trials: with another number of `steps` than usual, and of so `few` programs alone.
    """
    usual = METHODS[method].filled()
    private = method != FREE
    taken = steps or usual.private_steps or 0
    usual = replace(usual, private_steps=taken, release_only_steps=taken)
    shapes: Sequence[Any] = NETWORKS if learner == "bc" else SCALES
    made: list[Offer] = []
    for optimiser, shape, averaging in product(("adam", "sgd"), shapes, (0.995, 0.0)):
        for rate, falling in product(RATES[optimiser, private], (True, False)):
            settings = replace(
                usual, optimiser=optimiser, averaging=averaging, falling_rates=falling
            )
            if private and rate is not None and optimiser == "sgd":
                rate /= usual.clip_norm or 1.0
            if private:
                settings = replace(settings, private_learning_rate=rate)
            elif rate is not None:
                settings = replace(settings, learning_rate=rate)
            name = "hidden_sizes" if learner == "bc" else "reward_scale"
            options = () if shape is None else ((name, shape),)
            epsilons = (TUNED_AT if private else None,)
            made.append(Offer(len(made), Way(method, settings, learner, options, epsilons)))
    return [offer for some in programs(made)[:few] for offer in some]


def programs(offers: Sequence[Offer]) -> list[list[Offer]]:
    """Those that are trained together."""
    return [list(some) for _, some in groupby(offers, lambda offer: offer.program)]


def best(rows: Sequence[Mapping[str, Any]], offers: Sequence[Offer]) -> Way:
    """Of these offers what earned most in the tuning.

    Raises:
        LookupError: if not all were tried there.
    """
    first = offers[0].way
    earned = {
        row["number"]: float(np.mean(row["returns"]))
        for row in rows
        if (row["method"], row["learns"]) == (first.name, first.learner)
    }
    tried = [offer for offer in offers if offer.number in earned]
    if len(tried) < len(offers):
        what = f"{len(offers) - len(tried)} of {len(offers)} settings"
        raise LookupError(f"{what} of {first.name}, {first.learner}")
    return max(tried, key=lambda offer: earned[offer.number]).way
