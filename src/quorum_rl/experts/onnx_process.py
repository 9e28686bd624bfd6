"""ONNX files are opened and run in a process of their own: our end of the line to it.

Somebody else's model may hang, take all memory, or bring down the process that runs it. Then it has
no answer in that state, and nobody else loses one. A process is no sandbox: onnxruntime itself must
be trusted.
"""

import json
import os
import sys
import weakref
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Lock
from typing import Final

import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.experts.onnx_worker import ANSWERED, Answers, ModelQuestion, States
from quorum_rl.files import MEMORY, MEMORY_GIB, allowed

SECONDS: Final = "QUORUM_ANSWER_SECONDS"  # how long a model may take for one question
ANSWER_SECONDS: Final = 10
START_SECONDS: Final = 120  # for Python and onnxruntime to start, which no model has a part in
ROWS_AT_ONCE: Final = 1024  # in one question
OWN_MEMORY: Final = 2**30  # address space of Python and onnxruntime themselves
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}  # whose buffers would count as memory


def allowed_seconds() -> float:
    """How long a model may take for one question: the user's public choice."""
    return allowed(SECONDS, ANSWER_SECONDS, "seconds")


class OnnxProcess:
    """Asks models in a process of their own, which starts when it is needed.

    Guarantee: whether there is an answer depends on the model, the state and the limits alone. A
    question that fails is asked again a state at a time, in a process that has opened no other
    model; what fails there has no answer. It is asked in its next state all the same: else a state
    that one expert reached would change what others count afterwards.
    """

    def __init__(self) -> None:
        self._line: Connection | None = None
        self._ending: Callable[[], int | None] | None = None
        self._used: set[str] = set()  # files that the process has seen
        self._lock = Lock()

    def answers(self, question: ModelQuestion, states: States, *, strict: bool) -> Answers:
        """What a model answers, with NaN in the states where it has no answer.

        Raises:
            QuorumError: instead of the NaN if this is `strict`, naming the file.
        """
        found = np.full((len(states), question.answer_size), np.nan)
        with self._lock:
            for first in range(0, len(states), ROWS_AT_ONCE):
                part = slice(first, first + ROWS_AT_ONCE)
                try:
                    found[part] = self._asked(question, states[part])
                except QuorumError:
                    found[part] = self._one_by_one(question, states[part], strict=strict)
        return found

    def _one_by_one(self, question: ModelQuestion, states: States, *, strict: bool) -> Answers:
        if self._used != {question.file}:
            self._end()
        found = np.full((len(states), question.answer_size), np.nan)
        for row, state in enumerate(states):
            try:
                found[row] = self._asked(question, state[None])
            except QuorumError:
                if strict:
                    raise
        return found

    def _asked(self, question: ModelQuestion, states: States) -> Answers:
        """Ask once, within the time limit; a process that does not answer is ended."""
        name = Path(question.file).name
        try:
            line = self._line or self._started()
            self._used.add(question.file)
            line.send_bytes(json.dumps(question).encode() + b"\n" + states.tobytes())
            if not line.poll(question.seconds):
                raise QuorumError(
                    f"{name}: the model did not answer in {question.seconds:g} seconds: if it is "
                    f"only slow, allow more with the environment variable {SECONDS}."
                )
            reply = line.recv_bytes()
        except (EOFError, OSError) as error:
            raise QuorumError(
                f"{name}: the process that ran the model died (exit status {self._end()}): export "
                f"another model, or allow more memory with {MEMORY}, in GiB."
            ) from error
        except BaseException:  # too late, or Ctrl-C: its answer must not be taken for the next one
            self._end()
            raise
        if reply[:1] != ANSWERED:
            raise QuorumError(reply[1:].decode())
        return np.frombuffer(reply, np.float64, offset=1).reshape(len(states), -1)

    def _started(self) -> Connection:
        ours, theirs = Pipe()
        memory = int(allowed(MEMORY, MEMORY_GIB, "GiB") * 2**30) + OWN_MEMORY
        arguments = [str(theirs.fileno()), str(memory)]
        with theirs:
            process = Popen(
                [sys.executable, "-P", "-m", "quorum_rl.experts.onnx_worker", *arguments],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | ONE_THREAD,
            )
        self._line, self._ending = ours, weakref.finalize(self, _ended, process, ours)
        if not ours.poll(START_SECONDS):
            raise OSError("it does not start")
        ours.recv_bytes()  # it is ready
        return ours

    def _end(self) -> int | None:
        """End the process, if there is one; the next question starts another. Its exit status."""
        self._line = None
        self._used.clear()
        return self._ending() if self._ending is not None else None


def _ended(process: Popen[bytes], line: Connection) -> int:
    line.close()
    process.kill()
    return process.wait()
