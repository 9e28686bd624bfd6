"""A budget as a Python program meets it: what may be lost, in a file that outlives the program."""

import math
from dataclasses import dataclass
from pathlib import Path

from quorum_rl.budget.certificates import Certificate, certificate
from quorum_rl.budget.ledger import Ledger, spent_epsilon
from quorum_rl.budget.record import Kind, LedgerRecord, read_ledger
from quorum_rl.budget.witness import check_witnessed


@dataclass(frozen=True)
class Budget:
    """What all that is ever learned from one set of experts may cost, kept in their ledger.

    One set of experts has one budget, whatever logs of theirs come later. Whatever looks at their
    data is charged here first, or does not happen.

    Guarantee: under the assumptions that the certificate names, all results charged to a
    production ledger are together (`epsilon`, `delta`)-indistinguishable for sets of experts that
    differ by one. What would exceed that is refused before any data is touched.
    """

    ledger: Path

    @classmethod
    def create(
        cls,
        ledger: str | Path,
        *,
        epsilon: float | None,
        delta: float | None,
        kind: Kind = "production",
    ) -> "Budget":
        """The budget of experts from whom nothing was learned yet, in a new file.

        A `research` ledger is for synthetic experts: it refuses nothing, may have no epsilon, and
        every certificate says so.

        Raises:
            QuorumError: if there is a file already, or the numbers make no budget.
        """
        Ledger.create(ledger, epsilon=epsilon, delta=delta, kind=kind)
        return cls(Path(ledger))

    @classmethod
    def open(cls, ledger: str | Path) -> "Budget":
        """The budget in a ledger that was made before.

        Raises:
            QuorumError: if there is none, its file was damaged or changed, or it is for production
                and not the copy that was charged last.
        """
        opened = cls(Path(ledger))
        _ = opened.record
        return opened

    @property
    def record(self) -> LedgerRecord:
        """What the ledger says now."""
        record = read_ledger(self.ledger)
        check_witnessed(record, self.ledger)
        return record

    @property
    def epsilon(self) -> float | None:
        """The whole of it; None only for research."""
        return self.record.epsilon

    @property
    def delta(self) -> float | None:
        """Where `epsilon` is stated; None only for research."""
        return self.record.delta

    def spent(self, delta: float | None = None) -> float:
        """What everything so far cost together, at the budget's own delta unless told otherwise.

        Guarantee: never too little.

        Raises:
            QuorumError: if neither the ledger nor the caller names a delta.
        """
        return spent_epsilon(self.record, delta)

    def left(self) -> float | None:
        """The epsilon that is certainly left; None where there is no limit.

        Costs do not add up, so an event may fit that costs a little more by itself.
        """
        record = self.record
        if record.epsilon is None:
            return None
        return max(record.epsilon - spent_epsilon(record), 0.0)

    def certificate(self, delta: float | None = None) -> Certificate:
        """What everything so far guarantees, and under which assumptions.

        Raises:
            QuorumError: as `spent`.
        """
        return certificate(self.record, delta=delta)

    def finite_certificate(self, delta: float) -> Certificate:
        """The certificate at this delta, or at the budget's own where only that gives an epsilon.

        A certificate covers all that was ever charged: what earlier runs needed of delta may leave
        no finite epsilon at the smaller delta of a later one.
        """
        at_own = self.certificate(delta)
        if math.isfinite(at_own.epsilon) or self.delta is None:
            return at_own
        at_whole = self.certificate()
        return at_whole if math.isfinite(at_whole.epsilon) else at_own
