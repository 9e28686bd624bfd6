"""What an audit found: a lower bound beside the claim, and what each of them is about.

Every finding stands by itself. Whatever its statistic is, a sound mechanism is accused by it with
probability 0.1% at most; by one of n findings, with n times that at most, and no finding is left
out because of what it says.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from quorum_rl.audit.bounds import LowerBound, gaussian_lower_bound, lower_bound

RELEASED: Final = "released: the prefixes that come out"
ACTIONS: Final = "black box: the final policy's actions on chosen states"
ITERATES: Final = "white box: all iterates"
SPREAD: Final = "white box, spread: how much all steps differ along the canary's direction"
REST: Final = "white box, rest: how large all steps are where nobody's contribution reaches"
APART: Final = "white box, apart: all iterates, as if each network had been clipped by itself"
BITS: Final = "last bits: how round the smallest numbers of the published parameters are"
ALL: Final = "white box: released prefixes, all iterates"
GAUSSIAN: Final = "if the trade-off is Gaussian, which it is where everybody is drawn"

CERTAIN: Final = 0.999
"""With which confidence a claim must be exceeded before it is called refuted. Each finding of a
sound mechanism is so with probability 0.1% at most."""

Bounding = Callable[..., LowerBound]
"""One of the ways of `bounds`."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One audited mechanism. `runs` are those of each kind, with the canary and without.

    `bound` is what is reported, with 95% confidence; `certain` the same with 99.9%. `ceiling` is
    the most that `certain` could have been, if every run had been told apart.
    """

    what: str
    threat: str
    canary: str
    claimed: float
    bound: LowerBound
    certain: float
    ceiling: float
    runs: int
    note: str = ""

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted, with 99.9% confidence."""
        return self.certain > self.claimed

    @property
    def refutable(self) -> bool:
        """Whether anything that so many runs can show would refute the claim."""
        return self.ceiling > self.claimed

    def to_json(self) -> dict[str, Any]:
        """Plain facts."""
        return {**asdict(self), "refuted": self.refuted, "refutable": self.refutable}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Finding":
        """The finding with these facts, as `to_json` has them."""
        derived = ("refuted", "refutable")
        own = {name: value for name, value in facts.items() if name not in derived}
        bound = LowerBound(**facts["bound"])
        if "ceiling" not in own:  # as in files of before it was written down
            bounding = gaussian_lower_bound if own.get("note") == GAUSSIAN else lower_bound
            own["ceiling"] = ceiling(bounding, own["runs"], own["runs"], bound.delta)
        return cls(**own | {"bound": bound})


def ceiling(bounding: Bounding, present: int, absent: int, delta: float) -> float:
    """The most that so many runs could show with 99.9% confidence: all of them told apart."""
    return bounding(np.ones(present), np.zeros(absent), delta, CERTAIN).epsilon
