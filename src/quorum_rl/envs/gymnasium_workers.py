"""Copies of a Gymnasium environment in several processes, or in this one.

A worker process steps many copies. It imports NumPy, Gymnasium and the environment, and not JAX.
Gymnasium's own `AsyncVectorEnv` has a process for every copy: a policy would be asked about no more
rows at once than there are processes.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from quorum_rl.envs.gymnasium_copies import (
    Actions,
    Copies,
    CopiesHere,
    EnvFactory,
    EnvParams,
    EnvSource,
    Observations,
    Seen,
    Sizes,
    Which,
    factory_of,
    in_a_line,
)
from quorum_rl.errors import QuorumError

SECONDS_TO_LEAVE: Final = 5.0  # for a worker that was told to go, before it is made to


@contextmanager
def open_copies(
    env: EnvSource, params: EnvParams | None = None, *, count: int, workers: int = 1
) -> Iterator[Copies]:
    """`count` new environments, closed afterwards; with one worker, in this process.

    Workers are started anew (`spawn`), so a script that asks for several must keep its own work
    under `if __name__ == "__main__":`. What the copies show does not depend on `workers`.

    Raises:
        QuorumError: if the environment cannot be made or played, or a worker fails or dies.
    """
    for name, number in (("copies", count), ("workers", workers)):
        if number < 1:
            raise QuorumError(f"{name} is {number}: give at least 1.")
    factory, workers = factory_of(env, params or {}), min(workers, count)
    copies = (
        CopiesHere(factory, count) if workers == 1 else CopiesInWorkers(factory, count, workers)
    )
    with closing(copies):
        yield copies


class CopiesInWorkers:
    """Copies dealt out to worker processes: copy i is in worker i modulo their number."""

    def __init__(self, factory: EnvFactory, count: int, workers: int) -> None:
        portable = CloudpickleWrapper(factory)  # functions without a name can be sent too
        self._count = count
        self._workers: list[_Worker] = []
        with ExitStack() as unfinished:
            unfinished.callback(self.close)
            for _ in range(workers):
                self._workers.append(_Worker())
            for number, worker in enumerate(self._workers):
                worker.send((portable, len(range(number, count, workers))))
            self.sizes = [Sizes(*worker.receive()) for worker in self._workers][-1]
            unfinished.pop_all()

    def __len__(self) -> int:
        return self._count

    def start(self, which: Which, seeds: Sequence[int]) -> Observations:
        observations: Observations
        (observations,) = self._asked("start", which, np.asarray(seeds, np.uint64))
        return observations

    def step(self, which: Which, actions: Actions) -> Seen:
        return Seen(*self._asked("step", which, actions))

    def close(self) -> None:
        for worker in self._workers:
            worker.connection.close()  # which tells it to go
        for worker in self._workers:
            worker.leave()

    def _asked(self, what: str, which: Which, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Ask every worker about its own copies; their answers, in the order of `which`."""
        owner = which % len(self._workers)
        asked = [(worker, owner == number) for number, worker in enumerate(self._workers)]
        asked = [(worker, own) for worker, own in asked if own.any()]
        for worker, own in asked:
            worker.send((what, which[own] // len(self._workers), values[own]))
        answers = [(own, worker.receive()) for worker, own in asked]
        gathered = [np.empty((len(which), *part.shape[1:]), part.dtype) for part in answers[0][1]]
        for own, answer in answers:
            for whole, part in zip(gathered, answer, strict=True):
                whole[own] = part
        return gathered


# --- worker processes ---


class _Failed(NamedTuple):
    """A worker's last word."""

    sentence: str


class _Worker:
    """A worker process and the line to it, as the parent sees them."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._answered = False
        with theirs:  # closed here, so that the line breaks when the worker ends
            self.process.start()

    def send(self, request: Any) -> None:
        try:
            self.connection.send(request)
        except OSError as error:
            self.receive()  # it may have said why before it went
            raise self._gone() from error
        except Exception as error:  # there are many ways not to be sent
            raise QuorumError(
                "what makes the environments cannot be sent to a worker process "
                f"({in_a_line(error)}): ask for one worker."
            ) from error

    def receive(self) -> Any:
        try:
            answer = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._gone() from error
        if isinstance(answer, _Failed):
            raise QuorumError(answer.sentence)
        self._answered = True
        return answer

    def leave(self) -> None:
        """Wait for the process to end, and see to it that it does."""
        self.process.join(SECONDS_TO_LEAVE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _gone(self) -> QuorumError:
        self.process.join(SECONDS_TO_LEAVE)
        status = self.process.exitcode
        if self._answered:
            return QuorumError(
                f"a worker process that stepped environments has died (exit status {status}): "
                "it may have run out of memory, so try again with fewer workers."
            )
        return QuorumError(
            f"a worker process could not start (exit status {status}): in a script of your own "
            "call this under if __name__ == '__main__', or ask for one worker."
        )


def _work(connection: Connection) -> None:
    """What a worker does: make its copies, then answer until the line is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # should the environment itself use JAX
    with suppress(OSError), connection:  # which is what saying anything gives, once it is closed
        try:
            factory, count = connection.recv()
            with closing(CopiesHere(factory.fn, count)) as copies:
                connection.send(tuple(copies.sizes))
                while True:
                    what, which, values = connection.recv()
                    if what == "start":
                        connection.send((copies.start(which, values),))
                    else:
                        connection.send(tuple(copies.step(which, values)))
        except QuorumError as error:
            connection.send(_Failed(str(error)))
        except Exception as error:
            connection.send(_Failed(_in_a_worker(error)))


def _in_a_worker(error: Exception) -> str:
    return (
        f"an environment failed in a worker process with {type(error).__name__} "
        f"({in_a_line(error)}): ask for one worker to see where."
    )
