"""The cost model: its formulas against networks and measurements, and how they grow."""

from dataclasses import replace

import jax
import pytest

from quorum_rl.cost import MACHINES, Cost, Size, costs_of
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc

SIZE = Size(
    experts=3000,
    trajectories=20,
    horizon=200,
    observation_size=4,
    actions=2,
    iterations=300,
    agents=3000,
)


def by_stage(size: Size, machine: str = "h200") -> dict[str, Cost]:
    return {cost.stage: cost for cost in costs_of(size, machine)}


def test_parameters_are_those_of_a_network_of_that_shape() -> None:
    params = Bc(hidden_sizes=(12, 7)).init(jax.random.key(0), 5, 3)
    size = replace(SIZE, observation_size=5, actions=3)
    assert size.parameters((12, 7)) == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_training_experts_takes_what_was_measured() -> None:
    """116 s and 31.9 GiB, and twice as much for twice the agents (216 s, 63.6 GiB)."""
    for agents, seconds, gibibytes in ((3000, 116, 31.9), (6000, 216, 63.6)):
        cost = by_stage(replace(SIZE, agents=agents))["experts"]
        assert cost.seconds == pytest.approx(seconds, rel=0.2)
        assert cost.device_bytes / 2**30 == pytest.approx(gibibytes, rel=0.1)
        assert not cost.guessed


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_on_a_device_falls_as_one_over_the_devices(machine: str) -> None:
    one, eight = by_stage(SIZE, machine), by_stage(replace(SIZE, devices=8), machine)
    for stage, cost in eight.items():
        assert cost.device_bytes == pytest.approx(one[stage].device_bytes / 8)
        assert cost.seconds >= one[stage].seconds / 8
        assert cost.host_bytes == one[stage].host_bytes


def test_a_run_grows_with_its_experts_but_a_private_step_does_not() -> None:
    """With so many drawn of however many, a step is the same; its data are not."""
    more = replace(SIZE, experts=1_000_000, agents=1_000_000)
    small, large = by_stage(SIZE), by_stage(more)
    for stage in ("experts", "collect", "count"):
        assert large[stage].seconds / small[stage].seconds == pytest.approx(1e6 / 3000)
    assert large["private steps"].seconds == small["private steps"].seconds
    ratio = large["private steps"].device_bytes / small["private steps"].device_bytes
    assert ratio == pytest.approx(1e6 / 3000)


def test_what_is_unknown_or_impossible_is_refused() -> None:
    with pytest.raises(QuorumError, match="choose one of cpu-core, h200"):
        costs_of(SIZE, "abacus")
    with pytest.raises(QuorumError, match="devices is 0"):
        replace(SIZE, devices=0)
