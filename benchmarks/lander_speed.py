"""How fast LunarLander is, and how long it compiles: by passes, and against XLA's own loops.

    python benchmarks/lander_speed.py [--worlds 48000] [--steps 60] [--loops]

A random policy with restarts. `--loops` adds the program without our kernels, which the ratio is
taken to; on a CPU there are no kernels, and both are the same program.
"""

import argparse
import time
from unittest.mock import patch

import jax

from quorum_rl.envs import roll_out, start, uniform_policy
from quorum_rl.envs.lunar_lander import LunarLander, impacts, solver

PASSES = ((180, 60, 30), (180, 60, 8), (180, 60, 0), (30, 60, 8))
ROUNDS = 3


def measured(world: LunarLander, worlds: int, steps: int) -> tuple[float, float]:
    """Seconds of compilation, and steps a second in the best round."""
    params = world.default_params()
    running = jax.jit(lambda key: start(world, key, params, worlds))(jax.random.key(0))
    flown = jax.jit(
        lambda key, at: roll_out(world, uniform_policy(world), key, at, params, steps)
    ).lower(jax.random.key(1), running)
    begun = time.perf_counter()
    program = flown.compile()
    compiled = time.perf_counter() - begun
    seconds = []
    for number in range(ROUNDS):
        begun = time.perf_counter()
        running, transitions = program(jax.random.key(number), running)
        jax.block_until_ready(transitions)
        seconds.append(time.perf_counter() - begun)
    return compiled, worlds * steps / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=48_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--loops", action="store_true", help="also without kernels")
    asked = parser.parse_args()
    print(f"{asked.worlds} worlds on {jax.devices()[0].device_kind}", flush=True)
    rates = []
    for velocity, position, impact in PASSES:
        world = LunarLander(
            velocity_passes=velocity, position_passes=position, impact_passes=impact
        )
        compiled, rate = measured(world, asked.worlds, asked.steps)
        rates.append(rate)
        print(
            f"{velocity}/{position}/{impact}: {rate:,.0f} steps/s, compiled in {compiled:.1f} s",
            flush=True,
        )
    if asked.loops:

        def as_loops(work, fixed, now):  # type: ignore[no-untyped-def]
            return work(fixed, now)

        with (
            patch.object(solver, "in_one_kernel", as_loops),
            patch.object(impacts, "in_one_kernel", as_loops),
        ):
            compiled, rate = measured(LunarLander(), asked.worlds, asked.steps)
        print(
            f"as XLA's loops: {rate:,.0f} steps/s, compiled in {compiled:.1f} s; with kernels "
            f"{rates[0] / rate:.1f} times as fast"
        )


if __name__ == "__main__":
    main()
