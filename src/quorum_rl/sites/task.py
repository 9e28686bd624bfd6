"""What a coordinator and its sites tell each other: public facts, noisy parameters, and sums."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.budget import Witness
from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner, Learner, get_learner, learner_to_json
from quorum_rl.training import (
    Contribution,
    Gradient,
    Local,
    PrivateStep,
    Solve,
    StepNumbers,
    StepShape,
)

FORMAT: Final = 1
CONTRIBUTIONS: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in (Local, Gradient, Solve)}
EVERYBODY: Final = 2**32 - 1  # the last of 32 random bits with which an expert is drawn

Facts: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = list[npt.NDArray[Any]]


class Question(NamedTuple):
    """What a site is asked in a round: its task, and the leaves of what the sum depends on."""

    task: Facts
    number: int
    arrays: Arrays


class Answer(NamedTuple):
    """What comes back: the sum of a site's experts in a round of a run. SENSITIVE.

    Whoever sent it may have sent anything.
    """

    run: str
    number: int
    arrays: Arrays
    refuses: bool = False

    def __repr__(self) -> str:
        return f"Answer({self.run!r}, {self.number}, sensitive)"


class Sites(Protocol):
    """How a coordinator reaches its sites: within one process (`SitesHere`), or by Flower."""

    def facts(self, wanted: Collection[str]) -> Mapping[str, Facts]:
        """What sites of these names say of themselves and their logs, all of it declared."""

    def ask(self, questions: Mapping[str, Question]) -> Iterable[tuple[str, Answer]]:
        """Ask each site its question, and give what comes back, until all answered or it is late.

        Who answers is for the transport to know, and not for the answer to say.
        """


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a site does in every round of a run.

    `first` experts are at the sites before it, and it has at most `most`. `ledger` is what is
    charged for it.
    """

    run: str
    rounds: int
    epsilon: float
    delta: float
    learner: DenseLearner
    contribution: Contribution
    clip_norm: float
    units: int
    chunk: int
    normalised: bool
    observation_size: int
    action_count: int
    first: int
    most: int
    ledger: Witness

    def in_words(self) -> str:
        """What the site's people should know of it."""
        return (
            f"{self.rounds} rounds that cost epsilon = {self.epsilon:g} at delta = {self.delta:g} "
            f"under the ledger {self.ledger.ledger}; the coordinator sees this site's sums and "
            "draws the noise"
        )

    @property
    def shape(self) -> StepShape:
        return StepShape(self.contribution, self.chunk, self.normalised)

    @property
    def numbers(self) -> StepNumbers:
        """Those of a step; what the sum is divided by is not for a site to know."""
        return StepNumbers(
            jnp.asarray(EVERYBODY, jnp.uint32),
            jnp.asarray(self.clip_norm, jnp.float32),
            jnp.asarray(self.units, jnp.float32),
            jnp.ones(()),
        )

    def to_json(self) -> dict[str, Any]:
        """The task as plain facts."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        contribution = {"name": type(self.contribution).__name__, **asdict(self.contribution)}  # type: ignore[call-overload]
        return {
            "format": FORMAT,
            **facts,
            "learner": learner_to_json(self.learner),
            "contribution": contribution,
            "ledger": asdict(self.ledger),
        }

    @classmethod
    def from_json(cls, facts: Facts) -> "Task":
        """What `to_json` wrote.

        Raises:
            QuorumError: if it is damaged, or of another version.
        """
        try:
            if facts["format"] != FORMAT:
                raise QuorumError(
                    f"the coordinator speaks version {facts['format']} of the protocol, and this "
                    f"site version {FORMAT}: install the same Quorum at both."
                )
            contribution = dict(facts["contribution"])
            kind = CONTRIBUTIONS[contribution.pop("name")]
            return cls(
                **{name: facts[name] for name in PLAIN},
                learner=learner_of(facts["learner"]),
                contribution=kind(**contribution),
                ledger=Witness(**facts["ledger"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, QuorumError):
                raise
            raise QuorumError(
                "the coordinator's task is unreadable: install the same Quorum at both."
            ) from error


PLAIN: Final = (
    "run", "rounds", "epsilon", "delta", "clip_norm", "units", "chunk", "normalised",
    "observation_size", "action_count", "first", "most",
)  # fmt: skip


def task_numbers(step: PrivateStep) -> dict[str, Any]:
    """What a task says of a private step."""
    return {
        "contribution": step.contribution,
        "clip_norm": step.clip_norm,
        "units": step.units,
        "chunk": step.chunk,
        "normalised": step.normalised,
    }


def learner_of(facts: Facts) -> DenseLearner:
    """The learner that `learner_to_json` wrote, one of ours."""
    given: dict[str, Any] = {
        key: tuple(fact) if isinstance(fact, list) else fact for key, fact in facts.items()
    }
    return get_learner(given.pop("name"), **given)


def sent(learner: Learner, contribution: Contribution) -> DenseLearner:
    """The learner as sites will have it.

    Raises:
        QuorumError: if it or the contribution is the user's own.
    """
    try:
        found = learner_of(learner_to_json(learner))
    except (QuorumError, TypeError):
        found = None
    if type(found) is not type(learner) or type(contribution) not in CONTRIBUTIONS.values():
        raise QuorumError(
            "a learner or a contribution of your own is code, which is not sent to sites: give one "
            "of ours."
        )
    assert isinstance(learner, DenseLearner)
    return learner


def leaves_asked(task: Task) -> tuple[list[jax.ShapeDtypeStruct], Any]:
    """The leaves of parameters and target, as shapes, and the structure that they make."""

    def made() -> Any:
        params = task.learner.init(jax.random.key(0), task.observation_size, task.action_count)
        return params, task.learner.init_target(params)

    leaves, structure = jax.tree.flatten(jax.eval_shape(made))
    return leaves, structure


def has_shape(array: Any, like: Any) -> bool:
    """Whether something that was sent is an array of this shape and kind."""
    return isinstance(array, np.ndarray) and array.shape == like.shape and array.dtype == like.dtype
