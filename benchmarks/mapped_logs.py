"""Sampling from a log that stays in its file, beside one that is on the device.

    python benchmarks/mapped_logs.py make log.arrow --transitions 100_000_000
    python benchmarks/mapped_logs.py sample log.arrow
    python benchmarks/mapped_logs.py sample log.arrow --beside --experts 4000

`make` writes a log of random numbers, batch by batch: 49 bytes a transition. `sample` gathers what
chunks of private steps read, and prints the peak of this process's own memory and of the pages of
the file that it has touched, which the operating system may take back whenever it wants to.
`--beside` puts the log on the device too, which takes four times its size in memory on the way, and
samples the same transitions by turns; `--experts` takes only the first so many of the 10,000.
"""

import argparse
import resource
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.distributed import prepare, this_machine
from quorum_rl.logs import Declared, Demonstrations, from_episodes, save_demonstrations
from quorum_rl.training.contributions import Gradient
from quorum_rl.training.data import ExpertData, expert_data, transitions_of
from quorum_rl.training.mapped import MappedData, mapped_data
from quorum_rl.training.mechanism import PrivateStep, experts_at, who_is_drawn
from quorum_rl.training.randomness import keys_of, step_key
from quorum_rl.training.recipe import Run, new_run

OBSERVATION_SIZE, HORIZON = 11, 200
EXPERTS, BATCH, PER_EXPERT = 10_000, 512, 16
STEPS, ROUNDS = 50, 7
ROWS = 1 << 20  # made at once


def make(path: Path, transitions: int) -> None:
    """Write random demonstrations through mapped columns, so that memory stays small here too."""
    episodes = transitions // HORIZON
    states = transitions + episodes
    declared = Declared(4, OBSERVATION_SIZE, HORIZON)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        observations, rewards, actions = (
            np.memmap(Path(folder) / name, kind, "w+", shape=shape)
            for name, kind, shape in (
                ("observations", np.float32, (states, OBSERVATION_SIZE)),
                ("rewards", np.float32, (transitions,)),
                ("actions", np.uint8, (transitions,)),
            )
        )
        random = np.random.default_rng(0)
        for start in range(0, states, ROWS):
            part = observations[start : start + ROWS]
            part[:] = random.random(part.shape, np.float32)
        for start in range(0, transitions, ROWS):
            rewards[start : start + ROWS] = random.random(len(rewards[start : start + ROWS]))
        log = from_episodes(
            declared,
            expert=np.arange(episodes) * EXPERTS // episodes,
            length=np.full(episodes, HORIZON),
            observations=observations,
            actions=actions,
            rewards=rewards,
            terminated=np.zeros(episodes, np.bool_),
            truncated=np.ones(episodes, np.bool_),
        )
        save_demonstrations(log, path)


def sample(path: Path, beside: bool, experts: int) -> None:
    """Time both ways by turns, the first round of each apart: it reads the file and compiles."""
    log = Demonstrations.open(path)
    log = log.select(log.episodes.expert < experts)
    step = PrivateStep(
        sampling_rate=BATCH / experts,
        clip_norm=1.0,
        noise_multiplier=1.0,
        expected_batch=float(BATCH),
        chunk=BATCH,
        contribution=Gradient(transitions=PER_EXPERT),
    )
    run = new_run(noise_key=[1, 2], public_key=[3, 4], learning_rate=1e-3, private=step)
    runs: Run = jax.tree.map(lambda leaf: leaf[None], run)
    mapped = mapped_data(log)
    ways = {"in its file": partial(from_file, mapped, step, runs)}
    if beside:
        ways["on the device"] = partial(on_device, expert_data(log), runs)
    times: dict[str, list[float]] = {name: [] for name in ways}
    own_memory = 0.0
    for number in range(ROUNDS + 1):
        made = {}
        for name, way in ways.items():
            # The same steps every time: warm is what was read before.
            start = time.perf_counter()
            made[name] = jax.block_until_ready(way())
            times[name].append(time.perf_counter() - start)
        own_memory = max(own_memory, resident("RssAnon"))
        if beside and number == 0:
            check_same(made)
    for name, (first, *rest) in times.items():
        per_second = STEPS * BATCH * PER_EXPERT / median(rest)
        print(
            f"{name:>14}: {median(rest) * 1e3 / STEPS:7.2f} ms a step of {BATCH} experts × "
            f"{PER_EXPERT} ({per_second / 1e6:.1f} million transitions/s), first {first:.1f} s, "
            f"{min(rest) * 1e3 / STEPS:.2f}–{max(rest) * 1e3 / STEPS:.2f}"
        )
    if beside:
        both = [median(rest) for _, *rest in times.values()]
        print(f"{both[0] / both[1]:.2f} times as long from the file")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{log.transition_count:,} transitions of a file of {path.stat().st_size / 1e9:.1f} GB; "
        f"peak {peak:.2f} GB in memory, of its own at most {own_memory:.2f} GB after a round, "
        f"pages of files {resident('RssFile'):.2f} GB"
    )
    print(this_machine())


def from_file(mapped: MappedData, step: PrivateStep, runs: Run) -> Any:
    return jax.device_put(mapped.chosen(step.shape, runs, np.ones(STEPS, np.bool_), 0, STEPS))


def on_device(data: ExpertData, runs: Run) -> Any:
    # Room for what any of the steps draws, as the other way makes it.
    return _all_steps(int(8 * np.ceil((BATCH + 6 * np.sqrt(BATCH)) / 8)), data, runs)


@partial(jax.jit, static_argnums=0)
def _all_steps(room: int, data: ExpertData, runs: Run) -> Any:
    run = jax.tree.map(lambda leaf: leaf[0], runs)

    def one(number: Any) -> Any:
        sampling_key, transitions_key, _, _ = keys_of(step_key(run.noise_key, number))
        so_far = jnp.cumsum(who_is_drawn(data, sampling_key, run.numbers.last_drawn))
        experts = experts_at(so_far, jnp.arange(1, room + 1))
        return so_far[-1], transitions_of(data, experts, transitions_key, PER_EXPERT)

    return jax.lax.map(one, 1 + jnp.arange(STEPS))


def check_same(made: dict[str, Any]) -> None:
    """Both ways must have read the same transitions."""
    counts, there = made["on the device"]
    here = made["in its file"].transitions
    for number, count in enumerate(np.asarray(counts)):
        for one, other in zip(here, there, strict=True):
            assert (np.asarray(one[number, 0, :count]) == np.asarray(other[number, :count])).all()


def resident(what: str) -> float:
    """What this process holds in memory now of its own, or of files; in GB."""
    facts = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(facts[what].split()[0]) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["make", "sample"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--transitions", type=int, default=100_000_000)
    parser.add_argument("--experts", type=int, default=EXPERTS)
    parser.add_argument("--beside", action="store_true")
    given = parser.parse_args()
    prepare()
    if given.what == "make":
        make(given.path, given.transitions)
    else:
        sample(given.path, given.beside, given.experts)


if __name__ == "__main__":
    main()
