"""Experts spread over devices: nothing but speed depends on how many there are."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.distributed import mesh, over_experts, padded, placed


@pytest.mark.parametrize(
    ("count", "block", "filled"),
    [(1, 1, 2), (2, 1, 2), (5, 1, 6), (5, 4, 8), (8, 4, 8), (9, 4, 16)],
)
def test_padding_repeats_the_last_expert_up_to_a_block_for_each_of_two_devices(
    count: int, block: int, filled: int
) -> None:
    tree = {"a": np.arange(count), "b": np.arange(2 * count).reshape(count, 2)}
    made = padded(tree, count, block)
    for name, leaf in tree.items():
        np.testing.assert_array_equal(made[name][:count], leaf)
        assert len(made[name]) == filled
        assert (made[name][count:] == leaf[-1]).all()


def test_each_device_holds_and_computes_its_own_experts() -> None:
    assert mesh().size == 2
    own = placed(np.arange(6.0, dtype=np.float32))
    seen: list[Any] = []

    def double(numbers: jax.Array, shared: jax.Array) -> jax.Array:
        seen.append(numbers.shape)
        return numbers * 2 + shared.sum()

    found = over_experts(double, shared=1)(own, jnp.ones(3))
    np.testing.assert_array_equal(found, np.arange(6) * 2 + 3)
    assert set(seen) == {(3,)}  # the program is written for three experts, not six
    assert [shard.data.shape for shard in found.addressable_shards] == [(3,), (3,)]


def test_donated_arguments_are_used_up_and_others_are_not() -> None:
    first, second = placed(jnp.arange(6.0)), placed(jnp.arange(6.0))
    over_experts(lambda a, b: a + b, donate=True)(first, second)
    assert first.is_deleted()
    assert not second.is_deleted()


EXPERTS = """
import numpy as np
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.experts import Population
from quorum_rl.experts.networks import Layer
from quorum_rl.logs import collect

rng = np.random.default_rng(0)
network = tuple(
    Layer(rng.normal(0, 1, (5, i, o)).astype("f4"), rng.normal(0, 1, (5, o)).astype("f4"))
    for i, o in ((4, 16), (16, 2))
)
experts = Population(observation_size=4, action_count=2, network=network)
log, _ = collect(experts, CartPole(), trajectories=3, seed=1)
states = rng.normal(0, 2, (40, 4))
made = {
    "probabilities": experts.probabilities(states),
    "some": experts.probabilities_of(slice(1, 4), states[:7]),
    "length": log.episodes.length,
    "actions": log.columns.actions,
    "observations": log.columns.observations,
}
"""

ALL_CORES = """
import os
from quorum_rl.distributed import prepare
prepare()
import jax
assert len(jax.devices()) == len(os.sched_getaffinity(0)), jax.devices()
assert os.environ["XLA_FLAGS"].endswith("--xla_gpu_deterministic_ops=true")
prepare()  # too late to change anything, and no error
"""

FAST = """
import os
from quorum_rl.distributed import prepare
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
prepare(fast=True)
assert os.environ["XLA_FLAGS"] == "--xla_force_host_platform_device_count=1"
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_user_who_asks_for_speed_keeps_their_own_flags() -> None:
    run(FAST)


def test_one_device_and_two_give_the_same_answers_and_logs(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    one = "import jax\njax.config.update('jax_num_cpu_devices', 1)\n"
    run(f"{one}{EXPERTS}\nnp.savez({str(path)!r}, **made)")
    names: dict[str, Any] = {}
    exec(EXPERTS, names)  # here there are two
    with np.load(path) as found:
        for name in ("probabilities", "some", "length", "actions"):
            np.testing.assert_array_equal(found[name], names["made"][name])
        # The last bit of a world's physics may depend on how many worlds a device steps.
        np.testing.assert_allclose(
            found["observations"], names["made"]["observations"], rtol=1e-5, atol=1e-6
        )


def test_every_core_can_be_a_device() -> None:
    run(ALL_CORES)
