"""The certificate: what may be claimed, computed from the ledger and from nothing else."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from quorum_rl.budget.ledger import spent_epsilon
from quorum_rl.budget.record import Charge, Kind, LedgerRecord
from quorum_rl.errors import PERSON, Rule
from quorum_rl.privacy import EVERYBODY, Event, ReleaseEvent, event_to_json

FORMAT: Final = 2  # of a certificate's file: `certificate.schema.json` describes it
DECIMALS: Final = 4  # of every ε that is shown


ASSUMPTIONS: Final = {
    "logs-from-queried-policies": (
        "the policies that were queried generated the logs, exactly as they are"
    ),
    "independent-trajectories": (
        "trajectories were drawn independently of one another, and how many there are and in which "
        "order does not depend on what is in them"
    ),
    "common-world": (
        "start states, dynamics and rewards are common to all experts and not themselves secret: "
        "released prefixes contain raw states and rewards"
    ),
    "floor-everywhere": (
        "every expert gives every action at least the declared probability p_min, in every state"
    ),
    "public-ends": "a trajectory's end is a public function of state, action and time",
    "one-expert-each": "nobody owns two experts",
    "own-names": (
        "every expert has one name or number in all logs, which does not depend on who else takes "
        "part"
    ),
    "one-site-each": "an expert's logs are at one site only",
    "failures-alike": (
        "whether a site answers, and when, does not depend on what is in its logs or whose they are"
    ),
}
"""The assumptions that code cannot check, by the names under which a user accepts them."""

OF_PARTS: Final = ("own-names",)  # where a part of the experts is told by their names
AT_SITES: Final = ("one-site-each", "failures-alike")  # where logs stay at their own sites

NOT_ACCOUNTED: Final = (
    "anything learned from these experts that was not charged to this ledger, choosing "
    "hyper-parameters by looking at their data included",
    "choosing a later event by looking at the output of an earlier one: the sum is that of events "
    "whose constants were fixed beforehand",
)
RELEASE_LIMITATIONS: Final = (
    "the guarantee is about the experts' policies, with their logs secret: whoever already holds a "
    "log recognises a released prefix of it",
)
LIMITATIONS: Final = ("side channels such as running time and memory are not covered",)
TRAINING_LIMITATIONS: Final = (
    "the training's Gaussian noise is exact as far as the bits of a counter-based generator with a "
    "key of 64 bits are uniform",
)
SITES_LIMITATIONS: Final = (
    "the logs stayed at their own sites, and the coordinator is trusted: it saw each site's sum "
    "without noise, drew the noise, and had its key until the run was complete",
    "each site is trusted by its own experts alone, to clip what each of them contributes: "
    "whatever a site sent, the experts of the other sites have the guarantee; a sum that no honest "
    "site of its declared size could have sent counted as zero",
)

PARTS: Final = (
    "Each expert is in one of two parts for good, by a secret coin of its own: in the one that "
    "judges with probability {:g}, else in the one that is learned from. What was charged to one "
    "part costs only who is in it, and ε is the larger of what either part has lost."
)
CHOSEN: Final = (
    "{} learners were trained for one policy ({}), and the judges chose which: ε is that of all."
)
LEARNERS: Final = Rule(
    "names of learners",
    lambda names: (
        isinstance(names, list | tuple)
        and len(names) > 1
        and all(isinstance(name, str) and re.fullmatch(r"[\w-]{1,40}", name) for name in names)
    ),
)
WHOLE_LOGS: Final = (
    "No prefixes were released under this ledger: an expert's whole log is protected, whoever "
    "holds copies of it."
)
NOT_VALID: Final = (
    "is shown as published and is not valid: the coin of each training step is treated as hidden "
    "though whoever sees the iterates sees it, training reuses the trajectories that the release "
    "drew from, batches and draws are not those of the proof, constants depend on the data, and "
    "the tuning is not counted"
)


@dataclass(frozen=True)
class Acceptance:
    """Who answered for an assumption, as whoever ran it said, and on which day."""

    name: str
    at: str


@dataclass(frozen=True)
class Assumption:
    """Something the guarantee rests on; `accepted` if every event that needs it was run with it.

    `accepted_by` names those who answered for it, as far as they were named.
    """

    name: str
    text: str
    accepted: bool
    accepted_by: tuple[Acceptance, ...] = ()

    @property
    def answer(self) -> str:
        """Whether it was accepted, by whom, and when."""
        if not self.accepted:
            return "NOT accepted"
        who = " and ".join(f"{one.name} on {one.at}" for one in self.accepted_by)
        return f"accepted by {who}" if who else "accepted"


@dataclass(frozen=True)
class Published:
    """The published sum ε1 + ε2, δ1 + δ2. `complete` if no charge's claim is missing."""

    epsilon: float
    delta: float
    complete: bool
    text: str = f"this sum {NOT_VALID}"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What a ledger's charges guarantee.

    `epsilon` is rounded up, and infinite where nothing finite can be claimed. `ledger_head` is the
    hash of the ledger's last line: a ledger that was cut shorter since does not have it.

    Guarantee: everything that was charged to the ledger is together (`epsilon`,
    `delta`)-indistinguishable for `relation`, if the `assumptions` hold; what is `not_accounted`
    is not covered.
    """

    format: int = FORMAT
    kind: Kind
    identity: str
    relation: str
    modes: tuple[str, ...]
    epsilon: float
    delta: float
    budget_epsilon: float | None
    budget_delta: float | None
    statement: str
    events: tuple[dict[str, Any], ...]
    assumptions: tuple[Assumption, ...]
    not_accounted: tuple[str, ...]
    limitations: tuple[str, ...]
    marks: tuple[str, ...]
    published: Published | None
    torn: bool
    ledger_head: str

    def __repr__(self) -> str:
        return f"Certificate(epsilon={self.epsilon:g}, delta={self.delta:g}, {self.identity})"

    def to_json(self) -> str:
        """The certificate as a JSON object; an infinite epsilon is null."""
        facts = asdict(self)
        for held in facts["assumptions"]:
            if not held["accepted_by"]:  # as in certificates from before names were asked for
                del held["accepted_by"]
        facts["epsilon"] = self.epsilon if math.isfinite(self.epsilon) else None
        return json.dumps(facts, indent=2, allow_nan=False, ensure_ascii=False)


def certificate(record: LedgerRecord, *, delta: float | None = None) -> Certificate:
    """The certificate of everything that a ledger was charged for.

    `delta` is where ε is stated: the ledger's own unless given.

    Guarantee: `epsilon` is never less than what was spent, and infinite where a pool was used
    more than once or mode `paper` was used, for nobody knows what that cost.

    Raises:
        QuorumError: if neither the ledger nor the caller names a delta.
    """
    epsilon = spent_epsilon(record, delta)
    at = record.delta if delta is None else delta
    assert at is not None  # spent_epsilon raised otherwise
    return stated(record, rounded_up(epsilon), at)


def stated(record: LedgerRecord, shown: str, delta: float) -> Certificate:
    """The certificate of a ledger whose charges cost the ε `shown`, a text of `rounded_up`.

    Nothing is computed here: whoever calls this answers for the number.
    """
    releases = [event for event in record.events if isinstance(event, ReleaseEvent)]
    modes = sorted({event.mode for event in releases})
    repeated = repeated_pools(record)
    limitations: tuple[str, ...] = LIMITATIONS
    if releases:
        limitations = RELEASE_LIMITATIONS + limitations
    if len(releases) < len(record.events):
        limitations += TRAINING_LIMITATIONS
    if any(_is_at_sites(charge) for charge in record.charges):
        limitations += SITES_LIMITATIONS
    return Certificate(
        kind=record.kind,
        identity=record.identity,
        relation=record.relation,
        modes=tuple(modes),
        epsilon=math.inf if repeated or "paper" in modes else float(shown),
        delta=delta,
        budget_epsilon=record.epsilon,
        budget_delta=record.delta,
        statement=_statement(record, shown, delta),
        events=tuple(_shown(charge) for charge in record.charges),
        assumptions=_assumptions(record),
        not_accounted=NOT_ACCOUNTED + repeated,
        limitations=limitations,
        marks=tuple(mark.text for mark in record.marks),
        published=published_claim(record) if "paper" in modes else None,
        torn=record.torn,
        ledger_head=record.head,
    )


def rounded_up(epsilon: float) -> str:
    """An ε as text with few decimals, never below the number itself."""
    if not math.isfinite(epsilon):
        return "inf"
    return str(Decimal(epsilon).quantize(Decimal(1).scaleb(-DECIMALS), rounding=ROUND_CEILING))


def _statement(record: LedgerRecord, shown: str, delta: float) -> str:
    """The certificate in a few sentences."""
    repeated = bool(repeated_pools(record))
    releases = [event for event in record.events if isinstance(event, ReleaseEvent)]
    paper = any(event.mode == "paper" for event in releases)
    if repeated or shown == "inf":
        first = f"No finite ε can be claimed at δ = {delta:g}."
    elif paper:
        first = (
            f"Mode paper, for reproduction: what came out is not certified. With fresh draws its "
            f"events would cost ε = {shown} at δ = {delta:g}."
        )
    else:
        first = (
            f"What came out is (ε = {shown}, δ = {delta:g})-indistinguishable for "
            f"{record.relation}, under the assumptions named."
        )
    sentences = [first]
    trained_only = bool(record.events) and not releases and not record.torn
    if trained_only and shown != "inf":
        sentences.append(WHOLE_LOGS)
    if record.split is not None and record.is_parted:
        sentences.append(PARTS.format(record.split.judges))
    sentences += _choices(record)
    if record.torn:
        sentences.append("The ledger's last line was cut off: all of the budget counts as spent.")
    if record.kind == "research":
        sentences.append("This is a research ledger: its budget was not enforced.")
    if paper:
        sentences.append(f"The published claim {NOT_VALID}.")
    if repeated:
        sentences.append("A release pool was used more than once, so the claim does not hold.")
    return " ".join(sentences)


def _choices(record: LedgerRecord) -> Iterator[str]:
    """What to say of each charge that is for learners of whom judges chose one."""
    for charge in record.charges:
        names: Any = charge.facts.get("candidates")
        if LEARNERS.holds(names):
            yield CHOSEN.format(len(names), ", ".join(names))


def _shown(charge: Charge) -> dict[str, Any]:
    """An event with all its constants. Other facts of the charge stay in the ledger."""
    return {"run": charge.run, "at": charge.date, **event_to_json(charge.event)}


def event_facts(listed: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of an event that a certificate lists, as `event_from_json` takes them."""
    return {name: fact for name, fact in listed.items() if name not in ("run", "at")}


def needed_assumptions(event: Event, *, at_sites: bool = False) -> tuple[str, ...]:
    """The names of what an event's guarantee rests on and no code can check.

    `at_sites` says that the logs are at sites of their own.
    """
    if not isinstance(event, ReleaseEvent):
        parted = OF_PARTS if event.part != EVERYBODY else ()
        return ("one-expert-each", *parted, *(AT_SITES if at_sites else ()))
    here = (name for name in ASSUMPTIONS if name not in (*OF_PARTS, *AT_SITES))
    return tuple(name for name in here if event.p_min > 0 or name != "floor-everywhere")


def _needed(charge: Charge) -> tuple[str, ...]:
    return needed_assumptions(charge.event, at_sites=_is_at_sites(charge))


def _is_at_sites(charge: Charge) -> bool:
    return "sites" in charge.facts


def _assumptions(record: LedgerRecord) -> tuple[Assumption, ...]:
    found = []
    for name, text in ASSUMPTIONS.items():
        needing = [charge for charge in record.charges if name in _needed(charge)]
        if needing:
            accepted = all(name in _accepted(charge) for charge in needing)
            who = dict.fromkeys(one for charge in needing for one in _accepted_by(charge, name))
            found.append(Assumption(name, text, accepted, tuple(who)))
    return tuple(found)


def _accepted(charge: Charge) -> Sequence[Any]:
    names = charge.facts.get("accepted")
    return names if isinstance(names, list | tuple) else ()


def _accepted_by(charge: Charge, assumption: str) -> Iterator[Acceptance]:
    """Who answered for an assumption, where the charge says so in words that may be shown."""
    match charge.facts.get("accepted_by"):
        case {"name": str() as name, "assumptions": list() as held} if PERSON.holds(name):
            if assumption in held:
                yield Acceptance(name, charge.date)


def repeated_pools(record: LedgerRecord) -> tuple[str, ...]:
    """What to say of each release pool that was used more than once, by a training included."""
    pools = record.pools
    said = [
        f"the release pool {pool} was used {pools.count(pool)} times: stage 1 is private once per "
        "pool, and what more than one run of it costs is unknown"
        for pool in sorted(set(pools))
        if pools.count(pool) > 1
    ]
    said += [
        f"the release pool {pool} was read by a training too: the stages must use different "
        "trajectories, and what both of the same cost together is unknown"
        for pool in sorted(record.whole_logs.intersection(pools))
    ]
    return tuple(said)


def published_claim(record: LedgerRecord) -> Published:
    """The sum of the published claims of all charges.

    A release's follows from its constants; a training's is the fact `published` of its charge,
    `{"epsilon": …, "delta": …}`, because the rate it was published with is not the true one.
    """
    claims = [_claim_of(charge) for charge in record.charges]
    known = [claim for claim in claims if claim is not None]
    return Published(
        epsilon=math.fsum(epsilon for epsilon, _ in known),
        delta=math.fsum(delta for _, delta in known),
        complete=len(known) == len(claims),
    )


def _claim_of(charge: Charge) -> tuple[float, float] | None:
    if isinstance(charge.event, ReleaseEvent):
        return _release_claim(charge.event) if charge.event.mode == "paper" else None
    match charge.facts.get("published"):
        case {"epsilon": float() | int() as epsilon, "delta": float() | int() as delta}:
            return float(epsilon), float(delta)
    return None


def _release_claim(event: ReleaseEvent) -> tuple[float, float] | None:
    """(ε1, δ1), if it claims anything.

    From ε' = ε1/√(32 T ln(2/δ1)), δ' = δ1/(2TL) and the offset (4/ε')·ln(1/δ').
    """
    iteration_epsilon = 4 * event.query_epsilon
    log_delta = -(event.threshold - event.theta) * event.query_epsilon
    delta = 2 * event.iterations * event.horizon * math.exp(log_delta)
    if not delta < 1:
        return None
    return iteration_epsilon * math.sqrt(32 * event.iterations * math.log(2 / delta)), delta
