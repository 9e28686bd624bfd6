"""What an audit found: a lower bound beside the claim, and what each of them is about."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from quorum_rl.audit.bounds import Floats, LowerBound

RELEASED: Final = "released: the prefixes that come out"
ACTIONS: Final = "black box: the final policy's actions on chosen states"
ITERATES: Final = "white box: all iterates"
ALL: Final = "white box: released prefixes, all iterates"
GAUSSIAN: Final = "if the trade-off is Gaussian, which it is where everybody is drawn"

CERTAIN: Final = 0.999
"""With which confidence a claim must be exceeded before it is called refuted. Each finding of a
sound mechanism is so with probability 0.1% at most."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One audited mechanism. `runs` are those of each kind, with the canary and without.

    `bound` is what is reported, with 95% confidence; `certain` the same with 99.9%.
    """

    what: str
    threat: str
    canary: str
    claimed: float
    bound: LowerBound
    certain: float
    runs: int
    note: str = ""

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted, with 99.9% confidence."""
        return self.certain > self.claimed

    def to_json(self) -> dict[str, Any]:
        """Plain facts."""
        return {**asdict(self), "refuted": self.refuted}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Finding":
        """The finding with these facts, as `to_json` has them."""
        own = {name: value for name, value in facts.items() if name != "refuted"}
        return cls(**own | {"bound": LowerBound(**facts["bound"])})


def found(
    bounding: Callable[..., LowerBound], here: Floats, away: Floats, delta: float, **facts: Any
) -> Finding:
    """A finding from scores with and without the canary, by one of the ways of `bounds`."""
    return Finding(
        bound=bounding(here, away, delta),
        certain=bounding(here, away, delta, CERTAIN).epsilon,
        **facts,
    )
