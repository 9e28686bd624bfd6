"""Copies of a Gymnasium environment that are stepped together, here or in worker processes.

A worker process steps many copies. It imports NumPy, Gymnasium and the environment, and not JAX.
Gymnasium's own `AsyncVectorEnv` has a process for every copy: a policy would be asked about no more
rows at once than there are processes.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from quorum_rl.envs.gymnasium_worlds import register_worlds
from quorum_rl.errors import QuorumError, at_least, require

SECONDS_TO_LEAVE: Final = 5.0  # for a worker that was told to go, before it is made to

Observations: TypeAlias = NDArray[np.float32]
Actions: TypeAlias = NDArray[np.integer[Any]]
Flags: TypeAlias = NDArray[np.bool_]
Which: TypeAlias = NDArray[np.intp]

EnvSource: TypeAlias = str | Callable[[], gymnasium.Env[Any, Any]]
"""A name for `gymnasium.make`, or a function that makes a new environment at every call."""

EnvParams: TypeAlias = Mapping[str, float]
"""What `gymnasium.make` is given besides the name; 0 and 1 stand for no and yes."""

EnvFactory: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]
"""Makes a new environment at every call, in any process."""


class Sizes(NamedTuple):
    """What a policy has to know of an environment; `name` is for people."""

    name: str
    observation_size: int  # flattened
    action_count: int
    first_action: int  # what the environment itself calls action 0


class Seen(NamedTuple):
    """What one step showed of some of the copies, one row each."""

    observations: Observations
    rewards: NDArray[np.float64]
    terminated: Flags
    truncated: Flags


class Copies(Protocol):
    """Environments of one kind, counted from 0. Each plays an episode of its own."""

    @property
    def sizes(self) -> Sizes: ...

    def __len__(self) -> int: ...

    def start(self, which: Which, seeds: Sequence[int]) -> Observations:
        """Begin an episode in some of the copies, each from its seed: the first observations."""

    def step(self, which: Which, actions: Actions) -> Seen:
        """Let some of the copies take one action each, counted from 0."""


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
    require("copies", count, at_least(1))
    require("workers", workers, at_least(1))
    factory, workers = factory_of(env, params or {}), min(workers, count)
    copies = (
        CopiesHere(factory, count) if workers == 1 else CopiesInWorkers(factory, count, workers)
    )
    with closing(copies):
        yield copies


class CopiesHere:
    """Copies in this process."""

    def __init__(self, factory: EnvFactory, count: int) -> None:
        self._envs: list[gymnasium.Env[Any, Any]] = []
        with ExitStack() as unfinished:
            unfinished.callback(self.close)
            for _ in range(count):
                self._envs.append(made_by(factory))
            if len({id(env) for env in self._envs}) < count:
                raise QuorumError(
                    f"{factory!r} returns the same environment twice: let it make a new one."
                )
            self.sizes = _sizes(self._envs[0])
            unfinished.pop_all()
        self._seen_in = self._envs[0].observation_space

    def __len__(self) -> int:
        return len(self._envs)

    def start(self, which: Which, seeds: Sequence[int]) -> Observations:
        pairs = zip(which, seeds, strict=True)
        return self._flat([self._envs[copy].reset(seed=int(seed))[0] for copy, seed in pairs])

    def step(self, which: Which, actions: Actions) -> Seen:
        pairs = zip(which, self.sizes.first_action + actions.astype(np.int64), strict=True)
        steps = [self._envs[copy].step(int(action)) for copy, action in pairs]
        observations, rewards, terminated, truncated, _ = zip(*steps, strict=True)
        return Seen(
            self._flat(observations),
            np.array(rewards, np.float64),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
        )

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _flat(self, observations: Sequence[Any]) -> Observations:
        # Copied, because an environment may write its next observation into the same array.
        return np.array([spaces.flatten(self._seen_in, seen) for seen in observations], np.float32)


# --- one environment ---


def environment_sizes(env: EnvSource, params: EnvParams | None = None) -> Sizes:
    """How many numbers an environment shows, flattened, and how many actions it takes.

    Raises:
        QuorumError: if it cannot be made, or not be played.
    """
    with closing(made_by(factory_of(env, params or {}))) as made:
        return _sizes(made)


def factory_of(env: EnvSource, params: EnvParams) -> EnvFactory:
    """How to make the environment, here or elsewhere.

    Raises:
        QuorumError: if Gymnasium cannot make it.
    """
    if not isinstance(env, str):
        if params:
            raise QuorumError("parameters go with an environment's name, not with a function.")
        return env
    register_worlds()
    # Gymnasium and many environments ask for an int where they mean a whole number or a flag.
    given: dict[str, Any] = {
        name: int(value) if value == int(value) else value
        for name, value in _numbers(params).items()
    }
    try:
        with closing(gymnasium.make(env, **given)) as made:
            # The specification, because the name may be registered in this process only.
            return partial(gymnasium.make, made.spec)  # type: ignore[arg-type]
    except gymnasium.error.DependencyNotInstalled as error:
        if "box2d" not in str(error).lower():
            raise QuorumError(f"Gymnasium cannot make {env!r}: {in_a_line(error)}.") from error
        raise QuorumError(  # Gymnasium imports all environments of Box2D, and one draws at once
            f"{env} needs Box2D and pygame, not both of which are installed: "
            "pip install 'quorum-rl[box2d]'."
        ) from error
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, AssertionError) as error:
        raise QuorumError(f"Gymnasium cannot make {env!r}: {in_a_line(error)}.") from error


def _numbers(params: EnvParams) -> EnvParams:
    for name, value in params.items():
        if not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise QuorumError(f"the parameter {name!r} is {value!r}: give a finite number.")
    return params


def made_by(factory: EnvFactory) -> gymnasium.Env[Any, Any]:
    """A new environment."""
    made = factory()
    if not isinstance(made, gymnasium.Env):
        raise QuorumError(f"{factory!r} returns {made!r}: it must return a Gymnasium environment.")
    return made


def _sizes(env: gymnasium.Env[Any, Any]) -> Sizes:
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    if not isinstance(env.action_space, spaces.Discrete):
        raise QuorumError(
            f"{name} has the action space {env.action_space}: only Discrete actions are supported."
        )
    if not env.observation_space.is_np_flattenable:
        raise QuorumError(
            f"{name} has the observation space {env.observation_space}, which cannot "
            "be flattened to a vector: wrap it so that its observations have a fixed size."
        )
    return Sizes(
        name=name,
        observation_size=int(spaces.flatdim(env.observation_space)),
        action_count=int(env.action_space.n),
        first_action=int(env.action_space.start),
    )


def in_a_line(error: Exception) -> str:
    """What an error says, as part of a sentence."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


# --- worker processes ---


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


class _Failed(NamedTuple):
    """What a worker that failed sends last: the reason, in a sentence."""

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
            connection.send(
                _Failed(
                    f"an environment failed in a worker process with {type(error).__name__} "
                    f"({in_a_line(error)}): ask for one worker to see where."
                )
            )
