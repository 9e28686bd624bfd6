"""A site: what it does in a round, with logs that never leave it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import Witness
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.logs import Declared, Demonstrations, declared_to_json
from quorum_rl.release import belong_elsewhere
from quorum_rl.sites.task import Answer, Facts, Question, Task, has_shape, leaves_asked
from quorum_rl.training import AskedSum, expert_data, nobody, part_of_sum

WORDS: Final = jax.ShapeDtypeStruct((2,), jnp.uint32)


class Site:
    """The logs of at most `most_experts` experts, and what it says of them to a coordinator.

    A site keeps nothing on disk: who starts it again goes on. `accepted` are the names of
    assumptions that it answers for by itself (`other-experts`). `heard` hears of every round the
    task and its number.

    Guarantee: it answers with facts that are declared, and with sums over all of its experts in
    which each of them counts for at most a clip norm, whatever a log holds. Until it is started
    again it has one sum for each of a run's rounds, however often it is asked, and none for a round
    before the last one that it was asked for. Sums are SENSITIVE.

    Raises:
        QuorumError: if the logs are of more experts than are declared.
    """

    def __init__(
        self,
        name: str,
        log: Demonstrations,
        *,
        most_experts: int,
        accepted: Sequence[str] = (),
        heard: Callable[[Task, int], None] = lambda _task, _number: None,
    ) -> None:
        require("most_experts", most_experts, at_least(1))
        if log.expert_count > most_experts:
            raise QuorumError(
                f"the logs of the site {name!r} are of more experts than the {most_experts} that "
                "it declares at most: declare more, here and at the coordinator."
            )
        self.name = name
        self._log, self._most = log, most_experts
        self._accepted, self._heard = accepted, heard
        data = expert_data(log) if log.expert_count else nobody(log.declared)
        self._data = data
        self._ledgers: set[tuple[str, Witness]] = set()
        self._tasks: dict[str, str] = {}
        self._asked: dict[str, tuple[int, str]] = {}  # the last round of a run, and what for

    def __repr__(self) -> str:
        return f"Site({self.name!r}, sensitive)"

    @property
    def facts(self) -> Facts:
        """What the site says of itself: nothing but what is declared."""
        said = replace(
            self._log.declared, identity="of a site", experts_identity=None, machine=None
        )
        return {"most": self._most, "declared": declared_to_json(said).decode()}

    def answer(self, question: Question) -> Answer:
        """The sum of the site's experts in a round.

        Raises:
            QuorumError: if the task is for other logs than these, they belong to another ledger, or
                the run asks for more than it said.
        """
        task = Task.from_json(question.task)
        self._check(task)
        if (task.run, task.ledger) not in self._ledgers:
            belong_elsewhere(self._log, task.ledger, self._accepted)
            self._ledgers.add((task.run, task.ledger))
        asked = _asked(task, question)
        self._check_asked_once(task, question)
        self._heard(task, question.number)
        data = replace(self._data, first=task.first)
        found = part_of_sum(task.learner, task.shape, _numbers(task), data, asked)
        return Answer(task.run, question.number, list(found))

    def _check(self, task: Task) -> None:
        declared: Declared = self._log.declared
        wanted = task.observation_size, task.action_count, task.most
        if wanted != (declared.observation_size, declared.action_count, self._most):
            raise QuorumError(
                f"the coordinator asks for logs of {wanted[0]} observed numbers, {wanted[1]} "
                f"actions and at most {wanted[2]} experts, and the site {self.name!r} declares "
                f"{declared.observation_size}, {declared.action_count} and {self._most}: agree "
                "on one."
            )

    def _check_asked_once(self, task: Task, question: Question) -> None:
        """Refuse a round that the task does not have or that is over, and another task or sum.

        Noise hides one sum. A coordinator that goes on in an older copy of its folder would make
        two of a round, if other sites answer meanwhile. One that was killed keeps the sums of the
        rounds that are over, and asks for none of them.
        """
        if not 1 <= question.number <= task.rounds:
            raise QuorumError(
                f"the coordinator asks for round {question.number} of {task.rounds}: start a fit "
                "of its own."
            )
        said = json.dumps({**question.task, "ledger": None}, sort_keys=True)
        digest = hashlib.sha256()
        for part in question.arrays:
            digest.update(part)
        asked = question.number, digest.hexdigest()
        last = self._asked.get(task.run, asked)
        is_over = asked[0] < last[0] or (asked[0] == last[0] and asked != last)
        if self._tasks.setdefault(task.run, said) != said or is_over:
            raise QuorumError(
                f"the coordinator asks for another sum in round {question.number} of "
                f"{task.run!r} than before, or for one of a round that is over: go on in the one "
                "folder where the fit was begun, as it is."
            )
        self._asked[task.run] = asked


@lru_cache(maxsize=4)
def _numbers(task: Task) -> Any:
    return task.numbers


def _asked(task: Task, question: Question) -> AskedSum:
    """What is asked, of the shapes that the learner has.

    Raises:
        QuorumError: if it has other ones.
    """
    leaves, structure = leaves_asked(task)
    *own, transitions, contribution = question.arrays
    sent = len(own) == len(leaves) and all(map(has_shape, question.arrays, [*leaves, WORDS, WORDS]))
    if not sent:
        raise QuorumError(
            "the coordinator sent parameters of other shapes than its learner has: install the "
            "same Quorum at both."
        )
    params, target = jax.tree.unflatten(structure, own)
    return AskedSum(
        question.number, params, target, np.asarray(transitions), np.asarray(contribution)
    )
