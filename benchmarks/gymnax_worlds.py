"""gymnax's half of `worlds.py`: run by the interpreter of gymnax's own environment.

Reads lines "WORLD SEED" and answers each with one line of JSON, the seconds of one roll-out; the
first line it writes says which versions answer. It imports nothing of Quorum.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import gymnax
import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

NAMES = {"CartPole": "CartPole-v1", "Acrobot": "Acrobot-v1"}


def roll_out(name: str, copies: int, steps: int) -> Callable[[Any], Any]:
    """Random actions in `copies` worlds with gymnax's autoreset, spread over the devices."""
    mesh = Mesh(np.array(jax.devices()), ("worlds",))
    copies = copies // mesh.size
    env, params = gymnax.make(NAMES[name])

    def run(keys: Any) -> Any:
        key, reset_key = jax.random.split(keys[0])
        keys = jax.random.split(reset_key, copies)
        observation, state = jax.vmap(env.reset, (0, None))(keys, params)

        def one_step(carry: Any, _: None) -> Any:
            observation, state, key = carry
            key, action_key, step_key = jax.random.split(key, 3)
            sample = jax.vmap(env.action_space(params).sample)
            actions = sample(jax.random.split(action_key, copies))
            following, state, reward, terminated, truncated, info = jax.vmap(
                env.step, (0, 0, 0, None)
            )(jax.random.split(step_key, copies), state, actions, params)
            seen = (
                observation, actions, reward, info["final_observation"], terminated, truncated,
            )  # fmt: skip
            return (following, state, key), seen

        return jax.lax.scan(one_step, (observation, state, key), length=steps)[1]

    spread = jax.shard_map(
        run, mesh=mesh, in_specs=P("worlds"), out_specs=P(None, "worlds"), check_vma=False
    )
    return jax.jit(spread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    compiled = {name: roll_out(name, options.copies, options.steps) for name in NAMES}
    for run in compiled.values():
        jax.block_until_ready(run(jax.random.split(jax.random.key(0), len(jax.devices()))))
    print(json.dumps({name: version(name) for name in ("gymnax", "jax")}), flush=True)
    for line in sys.stdin:
        name, seed = line.split()
        keys = jax.block_until_ready(
            jax.random.split(jax.random.key(int(seed)), len(jax.devices()))
        )
        began = time.perf_counter()
        jax.block_until_ready(compiled[name](keys))
        print(json.dumps(time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()
