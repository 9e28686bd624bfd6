"""The cost model: its formulas against networks and measurements, and how they grow."""

from dataclasses import replace

import jax
import pytest

from quorum_rl.cost import MACHINES, SAMPLING_RATE, Cost, Size, costs_of
from quorum_rl.errors import QuorumError
from quorum_rl.fit import FitSettings
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


@pytest.mark.parametrize(("agents", "seconds", "gibibytes"), [(3000, 134, 31.9), (6000, 268, 63.6)])
def test_training_experts_takes_what_another_run_took(
    agents: int, seconds: float, gibibytes: float
) -> None:
    """Whole trainings in docs/experts.md, which nothing here was fitted to; their memory is that of
    --fast, a sixth less."""
    cost = by_stage(replace(SIZE, agents=agents, agents_at_once=agents))["experts"]
    assert cost.seconds == pytest.approx(seconds, rel=0.25)
    assert cost.device_bytes / 2**30 == pytest.approx(gibibytes, rel=0.25)
    assert not cost.guessed


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_on_a_device_falls_as_one_over_the_devices(machine: str) -> None:
    same = replace(SIZE, agents_at_once=SIZE.agents)
    one, eight = by_stage(same, machine), by_stage(replace(same, devices=8), machine)
    for stage, cost in eight.items():
        assert cost.device_bytes == pytest.approx(one[stage].device_bytes / 8)
        assert cost.seconds >= one[stage].seconds / 8
        assert cost.host_bytes == one[stage].host_bytes


def test_a_run_grows_with_its_experts_but_a_private_step_of_so_many_hardly_does() -> None:
    """Up to what does not grow (an iteration's latency, a filled block): within a tenth."""
    more = replace(SIZE, experts=1_000_000, agents=1_000_000)
    small, large = by_stage(SIZE), by_stage(more)
    for stage in ("experts", "networks", "collect", "count"):
        growth = large[stage].seconds / small[stage].seconds
        assert growth == pytest.approx(1e6 / 3000, rel=0.1)
    assert large["private steps"].seconds < 10 * small["private steps"].seconds
    ratio = large["private steps"].device_bytes / small["private steps"].device_bytes
    assert ratio == pytest.approx(1e6 / 3000)


def test_what_is_not_given_is_as_a_fit_has_it() -> None:
    usual = FitSettings(method="dp-sgd").filled()
    assert usual.sampling_rate == SAMPLING_RATE
    assert usual.private_steps == SIZE.private_steps
    assert usual.transitions_per_expert == SIZE.transitions_per_expert


def test_agents_that_do_not_fit_are_trained_in_equal_waves() -> None:
    cost = by_stage(replace(SIZE, agents=30_000))["experts"]
    assert cost.device_bytes <= MACHINES["h200"].memory
    waves = -(-30_000 * SIZE.bytes_of_an_agent // cost.device_bytes)
    assert cost.device_bytes == pytest.approx(30_000 * SIZE.bytes_of_an_agent / waves, rel=1e-3)


def test_what_is_unknown_or_impossible_is_refused() -> None:
    with pytest.raises(QuorumError, match="choose one of cpu-core, h200"):
        costs_of(SIZE, "abacus")
    with pytest.raises(QuorumError, match="devices is 0"):
        replace(SIZE, devices=0)
