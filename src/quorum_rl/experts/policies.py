"""Experts whose policies somebody else wrote: Python functions, or ONNX files."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.experts.checks import (
    Observations,
    Probabilities,
    checked_observations,
    checked_probabilities,
)
from quorum_rl.experts.expert_set import UnloggedExperts

Answers = npt.NDArray[np.float64]  # (rows, action_count)
Policy = Callable[[Observations], npt.ArrayLike]


class _AskedInTurn(UnloggedExperts):
    """Experts that are asked one after the other."""

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        states = checked_observations(observations, self.observation_size)
        numbers = range(len(self))[experts]
        answers = np.empty((len(numbers), len(states), self.action_count))
        for position, number in enumerate(numbers):
            answers[position] = self._answer(number, states)
        return checked_probabilities(
            self._as_probabilities(answers),
            numbers,
            rows=len(states),
            action_count=self.action_count,
            names=self._names(numbers),
        )

    @abstractmethod
    def _answer(self, expert: int, states: Observations) -> Answers: ...

    def _as_probabilities(self, answers: Probabilities) -> Probabilities:
        return answers

    def _names(self, experts: range) -> Sequence[str] | None:
        """What the experts are called in messages, besides their numbers."""
        del experts
        return None


# --- Python functions ---


@dataclass(frozen=True, eq=False)
class CallableExperts(_AskedInTurn):
    """One Python function per expert: observations in, probabilities (not logits) out.

    A function must be deterministic and must not remember earlier calls. With `row_by_row`, the
    default, it is called with one state at a time, so that an answer cannot depend on the batch.
    Without, it is called once with all rows: faster, but then that independence is the
    function's own property (see `check_batch_independence`).

    Shapes: a policy maps `(rows, observation_size)`, float32, to `(rows, action_count)`.

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
        answers = np.empty((len(states), self.action_count))
        for row in range(0, len(states), step):
            asked = states[row : row + step].copy()  # or it could change what others see
            answer = np.asarray(self.policies[expert](asked), dtype=np.float64)
            if answer.shape != (len(asked), self.action_count):
                raise QuorumError(
                    f"expert {expert} answered {len(asked)} state(s) with shape {answer.shape}: it "
                    f"must return probabilities of shape {(len(asked), self.action_count)}."
                )
            answers[row : row + step] = answer
        return answers


# --- ONNX files ---

Output = Literal["probabilities", "logits"]
FLOAT_TYPES: Final[dict[str, type[np.floating[Any]]]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}


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


@dataclass(frozen=True)
class Model:
    """One opened file: how to run it, and what it is."""

    name: str
    session: Any
    input_name: str
    input_type: type[np.floating[Any]]
    output_name: str
    one_row_only: bool  # exported with a batch of exactly one


class OnnxOptions(TypedDict, total=False):
    """What is said of all files alike.

    `output` says what the models return: softmax is applied to logits. `output_name` is needed only
    for models with several outputs. `row_by_row` is as for `CallableExperts`.
    """

    observation_size: Required[int]
    action_count: Required[int]
    p_min: float
    output: Output
    output_name: str | None
    row_by_row: bool
    open_at_once: int


@dataclass(frozen=True, eq=False)
class OnnxExperts(_AskedInTurn):
    """One ONNX file per expert, run by onnxruntime on one thread; make it with `from_folder`.

    The first `open_at_once` models stay open once they have been used; further ones are opened
    for each query and closed after it, which is slow but bounds the memory. The files must not
    change while the set is in use.

    Shapes: a model has one input `(batch, observation_size)` and an output `(batch, action_count)`;
        the batch is dynamic, or 1.
    """

    files: Sequence[Path] = field(repr=False)
    output: Output = "probabilities"
    output_name: str | None = None
    row_by_row: bool = True
    open_at_once: int = 1000
    _opened: dict[int, Model] = field(default_factory=dict, init=False, repr=False)

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

        Every file is opened once, so that a bad one is found now and not in the middle of a query.

        Raises:
            QuorumError: without onnxruntime, and for a file that cannot be read or has another
                form, naming the file.
        """
        made = cls([Path(file) for file in files], **options)
        for expert in range(len(made)):
            made._model(expert)
        return made

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output not in ("probabilities", "logits"):
            raise QuorumError(f"output is {self.output!r}: choose 'probabilities' or 'logits'.")

    def __len__(self) -> int:
        return len(self.files)

    def _as_probabilities(self, answers: Probabilities) -> Probabilities:
        return _softmax(answers) if self.output == "logits" else answers

    def _names(self, experts: range) -> Sequence[str]:
        return [self.files[number].name for number in experts]

    def _answer(self, expert: int, states: Observations) -> Answers:
        model = self._model(expert)
        step = 1 if self.row_by_row or model.one_row_only else max(len(states), 1)
        answers = np.empty((len(states), self.action_count))
        for row in range(0, len(states), step):
            asked = states[row : row + step].astype(model.input_type)
            try:
                (found,) = model.session.run([model.output_name], {model.input_name: asked})
            except Exception as error:  # onnxruntime's errors share no narrower base
                raise QuorumError(f"{model.name}: the model fails to run ({error}).") from error
            if np.shape(found) != (len(asked), self.action_count):
                raise QuorumError(
                    f"{model.name}: the model answered {len(asked)} state(s) with shape "
                    f"{np.shape(found)}, not {(len(asked), self.action_count)}: choose the output "
                    "that holds one number per action with output_name."
                )
            answers[row : row + step] = found
        return answers

    def _model(self, expert: int) -> Model:
        if expert in self._opened:
            return self._opened[expert]
        model = _opened(
            self.files[expert], self.observation_size, self.action_count, self.output_name
        )
        # Whole sets are scanned in order, so keeping the first ones beats keeping the latest.
        if len(self._opened) < self.open_at_once:
            self._opened[expert] = model
        return model


def _opened(file: Path, observation_size: int, action_count: int, output_name: str | None) -> Model:
    """Open one file and see that its input and output are what the set declares."""
    session = _session(file)
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1:
        raise QuorumError(
            f"{file.name}: the model has {len(inputs)} inputs: export it with the observation only."
        )
    input_type = FLOAT_TYPES.get(inputs[0].type)
    if input_type is None:
        raise QuorumError(
            f"{file.name}: the input is a {inputs[0].type}: export it with a float or double input."
        )
    chosen = [output for output in outputs if output_name in (None, output.name)]
    if len(chosen) != 1:
        raise QuorumError(
            f"{file.name}: choose with output_name one of the model's outputs "
            f"{', '.join(output.name for output in outputs)}, not {output_name!r}."
        )
    batch = _checked_width(file, "input", inputs[0].shape, observation_size)
    _checked_width(file, "output", chosen[0].shape, action_count)
    if isinstance(batch, int) and batch != 1:
        raise QuorumError(
            f"{file.name}: the batch is fixed at {batch}: export it with a dynamic batch, or 1."
        )
    return Model(
        name=file.name,
        session=session,
        input_name=inputs[0].name,
        input_type=input_type,
        output_name=chosen[0].name,
        one_row_only=batch == 1,
    )


def _session(file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise QuorumError(
            "ONNX experts need onnxruntime: install it with pip install 'quorum-rl[onnx]'."
        ) from error
    options = onnxruntime.SessionOptions()
    # One thread: the models are small, and the order of its sums is then fixed.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # problems come as exceptions, not as lines on the terminal
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no narrower base
        raise QuorumError(
            f"{file.name}: this is not a model that onnxruntime can open ({error})."
        ) from error


def _checked_width(file: Path, what: str, shape: Sequence[Any], width: int) -> Any:
    """The batch dimension of a shape: a number, or a name or None if it is dynamic."""
    if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != width):
        raise QuorumError(
            f"{file.name}: the {what} has shape {tuple(shape)}: expected (batch, {width})."
        )
    return shape[0]


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # A logit that is not finite becomes NaN here, which the check of probabilities reports.
    with np.errstate(invalid="ignore"):
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        made: npt.NDArray[np.float64] = shifted / shifted.sum(axis=-1, keepdims=True)
    return made
