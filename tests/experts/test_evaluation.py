"""Returns of experts, in a world whose returns are known beforehand."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs import Spaces, Step, grid
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.experts.evaluation import population_returns
from quorum_rl.experts.networks import Layer, Network
from quorum_rl.pytree import pytree


@pytree
class TillParams:
    pay: float = 1.0
    episode_length: int = 3
    time_limit: int = 6


@pytree
class TillState:
    time: jax.Array
    start: jax.Array


@dataclass(frozen=True)
class Till:
    """Action 1 earns `pay`, action 0 nothing; it closes after `episode_length` steps.

    The first observation is random and pays in the first step, whatever the action, so that
    episodes can be told apart.
    """

    name: ClassVar[str] = "Till"
    spaces: ClassVar[Spaces] = Spaces(("clock",), (-1.0,), (100.0,), ("wait", "take"))
    facts: ClassVar[Any] = replace(CartPole.facts)

    def default_params(self) -> TillParams:
        return TillParams()

    def settings(self) -> TillParams:
        return grid(TillParams(), pay=np.arange(1.0, 6.0))

    def reset(self, key: jax.Array, params: TillParams) -> tuple[TillState, jax.Array]:
        del params
        start = jax.random.uniform(key)
        return TillState(jnp.int32(0), start), start[None]

    def step(
        self, key: jax.Array, state: TillState, action: jax.Array, params: TillParams
    ) -> Step[TillState]:
        del key
        time = state.time + 1
        luck = jnp.where(state.time == 0, state.start, 0.0)
        return Step(
            TillState(time, state.start),
            time.astype(jnp.float32)[None],
            jnp.where(action == 1, params.pay, 0.0) + luck,
            terminated=time >= params.episode_length,
            truncated=time >= params.time_limit,
        )


TAKES = (1, 0, 1, 1, 0)  # what each of five experts always does; no multiple of two devices
PAY = (1.0, 2.0, 3.0, 4.0, 5.0)
LENGTHS = (1, 2, 3, 9, 4)  # the fourth is cut off by its time limit, 6


def constant_network() -> Network:
    bias = np.array([[0.0, 3.0] if take else [3.0, 0.0] for take in TAKES], np.float32)
    return (Layer(jnp.zeros((5, 1, 2)), jnp.asarray(bias)),)


def params() -> TillParams:
    return TillParams(np.array(PAY), np.array(LENGTHS), np.full(5, 6))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def returns() -> Any:
    return population_returns(Till(), constant_network(), params(), episodes=7, seed=3)


def test_every_expert_is_paid_for_one_whole_episode_in_its_own_world(returns: Any) -> None:
    steps = np.minimum(LENGTHS, 6)
    wages = np.array(PAY) * TAKES * steps
    luck = returns - wages[:, None]
    assert returns.shape == (5, 7)
    # What is left is the luck of one start, once per episode and another in each.
    assert ((luck > 0) & (luck < 1)).all()
    assert len(np.unique(luck.round(4))) == 35


def test_episodes_depend_on_the_seed_and_the_experts_number_alone(returns: Any) -> None:
    network, own = constant_network(), params()
    again = population_returns(Till(), network, own, episodes=7, seed=3)
    np.testing.assert_array_equal(again, returns)
    other = population_returns(Till(), network, own, episodes=7, seed=4)
    assert (other != returns).all()
    order = np.array([3, 1, 4, 2, 0], np.int32)
    mixed: Any = jax.tree.map(lambda leaf: leaf[order], (network, own))
    found = population_returns(Till(), *mixed, episodes=7, seed=3, numbers=order)
    np.testing.assert_array_equal(found, returns[order])


def test_near_greedy_experts_take_the_other_action_as_often_as_their_floor() -> None:
    unpaid: Any = np.zeros(5)
    paid, luck = (
        population_returns(Till(), constant_network(), setting, episodes=2000, p_min=0.1, seed=0)
        for setting in (params(), replace(params(), pay=unpaid))
    )
    taken: Any = (paid.astype(np.float64) - luck) / np.array(PAY)[:, None]
    steps = np.minimum(LENGTHS, 6)
    np.testing.assert_allclose(taken, taken.round(), atol=1e-4)
    probability = np.where(TAKES, 0.9, 0.1)
    # Binomial means, five standard errors, five experts: false alarm with probability 3e-6.
    error = np.sqrt(steps * 0.09 / 2000)
    assert (np.abs(taken.mean(axis=1) - steps * probability) < 5 * error).all()
