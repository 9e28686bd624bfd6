"""What must hold before a release is charged: by what is declared, never by what is in the logs."""

from collections.abc import Sequence
from typing import Any, Final

from quorum_rl.budget import ASSUMPTIONS, Kind, needed_assumptions
from quorum_rl.distributed import this_machine
from quorum_rl.errors import PERSON, QuorumError, require, unknown_name
from quorum_rl.experts import LoggedExperts
from quorum_rl.logs import Declared, Demonstrations, smoothing_of
from quorum_rl.privacy import Event, ReleaseEvent
from quorum_rl.release.belonging import OTHER_EXPERTS

ROUNDS_ALIKE: Final = "rounds-alike"
QUERIED: Final = "logs-from-queried-policies"
OURS_BY_MAKING: Final = {  # true of logs that our own collecting made; a floor is the owner's word
    QUERIED,
    "independent-trajectories",
    "common-world",
    "public-ends",
}


def made_by(experts: LoggedExperts | None, declared: Declared) -> bool:
    """Whether we let just these experts act, and wrote down what they did."""
    return (
        experts is not None
        and declared.machine is not None
        and declared.experts_identity is not None
        and declared.experts_identity == experts.identity
    )


def acceptance(
    event: Event,
    accepted: Sequence[str],
    accepted_by: str | None,
    kind: Kind,
    *,
    by_making: bool = False,
    at_sites: bool = False,
) -> dict[str, Any]:
    """What a charge holds of the assumptions that are accepted, and of who answers for them.

    Those are included that hold because we made the logs; for them nobody has to answer. Logs
    `at_sites` of their own need some more.

    Raises:
        QuorumError: if an assumption is missing, unless the ledger is for research, or if
            `accepted_by` is no name or answers for nothing.
    """
    known = {*ASSUMPTIONS, ROUNDS_ALIKE, OTHER_EXPERTS}
    for name in accepted:
        if name not in known:
            raise unknown_name("assumption", name, known)
    held = set(accepted) | (OURS_BY_MAKING if by_making else set())
    needed = needed_assumptions(event, at_sites=at_sites)
    missing = [name for name in needed if name not in held]
    if missing and kind == "production":
        raise QuorumError(
            "the guarantee rests on what only the owner of the logs can know; accept by name: "
            + "; ".join(f"{name} ({ASSUMPTIONS[name]})" for name in missing)
            + "."
        )
    facts: dict[str, Any] = {"accepted": sorted(held)}
    if accepted_by is None:
        return facts
    require("accepted_by", accepted_by, PERSON)
    if not accepted:
        raise QuorumError(
            f"{accepted_by!r} is to answer for assumptions, and none is accepted: name those too "
            "(accepted, --accept)."
        )
    return facts | {"accepted_by": {"name": accepted_by, "assumptions": sorted(set(accepted))}}


def check_acted(experts: LoggedExperts, declared: Declared, accepted: Sequence[str]) -> None:
    """The queried policies must be those that acted, smoothed as they were then."""
    if not isinstance(experts, LoggedExperts):
        raise QuorumError(
            f"a release was given a {type(experts).__name__}: give the LoggedExperts that "
            "collecting returned, because a policy changed since then did not act."
        )
    if declared.experts_identity not in (None, experts.identity) and QUERIED not in accepted:
        raise QuorumError(
            f"these are not the experts who acted: the log is of the set "
            f"{declared.experts_identity}, and these are {experts.identity}; give those, or accept "
            f"{QUERIED!r} if they are the same policies, made anew."
        )
    if declared.smoothing is None:
        return
    smoothing, floor = smoothing_of(experts.generated_by), declared.p_min or 0.0
    if (smoothing, experts.p_min) != (declared.smoothing, floor):
        raise QuorumError(
            f"the experts are smoothed by {smoothing!r} to {experts.p_min:g}, but those that acted "
            f"by {declared.smoothing!r} to {floor:g}: give the experts as they acted."
        )


def check_are_those(experts: LoggedExperts, declared: Declared, accepted: Sequence[str]) -> None:
    """The experts must be those who acted, as far as what is declared tells.

    Raises:
        QuorumError: if they see or do something else, or are another set.
    """
    if (experts.action_count, experts.observation_size) != (
        declared.action_count,
        declared.observation_size,
    ):
        raise QuorumError(
            f"the experts see {experts.observation_size} numbers and have {experts.action_count} "
            f"actions, but the demonstrations declare {declared.observation_size} and "
            f"{declared.action_count}: give the experts that acted."
        )
    check_acted(experts, declared, accepted)


def check_declared(
    event: ReleaseEvent, declared: Declared, experts: LoggedExperts, accepted: Sequence[str]
) -> None:
    """What the owner said must fit the plan; nothing here looks at the data."""
    if declared.continuous:
        raise QuorumError(
            "these demonstrations' actions are continuous, and a release counts how likely experts "
            "find an action: train in private rounds alone."
        )
    if (event.actions, event.horizon) != (declared.action_count, declared.horizon):
        raise QuorumError(
            f"the plan is for {event.actions} actions and a horizon of {event.horizon}, but the "
            f"demonstrations declare {declared.action_count} and {declared.horizon}: plan again."
        )
    floor = min(declared.p_min or 0.0, experts.p_min)
    if event.p_min > floor:
        raise QuorumError(
            f"the plan counts on a floor of {event.p_min:g}, but the experts and demonstrations "
            f"declare {floor:g}: plan for that floor, or for random stopping without any."
        )
    if declared.minimum_experts is not None and event.experts > declared.minimum_experts:
        raise QuorumError(
            f"the plan counts on {event.experts} experts, but the demonstrations declare only "
            f"{declared.minimum_experts}: plan for so many."
        )
    here = this_machine()
    if declared.machine not in (None, here) and ROUNDS_ALIKE not in accepted:
        raise QuorumError(
            f"the experts acted on {declared.machine!r} and would be asked on {here!r}, where they "
            f"may round otherwise: release where they acted, or accept {ROUNDS_ALIKE!r}."
        )


def check_trajectories(event: ReleaseEvent, declared: Declared, training_minimum: int) -> None:
    """By what is declared; how many there really are is private."""
    least, needed = declared.minimum_trajectories, event.pool_size + training_minimum
    if event.mode == "tight" and least is not None and least < needed:
        raise QuorumError(
            f"the release would reserve {event.pool_size} trajectories of every expert and leave "
            f"{training_minimum} for training, but the demonstrations declare only {least}: plan "
            "for fewer iterations, or for a smaller pool limit."
        )


def check_identities(experts: LoggedExperts, demonstrations: Demonstrations) -> None:
    """An expert's identity in the log is its index in the set, or the log is of other experts."""
    identities = demonstrations.experts
    if len(identities) and not (identities[0] >= 0 and identities[-1] < len(experts)):
        raise QuorumError(
            "the demonstrations have experts that the expert set does not: give the experts that "
            "acted, in the order of their numbers in the log."
        )
