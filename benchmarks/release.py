"""What a release costs, and that its cost follows what comes out.

    python benchmarks/release.py --out release.json
    python benchmarks/release.py --experts 3000 --hidden 512 256 64 --iterations 400 --cap 128

The experts are one random network with small changes, smoothed to p_min = 0.02. In the case `open`
every query passes and the whole cap is counted: the worst there can be. In the case `closing` a
prefix ends where about three tenths of the experts would still go along. Everything is timed after
a first run that compiles, with exact noise from a seed, so that all runs do the same.
"""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quorum_rl.cli.parser import parse
from quorum_rl.distributed import prepare

P_MIN: Final = 0.02
OPEN: Final = 2**62  # lattice steps: no count is that far below a threshold


@dataclass(frozen=True)
class Args:
    experts: int = 300
    hidden: tuple[int, ...] = (64, 64)
    iterations: int = 100
    cap: int = 64
    """The longest prefix."""
    caps: tuple[int, ...] | None = None
    """Caps for the curve; 1, 2, 4, … up to the longest unless given."""
    observation_size: int = 4
    actions: int = 2
    spread: float = 0.1
    """How far the experts' weights lie apart: the more, the sooner prefixes close."""
    experts_at_once: int | None = None
    """Experts asked at once, if not as many as the product asks."""
    memory_at: tuple[int, ...] = (64, 1024)
    """Experts asked at once for which peak memory is measured, each in a process of its own."""
    repeats: int = 3
    out: Path | None = None
    """Write all measurements to this JSON file."""
    only_memory: bool = False
    """Measure this process's memory and nothing else; used by this program itself."""


@dataclass(frozen=True)
class Measured:
    """The fastest of some releases of prefixes of at most `cap` steps, in seconds.

    `counting` is arithmetic that is not hidden behind the asking, and bookkeeping.
    """

    case: str
    cap: int
    released: int  # transitions
    asked: int  # states in which every expert was asked
    seconds: float
    asking: float
    counting: float
    noise: float
    first_run: float  # with compiling


class TimedExperts:
    """Experts that note how long their answers take."""

    def __init__(self, experts: Any) -> None:
        self._experts = experts
        self.seconds = 0.0
        self.answers = 0

    def __len__(self) -> int:
        return len(self._experts)

    def taken_probabilities(
        self, experts: slice, observations: npt.ArrayLike, actions: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        began = time.perf_counter()
        found: npt.NDArray[np.float64] = self._experts.taken_probabilities(
            experts, observations, actions
        )
        self.seconds += time.perf_counter() - began
        self.answers += found.size
        return found


class TimedNoise:
    """A release's noise that notes how long it takes to draw; far above all thresholds if asked."""

    def __init__(self, noise: Any, *, all_open: bool) -> None:
        self._noise = noise
        self._more = OPEN if all_open else 0
        self.seconds = 0.0

    def threshold(self, iteration: int) -> int:
        return self._timed(self._noise.threshold, iteration)

    def query(self, iteration: int, step: int) -> int:
        return self._timed(self._noise.query, iteration, step) + self._more

    def stops(self, iteration: int, step: int) -> bool:
        return bool(self._noise.stops(iteration, step))

    def _timed(self, draw: Any, *place: int) -> int:
        began = time.perf_counter()
        drawn = draw(*place)
        self.seconds += time.perf_counter() - began
        return int(drawn)


@dataclass(frozen=True)
class Scene:
    """Experts, and the trajectories that were drawn."""

    experts: Any
    states: npt.NDArray[np.float32]
    actions: npt.NDArray[np.int32]


def made(args: Args) -> Scene:
    """Similar experts, and trajectories in which the first of them acts in random states."""
    from quorum_rl.experts import LoggedExperts, Population
    from quorum_rl.experts.networks import Layer

    rng = np.random.default_rng(0)
    network = []
    for inputs, outputs in pairwise((args.observation_size, *args.hidden, args.actions)):
        shape = (inputs, outputs)
        common = rng.standard_normal(shape, np.float32)
        weight = rng.standard_normal((args.experts, *shape), np.float32)
        weight *= args.spread
        weight += common
        weight /= np.sqrt(np.float32(inputs))
        bias: Any = np.zeros((args.experts, outputs), np.float32)
        network.append(Layer(weight, bias))
    population = Population(
        observation_size=args.observation_size,
        action_count=args.actions,
        network=tuple(network),
    )
    states = rng.standard_normal((args.iterations, args.cap, args.observation_size), np.float32)
    rows = states.reshape(-1, args.observation_size)
    actions = population.greedy_actions(slice(0, 1), rows).reshape(states.shape[:2])
    return Scene(LoggedExperts(population.smoothed(P_MIN)), states, actions.astype(np.int32))


def released_once(args: Args, scene: Scene, case: str, cap: int) -> Measured:
    """One release, timed."""
    from quorum_rl.budget import SeededEntropy
    from quorum_rl.privacy import ReleaseEvent
    from quorum_rl.release import counting, mechanism
    from quorum_rl.release.noise import Noise

    event = ReleaseEvent(
        mode="tight",
        experts=args.experts,
        actions=args.actions,
        p_min=P_MIN,
        stop_probability=0.0,
        horizon=args.cap,
        prefix_cap=cap,
        iterations=args.iterations,
        theta=0.15 * args.experts,
        threshold=0.3 * args.experts,
        threshold_epsilon=30 / args.experts,
        query_epsilon=30 / args.experts,
        pool_size=1,
    )
    experts: Any = TimedExperts(scene.experts)
    noise = TimedNoise(Noise(SeededEntropy(0), event), all_open=case == "open")
    everyone = np.ones(args.experts, np.bool_)
    at_once = args.experts_at_once or counting.EXPERTS_AT_ONCE
    began = time.perf_counter()
    counts = counting.PrefixCounts(
        event, experts, everyone, scene.states, scene.actions, experts_at_once=at_once
    )
    lengths = np.full(args.iterations, args.cap)
    released = mechanism.released_lengths(event, lengths, counts, noise)
    seconds = time.perf_counter() - began
    return Measured(
        case=case,
        cap=cap,
        released=int(released.sum()),
        asked=experts.answers // args.experts,
        seconds=seconds,
        asking=experts.seconds,
        counting=seconds - experts.seconds - noise.seconds,
        noise=noise.seconds,
        first_run=seconds,
    )


def measured(args: Args, scene: Scene, case: str, cap: int) -> Measured:
    first = released_once(args, scene, case, cap)
    runs = [released_once(args, scene, case, cap) for _ in range(args.repeats)]
    fastest = min(runs, key=lambda run: run.seconds)
    return Measured(**{**asdict(fastest), "first_run": first.seconds})


def peak_memory(args: Args) -> dict[str, float]:
    """The most memory of this process in MB: before the release, and with it."""
    scene = made(args)
    before = _peak()
    released_once(args, scene, "open", args.cap)
    return {"before_mb": before, "peak_mb": _peak()}


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmHWM"].split()[0]) / 1e3


def memory(args: Args, at_once: int) -> dict[str, float]:
    """`peak_memory` in a process of its own."""
    sizes = ("experts", "iterations", "cap", "observation_size", "actions")
    command = [sys.executable, __file__, "--only-memory", "--experts-at-once", str(at_once)]
    for name in sizes:
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    command += ["--hidden", *map(str, args.hidden)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {"experts_at_once": at_once, **found}


def line(row: Measured) -> str:
    share = 1e3 * row.seconds / max(row.released, 1)
    return (
        f"| {row.case} | {row.cap} | {row.released} | {row.asked} | {row.seconds:.3f} "
        f"| {row.asking:.3f} | {row.counting:.3f} | {row.noise:.3f} | {share:.3f} "
        f"| {row.first_run:.2f} |"
    )


def main(args: Args) -> None:
    prepare()
    if args.only_memory:
        print(json.dumps(peak_memory(args)))
        return
    from quorum_rl.distributed import this_machine

    doubling = tuple(2**power for power in range(args.cap.bit_length()) if 2**power < args.cap)
    caps = (*doubling, args.cap) if args.caps is None else args.caps
    memories = [memory(args, at_once) for at_once in args.memory_at]  # before this process fills up
    scene = made(args)
    print(
        f"{args.experts} experts of {args.hidden}, {args.iterations} iterations; {this_machine()}"
    )
    print(
        "\n| case | cap | released | asked | s | asking | counting | noise | ms/step | first run |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    rows = []
    for case in ("open", "closing"):
        for cap in caps:
            rows.append(measured(args, scene, case, cap))
            print(line(rows[-1]), flush=True)
    for found in memories:
        print(
            f"\n{found['experts_at_once']} experts at once: {found['before_mb']:.0f} MB before the "
            f"release, at most {found['peak_mb']:.0f} MB with it"
        )
    if args.out is not None:
        facts = {name: value for name, value in asdict(args).items() if name != "out"}
        record = {
            "machine": this_machine(),
            "arguments": facts,
            "memory": memories,
            "rows": [asdict(row) for row in rows],
        }
        args.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(parse(Args, sys.argv[1:], called="release.py"))
