"""A release whose experts are counted by several processes.

The first process releases: it alone charges the ledger, draws, makes noise and writes. The others
only count, each its own share of the experts, when the first one asks (`help_release`). Counts are
whole numbers, so their sum is the one that a single process would have made, and so is everything
that is released. What travels between processes is SENSITIVE: counts without noise.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from quorum_rl.distributed import (
    Named,
    from_the_first,
    is_first,
    is_single_process,
    own_share,
    summed,
    this_machine,
)
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.privacy import ReleaseEvent
from quorum_rl.release.counting import PrefixCounts
from quorum_rl.release.mechanism import CountBlock, Integers


@contextmanager
def counted_by_all(
    event: ReleaseEvent,
    experts: LoggedExperts,
    counted: npt.NDArray[np.bool_],
    states: npt.NDArray[np.float32],
    actions: npt.NDArray[np.int32],
) -> Iterator[CountBlock]:
    """The counts of all experts, with the help of the other processes if there are any.

    Shapes: as `PrefixCounts` has them.
    """
    drawn = {"counted": counted, "states": states, "actions": actions}
    counts = _own_counts(event, experts, drawn)
    if is_single_process():
        yield counts
        return
    facts = {"event": json.dumps(asdict(event)), "experts": len(experts), "machine": this_machine()}
    from_the_first({name: np.array(fact) for name, fact in facts.items()} | drawn)

    def ask(still_open: Integers, first: int, last: int) -> Integers:
        from_the_first({"open": still_open, "steps": np.array([first, last])})
        return summed(counts(still_open, first, last))

    try:
        yield ask
    finally:
        from_the_first({})


def help_release(experts: LoggedExperts) -> None:
    """Count for a release of the first process, until it ends; call it in every other process.

    `experts` are the same ones in the same order; only this process's share of them is asked.

    Raises:
        QuorumError: if this is the first process, or as `count_as_told`.
    """
    if is_first():
        raise QuorumError("the first process releases, so it cannot help: call release there.")
    told = from_the_first()
    if told:
        count_as_told(experts, told)


def count_as_told(experts: LoggedExperts, told: Named) -> None:
    """Count for the release that the first process has told of, until it ends.

    Raises:
        QuorumError: if the experts are not as many as there, or would be asked on another machine.
    """
    if len(experts) != told["experts"]:
        raise QuorumError("the first process has other experts: give the same set to all.")
    if str(told["machine"]) != this_machine():
        raise QuorumError(
            f"the first process is on {str(told['machine'])!r} and this one on {this_machine()!r}, "
            "where experts may round otherwise: give both the same."
        )
    counts = _own_counts(ReleaseEvent(**json.loads(str(told["event"]))), experts, told)
    while asked := from_the_first():
        first, last = asked["steps"].tolist()
        summed(counts(asked["open"], first, last))


def _own_counts(event: ReleaseEvent, experts: LoggedExperts, drawn: Named) -> PrefixCounts:
    """The counts of this process's share of the experts."""
    own = own_share(len(experts))
    return PrefixCounts(
        event, experts, drawn["counted"], drawn["states"], drawn["actions"], share=own
    )
