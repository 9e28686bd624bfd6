"""The budget in operation: what was spent, where the random bits came from, what it certifies."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.budget.budget import Budget as Budget
    from quorum_rl.budget.certificates import (
        ASSUMPTIONS as ASSUMPTIONS,
        AT_SITES as AT_SITES,
        LEARNERS as LEARNERS,
        OF_PARTS as OF_PARTS,
        Certificate as Certificate,
        certificate as certificate,
        event_facts as event_facts,
        needed_assumptions as needed_assumptions,
        rounded_up as rounded_up,
    )
    from quorum_rl.budget.checking import (
        BUNDLE as BUNDLE,
        LEDGER as LEDGER,
        Checked as Checked,
        Consistency as Consistency,
        check_certificate as check_certificate,
        check_consistent as check_consistent,
        check_guarantees as check_guarantees,
        check_signed as check_signed,
        second_opinion as second_opinion,
    )
    from quorum_rl.budget.commitment import (
        check_committed as check_committed,
        check_contents as check_contents,
        commitments as commitments,
    )
    from quorum_rl.budget.entropy import (
        BitStream as BitStream,
        Entropy as Entropy,
        KeyedEntropy as KeyedEntropy,
        OsEntropy as OsEntropy,
        SeededEntropy as SeededEntropy,
        are_words as are_words,
        jax_key_data as jax_key_data,
        secret_words as secret_words,
    )
    from quorum_rl.budget.ledger import Ledger as Ledger, spent_epsilon as spent_epsilon
    from quorum_rl.budget.record import (
        Charge as Charge,
        Kind as Kind,
        LedgerRecord as LedgerRecord,
        read_ledger as read_ledger,
    )
    from quorum_rl.budget.schema import (
        SCHEMA_FILE as SCHEMA_FILE,
        certificate_of as certificate_of,
        read_certificate as read_certificate,
        schema_text as schema_text,
    )
    from quorum_rl.budget.signature import (
        SUFFIX as SUFFIX,
        check_signature as check_signature,
        generate_key as generate_key,
        public_key_in_hex as public_key_in_hex,
        sign as sign,
        sign_file as sign_file,
        signature_path as signature_path,
    )
    from quorum_rl.budget.split import SplitKey as SplitKey, key_path as key_path
    from quorum_rl.budget.verifier import Verification as Verification, verify as verify
    from quorum_rl.budget.witness import (
        Witness as Witness,
        held as held,
        in_state as in_state,
        read_witness as read_witness,
        write_witness as write_witness,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
