"""The learners by name."""

from typing import Any

from quorum_rl.errors import unknown_name
from quorum_rl.learners.bc import Bc
from quorum_rl.learners.bcq import Bcq
from quorum_rl.learners.cql import Cql
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.learner import DenseLearner

LEARNERS: dict[str, type[DenseLearner]] = {kind.name: kind for kind in (Cql, Bcq, Bc, DoubleDqn)}


def learner_names() -> tuple[str, ...]:
    """The names of the learners that come with Quorum."""
    return tuple(LEARNERS)


def get_learner(name: str, **hyper_parameters: Any) -> DenseLearner:
    """The learner called `name`, with its defaults except where told otherwise.

    Raises:
        QuorumError: if there is no such learner or hyper-parameter, or one is out of its range.
    """
    if name not in LEARNERS:
        raise unknown_name("learner", name, LEARNERS)
    kind = LEARNERS[name]
    for given in hyper_parameters:
        if given not in kind.__dataclass_fields__:
            raise unknown_name(f"hyper-parameter of {name}", given, kind.__dataclass_fields__)
    return kind(**hyper_parameters)
