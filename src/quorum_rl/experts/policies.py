"""Experts whose policies somebody else wrote: Python functions, or ONNX files."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from quorum_rl.dictionary import Bounds, Dictionary
from quorum_rl.errors import POSITIVE, QuorumError, require, require_packages
from quorum_rl.experts.checks import (
    SUM_TOLERANCE,
    Observations,
    Probabilities,
    as_gaussians,
    checked_gaussians,
    checked_observations,
    checked_probabilities,
    distributions_or_nan,
)
from quorum_rl.experts.expert_set import OwnPolicies, UnloggedExperts
from quorum_rl.experts.onnx_process import OnnxProcess, allowed_seconds
from quorum_rl.experts.onnx_worker import Answers, ModelQuestion

OR_SPREADS = ", or twice as many numbers: their means, then the logarithms of their deviations"
Policy = Callable[[Observations], npt.ArrayLike]


class _AskedInTurn(UnloggedExperts):
    """Experts that are asked one after the other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        said = Dictionary(action_bounds=self.action_bounds)
        said.check_sizes(self.observation_size, self.action_count)

    @property
    def answer_size(self) -> int:
        """How many numbers say what is done in a state: probabilities, or means and spreads."""
        return 2 * self.action_count if self.action_bounds else self.action_count

    def among(self, experts: slice) -> OwnPolicies:
        if not self.action_bounds:
            return super().among(experts)
        numbers = range(len(self))[experts]

        def asked(observations: Observations) -> Answers:
            every = [
                self._answer(number, checked_observations(own, self.observation_size))
                for number, own in zip(numbers, observations, strict=True)
            ]
            return checked_gaussians(np.array(every), numbers, self._names(numbers))

        return asked

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        self._check_finite()
        numbers = range(len(self))[experts]
        answers = self._answers(numbers, observations, self._answer)
        return checked_probabilities(
            self._as_probabilities(answers),
            numbers,
            rows=answers.shape[1],
            action_count=self.action_count,
            names=self._names(numbers),
        )

    def _answers(
        self,
        numbers: range,
        observations: npt.ArrayLike,
        answer: Callable[[int, Observations], Answers],
    ) -> Probabilities:
        states = checked_observations(observations, self.observation_size)
        made = np.empty((len(numbers), len(states), self.action_count))
        for position, number in enumerate(numbers):
            made[position] = answer(number, states)
        return made

    @abstractmethod
    def _answer(self, expert: int, states: Observations) -> Answers:
        """Shapes: (rows, answer_size)."""

    def _as_probabilities(self, answers: Probabilities) -> Probabilities:
        return answers

    def _names(self, experts: range) -> Sequence[str] | None:
        """What the experts are called in messages, besides their numbers."""
        del experts
        return None


# --- Python functions ---


@dataclass(frozen=True, eq=False)
class CallableExperts(_AskedInTurn):
    """One Python function per expert: observations in, probabilities (not logits) out. With
    `action_bounds`, actions out, or the mean of each number and then the logarithm of its spread.

    A function must be deterministic and must not remember earlier calls. With `row_by_row`, the
    default, it is called with one state at a time, so that an answer cannot depend on the batch.
    Without, it is called once with all rows: faster, but then that independence is the
    function's own property (see `check_batch_independence`).

    Shapes: a policy maps `(rows, observation_size)`, float32, to `(rows, action_count)`;
        of continuous actions also to `(rows, 2 · action_count)`.

    Raises:
        QuorumError: without policies; on a query, for answers that are not distributions, naming
            the expert's index.
    """

    policies: Sequence[Policy] = field(repr=False)
    row_by_row: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.policies:
            raise QuorumError("there are no policies: give at least one callable.")

    def __len__(self) -> int:
        return len(self.policies)

    def _answer(self, expert: int, states: Observations) -> Answers:
        step = 1 if self.row_by_row else max(len(states), 1)
        answers = np.empty((len(states), self.answer_size))
        for row in range(0, len(states), step):
            asked = states[row : row + step].copy()  # or it could change what others see
            said = np.asarray(self.policies[expert](asked), dtype=np.float64)
            answer = as_gaussians(said, self.action_count) if self.action_bounds else said
            if answer is None or answer.shape != (len(asked), self.answer_size):
                wanted = "probabilities" if not self.action_bounds else "actions"
                raise QuorumError(
                    f"expert {expert} answered {len(asked)} state(s) with shape {said.shape}: it "
                    f"must return {wanted} of shape {(len(asked), self.action_count)}"
                    f"{OR_SPREADS if self.action_bounds else ''}."
                )
            answers[row : row + step] = answer
        return answers


# --- ONNX files ---

Output = Literal["probabilities", "logits"]


def files_named(files: Sequence[Path], names: Sequence[str]) -> list[Path]:
    """Of these files those with the given names, in that order; all, by name, if there are none.

    For a log that names its experts: each gets its own file, and files of experts without a log are
    left out. Files are ordered by the expert's name, as a log is: whole file names would put
    "desk-1-b.onnx" before "desk-1.onnx".

    Raises:
        QuorumError: if a name has no file, or two.
    """
    ordered = sorted(files, key=lambda file: file.stem)
    if not names:
        return ordered
    found = {file.stem: file for file in ordered}
    if len(found) < len(ordered):
        raise QuorumError("two ONNX files have the same name but for their folder: rename one.")
    missing = [name for name in names if name not in found]
    if missing:
        raise QuorumError(
            f"the log has an expert {missing[0]!r} ({len(missing)} such), but there is no file "
            f"{missing[0]}.onnx: give one for each, or list the files of the log's experts in the "
            "order of their names in a .txt file."
        )
    return [found[name] for name in names]


class OnnxOptions(TypedDict, total=False):
    """What is said of all files alike.

    `output` says what the models return: softmax is applied to logits. `output_name` is needed only
    for models with several outputs. `row_by_row` is as for `CallableExperts`.
    """

    observation_size: Required[int]
    action_count: Required[int]
    p_min: float
    action_bounds: Bounds
    output: Output
    output_name: str | None
    row_by_row: bool
    open_at_once: int
    answer_seconds: float


@dataclass(frozen=True, eq=False)
class OnnxExperts(_AskedInTurn):
    """One ONNX file per expert, run by onnxruntime on one thread; make it with `from_folder`.

    All are run in one process of their own (`onnx_process`). Where a model takes longer than
    `answer_seconds`, a public constant, or its process ends, there is no answer: a release counts
    0 in that state, other queries raise.

    The first `open_at_once` models stay open once they have been used; further ones are opened
    for each question and closed after it, which is slow but bounds the memory. The files must not
    change while the set is in use.

    Shapes: a model has one input `(batch, observation_size)` and an output `(batch, action_count)`;
        the batch is dynamic, or 1. With `action_bounds` the output is the action, or
        `(batch, 2 · action_count)`: each number's mean, then the logarithms of their spreads.
    """

    files: Sequence[Path] = field(repr=False)
    output: Output = "probabilities"
    output_name: str | None = None
    row_by_row: bool = True
    open_at_once: int = 1000
    answer_seconds: float = field(default_factory=allowed_seconds)
    _process: OnnxProcess = field(default_factory=OnnxProcess, init=False, repr=False)

    @classmethod
    def from_folder(
        cls, folder: str | Path, *, names: Sequence[str] = (), **options: Unpack[OnnxOptions]
    ) -> "OnnxExperts":
        """The experts in the `.onnx` files of `folder`, in the order of their names.

        Give the `expert_names` of their log as `names`: then each is who the log says. For the rest
        see `from_files`.

        Raises:
            QuorumError: for a missing or empty folder, a name without a file, or as `from_files`.
        """
        if not Path(folder).is_dir():
            raise QuorumError(f"there is no folder {str(folder)!r}: give one with .onnx files.")
        files = files_named(list(Path(folder).glob("*.onnx")), names)
        if not files:
            raise QuorumError(f"folder {str(folder)!r} has no .onnx files: give one per expert.")
        return cls.from_files(files, **options)

    @classmethod
    def from_files(
        cls, files: Sequence[str | Path], **options: Unpack[OnnxOptions]
    ) -> "OnnxExperts":
        """One expert for each file, in this order.

        Every file is opened and asked now, so that a bad one is found before anything is paid for.

        Raises:
            QuorumError: without onnxruntime, and for a file that cannot be read, has another form,
                crashes, takes longer than `answer_seconds` or answers twice differently, naming
                the file.
        """
        require_packages("asking ONNX experts", "onnx", "onnxruntime")
        made = cls([Path(file) for file in files], **options)
        for expert in range(len(made)):
            made._check_repeats(expert)
        return made

    def __post_init__(self) -> None:
        super().__post_init__()
        require("answer_seconds", self.answer_seconds, POSITIVE)
        if self.output not in ("probabilities", "logits"):
            raise QuorumError(f"output is {self.output!r}: choose 'probabilities' or 'logits'.")
        if self.action_bounds and self.output == "logits":
            raise QuorumError("continuous actions have no logits: leave output out.")

    def __len__(self) -> int:
        return len(self.files)

    def contents(self) -> Iterator[Any]:
        return (file.read_bytes() for file in self.files)

    def _as_probabilities(self, answers: Probabilities) -> Probabilities:
        if self.output != "logits":
            return answers
        # A logit that is not finite becomes NaN, which the check of probabilities reports.
        with np.errstate(invalid="ignore"):
            made: Probabilities = softmax(answers, axis=-1)
        return made

    def _names(self, experts: range) -> Sequence[str]:
        return [self.files[number].name for number in experts]

    def _answer(self, expert: int, states: Observations, strict: bool = True) -> Answers:
        return self._process.answers(self._question(expert), states, strict=strict)

    def _answers_or_nan(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        self._check_finite()
        answer = partial(self._answer, strict=False)
        answers = self._answers(range(len(self))[experts], observations, answer)
        found = distributions_or_nan(self._as_probabilities(answers), 0.0)
        return distributions_or_nan(found / found.sum(axis=-1, keepdims=True), self.p_min)

    def _question(self, expert: int) -> ModelQuestion:
        return ModelQuestion(
            file=str(self.files[expert]),
            observation_size=self.observation_size,
            action_count=self.action_count,
            continuous=bool(self.action_bounds),
            output_name=self.output_name,
            row_by_row=self.row_by_row,
            # Whole sets are scanned in order, so keeping the first ones beats keeping the latest.
            keep_open=expert < self.open_at_once,
            seconds=self.answer_seconds,
        )

    def _check_repeats(self, expert: int) -> None:
        """Refuse a model that answers the same question twice differently.

        It is asked again in the other order, and then each state alone. One row at a time, all
        bits must be the same; in batches the rounding may differ, and nothing else.
        """
        states = np.random.default_rng(0).random((8, self.observation_size), np.float32)
        states[0], states[1] = 0.0, 1.0
        first = self._answer(expert, states)
        alone = [self._answer(expert, state[None]) for state in states]
        tolerance = 0.0 if self.row_by_row else SUM_TOLERANCE
        for again in (self._answer(expert, states[::-1])[::-1], np.concatenate(alone)):
            if not np.allclose(first, again, rtol=tolerance, atol=tolerance, equal_nan=True):
                raise QuorumError(
                    f"{self.files[expert].name}: the model answers the same state differently when "
                    "it is asked again: export it without random numbers, in evaluation mode."
                )
