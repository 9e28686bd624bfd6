"""Stage 1: release the prefixes that a quorum of experts would have generated.

The ledger is charged first; then trajectories are drawn, counted and tested. Only the prefixes come
out: not who was drawn, how often, how many were tested or how near they came.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quorum_rl.budget import Entropy, Ledger, LedgerRecord, OsEntropy
from quorum_rl.distributed import is_first
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.logs import Demonstrations, as_they_acted, split_release_pool
from quorum_rl.privacy import ReleaseEvent, ReleasePlan
from quorum_rl.release.belonging import charge_log, recall
from quorum_rl.release.checks import (
    acceptance,
    check_are_those,
    check_declared,
    check_identities,
    check_trajectories,
    made_by,
)
from quorum_rl.release.distributed import counted_by_all
from quorum_rl.release.mechanism import Integers, ReleaseProgress, released_lengths
from quorum_rl.release.noise import Noise
from quorum_rl.release.sampling import Drawn, draw_as_published, draw_fresh
from quorum_rl.types import Released

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


def release(
    experts: LoggedExperts,
    demonstrations: Demonstrations,
    plan: ReleasePlan,
    ledger: Ledger,
    *,
    run: str = "release",
    accepted: Sequence[str] = (),
    accepted_by: str | None = None,
    training_minimum: int = 1,
    entropy: Entropy | None = None,
    progress: ReleaseProgress | None = None,
    committed: Mapping[str, str] | None = None,
) -> ReleaseOutcome:
    """Run stage 1 once, and return the released prefixes and the trajectories left for training.

    In mode `tight` the first `pool_size` trajectories of every expert are the release's and the
    others are left for training; experts with fewer than that and `training_minimum` are dropped
    from everything first. In mode `paper` trajectories are drawn as published, and what training
    may use are the tails of the drawn ones and all others.

    `accepted` are the names of the assumptions (`budget.ASSUMPTIONS`) that the owner of the logs
    takes responsibility for, and `accepted_by` is who that is; both are written into the ledger,
    and all that the event needs must be there unless the ledger is for research. Noise comes from
    the operating system unless a seeded `entropy` is given, which marks the ledger. `committed` are
    hashes of a run's keys for the charge to hold (`budget.commitments`). Where they fix the
    `entropy` and the ledger holds this very charge, of a run that died, nothing is charged: the
    same noise makes the same prefixes.

    Guarantee: under those assumptions, for sets of experts that differ by one and both have at
    least the declared number after that, the prefixes are (ε, δ)-indistinguishable for the ε and δ
    of the charge; the remaining trajectories (mode `tight`) are independent of them given the
    experts.

    Raises:
        QuorumError: if what was declared does not fit the plan, the ledger refuses, or it is for
            production and fewer experts than declared are left, of whom nothing is guaranteed
            (`Demonstrations.check_usable`). Never because of what the experts did or answer: what
            is no valid answer counts 0.
    """
    event, declared = plan.event, demonstrations.declared
    if not is_first():
        raise QuorumError(
            "only the first process releases, because noise of its own in each would be as many "
            "releases: call help_release in the others."
        )
    # All before the charge: what is refused should not cost the pool.
    require("training_minimum", training_minimum, at_least(0))
    check_are_those(experts, declared, accepted)
    by_making = made_by(experts, declared)
    held = acceptance(event, accepted, accepted_by, ledger.record.kind, by_making=by_making)
    check_declared(event, declared, experts, held["accepted"])
    check_trajectories(event, declared, training_minimum)
    check_identities(experts, demonstrations)
    if ledger.record.kind == "production":
        reserved = event.pool_size + training_minimum if event.mode == "tight" else 1
        demonstrations.check_usable(event.experts, reserved)
    facts: dict[str, Any] = {"pool": declared.identity, **held}
    facts |= {"training_minimum": training_minimum, **(committed or {})}
    source = OsEntropy() if entropy is None else entropy
    marks = [REPRODUCIBLE_NOISE] * source.reproducible + [REPRODUCIBLE_LOGS] * declared.reproducible
    same = {name: facts[name] for name in ("pool", "training_minimum", *(committed or ()))}
    repeats = bool(committed) and not isinstance(source, OsEntropy)
    if repeats and _is_paid(ledger.record, event, run, same):
        recall(ledger, demonstrations, accepted)
    else:
        charge_log(ledger, event, demonstrations, run=run, facts=facts, marks=marks)

    def tested(drawn: Drawn, counted: npt.NDArray[np.integer[Any]]) -> Integers:
        """How many steps of each drawn trajectory pass, with only the experts `counted`."""
        states, actions = drawn.padded(min(event.prefix_cap, event.horizon))
        is_counted = np.isin(np.arange(len(experts)), counted)
        with counted_by_all(event, experts, is_counted, states, actions) as counts:
            return released_lengths(event, drawn.lengths(), counts, Noise(source, event), progress)

    if event.mode == "paper":
        drawn = draw_as_published(demonstrations, event.iterations, source)
        lengths = tested(drawn, np.arange(len(experts)))
        return ReleaseOutcome(_released(drawn, lengths), unreleased(demonstrations, drawn, lengths))
    split = split_release_pool(
        demonstrations, per_expert=event.pool_size, training_minimum=training_minimum
    )
    drawn = draw_fresh(split.pool, event.iterations, source)
    return ReleaseOutcome(_released(drawn, tested(drawn, split.pool.experts)), split.training)


def _is_paid(record: LedgerRecord, event: ReleaseEvent, run: str, facts: Mapping[str, Any]) -> bool:
    """Whether the ledger holds this release of this run with these facts."""
    return any(
        (charge.event, charge.run) == (event, run) and facts.items() <= charge.facts.items()
        for charge in record.charges
    )


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
