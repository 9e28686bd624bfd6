"""What a fit is given is of the kinds that it takes, or is refused in one sentence."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import Budget
from quorum_rl.errors import FRACTION, PERSON, POSITIVE, SEED, Rule, require
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.settings import FitSettings


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _are_names(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_is(str), value))


def _is_learner(value: Any) -> bool:
    own = isinstance(value, type) and issubclass(value, DenseLearner)
    return own or isinstance(value, str | Learner)


KINDS: Final[Mapping[str, Rule]] = {
    "demonstrations": Rule("Demonstrations.open(path)", _is(Demonstrations)),
    "experts": Rule(
        "CallableExperts, OnnxExperts.from_folder(path) or load_population(path)",
        _is(LoggedExperts, UnloggedExperts),
    ),
    "epsilon": POSITIVE,
    "delta": FRACTION,
    "budget": Rule("Budget.open(path) or Budget.create(path, ...)", _is(Budget)),
    "learner": Rule("a learner, its class or its name", _is_learner),
    "learner_settings": Rule("a dictionary of names and values", _is(Mapping)),
    "settings": Rule("a FitSettings(...)", _is(FitSettings)),
    "folder": Rule("a path", _is(str, Path)),
    "accepted": Rule("a list of names, such as ['one-expert-each']", _are_names),
    "accepted_by": PERSON,
    "seed": SEED,
}
NEEDED: Final = ("demonstrations", "epsilon", "delta")


def check_kinds(**given: Any) -> None:
    """Refuse what is not of its kind; None stands for what was not given.

    Raises:
        QuorumError: naming the first that is not, and what to give.
    """
    for name, value in given.items():
        if value is not None or name in NEEDED:
            require(name, value, KINDS[name])
