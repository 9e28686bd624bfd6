"""How a process is told of the others, and what is refused before it joins them."""

import jax
import numpy as np
import pytest

from quorum_rl.distributed import (
    ADDRESS,
    COUNT,
    NUMBER,
    all_say,
    broadcast,
    is_single_process,
    join,
)
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.errors import QuorumError
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.plan import Plan, agents_per_wave


@pytest.mark.parametrize("name", [COUNT, NUMBER])
def test_what_is_no_number_is_refused_before_anybody_is_waited_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (COUNT, NUMBER):
        monkeypatch.setenv(one, "1")
    monkeypatch.setenv(ADDRESS, "localhost:9")
    monkeypatch.setenv(name, "two")
    with pytest.raises(QuorumError, match=f"{name} is 'two': give a whole number"):
        join()


def test_without_an_address_a_process_is_alone_and_agrees_with_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    join()
    assert is_single_process()
    assert all_say("anything")
    assert broadcast({"a": np.array(3)})["a"] == 3


def test_waves_are_of_the_share_of_a_process_on_its_own_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of four has a quarter of the agents, and a wave is at most those."""
    plan, recipe = Plan(400, 1, 1, 1), PpoRecipe(hidden=(4,), copies=1, slice_size=128)
    assert agents_per_wave(CartPole(), plan, recipe) == 400
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    monkeypatch.setattr(jax, "process_index", lambda: 2)
    assert agents_per_wave(CartPole(), plan, recipe) == 100
