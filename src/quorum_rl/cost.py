"""What a whole run takes, in time and memory, by formulas of one line for each stage.

With m experts, N trajectories of T steps each, K release iterations, networks of P (expert) and
L (learner) parameters, o numbers in an observation and D devices:

| stage         | operations                      | bytes on a device    | bytes on the host |
|---------------|---------------------------------|----------------------|-------------------|
| experts       | agents · steps · 30 P           | agents · 76 P / D    | 4 m P             |
| collect       | m N T · 2 P                     | 4 m P / D            | 2 m N T (4 o + 8) |
| count         | m K T · 2 P, and m K T products | 4 m P / D            | 8 m K             |
| private steps | steps · q m k · 6 L             | m N T (8 o + 10) / D | m N T (8 o + 10)  |

A private step also makes noise for L parameters and sums them over the devices, on each of them.
Operations are divided by D times the speed of a device; the speeds are measured, one for each kind
of work, as they differ by more than the formulas do. Counting is an upper bound: iterations end
before T. Time for compiling, for files and for the worlds' own physics is left out, so expect a
half more for LunarLander and HIV; where an entry of `MACHINES` is a guess, it says so.

Public numbers only: nothing here looks at data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from quorum_rl.errors import QuorumError

ACTING, JUDGING, LEARNING = 2, 4, 24  # operations for each parameter, per step of PPO
# Weights, moments, gradients, roll-outs and what lies between layers, per parameter of both nets:
# 31.9 GiB for 3000 agents of (512, 256, 64) on an H200.
BYTES_OF_AN_AGENT: Final = 76


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a run is; every number is declared.

    `agents` are trained for `agent_steps` each, 0 if experts come from elsewhere.
    """

    experts: int
    trajectories: int
    horizon: int
    observation_size: int
    actions: int
    iterations: int
    expert_hidden: tuple[int, ...] = (512, 256, 64)
    learner_hidden: tuple[int, ...] = (256, 256)
    private_steps: int = 2000
    batch: int = 512
    transitions_per_expert: int = 16
    agents: int = 0
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


class Machine(NamedTuple):
    """Speeds of one device: operations a second, or seconds for each. `guessed` names guesses."""

    ppo: float
    query: float
    private: float
    product: float  # seconds to multiply one expert's product, on the host
    noise: float  # seconds for one parameter's noise
    step: float  # seconds that a private step takes at least
    link: float  # bytes a second between devices
    guessed: tuple[str, ...] = ()


MACHINES: Final[Mapping[str, Machine]] = {
    # One core of an AMD EPYC, by processor time, with other work beside it.
    "cpu-core": Machine(2.8e10, 4.5e10, 2.8e10, 4.8e-9, 4e-9, 3.5e-4, 1e10, guessed=("link",)),
    # PPO as docs/experts.md has it; the rest is not measured yet.
    "h200": Machine(
        1.35e14,
        2e13,
        1e13,
        4.8e-9,
        1e-11,
        2e-4,
        4e11,
        guessed=("query", "private", "noise", "step", "link"),
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
    speed, devices = MACHINES[machine], size.devices
    expert = size.parameters(size.expert_hidden)
    learner = size.parameters(size.learner_hidden)
    steps = size.experts * size.trajectories * size.horizon
    counted = size.experts * size.iterations * size.horizon
    networks = 4.0 * size.experts * expert
    agent_steps = size.agents * size.agent_steps
    training = agent_steps * (ACTING + JUDGING + LEARNING) * expert / (devices * speed.ppo)
    shown = size.private_steps * size.batch * size.transitions_per_expert
    alike = learner * speed.noise + speed.step  # what every device does by itself
    if devices > 1:
        alike += 2 * 4 * learner / speed.link
    learning = shown * 6 * learner / (devices * speed.private) + size.private_steps * alike
    asking = 2 * expert / (devices * speed.query)
    logged = float(steps * (8 * size.observation_size + 10))
    column = 2.0 * steps * (4 * size.observation_size + 8)
    return (
        _cost("experts", training, size.agents * BYTES_OF_AN_AGENT * expert, networks, speed, size),
        _cost("collect", steps * asking, networks, column, speed, size),
        _cost(
            "count",
            counted * (asking + speed.product),
            networks,
            8.0 * size.experts * size.iterations,
            speed,
            size,
        ),
        _cost("private steps", learning, logged, logged, speed, size),
    )


USES: Final = {
    "experts": {"ppo"},
    "collect": {"query"},
    "count": {"query", "product"},
    "private steps": {"private", "noise", "step"},
}


def _cost(
    stage: str, seconds: float, on_devices: float, on_host: float, speed: Machine, size: Size
) -> Cost:
    guessed = bool(USES[stage] & set(speed.guessed))
    return Cost(stage, seconds, on_devices / size.devices, on_host, guessed)
