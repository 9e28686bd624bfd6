"""The learners by name."""

import hashlib
import inspect
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.files import attribute_in_file
from quorum_rl.learners.bc import Bc
from quorum_rl.learners.bc_gaussian import BcGaussian
from quorum_rl.learners.bcq import Bcq
from quorum_rl.learners.cql import Cql
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.iql import Iql
from quorum_rl.learners.learner import DenseLearner, Learner
from quorum_rl.learners.td3_bc import Td3Bc
from quorum_rl.own_code import own_code

LEARNERS: dict[str, type[DenseLearner]] = {
    kind.name: kind for kind in (Cql, Bcq, Bc, DoubleDqn, BcGaussian, Td3Bc, Iql)
}


def learner_to_json(learner: Any) -> dict[str, Any]:
    """A learner as data: its name and its fields. One's own has the name of its class."""
    name = getattr(learner, "name", type(learner).__name__)
    known = fields(learner) if is_dataclass(learner) else ()
    facts = {field.name: getattr(learner, field.name) for field in known}
    if not facts.get("action_bounds", True):
        del facts["action_bounds"]  # so that earlier versions' runs of finite actions go on
    return {"name": name, **facts}


def code_of(learner: Any) -> dict[str, str]:
    """Of a learner of the user's own, which code that is: its whole file where that was named.

    A run that went on with other code would add its noise to other sums.
    """
    code = getattr(learner, "code_digest", None) or own_code(learner)
    return {} if code is None else {"learner_code": code}


def hyper_parameters(learner: str | type[DenseLearner]) -> tuple[str, ...]:
    """What may be chosen about a learner, ours by its name or one's own by its class.

    Raises:
        QuorumError: if there is no such learner.
    """
    return tuple(field.name for field in fields(_class_of(learner)))


def get_learner(learner: str | type[DenseLearner], /, **given: Any) -> DenseLearner:
    """The learner of that name or class, with its defaults except where told otherwise.

    Raises:
        QuorumError: if there is no such learner or hyper-parameter, or one is out of its range.
    """
    kind, known = _class_of(learner), hyper_parameters(learner)
    for name in given:
        if name not in known:
            called = learner if isinstance(learner, str) else kind.__name__
            raise unknown_name(f"hyper-parameter of {called}", name, known)
    return kind(**given)


def learner_in_file(name: str) -> type[DenseLearner] | Learner:
    """The learner `path/to/file.py:NAME`: the class of a `DenseLearner`, whose settings are open,
    or an instance. Of any other class it is what that makes without arguments.

    The file is run: never pass a name that was read from a file.

    Raises:
        QuorumError: if there is no such file or learner.
    """
    found: Any = attribute_in_file("learner", name)
    path, _, attribute = name.rpartition(":")
    if not _is_learner(found):
        raise QuorumError(
            f"learner {name!r}: {path!r} has no learner called {attribute!r}: give a dataclass "
            "with the methods of quorum_rl.learners.Learner, or an instance of one."
        )
    kind: Any = found if isinstance(found, type) else type(found)
    if kind not in LEARNERS.values():
        kind.code_digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if found is not kind or issubclass(kind, DenseLearner):
        return found  # type: ignore[no-any-return]
    try:
        return kind()  # type: ignore[no-any-return]
    except TypeError as error:
        raise QuorumError(
            f"learner {name!r} cannot be made without arguments ({error}): give its fields "
            f"defaults, or name an instance in {path!r}."
        ) from error


def _is_learner(thing: Any) -> bool:
    """Whether it is one, or a class of some."""
    kind = thing if isinstance(thing, type) else type(thing)
    return isinstance(thing, Learner) and is_dataclass(kind) and not inspect.isabstract(kind)


def _class_of(learner: str | type[DenseLearner]) -> type[DenseLearner]:
    if isinstance(learner, type):
        return learner
    if learner not in LEARNERS:
        raise unknown_name("learner", learner, LEARNERS)
    return LEARNERS[learner]
