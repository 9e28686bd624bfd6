"""How many gradient steps a device takes in a second when many trainings are one program.

Trains 1, 8, 64 and 128 runs (seeds) at once on made-up logs, without noise and with private steps,
and prints the steps of all runs together per second. See `benchmarks/README.md`.

    python benchmarks/many_trainings.py [--runs 1 8 64] [--out PATH]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from quorum_rl.distributed import prepare, this_machine

prepare()

import jax  # noqa: E402 - the devices are set up first
import jax.numpy as jnp  # noqa: E402

from quorum_rl.learners import get_learner  # noqa: E402
from quorum_rl.training.contributions import Gradient  # noqa: E402
from quorum_rl.training.data import ExpertData  # noqa: E402
from quorum_rl.training.loop import begin, train  # noqa: E402
from quorum_rl.training.mechanism import PrivateStep, default_chunk  # noqa: E402
from quorum_rl.training.recipe import (  # noqa: E402
    Recipe,
    new_run,
    shuffled_schedule,
)
from training import ACTION_COUNT, EXPERTS, OBSERVATION_SIZE, logs  # noqa: E402

RATE = 512 / EXPERTS
CHUNK = 50  # steps in one program: the first chunk compiles, the others are timed


def private_step(each: int) -> PrivateStep:
    return PrivateStep(
        sampling_rate=RATE,
        clip_norm=1.0,
        noise_multiplier=4.0,
        expected_batch=512,
        chunk=default_chunk(EXPERTS, RATE, each),
        contribution=Gradient(transitions=each),
    )


def steps_per_second(
    name: str, data: ExpertData, runs: int, step: PrivateStep | None, steps: int
) -> float:
    """The steps of all runs together in a second, compilation left out."""
    recipe = Recipe(
        learner=get_learner(name, hidden_sizes=(256, 256)),
        private_shape=None if step is None else step.shape,
        batch_size=256,
        averaging=0.995,
    )
    made = [
        new_run(
            noise_key=jax.random.key_data(jax.random.key(number)),
            public_key=jax.random.key_data(jax.random.key(number)),
            learning_rate=1e-3,
            private=step,
        )
        for number in range(runs)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)
    schedule = shuffled_schedule(0, CHUNK + steps, 0)
    if step is not None:
        schedule = shuffled_schedule(CHUNK + steps, 0, 0)
    began: list[float] = []

    def after_chunk(standing: Any, done: int) -> None:
        jax.block_until_ready(standing.params)
        if done == CHUNK:
            began.append(time.perf_counter())

    fresh = begin(recipe, stacked, OBSERVATION_SIZE, ACTION_COUNT)
    last = train(
        recipe,
        stacked,
        fresh,
        schedule,
        private=None if step is None else data,
        plain=data.transitions if step is None else None,
        after_chunk=after_chunk,
        steps_at_once=CHUNK,
    )
    jax.block_until_ready(last.params)
    return runs * steps / (time.perf_counter() - began[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 8, 64, 128])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data, found = logs(), []
    kinds = {"plain, 256": None, "private, 512 × 1": 1, "private, 512 × 16": 16}
    for name in ("cql", "bcq"):
        for kind, each in kinds.items():
            for runs in given.runs:
                step = None if each is None else private_step(each)
                speed = steps_per_second(name, data, runs, step, given.steps)
                found.append({"learner": name, "step": kind, "runs": runs, "steps_per_s": speed})
                print(f"{name}  {kind:18} {runs:4} runs  {speed:10,.0f} steps/s", flush=True)
    if given.out is not None:
        facts = {"machine": this_machine(), "hidden": [256, 256], "results": found}
        given.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
