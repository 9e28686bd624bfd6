"""What an audit found: a lower bound beside the claim, and what each of them is about."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from quorum_rl.audit.bounds import LowerBound

RELEASED: Final = "released prefixes"
ACTIONS: Final = "black box: the final policy's actions on chosen states"
ITERATES: Final = "white box: all iterates"
ALL: Final = "white box: released prefixes and all iterates"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One audited mechanism. `runs` are those of each kind, with the canary and without."""

    what: str
    threat: str
    canary: str
    claimed: float
    bound: LowerBound
    runs: int
    note: str = ""

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted, at the bound's confidence."""
        return self.bound.epsilon > self.claimed

    def to_json(self) -> dict[str, Any]:
        """Plain facts."""
        return {**asdict(self), "refuted": self.refuted}
