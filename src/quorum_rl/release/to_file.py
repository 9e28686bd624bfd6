"""A release by itself, into a file: killed anywhere, the same call goes on to the same prefixes.

What its noise follows from lies beside that file, as `FILE.private`, from before the charge until
the file is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import (
    KeyedEntropy,
    Ledger,
    OsEntropy,
    SeededEntropy,
    are_words,
    check_contents,
    commitments,
    secret_words,
)
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.files import write_json
from quorum_rl.json_files import read_object
from quorum_rl.logs import Demonstrations, salted_digest
from quorum_rl.privacy import ReleasePlan, event_to_json
from quorum_rl.release.mechanism import ReleaseProgress
from quorum_rl.release.run import release
from quorum_rl.release.storage import save_released
from quorum_rl.tensors import refusing_damage
from quorum_rl.types import Released

PRIVATE: Final = ".private"
WORDS: Final = ("noise", "salt")


@dataclass(frozen=True)
class _Begun:
    """A release that may be charged already. `words` are SECRET."""

    settled: dict[str, Any]
    replaces: bool  # whether there was another file of that name
    words: dict[str, list[int]]
    contents: str = ""  # a salted digest of the log

    @property
    def committed(self) -> dict[str, str]:
        """What the charge holds of it."""
        return commitments(self.words, self.settled)

    def is_paid(self, ledger: Ledger) -> bool:
        held = self.committed.items()
        return any(held <= charge.facts.items() for charge in ledger.record.charges)


def release_to_file(
    experts: LoggedExperts,
    demonstrations: Demonstrations,
    plan: ReleasePlan,
    ledger: Ledger,
    out: Path,
    *,
    run: str = "release",
    accepted: Sequence[str] = (),
    accepted_by: str | None = None,
    training_minimum: int = 1,
    seed: int | None = None,
    progress: ReleaseProgress | None = None,
) -> Released:
    """Run stage 1, write the released prefixes to `out`, and return them; see `release`.

    The same call after one that died is charged no second time and writes what that would have. A
    `seed` is for reproduction; it marks the ledger.

    Guarantee: as `release`; of one charge there is one result.

    Raises:
        QuorumError: as `release`, if another release was begun into that file, or it cannot be
            written.
    """
    event = event_to_json(plan.event)
    settled = {"ledger": ledger.record.identity, "pool": demonstrations.declared.identity,
               "event": event, "run": run, "training_minimum": training_minimum,
               "seed": seed}  # fmt: skip
    kept = _beside(out)
    begun = _read(kept) or _Begun(
        settled, out.exists(), {name: secret_words(OsEntropy()) for name in WORDS}
    )
    now = salted_digest(demonstrations, begun.words["salt"], experts.digest())
    if begun.settled != settled:
        raise QuorumError(
            f"a release into {str(out)!r} was begun with other demonstrations, plan, ledger, name "
            f"or seed: go on with those, give another file, or delete {str(kept)!r} to lose it."
        )
    if begun.is_paid(ledger):
        check_contents(ledger.record, run, begun.contents, now)
    write_json(kept, vars(begun) | {"contents": now})
    try:
        made = release(
            experts,
            demonstrations,
            plan,
            ledger,
            run=run,
            accepted=accepted,
            accepted_by=accepted_by,
            training_minimum=training_minimum,
            entropy=KeyedEntropy(begun.words["noise"]) if seed is None else SeededEntropy(seed),
            progress=progress,
            committed=begun.committed,
        ).released
        save_released(made, out, {"ledger": ledger.record.identity, **event})
    except BaseException:
        if not begun.is_paid(ledger):  # nothing was touched
            kept.unlink(missing_ok=True)
        raise
    kept.unlink()
    return made


def forget_finished(out: Path) -> None:
    """Delete the secret beside a file of released prefixes, where that alone was interrupted.

    Raises:
        QuorumError: if the secret's file is damaged.
    """
    begun = _read(_beside(out)) if out.exists() else None
    if begun is not None and not begun.replaces:
        _beside(out).unlink(missing_ok=True)


def _beside(out: Path) -> Path:
    return out.with_name(out.name + PRIVATE)


def _read(kept: Path) -> _Begun | None:
    if not kept.exists():
        return None
    fix = "bring it back, or delete it to lose its release"
    with refusing_damage(f"{str(kept)!r} is damaged", fix=fix):
        begun = _Begun(**read_object(kept))
        texts = isinstance(begun.contents, str)
        if not (texts and isinstance(begun.replaces, bool) and isinstance(begun.settled, dict)):
            raise ValueError("it does not say what was begun")
        if begun.words.keys() != set(WORDS) or not all(map(are_words, begun.words.values())):
            raise ValueError("it holds no secret")
        return begun
