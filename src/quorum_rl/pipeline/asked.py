"""What a fit is given is of the kinds that it takes, or is refused in one sentence."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
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


def _are_learners(value: Any) -> bool:
    names = isinstance(value, Sequence) and not isinstance(value, str)
    return names and all(_is_learner(one) for one in value)


def _is_learner(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, DenseLearner)
    return isinstance(value, str | Learner)


COUNT: Final = Rule("a whole number", lambda value: isinstance(value, Integral))
KINDS: Final[Mapping[str, Rule]] = {
    "demonstrations": Rule("Demonstrations.open(path)", _is(Demonstrations)),
    "experts": Rule(
        "CallableExperts, OnnxExperts.from_folder(path) or load_population(path)",
        _is(LoggedExperts, UnloggedExperts),
    ),
    "epsilon": POSITIVE,
    "delta": FRACTION,
    "minimum_experts": COUNT,
    "minimum_trajectories": COUNT,
    "budget": Rule("Budget.open(path) or Budget.create(path, ...)", _is(Budget)),
    "learner": Rule("a learner, its name, or the class of a DenseLearner", _is_learner),
    "learner_settings": Rule("a dictionary of names and values", _is(Mapping)),
    "choose": Rule("a list of learners, such as ['bc', 'cql']", _are_learners),
    "settings": Rule("a FitSettings(...)", _is(FitSettings)),
    "folder": Rule("a path", _is(str, Path)),
    "accepted": Rule("a list of names, such as ['one-expert-each']", _are_names),
    "accepted_by": PERSON,
    "seed": SEED,
    "report": Rule("a function of a line, such as print", callable),
    "progress": Rule("a function of the steps done and how many there are", callable),
    "track": Rule(
        "a function of metrics, such as 'with pipeline.tracker(...) as track' gives",
        lambda value: callable(value) and not hasattr(value, "__enter__"),
    ),
    "command": Rule("a text", _is(str)),
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
