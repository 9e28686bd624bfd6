"""What one device holds of 512 agents, experts and logs, when there are 1, 2, 4 or 8 of them.

    python -m benchmarks.spread_memory --out results/scale.parquet

Devices are virtual ones of a CPU, for each number of them a process of its own. Of training experts
it is what XLA says that the compiled program needs on a device, weights, moments, roll-outs and
what lies between included; of asking and of private steps it is what the arrays hold.
"""

import argparse
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from reproduction.results import add

COUNTS: Final = (1, 2, 4, 8)
AGENTS, HIDDEN, WIDTH = 512, (64, 64), 4


def of_training() -> int:
    """Bytes that an iteration of PPO needs on a device."""
    from quorum_rl.distributed import padded, placed
    from quorum_rl.envs import get_world
    from quorum_rl.experts.ppo import training
    from quorum_rl.experts.ppo.agent import PpoRecipe
    from quorum_rl.experts.ppo.plan import Plan, tunings

    world = get_world("CartPole")
    recipe = PpoRecipe(hidden=HIDDEN, copies=4, roll_out_steps=64, slice_size=64)
    wave = placed(padded(tunings(world, Plan(AGENTS, 1, 1, 1), recipe), AGENTS))
    key = jax.random.key(0)
    agents = training._new_agents(world, recipe)(wave, key)
    program = training._chunk(world, recipe).lower(agents, wave, key, 0, 1, 1).compile()
    found = program.memory_analysis()
    # What comes out takes the place of the agents that went in.
    return int(found.argument_size_in_bytes + found.temp_size_in_bytes)


def of_asking() -> int:
    """Bytes of the experts' networks on a device."""
    from quorum_rl.experts.networks import Layer
    from quorum_rl.experts.population import PlacedNetworks

    widths = (WIDTH, *HIDDEN, 2)
    network: Any = tuple(
        Layer(
            np.zeros((AGENTS, inputs, outputs), np.float32),
            np.zeros((AGENTS, outputs), np.float32),
        )
        for inputs, outputs in pairwise(widths)
    )
    return most_on_a_device(PlacedNetworks(network).network)


def of_private_steps() -> int:
    """Bytes of the transitions on a device."""
    from quorum_rl.logs import Declared, from_episodes
    from quorum_rl.training.sources import spread_data

    steps = 200
    log = from_episodes(
        Declared(2, WIDTH, steps),
        expert=np.arange(AGENTS),
        length=np.full(AGENTS, steps),
        observations=np.zeros((AGENTS * (steps + 1), WIDTH), np.float32),
        actions=np.zeros(AGENTS * steps, np.int64),
        rewards=np.zeros(AGENTS * steps, np.float32),
        terminated=np.zeros(AGENTS, np.bool_),
        truncated=np.ones(AGENTS, np.bool_),
    )
    return most_on_a_device(spread_data(log).parts)


def most_on_a_device(tree: Any) -> int:
    held = [[one.data.nbytes for one in leaf.addressable_shards] for leaf in jax.tree.leaves(tree)]
    return int(np.sum(held, axis=0).max())


STAGES: Final = {
    "training experts": of_training,
    "asking experts": of_asking,
    "private steps": of_private_steps,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a Parquet file of results")
    parser.add_argument("--devices", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.devices:
        jax.config.update("jax_num_cpu_devices", given.devices)
        print(json.dumps({name: stage() for name, stage in STAGES.items()}))
        return
    rows = []
    for devices in COUNTS:
        command = [
            sys.executable,
            "-m",
            "benchmarks.spread_memory",
            "--out",
            str(given.out),
            "--devices",
            str(devices),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append({"devices": devices, "bytes": json.loads(done.stdout.splitlines()[-1])})
        print(rows[-1], flush=True)
    made = {"experts": AGENTS, "jax": jax.__version__, "rows": rows}
    add(given.out, "devices", made)


if __name__ == "__main__":
    main()
