"""Finds the reference policies and measures the returns that the worlds state in their facts.

    python -m reproduction.studies.reference_returns            # measure what is shipped
    python -m reproduction.studies.reference_returns --search   # search anew and overwrite it

Every reference is a deterministic closed-loop policy, found with fixed seeds:

CartPole  a linear rule written by hand; it reaches the largest possible return.
Acrobot   the cross-entropy method over the weights: draw a population around a mean, keep the best
          eighth, move mean and spread towards them, repeat. The best of some restarts is chosen
          on episodes of its own and measured on fresh ones.
LunarLander, Pendulum  proximal policy optimisation with two rates and two seeds each, small
          networks, in the default world; the best of four on episodes of their own (a quarter of an
          hour, two minutes). LunarLanderContinuous has the network of LunarLander.
Breakout, SpaceInvaders  rules written by hand, in `quorum_rl.envs.minatar_rules`.
HIV       nothing is random in the default world, so a beam search finds a schedule of drugs, and
          the network is trained to choose the same from what it observes.

What is measured are the weights as stored, after rounding.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from quorum_rl import envs
from quorum_rl.envs import AnyWorld, get_world, grid, uniform_policy
from quorum_rl.envs.hiv import Hiv, HivState
from quorum_rl.envs.lunar_lander import LunarLander
from quorum_rl.envs.pendulum import Pendulum
from quorum_rl.envs.reference import (
    ReferenceNetwork,
    episode_returns,
    greedy,
    network_from_json,
    network_to_json,
    reference_policy,
)
from quorum_rl.envs.rollout import Policy
from quorum_rl.envs.world import Array, Key
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.plan import Plan, preset
from quorum_rl.experts.ppo.training import train_population

FOLDER: Final = Path(envs.__file__).parent / "reference_policies"
HIDDEN_UNITS: Final = 16
MEASURING_SEED: Final = 2024  # differs from every seed of the search

# Acrobot: sines and cosines count twice as much as they would unscaled, velocities are tamed.
ACROBOT_SCALE: Final = (0.5, 0.5, 0.5, 0.5, 1.0, 2.0)
POPULATION: Final = 128
ELITE: Final = POPULATION // 8
EPISODES_PER_CANDIDATE: Final = 24
GENERATIONS: Final = 80
RESTARTS: Final = 5
LEAST_SPREAD: Final = 0.02  # keeps the search from freezing before it has found something

BEAM_WIDTH: Final = 256  # eight times as many find the same schedule
DISTILLING_STEPS: Final = 4000
LEARNING_RATE: Final = 0.02
OBSERVATION_NOISE: Final = 0.02  # in log10: the network has to choose well near the schedule too


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--search", action="store_true", help="search anew and overwrite")
    parser.add_argument("--worlds", nargs="+", default=envs.world_names(), help="which to measure")
    parser.add_argument("--episodes", type=int, default=10_000, help="per measurement")
    arguments = parser.parse_args()
    if arguments.search:
        store("cartpole", balancing_network())
        store("acrobot", swinging_network())
        store("lunarlander", landing_network())
        store("pendulum", holding_network())
        store("hiv", treating_network())
    for name in arguments.worlds:
        world = get_world(name)
        report(world, "random", uniform_policy(world), arguments.episodes)
        report(world, "reference", reference_policy(world), arguments.episodes)


def store(name: str, network: ReferenceNetwork) -> None:
    (FOLDER / f"{name}.json").write_text(network_to_json(network), encoding="utf-8")


def report(world: AnyWorld, label: str, policy: Policy, episodes: int) -> None:
    run = jax.jit(partial(episode_returns, world, policy, episodes=episodes))
    returns = np.asarray(run(jax.random.key(MEASURING_SEED)), np.float64)
    error = returns.std(ddof=1) / np.sqrt(episodes)
    print(
        f"{world.name:9} {label:10} mean {returns.mean():.7g}  standard error {error:.2g}  "
        f"episodes {episodes}  least {returns.min():.6g}  most {returns.max():.6g}",
        flush=True,
    )


def balancing_network() -> ReferenceNetwork:
    """CartPole: push towards where the pole falls, and a little against drifting away."""
    push = jnp.array([0.1, 0.5, 1.0, 1.0])
    return ReferenceNetwork(
        centre=jnp.zeros(4),
        scale=jnp.ones(4),
        weights=(jnp.stack([-push, push], axis=1),),
        biases=(jnp.zeros(2),),
    )


def swinging_network() -> ReferenceNetwork:
    """Acrobot: the best of some restarts of the cross-entropy method."""
    world = get_world("Acrobot")
    form = untrained(world, jnp.zeros(6), jnp.array(ACROBOT_SCALE))
    run = jax.jit(partial(cross_entropy, world, form))
    choose = jax.jit(
        lambda network: episode_returns(world, greedy(network), jax.random.key(7), 2000).mean()
    )
    found = []
    for restart in range(RESTARTS):
        began = time.perf_counter()
        network = network_from_json(network_to_json(run(jax.random.key(restart))))
        score = float(choose(network))
        seconds = time.perf_counter() - began
        print(f"Acrobot restart {restart}: {score:.6g} in {seconds:.0f} s", flush=True)
        found.append((score, network))
    return max(found, key=lambda scored: scored[0])[1]


def cross_entropy(world: AnyWorld, form: ReferenceNetwork, key: Key) -> ReferenceNetwork:
    """The mean of the last population."""
    flat, unflatten = weights_as_vector(form)

    def score(vector: Array, key: Key) -> Array:
        policy = greedy(unflatten(vector))
        return episode_returns(world, policy, key, EPISODES_PER_CANDIDATE).mean()

    def generation(now: tuple[Array, Array], key: Key) -> tuple[tuple[Array, Array], None]:
        mean, spread = now
        draw_key, play_key = jax.random.split(key)
        drawn = mean + spread * jax.random.normal(draw_key, (POPULATION, flat.size))
        # One key for all: candidates are compared on the same start states.
        scores = jax.vmap(score, (0, None))(drawn, play_key)
        kept = drawn[jnp.argsort(-scores)[:ELITE]]
        mean = 0.25 * mean + 0.75 * kept.mean(axis=0)
        spread = jnp.maximum(0.25 * spread + 0.75 * kept.std(axis=0), LEAST_SPREAD)
        return (mean, spread), None

    first = (jnp.zeros_like(flat), jnp.ones_like(flat))
    (mean, _), _ = jax.lax.scan(generation, first, jax.random.split(key, GENERATIONS))
    return unflatten(mean)


class _Unvaried:
    """A world without variations: all agents train in the default one."""

    def settings(self: AnyWorld) -> Any:
        default = self.default_params()
        return grid(default, gravity=np.full(2, default.gravity))


@dataclass(frozen=True)
class _OneLander(_Unvaried, LunarLander):
    pass


@dataclass(frozen=True)
class _OnePendulum(_Unvaried, Pendulum):
    pass


def landing_network() -> ReferenceNetwork:
    """LunarLander."""
    world = _OneLander(impact_passes=8)
    recipe = replace(preset(world, "paper").recipe, half_precision=False)
    return best_agent(world, recipe, steps=4_000_000, rates=(1e-3, 2e-3), episodes=400)


def holding_network() -> ReferenceNetwork:
    """Pendulum; what a torque is worth here takes a longer look than what its experts learn by."""
    world = _OnePendulum()
    recipe = replace(preset(world, "small").recipe, discount=0.95, slice_size=512)
    return best_agent(world, recipe, steps=800_000, rates=(1e-3, 5e-4), episodes=1000)


def best_agent(
    world: AnyWorld, recipe: PpoRecipe, *, steps: int, rates: tuple[float, float], episodes: int
) -> ReferenceNetwork:
    """The best of a small population."""
    plan = Plan(
        settings=2, candidates=2, experts=4, total_steps=steps,
        learning_rates=rates, batch_slices=(1,), judging_episodes=episodes,
    )  # fmt: skip
    judged, _ = train_population(world, plan, replace(recipe, hidden=(32, 32)), seed=4)
    best = int(np.argmax(judged.returns))
    print(f"{world.name} agents: {judged.returns.round(1)}", flush=True)
    layers = [(layer.weight[best], layer.bias[best]) for layer in judged.network]
    size, outputs = world.spaces.observation_size, world.spaces.action_count
    *rest, (weight, bias) = layers
    layers = [*rest, (weight[:, :outputs], bias[:outputs])]  # a Gaussian policy's spread is left
    return ReferenceNetwork(
        centre=jnp.zeros(size),
        scale=jnp.ones(size),
        weights=tuple(jnp.asarray(weight) for weight, _ in layers),
        biases=tuple(jnp.asarray(bias) for _, bias in layers),
    )


def treating_network() -> ReferenceNetwork:
    """HIV: a network that chooses what the best schedule found would."""
    world = Hiv()
    began = time.perf_counter()
    best, schedule = jax.jit(partial(beam_search, world))()
    drugs = "".join(str(action) for action in np.asarray(schedule))
    print(f"HIV schedule {drugs}: {float(best):.6g} in {time.perf_counter() - began:.0f} s")
    observations = observations_under(world, schedule)
    centre, scale = observations.mean(axis=0).round(1), observations.std(axis=0).round(1)
    form = untrained(world, centre, scale)
    network: ReferenceNetwork = jax.jit(distilled)(form, observations, schedule, jax.random.key(0))
    return network


def beam_search(world: Hiv) -> tuple[Array, Array]:
    """The return and the actions of the best schedule found.

    After each step those branches stay that promise most if the immune response stays as it is.
    """
    params = world.default_params()
    steps, choices = params.time_limit, world.spaces.action_count
    key = jax.random.key(0)  # unused by the default world
    actions = jnp.tile(jnp.arange(choices), BEAM_WIDTH)

    def branch(
        now: tuple[HivState, Array, Array], time: Array
    ) -> tuple[tuple[HivState, Array, Array], None]:
        state, so_far, schedule = jax.tree.map(lambda x: jnp.repeat(x, choices, axis=0), now)
        after = jax.vmap(world.step, (None, 0, 0, None))(key, state, actions, params)
        so_far = so_far + after.reward
        promise = so_far + (steps - 1 - time) * 1000.0 * after.state.concentrations.immune
        kept = jnp.argsort(-promise)[:BEAM_WIDTH]
        schedule = schedule.at[:, time].set(actions)
        return jax.tree.map(lambda x: x[kept], (after.state, so_far, schedule)), None

    state, _ = jax.vmap(world.reset, (0, None))(jax.random.split(key, BEAM_WIDTH), params)
    nothing = jnp.full(BEAM_WIDTH, -jnp.inf).at[0].set(0.0)  # one beginning, not many alike
    first = (state, nothing, jnp.zeros((BEAM_WIDTH, steps), jnp.int32))
    (_, returns, schedules), _ = jax.lax.scan(branch, first, jnp.arange(steps))
    return returns.max(), schedules[returns.argmax()]


def observations_under(world: Hiv, schedule: Array) -> Array:
    """What is observed before each action of `schedule`."""
    params, key = world.default_params(), jax.random.key(0)

    def step(now: tuple[HivState, Array], action: Array) -> tuple[tuple[HivState, Array], Array]:
        after = world.step(key, now[0], action, params)
        return (after.state, after.observation), now[1]

    _, observations = jax.lax.scan(step, world.reset(key, params), schedule)
    return observations


def distilled(
    form: ReferenceNetwork, observations: Array, actions: Array, key: Key
) -> ReferenceNetwork:
    """`form` trained by Adam to choose `actions` at and near `observations`."""
    flat, unflatten = weights_as_vector(form)

    def loss(vector: Array, seen: Array) -> Array:
        preferences = jax.vmap(unflatten(vector).preferences)(seen)
        return -jax.nn.log_softmax(preferences)[jnp.arange(len(actions)), actions].mean()

    def descend(
        now: tuple[Array, Array, Array], step: tuple[Array, Key]
    ) -> tuple[tuple[Array, Array, Array], None]:
        (vector, momentum, power), (time, key) = now, step
        noise = OBSERVATION_NOISE * jax.random.normal(key, observations.shape)
        slope = jax.grad(loss)(vector, observations + noise)
        momentum, power = 0.9 * momentum + 0.1 * slope, 0.999 * power + 0.001 * slope**2
        size = jnp.sqrt(power / (1 - 0.999**time)) + 1e-8
        return (vector - LEARNING_RATE * momentum / (1 - 0.9**time) / size, momentum, power), None

    start_key, noise_key = jax.random.split(key)
    nothing = jnp.zeros_like(flat)
    first = (jax.random.normal(start_key, flat.shape), nothing, nothing)
    times = jnp.arange(1, DISTILLING_STEPS + 1)
    noise_keys = jax.random.split(noise_key, DISTILLING_STEPS)
    (vector, _, _), _ = jax.lax.scan(descend, first, (times, noise_keys))
    return unflatten(vector)


def untrained(world: AnyWorld, centre: Array, scale: Array) -> ReferenceNetwork:
    inputs, outputs = world.spaces.observation_size, world.spaces.action_count
    return ReferenceNetwork(
        centre=centre,
        scale=scale,
        weights=(jnp.zeros((inputs, HIDDEN_UNITS)), jnp.zeros((HIDDEN_UNITS, outputs))),
        biases=(jnp.zeros(HIDDEN_UNITS), jnp.zeros(outputs)),
    )


def weights_as_vector(form: ReferenceNetwork) -> tuple[Array, Callable[[Array], ReferenceNetwork]]:
    """What may be changed in `form` as one vector, and the way back."""
    flat, unravel = jax.flatten_util.ravel_pytree((form.weights, form.biases))
    return flat, lambda vector: ReferenceNetwork(form.centre, form.scale, *unravel(vector))


if __name__ == "__main__":
    main()
