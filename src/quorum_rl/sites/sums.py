"""The sum of a round over all sites: what is counted of what they sent, and kept before it is used.

A round's noise follows from the run's key and the round's number, so it is the same whenever the
round is done again. Two different sums with one noise would tell their difference. So the total of
a round is on disk before anything is made of it, and a round that has a total is never asked again.
Of a round without one nothing has left the coordinator that has its noise in it, unless that was
in a copy of its folder, or before an older one was brought back: of each run a witness in the state
folders says which round was the last that has a total.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.budget import Witness, held, in_state, read_witness, write_witness
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.sites.task import Answer, Question, Sites, Task, has_shape, leaves_asked
from quorum_rl.tensors import map_tensors, numbered_leaves, write_tensors
from quorum_rl.training import AskedSum, Sums

KEY: Final = "quorum_rl.sites"
ROUNDS: Final = "rounds"  # the room of a state folder for witnesses of rounds
MOST_SUM: Final = 2**31  # what 32 bits with a sign hold less than

Whole = npt.NDArray[np.int32]


class SumsOfRounds:
    """Asks the sites for a run's sums, round by round. `tasks` are in the order of the experts.

    Guarantee: an expert changes the total by what its own site counts it for and by nothing else:
    at an honest site by a norm of at most `units`. Whatever a site sends, the others' sums are in
    the total as they sent them. No round has two totals, as far as a witness knows.

    Raises:
        QuorumError: if there are more experts than their sum has room for.
    """

    def __init__(
        self,
        sites: Sites,
        tasks: Mapping[str, Task],
        *,
        folder: Path,
        minimum_sites: int,
        report: Callable[[str], None],
    ) -> None:
        check_room(tasks.values())
        self._sites, self._tasks, self._folder = sites, tasks, folder
        self._least, self._report = minimum_sites, report
        self._facts = {name: task.to_json() for name, task in tasks.items()}
        self._one = next(iter(tasks.values()))
        self._shapes = trained_shapes(self._one)

    def ask(self, asked: AskedSum) -> Sums:
        """The total of a round: as kept, or from the sites.

        Raises:
            Interrupted: if fewer sites sent a sum than must; the same round can be tried again.
            QuorumError: if the round was done in another folder.
        """
        total: Sums | None = self._kept(asked.number)
        if total is None:
            self._check_not_done(asked.number)
            total = self._asked_of_sites(asked)
            with held(ROUNDS):
                self._check_not_done(asked.number)
                self._keep(asked.number, total)
                self._tell(asked.number)
        else:
            self._tell(asked.number)  # whoever died before it could
        return total

    def _asked_of_sites(self, asked: AskedSum) -> Sums:
        found = self._answers(asked)
        missing = [name for name in self._tasks if name not in found]
        if len(found) < self._least:
            raise Interrupted(
                f"round {asked.number}: {len(found)} of {len(self._tasks)} sites sent a sum, and "
                f"{self._least} must; nothing was made of it. Start the others, and the same "
                "command again."
            )
        if missing:
            self._report(f"round {asked.number}: nothing of {', '.join(missing)} counts")
        return [sum_of(leaves) for leaves in zip(*found.values(), strict=True)]

    def _check_not_done(self, number: int) -> None:
        for path in in_state(ROUNDS, self._one.run):
            seen = read_witness(path, self._one.run)
            if seen is not None and seen.lines >= number:
                raise QuorumError(
                    f"round {number} of {self._one.run!r} was done already, in {seen.path!r}, and "
                    "another sum under the same noise would tell their difference: go on with the "
                    "folder as it was last, or start a fit of its own."
                )

    def _tell(self, number: int) -> None:
        run, where = self._one.run, str(self._folder.absolute().parent.parent)
        done = Witness(run, self._one.ledger.ledger, "production", None, number, where)
        for path in in_state(ROUNDS, run):
            seen = read_witness(path, run)
            if seen is None or seen.lines < number:
                write_witness(path, done)

    def _answers(self, asked: AskedSum) -> dict[str, list[Whole]]:
        """The first answer of each site, where it is one that an honest site could have sent."""
        arrays = [np.asarray(leaf) for leaf in jax.tree.leaves((asked.params, asked.target))]
        arrays += [np.asarray(asked.transitions), np.asarray(asked.contribution)]
        questions = {
            name: Question(facts, asked.number, arrays) for name, facts in self._facts.items()
        }
        heard: set[str] = set()
        found = {}
        for name, answer in self._sites.ask(questions):
            if name in heard or not self._is_of(name, answer, asked.number):
                continue
            heard.add(name)
            wrong = self.fault_of(name, answer.arrays)
            if answer.refuses:
                wrong = "a refusal (ask those who run it)"
            if wrong is None:
                found[name] = [np.array(leaf) for leaf in answer.arrays]
            else:
                self._report(f"round {asked.number}: {name} sent {wrong}, which counts as zero")
            if len(heard) == len(questions):
                break
        return found

    def _is_of(self, name: str, answer: Answer, number: int) -> bool:
        """Whether it is from a site, and about this round: what comes late is about another."""
        task = self._tasks.get(name)
        return task is not None and (answer.run, answer.number) == (task.run, number)

    def fault_of(self, name: str, arrays: Any) -> str | None:
        """Why no honest site of that size could have sent this, or nothing."""
        task = self._tasks[name]
        if not isinstance(arrays, list) or len(arrays) != len(self._shapes):
            return "another number of arrays"
        if not all(map(has_shape, arrays, self._shapes)):
            return "arrays of other shapes or kinds"
        if squares_of(arrays) > (task.most * task.units) ** 2:
            return f"a vector that is longer than {task.most} experts' can be"
        return None

    def _path(self, number: int) -> Path:
        return self._folder / f"sum-{number}.safetensors"

    def _keep(self, number: int, total: Sums) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_tensors(numbered_leaves(total), self._path(number), {KEY: str(number)})

    def _kept(self, number: int) -> list[Whole] | None:
        path = self._path(number)
        if not path.exists():
            return None
        tensors, _ = map_tensors(path)
        leaves = [tensors.get(str(place)) for place in range(len(self._shapes))]
        if not all(map(has_shape, leaves, self._shapes)):
            raise QuorumError(f"{str(path)!r} is damaged: delete the folder and start anew.")
        return [np.array(leaf) for leaf in leaves]


def check_room(tasks: Iterable[Task]) -> None:
    """Refuse so many experts that a sum over all of them could need more than 32 bits.

    Guarantee: of sums that passed, no coordinate of the total wraps around (docs/theory.md).

    Raises:
        QuorumError: naming how many there may be.
    """
    every = list(tasks)
    most, units = sum(task.most for task in every), every[0].units
    if most * units >= MOST_SUM:
        raise QuorumError(
            f"the sites declare {most:,} experts at most, and the sum has room for "
            f"{(MOST_SUM - 1) // units:,}: declare fewer, or a larger minimum_experts."
        )


def trained_shapes(task: Task) -> list[jax.ShapeDtypeStruct]:
    """What a sum is made of: the leaves of the parameters that are trained, as whole numbers."""
    leaves, structure = leaves_asked(task)
    params, _ = jax.tree.unflatten(structure, leaves)
    marks = jax.tree.leaves(task.contribution.trained(task.learner, params))
    return [
        jax.ShapeDtypeStruct(leaf.shape, np.int32)
        for leaf, mark in zip(jax.tree.leaves(params), marks, strict=True)
        if mark
    ]


def squares_of(arrays: Sequence[Whole]) -> int:
    """The squared norm of whole numbers, exactly."""
    total = 0
    for array in arrays:
        squares = np.square(array.astype(np.int64)).astype(np.uint64)
        low, high = squares & np.uint64(2**32 - 1), squares >> np.uint64(32)
        total += (int(high.sum()) << 32) + int(low.sum())
    return total


def sum_of(leaves: Sequence[Whole]) -> Whole:
    """The sum of the sites' leaves. It does not wrap around (`check_room`)."""
    return np.asarray(np.stack(leaves).sum(axis=0, dtype=np.int64), np.int32)
