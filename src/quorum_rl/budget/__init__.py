"""The budget in operation: what was spent, where the random bits came from, what it certifies."""

from quorum_rl.budget.budget import Budget
from quorum_rl.budget.certificate import (
    ASSUMPTIONS,
    Certificate,
    certificate,
    needed_assumptions,
)
from quorum_rl.budget.entropy import BitStream, Entropy, OsEntropy, SeededEntropy, jax_key_data
from quorum_rl.budget.ledger import Ledger
from quorum_rl.budget.record import LedgerRecord, read_ledger
from quorum_rl.budget.spent import spent_epsilon
from quorum_rl.budget.verify import Verification, verify

__all__ = [
    "ASSUMPTIONS",
    "BitStream",
    "Budget",
    "Certificate",
    "Entropy",
    "Ledger",
    "LedgerRecord",
    "OsEntropy",
    "SeededEntropy",
    "Verification",
    "certificate",
    "jax_key_data",
    "needed_assumptions",
    "read_ledger",
    "spent_epsilon",
    "verify",
]
