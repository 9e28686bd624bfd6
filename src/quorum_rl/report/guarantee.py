"""The guarantee and the budget of a run, from its certificate and its ledger."""

import math
from pathlib import Path
from typing import Final

from quorum_rl.budget import (
    LEDGER,
    Certificate,
    certificate,
    check_consistent,
    event_facts,
    read_certificate,
    read_ledger,
)
from quorum_rl.errors import QuorumError
from quorum_rl.files import plain_bytes
from quorum_rl.json_files import reading
from quorum_rl.privacy import (
    Event,
    ReleaseEvent,
    event_from_json,
    in_words,
    total_epsilon,
)
from quorum_rl.report.facts import Guarantee, ListedCharge, Maybe, Missing, Notice, Spending, Stage

NOT_CHECKED: Final = (
    "Not checked here, for the ledger is kept elsewhere: name it with 'quorum report --ledger'."
)
UNFINISHED: Final = Notice(
    "The run is not finished",
    "There is no certificate yet: what stands here is what its ledger says so far.",
)
GONE_ON: Final = Notice(
    "The ledger has gone on",
    "It was charged again after this certificate, which does not cover what came later.",
)
NEARLY_CERTAIN: Final = 0.99
LARGE_EPSILON: Final = Notice(
    "ε is large",
    "By itself it does not keep a determined guesser from being nearly certain. It is a worst case "
    "over all experts and all attacks: those that are known are weaker, which proves nothing.",
)
RESEARCH: Final = Notice(
    "Research ledger",
    "Its budget was not enforced. It is meant for synthetic experts: do not take this for a "
    "guarantee to real ones.",
)
CUT_OFF: Final = Notice("The ledger was cut off", "All of its budget counts as spent.", grave=True)


def gather_guarantee(
    folder: Path, delta: float, ledger: Path | None = None
) -> tuple[Maybe[Guarantee], Maybe[Spending], tuple[Notice, ...]]:
    """What is guaranteed, what was spent, and what a reader must know about both.

    A run that was interrupted has no certificate yet: its ledger then speaks for it, at `delta`.
    The ledger is in the folder unless told otherwise.

    Raises:
        QuorumError: if the certificate or the ledger is damaged.
    """
    path, book = folder / "certificate.json", ledger or folder / LEDGER
    record = read_ledger(book) if book.exists() else None
    if path.exists():
        made, notices = read_certificate(path), []
    elif record is not None:
        made, notices = certificate(record, delta=delta), [UNFINISHED]
    else:
        why = Missing("There is no certificate in this folder, so nothing is guaranteed.")
        return why, why, ()
    with reading(path, "quorum fit"):
        events = [event_from_json(event_facts(facts)) for facts in made.events]
        spending = _spending(made, events)
    found = _second_opinion(made, events, book)
    if found.contradicted:
        notices.append(Notice("The certificate does not hold", found.check, grave=True))
    if found.outdated:
        notices.append(GONE_ON)
    if found.claims and found.best_accuracy > NEARLY_CERTAIN:
        notices.append(LARGE_EPSILON)
    return found, spending, (*notices, *_notices(made))


def _second_opinion(made: Certificate, events: list[Event], book: Path) -> Guarantee:
    """The certificate, compared with the ledger where that is at hand."""
    if not book.exists():
        cost = total_epsilon(events, made.delta)
        if not cost <= made.epsilon:
            said = f"Its events cost ε = {cost:.4f} at δ = {made.delta:g}, not {made.epsilon:g}."
            return Guarantee(made, said, contradicted=True)
        return Guarantee(made, NOT_CHECKED)
    try:
        found = check_consistent(made, plain_bytes(book), book)
    except QuorumError as error:
        said = str(error).replace(repr(str(book)), "the ledger")  # a path tells whose it is
        return Guarantee(made, said[:1].upper() + said[1:], contradicted=True)
    return Guarantee(
        made,
        f"Checked for this report: it agrees with its ledger, and ε computed a second time, by "
        f"another route, is {found.epsilon:.4f} (whose grid may add a thousandth).",
        outdated=not found.current,
    )


def _spending(made: Certificate, events: list[Event]) -> Spending:
    """The cost of each stage alone and of all together."""
    charges = tuple(
        ListedCharge(
            stage="release" if isinstance(event, ReleaseEvent) else "private steps",
            run=str(facts["run"]),
            at=str(facts["at"]),
            words=in_words(event),
            epsilon=total_epsilon([event], made.delta),
        )
        for facts, event in zip(made.events, events, strict=True)
    )
    releases = [event for event in events if isinstance(event, ReleaseEvent)]
    steps = [event for event in events if not isinstance(event, ReleaseEvent)]
    stages = [Stage("release", total_epsilon(releases, made.delta))] if releases else []
    if steps:
        stages.append(Stage("private steps", total_epsilon(steps, made.delta)))
    return Spending(
        delta=made.delta,
        stages=tuple(stages),
        # In mode paper the certificate claims nothing, though its events have a cost.
        together=made.epsilon if made.modes != ("paper",) else total_epsilon(events, made.delta),
        allowed=made.budget_epsilon,
        charges=charges,
    )


def _notices(made: Certificate) -> list[Notice]:
    """What weakens or voids the claim, for the top of the page."""
    notices = []
    if not math.isfinite(made.epsilon):
        notices.append(Notice("No finite ε is claimed", made.statement, grave=True))
    if made.kind == "research":
        notices.append(RESEARCH)
    notices += [_notice_of_mark(mark) for mark in made.marks]
    for assumption in made.assumptions:
        if not assumption.accepted:
            title = f"Assumption not accepted: {assumption.name}"
            text = f"Nobody has answered for it that {assumption.text}."
            notices.append(Notice(title, text, grave=True))
    return [*notices, CUT_OFF] if made.torn else notices


def _notice_of_mark(mark: str) -> Notice:
    """A mark such as `diagnostics: the logs …` in two parts."""
    head, colon, rest = mark.partition(": ")
    title, said = (head, rest) if colon else ("marked", mark)
    return Notice(title[:1].upper() + title[1:], f"{said[:1].upper()}{said[1:]}.", grave=True)
