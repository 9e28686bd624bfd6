"""A world of your own: a shop that decides every evening how much to order for the next day.

One object with a name, spaces, facts and four pure functions. Quorum finds this one under the
name "examples/own_world.py:SHOP". Run this file to check it and to see what a random policy earns.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from quorum_rl.envs import (
    Facts,
    Spaces,
    Step,
    check_world,
    grid,
    roll_out,
    start,
    uniform_policy,
)
from quorum_rl.pytree import pytree

ORDERS = (0.0, 5.0, 10.0, 20.0)  # units that each action orders
SHELF = 60.0  # units that fit; what does not fit is paid for and lost


@pytree
class ShopParams:
    price: float = 5.0
    unit_cost: float = 3.0
    storage_cost: float = 0.1  # per unit and night
    mean_demand: float = 8.0  # units a day
    time_limit: int = 50  # days; every world has this field


@pytree
class ShopState:
    stock: Array
    time: Array  # days so far; lets `step` see the time limit


@dataclass(frozen=True)
class Shop:
    name: ClassVar[str] = "Shop"
    spaces: ClassVar[Spaces] = Spaces(
        observation_names=("stock",),
        low=(0.0,),
        high=(SHELF,),
        action_names=("order nothing", "order 5", "order 10", "order 20"),
    )
    facts: ClassVar[Facts] = Facts(
        random_return=424.0,
        random_source="10,000 episodes, standard error 1.9",
        reference_return=738.0,
        reference_source="order 10 below a stock of 9, 5 below 14; as above, 0.7",
        demonstration_time_limit=50,
        evaluation_time_limit=50,
    )

    def default_params(self) -> ShopParams:
        return ShopParams()

    def settings(self) -> ShopParams:
        demand, price = np.linspace(6.0, 10.0, 10), np.linspace(4.5, 5.5, 10)  # 100 shops
        return grid(self.default_params(), mean_demand=demand, price=price)

    def reset(self, key: Array, params: ShopParams) -> tuple[ShopState, Array]:
        stock = jnp.floor(jax.random.uniform(key) * (2 * params.mean_demand + 1))
        return ShopState(stock, time=jnp.int32(0)), jnp.stack([stock])

    def step(
        self, key: Array, state: ShopState, action: Array, params: ShopParams
    ) -> Step[ShopState]:
        order = jnp.asarray(ORDERS)[action]
        stock = jnp.minimum(state.stock + order, SHELF)
        demand = jnp.floor(jax.random.uniform(key) * (2 * params.mean_demand + 1))
        sold = jnp.minimum(stock, demand)
        left, time = stock - sold, state.time + 1
        profit = params.price * sold - params.unit_cost * order - params.storage_cost * left
        return Step(
            state=ShopState(left, time),
            observation=jnp.stack([left]),
            reward=profit.astype(jnp.float32),
            terminated=jnp.bool_(False),  # a shop never ends by itself
            truncated=time >= params.time_limit,
        )


SHOP = Shop()

if __name__ == "__main__":
    check_world(SHOP)
    running = start(SHOP, jax.random.key(0), params := SHOP.default_params(), copies=1000)
    _, seen = roll_out(SHOP, uniform_policy(SHOP), jax.random.key(1), running, params, steps=50)
    print(f"Shop is fine; a random policy earns {seen.reward.sum(axis=0).mean():.0f} in 50 days.")
