"""By what trials are judged: something public, or a selection among them would tell of the data.

Public is a world, and so is what a release let out: it was paid for. Judging by it is how a sweep
goes without a simulator.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import LedgerRecord
from quorum_rl.envs import get_world
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Learner
from quorum_rl.logs import Demonstrations
from quorum_rl.release import event_of
from quorum_rl.types import Released

Judge = Literal["world", "released"] | Released
"""Returns in a world, agreement with the sweep's own release, or with that of another one."""

Select = Literal["public", "private"]
"""How the choice among trials is accounted."""

PAID_ELSEWHERE: Final = (
    "judged by a release that this ledger does not hold: if it is of these experts, what it cost "
    "is not part of this account"
)


def check_judge(
    judge: Judge, world: str | None, select: Select | None, log: Demonstrations
) -> None:
    """Fail where there is nothing to judge by, or nothing that fits, before anything is paid.

    Raises:
        QuorumError: saying what is missing.
    """
    if judge == "world" and world is None:
        raise QuorumError(
            "trials are judged in a public world: name it with --world, or judge them by what was "
            "released (--judge)."
        )
    if judge == "released" and select is None:
        raise QuorumError(
            "without --select every trial has releases of its own: judge them in a world, or by "
            "one file of 'quorum release'."
        )
    if judge == "released" and select == "private" and world is None:
        raise QuorumError(
            "a private selection is by what was settled before it is paid for, and a release may "
            "give nothing to judge by: name --world too, or judge by a file of another release."
        )
    if world is not None:
        spaces = get_world(world).spaces
        sizes = spaces.observation_size, spaces.action_count
        _check_sizes(f"the world {world!r}", sizes, log, "name the world of the demonstrations.")
    if isinstance(judge, Released):
        sizes, mend = (judge.observation_size, judge.action_count), "give prefixes of the same kind"
        _check_sizes(repr(judge), sizes, log, f"{mend}.")
        if not len(judge):
            raise QuorumError(f"{judge!r} cannot judge trials: {mend}, and some.")


def _check_sizes(what: str, sizes: tuple[int, int], log: Demonstrations, mend: str) -> None:
    declared = log.declared
    if sizes != (declared.observation_size, declared.action_count):
        raise QuorumError(
            f"{what}, with {sizes[0]} numbers in a state and {sizes[1]} actions, cannot judge "
            f"trials on demonstrations of {declared.observation_size} and {declared.action_count}: "
            f"{mend}"
        )


def judged_on(judge: Judge, world: str | None, released: Released | None) -> Released | None:
    """The prefixes that trials are judged by; None for a world, which also stands in for a release
    that gave nothing.

    Raises:
        QuorumError: if that gave nothing and there is no world.
    """
    if not isinstance(judge, str):
        return judge
    if judge == "world":
        return None
    if released is not None and len(released):
        return released
    if world is None:
        raise QuorumError(
            "nothing was released that trials could be judged by, and it is paid for: go on with "
            "the same command and --world, or with --judge and a file of another release."
        )
    return None


def paid_elsewhere(judge: Judge, facts: Mapping[str, Any], record: LedgerRecord) -> bool:
    """Whether trials are judged by a release that the ledger does not hold.

    `facts` are those that the file of the release has.
    """
    if isinstance(judge, str):
        return False
    return facts.get("ledger") != record.identity or event_of(facts) not in record.events


def named(judge: Judge) -> str:
    """What a folder remembers of it."""
    if isinstance(judge, str):
        return judge
    columns = (np.asarray(leaf).tobytes() for leaf in judge.transitions)
    return f"released {hashlib.sha256(b''.join(columns)).hexdigest()[:16]}"


def agreement(learner: Learner, params: Any, released: Released) -> tuple[float, ...]:
    """How often the greedy policy of each seed does what was released. Shapes: params (seeds, …).

    Guarantee: a function of parameters that were charged and of prefixes that were paid for.
    """
    states = jnp.asarray(released.transitions.observation)
    acts = jax.vmap(learner.act, (0, None))(params, states)
    same = np.asarray(acts) == np.asarray(released.transitions.action)
    return tuple(map(float, same.mean(axis=1)))
