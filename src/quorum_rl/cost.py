"""What a whole run takes, in time and memory, by formulas of one line for each stage.

With m experts, N trajectories of T steps each, K release iterations, networks of P (expert, of h
hidden units) and L (learner, of u hidden units) parameters, o numbers in an observation, D devices
on H hosts, n private steps of q m experts with k transitions each; m̄ and N̄ are filled up to whole
blocks, in which experts are asked:

| stage         | work                                  | bytes on a device    | on all hosts      |
|---------------|---------------------------------------|----------------------|-------------------|
| experts       | agents · steps · 30 P / D; iterations | agents at once · A/D | 4 m P             |
| networks      | 4 m P / D bytes to the devices        | 4 m P / D            | 4 m P             |
| collect       | T · m̄ N̄ · 2 P / D; T; m N T / H      | 4 m P / D            | 2 m N T (4 o + 8) |
| count         | m̄ K T · 2 P / D                       | 4 m P / D            | 8 m K             |
| private steps | n q m k (6 L; u) / D; n               | m N T (8 o + 10) / D | m N T (8 o + 10)  |

An agent takes A = 44 P + 7440 h + 32768 (3 o + 12) bytes while it learns.

Every piece of work has a price in seconds, one for each kind of it, as they differ by more than the
formulas do. They are fitted to measurements, on an H200 of 100 to 30,000 experts (docs/scale.md has
both side by side; `benchmarks/scale.py` measures, `benchmarks/fit_scale.py` fits). What was too
little to be seen there has no price: noise, drawing experts, and the products of a count, which the
host makes while the device answers. Counting is an upper bound: iterations end before T. Time for
compiling, for files and for the physics of worlds other than CartPole and Acrobot is left out, so
expect more for LunarLander and HIV. Where a price is a guess, `MACHINES` says so.

Public numbers only: nothing here looks at data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from quorum_rl.errors import QuorumError

ACTING, JUDGING, LEARNING = 2, 4, 24  # operations for each parameter, per step of PPO
STEPS_PER_ITERATION: Final = 8192  # of an agent: 64 copies of its world for 128 steps
# Bytes of an agent while it learns: for each parameter of an actor as large as its critic (weights,
# moments, gradients, a copy in low precision), for each hidden unit (what lies between layers), for
# each number that a step of a roll-out leaves.
PER_PARAMETER, PER_UNIT, PER_NUMBER = 44, 7440, 4
DEVICES_OF_A_HOST: Final = 8
SAMPLING_RATE: Final = 0.05  # of the experts, in a private step: as a fit has it unless told


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a run is; every number is declared.

    `agents` are trained for `agent_steps` each, 0 if experts come from elsewhere; `agents_at_once`
    of them together on all devices, or as many as fit. `batch` is how many experts take part in a
    private step in the mean.
    """

    experts: int
    trajectories: int
    horizon: int
    observation_size: int
    actions: int
    iterations: int
    expert_hidden: tuple[int, ...] = (512, 256, 64)
    learner_hidden: tuple[int, ...] = (64, 64)
    private_steps: int = 8000
    batch: int = 150
    transitions_per_expert: int = 64
    agents: int = 0
    agents_at_once: int = 0
    agent_steps: int = 1_000_000
    devices: int = 1

    def __post_init__(self) -> None:
        for name in ("experts", "trajectories", "horizon", "observation_size", "devices"):
            if getattr(self, name) < 1:
                raise QuorumError(f"{name} is {getattr(self, name)}: give at least 1.")

    def parameters(self, hidden: tuple[int, ...]) -> int:
        """How many numbers a network has that sees an observation and scores the actions."""
        sizes = (self.observation_size, *hidden, self.actions)
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))

    @property
    def bytes_of_an_agent(self) -> int:
        """What an agent takes on a device while it learns."""
        seen = STEPS_PER_ITERATION * PER_NUMBER * (3 * self.observation_size + 12)
        expert = self.parameters(self.expert_hidden)
        return PER_PARAMETER * expert + PER_UNIT * sum(self.expert_hidden) + seen


class Block(NamedTuple):
    """The shape in which experts are asked: as many experts, and as many states of each."""

    experts: int
    rows: int


Work = Mapping[str, Mapping[str, float]]
"""For each stage how much there is to do, by the names of prices."""


class Machine(NamedTuple):
    """A device: its memory for agents, the block in which it asks, and its prices in seconds.

    `guessed` names the prices that are guesses.
    """

    memory: float
    block: Block
    prices: Mapping[str, float]
    guessed: tuple[str, ...] = ()


MACHINES: Final[Mapping[str, Machine]] = {
    # One core of an AMD EPYC, by processor time, with other work beside it.
    "cpu-core": Machine(
        memory=float("inf"),
        block=Block(32, 32),
        prices={
            "operation of PPO": 2.7e-11,
            "iteration of PPO": 0.0,
            "byte to a device": 1.6e-9,
            "operation of a query": 3.2e-11,
            "time step": 1.1e-3,
            "step of a trajectory": 1.3e-7,
            "operation of a private step": 2.2e-11,
            "unit of a private step": 2.7e-9,
            "private step": 1.4e-3,
            "byte between devices": 1e-10,
        },
        guessed=("byte between devices",),
    ),
    # Reproducible kernels; the memory is what agents_per_wave takes of it. Between devices it is
    # what the vendor says of NVLink, in one direction.
    "h200": Machine(
        memory=0.6 * 141e9,
        block=Block(256, 128),
        prices={
            "operation of PPO": 9.7e-15,
            "iteration of PPO": 1.3e-2,
            "byte to a device": 5e-10,
            "operation of a query": 5.1e-14,
            "time step": 2.9e-3,
            "step of a trajectory": 3.6e-7,
            "operation of a private step": 6.9e-15,
            "unit of a private step": 6.2e-11,
            "private step": 2.7e-4,
            "byte between devices": 1 / 4.5e11,
        },
        guessed=("byte between devices",),
    ),
}


class Cost(NamedTuple):
    """One stage: its seconds, its bytes on each device and on the host, and which are guesses."""

    stage: str
    seconds: float
    device_bytes: float
    host_bytes: float
    guessed: bool


def costs_of(size: Size, machine: str) -> tuple[Cost, ...]:
    """The stages of a run, in their order.

    Raises:
        QuorumError: if nobody knows the machine.
    """
    if machine not in MACHINES:
        raise QuorumError(f"the machine is {machine!r}: choose one of {', '.join(MACHINES)}.")
    known = MACHINES[machine]
    steps = size.experts * size.trajectories * size.horizon
    networks = 4.0 * size.experts * size.parameters(size.expert_hidden)
    logged = float(steps * (8 * size.observation_size + 10))
    counts = 8.0 * size.experts * size.iterations
    at_once = agents_at_once(size, known.memory)
    on_devices = {
        "experts": at_once * float(size.bytes_of_an_agent),
        "networks": networks,
        "collect": networks,
        "count": networks,
        "private steps": logged,
    }
    on_host = {
        "experts": networks,
        "networks": networks,
        "collect": 2.0 * steps * (4 * size.observation_size + 8),
        "count": counts,
        "private steps": logged,
    }
    return tuple(
        Cost(
            stage,
            sum(amount * known.prices[name] for name, amount in amounts.items()),
            on_devices[stage] / size.devices,
            on_host[stage],
            any(amount and name in known.guessed for name, amount in amounts.items()),
        )
        for stage, amounts in work_of(size, known.block, at_once).items()
    )


def agents_at_once(size: Size, memory: float) -> int:
    """How many agents are trained together, in equal waves that fit the devices."""
    if size.agents == 0:
        return 0
    fit = size.agents_at_once
    if not fit:
        fit = int(min(size.devices * memory / size.bytes_of_an_agent, size.agents)) or 1
    waves = -(-size.agents // fit)
    return -(-size.agents // waves)


def work_of(size: Size, block: Block, at_once: int) -> Work:
    """How much there is to do in each stage, on the device and the host that have most of it."""
    devices, hosts = size.devices, -(-size.devices // DEVICES_OF_A_HOST)
    expert = size.parameters(size.expert_hidden)
    learner = size.parameters(size.learner_hidden)
    asked = block.experts * -(-size.experts // (block.experts * devices))
    rows = block.rows * -(-size.trajectories // block.rows)
    iterations = size.agent_steps / STEPS_PER_ITERATION
    waves = -(-size.agents // at_once) if at_once else 0
    learning = (ACTING + JUDGING + LEARNING) * expert
    taken = size.private_steps
    shown = taken * size.batch * size.transitions_per_expert
    return {
        "experts": {
            "operation of PPO": size.agents * size.agent_steps * learning / devices,
            "iteration of PPO": waves * iterations,
        },
        "networks": {"byte to a device": 4.0 * size.experts * expert / devices},
        "collect": {
            "operation of a query": size.horizon * asked * rows * 2.0 * expert,
            "time step": size.horizon,
            "step of a trajectory": size.experts * size.trajectories * size.horizon / hosts,
        },
        "count": {
            "operation of a query": asked * size.iterations * size.horizon * 2.0 * expert,
        },
        "private steps": {
            "operation of a private step": shown * 6.0 * learner / devices,
            "unit of a private step": shown * float(sum(size.learner_hidden)) / devices,
            "private step": taken,
            "byte between devices": taken * 8.0 * learner if devices > 1 else 0.0,
        },
    }
