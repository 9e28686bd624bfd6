"""The learners by name."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from quorum_rl.errors import unknown_name
from quorum_rl.learners.bc import Bc
from quorum_rl.learners.bcq import Bcq
from quorum_rl.learners.cql import Cql
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.learner import DenseLearner

LEARNERS: dict[str, type[DenseLearner]] = {kind.name: kind for kind in (Cql, Bcq, Bc, DoubleDqn)}


def learner_to_json(learner: Any) -> dict[str, Any]:
    """A learner as data: its name and its fields. One's own has the name of its class."""
    name = getattr(learner, "name", type(learner).__name__)
    known = fields(learner) if is_dataclass(learner) else ()
    return {"name": name, **{field.name: getattr(learner, field.name) for field in known}}


def learner_from_json(facts: Mapping[str, Any]) -> DenseLearner:
    """The learner that `learner_to_json` wrote down.

    Raises:
        QuorumError: if it is none of ours, or a hyper-parameter does not fit.
    """
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()
    }
    return get_learner(str(given.pop("name", "")), **given)


def learner_names() -> tuple[str, ...]:
    """The names of the learners that come with Quorum."""
    return tuple(LEARNERS)


def hyper_parameters(name: str) -> tuple[str, ...]:
    """What may be chosen about the learner called `name`.

    Raises:
        QuorumError: if there is no such learner.
    """
    if name not in LEARNERS:
        raise unknown_name("learner", name, LEARNERS)
    return tuple(field.name for field in fields(LEARNERS[name]))


def get_learner(name: str, /, **given: Any) -> DenseLearner:
    """The learner called `name`, with its defaults except where told otherwise.

    Raises:
        QuorumError: if there is no such learner or hyper-parameter, or one is out of its range.
    """
    known = hyper_parameters(name)
    for parameter in given:
        if parameter not in known:
            raise unknown_name(f"hyper-parameter of {name}", parameter, known)
    return LEARNERS[name](**given)
