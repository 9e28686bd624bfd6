"""A learner of your own: implicit Q-learning (Kostrikov et al. 2022) for discrete actions.

One frozen dataclass with four methods; nothing in the library has to change, and private training
takes it like any other, also from the command line:

    quorum fit logs.arrow --learner examples/own_learner.py:Iql --epsilon 1 --delta 1e-4 ...

Run this file to train it, without privacy, on what a random policy did in CartPole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax import Array

from quorum_rl.envs import episode_returns, get_world, roll_out, start, uniform_policy
from quorum_rl.learners import (
    Decision,
    DenseLearner,
    Learner,
    Networks,
    Outputs,
    apply_network,
    bootstrapped_return,
    negative_log_likelihood,
    of_action,
)
from quorum_rl.types import Transition


@dataclass(frozen=True, kw_only=True)
class Iql(DenseLearner):
    """Values of logged actions only; the policy imitates those that did better than expected."""

    expectile: float = 0.7  # 0.5 values a state by its average action, near 1 by its best
    sharpness: float = 3.0  # how much more a better action is imitated

    name: ClassVar[str] = "iql"
    target_names: ClassVar[tuple[str, ...]] = ("action_values",)

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {"action_values": action_count, "state_value": 1, "policy": action_count}

    def goal(
        self, params: Networks, target: Networks, transition: Transition, key: Array
    ) -> tuple[Array, Array]:
        del key
        next_value = apply_network(params["state_value"], transition.next_observation)[0]
        slow_values = apply_network(target["action_values"], transition.observation)
        return (
            bootstrapped_return(transition, next_value, self.discount),
            of_action(slow_values, transition.action),
        )

    def loss_from_outputs(
        self, outputs: Outputs, goal: tuple[Array, Array], transition: Transition
    ) -> Array:
        bootstrapped, slow_value = goal
        value = of_action(outputs["action_values"], transition.action)
        advantage = slow_value - outputs["state_value"][0]
        side = jnp.where(advantage > 0, self.expectile, 1 - self.expectile)
        emphasis = jax.lax.stop_gradient(jnp.minimum(jnp.exp(self.sharpness * advantage), 100))
        imitation = negative_log_likelihood(outputs["policy"], transition.action)
        return (value - bootstrapped) ** 2 + side * advantage**2 + emphasis * imitation

    def decision(self) -> Decision:
        return Decision(highest="policy")


def train(learner: Learner, logs: Transition, action_count: int, steps: int) -> Any:
    """Parameters after so many steps of Adam on 128 random transitions each: nothing private."""
    rows, observation_size = logs.observation.shape
    optimiser = optax.adam(1e-3)

    def one_step(carry: Any, step: Array) -> tuple[Any, None]:
        params, target, state = carry
        drawn = jax.random.randint(jax.random.key(step), (128,), 0, rows)
        batch = jax.tree.map(lambda column: column[drawn], logs)
        keys = jax.random.split(jax.random.key(step), 128)

        def mean_loss(params: Any) -> Array:
            return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, batch, keys).mean()

        change, state = optimiser.update(jax.grad(mean_loss)(params), state)
        params = optax.apply_updates(params, change)
        return (params, learner.update_target(params, target, step), state), None

    @jax.jit
    def run() -> Any:
        params = learner.init(jax.random.key(0), observation_size, action_count)
        begin = (params, learner.init_target(params), optimiser.init(params))
        return jax.lax.scan(one_step, begin, jnp.arange(1, steps + 1))[0][0]

    return run()


if __name__ == "__main__":
    world = get_world("CartPole")
    running = start(world, jax.random.key(0), world.default_params(), copies=100)
    _, seen = roll_out(
        world, uniform_policy(world), jax.random.key(1), running, world.default_params(), steps=200
    )
    logs = jax.tree.map(lambda column: column.reshape(20_000, *column.shape[2:]), seen)
    learner = Iql(hidden_sizes=(64,))
    params = train(learner, logs, world.spaces.action_count, steps=2000)

    def greedy(key: Array, observation: Array) -> Array:
        del key
        return learner.act(params, observation)

    returns = episode_returns(world, greedy, jax.random.key(2), 50)
    print(f"IQL earns {returns.mean():.0f}, the random policy {world.facts.random_return:.0f}.")
