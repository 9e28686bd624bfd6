"""Stage 1: release the prefixes that a quorum of experts would have generated.

The ledger is charged first; then trajectories are drawn, counted and tested. Only the prefixes come
out: not who was drawn, how often, how many were tested or how near they came.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from quorum_rl.budget import ASSUMPTIONS, Entropy, Kind, Ledger, OsEntropy, needed_assumptions
from quorum_rl.distributed import is_first, this_machine
from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.logs import Declared, Demonstrations, as_they_acted, smoothing_of, split_release_pool
from quorum_rl.privacy import Event, ReleaseEvent, ReleasePlan
from quorum_rl.release.counting import EXPERTS_AT_ONCE, ROWS_AT_ONCE
from quorum_rl.release.distributed import counted_by_all
from quorum_rl.release.mechanism import Integers, ReleaseProgress, released_lengths
from quorum_rl.release.noise import Noise
from quorum_rl.release.sampling import Drawn, draw_as_published, draw_fresh
from quorum_rl.release.used_markers import marked
from quorum_rl.types import Released

ROUNDS_ALIKE: Final = "rounds-alike"
QUERIED: Final = "logs-from-queried-policies"
OURS_BY_MAKING: Final = {  # true of logs that our own collecting made
    QUERIED,
    "independent-trajectories",
    "common-world",
    "floor-everywhere",
    "public-ends",
}
REPRODUCIBLE_NOISE: Final = "reproducible noise: not private against someone who knows the seed"
REPRODUCIBLE_LOGS: Final = "reproducible logs: not private against someone who knows their seed"


def experts_who_acted(experts: UnloggedExperts, demonstrations: Demonstrations) -> LoggedExperts:
    """The experts to be asked about demonstrations, given as they were before they acted.

    They are smoothed as the log says. Where it does not say, as with logs that others made, they
    are taken as they are: that just these policies acted is the assumption
    `logs-from-queried-policies`, without which nothing is released.

    Raises:
        QuorumError: if they cannot be those who acted.
    """
    if demonstrations.declared.smoothing is None:
        return LoggedExperts(experts)
    return as_they_acted(experts, demonstrations)


@dataclass(frozen=True)
class ReleaseOutcome:
    """What came out, and what stays in: `remaining` is SENSITIVE and is what training may use."""

    released: Released
    remaining: Demonstrations


class ReleaseOptions(TypedDict, total=False):
    """How to run a release, where the default does not do; see `release_and_keep`."""

    run: str
    accepted: Sequence[str]
    training_minimum: int
    entropy: Entropy
    experts_at_once: int
    rows_at_once: int
    progress: ReleaseProgress


def release(
    experts: LoggedExperts,
    demonstrations: Demonstrations,
    plan: ReleasePlan,
    ledger: Ledger,
    **options: Unpack[ReleaseOptions],
) -> Released:
    """The released prefixes alone; see `release_and_keep`."""
    return release_and_keep(experts, demonstrations, plan, ledger, **options).released


def release_and_keep(
    experts: LoggedExperts,
    demonstrations: Demonstrations,
    plan: ReleasePlan,
    ledger: Ledger,
    **options: Unpack[ReleaseOptions],
) -> ReleaseOutcome:
    """Run stage 1 once, and return the released prefixes and the trajectories left for training.

    In mode `tight` the first `pool_size` trajectories of every expert are the release's and the
    others are left for training; experts with fewer than that and `training_minimum` are dropped
    from everything first. In mode `paper` trajectories are drawn as published, and what training
    may use are the tails of the drawn ones and all others.

    `accepted` are the names of the assumptions (`budget.ASSUMPTIONS`) that the owner of the logs
    takes responsibility for; they are written into the ledger, and all that the event needs must
    be there unless the ledger is for research. Noise comes from the operating
    system unless a seeded `entropy` is given, which marks the ledger.

    Guarantee: under those assumptions, for sets of experts that differ by one and both have at
    least the declared number, the prefixes are (ε, δ)-indistinguishable for the ε and δ of the
    charge; the remaining trajectories (mode `tight`) are independent of them given the experts.

    Raises:
        QuorumError: if what was declared does not fit the plan, or the ledger refuses. Never
            because of what the experts did or how many there are.
    """
    event, declared = plan.event, demonstrations.declared
    minimum = options.get("training_minimum", 1)
    if not is_first():
        raise QuorumError(
            "only the first process releases, because noise of its own in each would be as many "
            "releases: call help_release in the others."
        )
    _check_options(options)
    _check_acted(experts, declared, options.get("accepted", ()))
    accepted = accepted_assumptions(
        event,
        options.get("accepted", ()),
        ledger.record.kind,
        by_making=made_by(experts, declared),
    )
    entropy = options.get("entropy", OsEntropy())
    _check_declared(event, declared, experts, accepted)
    _check_trajectories(event, declared, minimum)
    _check_identities(experts, demonstrations)
    facts: dict[str, Any] = {"pool": declared.identity, "accepted": list(accepted)}
    facts["training_minimum"] = minimum
    with marked(demonstrations.source, declared.identity, ledger):
        ledger.charge(event, run=options.get("run", "release"), facts=facts)
    _mark(ledger, entropy, declared)
    if event.mode == "paper":
        drawn = draw_as_published(demonstrations, event.iterations, entropy)
        lengths = _tested(event, experts, np.arange(len(experts)), drawn, entropy, options)
        return ReleaseOutcome(_released(drawn, lengths), unreleased(demonstrations, drawn, lengths))
    split = split_release_pool(demonstrations, per_expert=event.pool_size, training_minimum=minimum)
    drawn = draw_fresh(split.pool, event.iterations, entropy)
    lengths = _tested(event, experts, split.pool.experts, drawn, entropy, options)
    return ReleaseOutcome(_released(drawn, lengths), split.training)


def _tested(
    event: ReleaseEvent,
    experts: LoggedExperts,
    counted: npt.NDArray[np.integer[Any]],
    drawn: Drawn,
    entropy: Entropy,
    options: ReleaseOptions,
) -> Integers:
    """How many steps of each drawn trajectory pass, with only the experts `counted`."""
    states, actions = drawn.padded(min(event.prefix_cap, event.horizon))
    together = counted_by_all(
        event,
        experts,
        np.isin(np.arange(len(experts)), counted),
        states,
        actions,
        experts_at_once=options.get("experts_at_once", EXPERTS_AT_ONCE),
        rows_at_once=options.get("rows_at_once", ROWS_AT_ONCE),
    )
    noise = Noise(entropy, event)
    with together as counts:
        return released_lengths(event, drawn.lengths(), counts, noise, options.get("progress"))


def _released(drawn: Drawn, lengths: Integers) -> Released:
    """The prefixes as data of their own, in the order of the iterations."""
    log, declared = drawn.pool, drawn.pool.declared
    kept = np.flatnonzero(lengths)
    first = log.transition_offsets[drawn.episode[kept]]
    steps = [start + np.arange(count) for start, count in zip(first, lengths[kept], strict=True)]
    found = log.transitions(np.concatenate(steps) if steps else np.zeros(0, np.int64))
    offsets = np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64)
    truncated = np.zeros(offsets[-1], np.bool_)
    truncated[offsets[1:] - 1] = True
    return Released(
        transitions=found._replace(truncated=truncated & ~np.asarray(found.terminated)),
        offsets=offsets,
        observation_size=declared.observation_size,
        action_count=declared.action_count,
        horizon=declared.horizon,
    )


def unreleased(log: Demonstrations, drawn: Drawn, lengths: Integers) -> Demonstrations:
    """The paper's unstable set: tails of the drawn trajectories, and all the others whole."""
    gone = np.zeros(len(log), np.int64)
    chosen = drawn.episode >= 0
    gone[drawn.episode[chosen]] = lengths[chosen]
    episodes = log.episodes
    tails = episodes._replace(
        first_state=episodes.first_state + gone,
        first_step=episodes.first_step + gone,
        length=episodes.length - gone,
    )
    return replace(log, episodes=tails.chosen(tails.length > 0))


def _mark(ledger: Ledger, source: Entropy, declared: Declared) -> None:
    if source.reproducible:
        ledger.mark(REPRODUCIBLE_NOISE)
    if declared.reproducible:
        ledger.mark(REPRODUCIBLE_LOGS)


def made_by(experts: LoggedExperts | None, declared: Declared) -> bool:
    """Whether we let just these experts act, and wrote down what they did."""
    return (
        experts is not None
        and declared.machine is not None
        and declared.experts_identity is not None
        and declared.experts_identity == experts.identity
    )


def accepted_assumptions(
    event: Event, accepted: Sequence[str], kind: Kind, *, by_making: bool
) -> tuple[str, ...]:
    """All assumptions that are accepted, those included that hold because we made the logs.

    Raises:
        QuorumError: if one is missing, unless the ledger is for research.
    """
    known = {*ASSUMPTIONS, ROUNDS_ALIKE}
    for name in accepted:
        if name not in known:
            raise unknown_name("assumption", name, known)
    held = set(accepted) | (OURS_BY_MAKING if by_making else set())
    missing = [name for name in needed_assumptions(event) if name not in held]
    if missing and kind == "production":
        raise QuorumError(
            "the guarantee rests on what only the owner of the logs can know; accept by name: "
            + "; ".join(f"{name} ({ASSUMPTIONS[name]})" for name in missing)
            + "."
        )
    return tuple(sorted(held))


def _check_options(options: ReleaseOptions) -> None:
    """Before the charge: a mistyped option should not cost the pool."""
    for unknown in options.keys() - ReleaseOptions.__annotations__.keys():
        raise unknown_name("option of a release", unknown, ReleaseOptions.__annotations__)
    for name, least in (("training_minimum", 0), ("experts_at_once", 1), ("rows_at_once", 1)):
        value = options.get(name, least)
        if not isinstance(value, int) or value < least:
            raise QuorumError(f"{name} is {value!r}: give a whole number, {least} or more.")


def _check_acted(experts: LoggedExperts, declared: Declared, accepted: Sequence[str]) -> None:
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


def _check_declared(
    event: ReleaseEvent, declared: Declared, experts: LoggedExperts, accepted: Sequence[str]
) -> None:
    """What the owner said must fit the plan; nothing here looks at the data."""
    if (event.actions, event.horizon) != (declared.action_count, declared.horizon):
        raise QuorumError(
            f"the plan is for {event.actions} actions and a horizon of {event.horizon}, but the "
            f"demonstrations declare {declared.action_count} and {declared.horizon}: plan again."
        )
    if (experts.action_count, experts.observation_size) != (
        declared.action_count,
        declared.observation_size,
    ):
        raise QuorumError(
            f"the experts see {experts.observation_size} numbers and have {experts.action_count} "
            f"actions, but the demonstrations declare {declared.observation_size} and "
            f"{declared.action_count}: give the experts that acted."
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


def _check_trajectories(event: ReleaseEvent, declared: Declared, training_minimum: int) -> None:
    """By what is declared; how many there really are is private."""
    least, needed = declared.minimum_trajectories, event.pool_size + training_minimum
    if event.mode == "tight" and least is not None and least < needed:
        raise QuorumError(
            f"the release would reserve {event.pool_size} trajectories of every expert and leave "
            f"{training_minimum} for training, but the demonstrations declare only {least}: plan "
            "for fewer iterations, or for a smaller pool limit."
        )


def _check_identities(experts: LoggedExperts, demonstrations: Demonstrations) -> None:
    """An expert's identity in the log is its index in the set, or the log is of other experts."""
    identities = demonstrations.experts
    if len(identities) and not (identities[0] >= 0 and identities[-1] < len(experts)):
        raise QuorumError(
            "the demonstrations have experts that the expert set does not: give the experts that "
            "acted, in the order of their numbers in the log."
        )
