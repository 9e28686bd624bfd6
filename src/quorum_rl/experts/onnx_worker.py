"""The process in which ONNX files are opened and run: `python -m quorum_rl.experts.onnx_worker`.

It loads NumPy and onnxruntime and no JAX. Only JSON that we wrote, sentences and raw numbers go
over the line; our end of it is `onnx_process`.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError

Answers = npt.NDArray[np.float64]  # (rows, answer_size)
States = npt.NDArray[np.float32]  # (rows, observation_size)

ANSWERED, FAILED = b"=", b"!"  # how a reply begins
FLOAT_TYPES: Final[dict[str, type[np.floating[Any]]]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}


class ModelQuestion(NamedTuple):
    """Which model is asked, and how; its states follow."""

    file: str
    observation_size: int
    action_count: int
    continuous: bool
    output_name: str | None
    row_by_row: bool
    keep_open: bool
    seconds: float

    @property
    def answer_size(self) -> int:
        """How many numbers answer for a state."""
        return 2 * self.action_count if self.continuous else self.action_count

    @property
    def sizes(self) -> set[int]:
        """How many numbers a model may give: of a continuous action also none of its spread."""
        return {self.action_count, self.answer_size}


class Model(NamedTuple):
    """One opened file: how to run it, and what it is."""

    session: Any
    input_name: str
    input_type: type[np.floating[Any]]
    output_name: str
    one_row_only: bool  # exported with a batch of exactly one


def main(line: Connection, memory: int) -> None:
    """Answer questions until the line ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who ends us
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    import onnxruntime  # noqa: F401  (before there is a limit, and before anybody waits)

    _limit_memory(memory)
    models: dict[str, Model] = {}
    line.send_bytes(b"ready")
    with suppress(EOFError):
        while True:
            head, _, body = line.recv_bytes().partition(b"\n")
            question, sent = ModelQuestion(*json.loads(head)), np.frombuffer(body, np.float32)
            try:
                made = _answered(question, sent.reshape(-1, question.observation_size), models)
                reply = ANSWERED + made.tobytes()
            except QuorumError as error:
                reply = FAILED + str(error).encode(errors="replace")
            line.send_bytes(reply)


def _end_with(parent: int) -> None:
    """End when the parent has gone, also while a model hangs."""
    while os.getppid() == parent:
        sleep(1)
    os._exit(1)


def _limit_memory(memory: int) -> None:
    with suppress(ImportError, OSError, ValueError):  # not every system has it
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # states are private
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _answered(question: ModelQuestion, states: States, models: dict[str, Model]) -> Answers:
    name = Path(question.file).name
    model = models.get(question.file) or _opened(question)
    if question.keep_open:
        models[question.file] = model
    step = 1 if question.row_by_row or model.one_row_only else len(states)
    answers = np.empty((len(states), question.answer_size))
    for row in range(0, len(states), step):
        asked = states[row : row + step].astype(model.input_type)
        try:
            (found,) = model.session.run([model.output_name], {model.input_name: asked})
        except Exception as error:  # onnxruntime's errors share no narrower base
            raise QuorumError(f"{name}: the model fails to run ({error}).") from error
        if np.shape(found) not in {(len(asked), size) for size in question.sizes}:
            what = "an action" if question.continuous else "one number per action"
            raise QuorumError(
                f"{name}: the model answered {len(asked)} state(s) with shape {np.shape(found)}, "
                f"not {(len(asked), question.action_count)}: choose the output that holds {what} "
                "with output_name."
            )
        # An action alone has no spread.
        answers[row : row + step, np.shape(found)[1] :] = -np.inf
        answers[row : row + step, : np.shape(found)[1]] = found
    return answers


def _opened(question: ModelQuestion) -> Model:
    """Open one file and see that its input and output are what the set declares."""
    file = Path(question.file)
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
    wanted = question.output_name
    chosen = [output for output in outputs if wanted in (None, output.name)]
    if len(chosen) != 1:
        raise QuorumError(
            f"{file.name}: choose with output_name one of the model's outputs "
            f"{', '.join(output.name for output in outputs)}, not {wanted!r}."
        )
    batch = _checked_width(file, "input", inputs[0].shape, {question.observation_size})
    _checked_width(file, "output", chosen[0].shape, question.sizes)
    if question.continuous and chosen[0].type not in FLOAT_TYPES:
        raise QuorumError(
            f"{file.name}: the output is a {chosen[0].type}, and these actions are continuous: "
            "export the policy with a float or double output."
        )
    if isinstance(batch, int) and batch != 1:
        raise QuorumError(
            f"{file.name}: the batch is fixed at {batch}: export it with a dynamic batch, or 1."
        )
    return Model(session, inputs[0].name, input_type, chosen[0].name, one_row_only=batch == 1)


def _session(file: Path) -> Any:
    """One file alone: a model that took its weights from another's file would answer for two."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One thread: the models are small, and the order of its sums is then fixed.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # problems come as exceptions, not as lines on the terminal
    try:
        return onnxruntime.InferenceSession(
            file.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's errors share no narrower base
        raise QuorumError(
            f"{file.name}: this is not a model that onnxruntime can open ({error}): export it as "
            "one file that holds its weights (in PyTorch with external_data=False)."
        ) from error


def _checked_width(file: Path, what: str, shape: Any, widths: set[int]) -> Any:
    """The batch dimension of a shape: a number, or a name or None if it is dynamic."""
    if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] not in widths):
        expected = " or ".join(f"(batch, {width})" for width in sorted(widths))
        raise QuorumError(f"{file.name}: the {what} has shape {tuple(shape)}: expected {expected}.")
    return shape[0]


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), int(sys.argv[2]))
