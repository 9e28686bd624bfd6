"""The guarantee and the budget of a run, from its certificate and its ledger."""

import json
import math
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import LedgerRecord, certificate, read_ledger, verify
from quorum_rl.budget.certificate import Assumption
from quorum_rl.privacy import Event, ReleaseEvent, total_epsilon
from quorum_rl.privacy.events import event_from_json
from quorum_rl.report.facts import Charge, Guarantee, Maybe, Missing, Notice, Spending, Stage
from quorum_rl.report.reading import (
    as_object,
    flag,
    items,
    number,
    number_or_none,
    read_object,
    reading,
    text,
    texts,
)

NOT_CHECKED: Final = (
    "Not checked here: the ledger is kept elsewhere. 'quorum certificate verify' checks it."
)
DOES_NOT_HOLD: Final = "The certificate does not hold"


def gather_guarantee(
    folder: Path, delta: float
) -> tuple[Maybe[Guarantee], Maybe[Spending], tuple[Notice, ...]]:
    """What is guaranteed, what was spent, and what a reader must know about both.

    A run that was interrupted has no certificate yet: its ledger then speaks for it, at `delta`.

    Raises:
        QuorumError: if the certificate or the ledger is damaged.
    """
    path, book = folder / "certificate.json", folder / "ledger.jsonl"
    record = read_ledger(book) if book.exists() else None
    if not path.exists() and record is None:
        why = Missing("There is no certificate in this folder, so nothing is guaranteed.")
        return why, why, ()
    with reading(path, "quorum fit"):
        if path.exists():
            facts = read_object(path)
        else:
            assert record is not None  # one of both is there
            facts = json.loads(certificate(record, delta=delta).to_json())
        spending = _spending(facts)
        check, failed = _check(record, facts)
        found = _guarantee(facts, check, failed)
    notices = [Notice(DOES_NOT_HOLD, check, grave=True)] if failed else []
    if not path.exists():
        notices.append(
            Notice(
                "The run is not finished",
                "There is no certificate yet: what stands here is what its ledger says so far.",
            )
        )
    return found, spending, (*notices, *_notices(found))


def _guarantee(facts: dict[str, Any], check: str, contradicted: bool) -> Guarantee:
    epsilon = number_or_none(facts, "epsilon")
    assumptions = tuple(
        Assumption(text(one, "name"), text(one, "text"), flag(one, "accepted"))
        for one in (as_object(one, "an assumption") for one in items(facts, "assumptions"))
    )
    return Guarantee(
        epsilon=math.inf if epsilon is None else epsilon,
        delta=number(facts, "delta"),
        relation=text(facts, "relation"),
        kind=text(facts, "kind"),
        modes=texts(facts, "modes"),
        identity=text(facts, "identity"),
        ledger_head=text(facts, "ledger_head"),
        statement=text(facts, "statement"),
        assumptions=assumptions,
        not_accounted=texts(facts, "not_accounted"),
        limitations=texts(facts, "limitations"),
        marks=texts(facts, "marks"),
        torn=flag(facts, "torn"),
        check=check,
        contradicted=contradicted,
    )


def _check(record: LedgerRecord | None, facts: dict[str, Any]) -> tuple[str, bool]:
    """A second opinion on the certificate, in words, and whether it speaks against it."""
    epsilon, delta = number_or_none(facts, "epsilon"), number(facts, "delta")
    if record is None:
        cost = total_epsilon([_event(one) for one in items(facts, "events")], delta)
        if epsilon is not None and not cost <= epsilon:
            return f"its events cost ε = {cost:.4f} at δ = {delta:g}, not {epsilon:g}.", True
        return NOT_CHECKED, False
    if text(facts, "ledger_head") != record.head:
        return (
            "The ledger has another last line than the one this certificate was made from: see "
            "'quorum certificate show' for what the ledger says now.",
            True,
        )
    if epsilon is None:
        return "It claims nothing, so there is nothing to check.", False
    found = verify(record, epsilon=epsilon, delta=delta)
    if not found.holds:
        return "; ".join(found.reasons) + ".", True
    return (
        f"Checked for this report: computed a second time, by another route, from the ledger's "
        f"{len(record.charges)} charges, ε is {found.epsilon:.4f}.",
        False,
    )


def _spending(facts: dict[str, Any]) -> Spending:
    """The cost of each stage alone and of all together."""
    delta = number(facts, "delta")
    charged = [as_object(one, "an event") for one in items(facts, "events")]
    events = [_event(one) for one in charged]
    charges = tuple(
        Charge(
            stage="release" if isinstance(event, ReleaseEvent) else "private steps",
            run=text(one, "run"),
            at=text(one, "at"),
            words=_in_words(event),
            epsilon=total_epsilon([event], delta),
        )
        for one, event in zip(charged, events, strict=True)
    )
    releases = [event for event in events if isinstance(event, ReleaseEvent)]
    steps = [event for event in events if not isinstance(event, ReleaseEvent)]
    stages = [Stage("release", total_epsilon(releases, delta))] if releases else []
    if steps:
        stages.append(Stage("private steps", total_epsilon(steps, delta)))
    return Spending(
        delta=delta,
        stages=tuple(stages),
        together=_together(facts, events, delta),
        allowed=number_or_none(facts, "budget_epsilon"),
        charges=charges,
    )


def _together(facts: dict[str, Any], events: list[Event], delta: float) -> float:
    """What the certificate says, which knows of torn lines too; else what the events cost."""
    claimed = number_or_none(facts, "epsilon")
    if claimed is not None:
        return claimed
    return total_epsilon(events, delta) if events else 0.0


def _event(facts: dict[str, Any]) -> Event:
    return event_from_json({name: facts[name] for name in facts if name not in ("run", "at")})


def _in_words(event: Event) -> str:
    if isinstance(event, ReleaseEvent):
        floor = f"floor {event.p_min:g}" if event.p_min else f"stop {event.stop_probability:g}"
        return (
            f"{event.iterations:,} trajectories of at least {event.experts:,} experts, threshold "
            f"{event.threshold:.1f}, noise scales {event.threshold_noise_scale:.3g} and "
            f"{event.query_noise_scale:.3g}, {floor}, mode {event.mode}"
        )
    return (
        f"{event.steps:,} steps, each expert drawn with probability {event.sampling_rate:.4g}, "
        f"noise multiplier {event.noise_multiplier:.4g}"
    )


def _notices(found: Guarantee) -> tuple[Notice, ...]:
    """What weakens or voids the claim, for the top of the page."""
    notices = []
    if not math.isfinite(found.epsilon):
        notices.append(Notice("No finite ε is claimed", found.statement, grave=True))
    if found.kind == "research":
        notices.append(
            Notice(
                "Research ledger",
                "Its budget was not enforced. It is meant for synthetic experts: do not take this "
                "for a guarantee to real ones.",
            )
        )
    notices += [Notice(*_titled(mark), grave=True) for mark in found.marks]
    for one in found.assumptions:
        if not one.accepted:
            notices.append(
                Notice(
                    f"Assumption not accepted: {one.name}",
                    f"Nobody has answered for it that {one.text}.",
                    grave=True,
                )
            )
    if found.torn:
        notices.append(
            Notice("The ledger was cut off", "All of its budget counts as spent.", grave=True)
        )
    return tuple(notices)


def _titled(mark: str) -> tuple[str, str]:
    """A mark such as `diagnostics: the logs …` in two parts."""
    head, colon, rest = mark.partition(": ")
    title, said = (head, rest) if colon else ("marked", mark)
    return title[:1].upper() + title[1:], said[:1].upper() + said[1:] + "."
