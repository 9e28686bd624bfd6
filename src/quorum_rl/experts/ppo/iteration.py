"""One iteration of proximal policy optimisation for one agent: roll out, judge, improve.

Everything is written for a single agent; `population_iteration` maps it over thousands. Details
that matter (Andrychowicz et al., 2021; Huang et al., 2022) are named where they stand.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.envs import AnyWorld, advance
from quorum_rl.experts.heads import drawn, in_bounds, judged
from quorum_rl.experts.networks import apply_network, in_precision
from quorum_rl.experts.ppo.agent import Adam, Agent, Array, Networks, PpoRecipe, Tuning

VALUE_STEPS = 16  # steps of a roll-out judged at once: bounds the memory of a large population
ADAM_FIRST, ADAM_SECOND, ADAM_EPSILON = 0.9, 0.999, 1e-5


class Batch(NamedTuple):
    """What the update needs of one roll-out; flat, `(steps_per_iteration, …)`."""

    observation: Array  # normalised
    action: Array
    log_probability: Array  # when it was taken
    advantage: Array
    value_target: Array


class Trace(NamedTuple):
    """What a roll-out leaves behind; leaves are `(roll_out_steps, copies, …)`."""

    observation: Array
    action: Array
    log_probability: Array
    reward: Array
    next_observation: Array
    terminated: Array
    done: Array
    discounted: Array


class Earned(NamedTuple):
    """Undiscounted returns of the episodes that ended in this iteration, for the progress bar."""

    total: Array
    episodes: Array


def population_iteration(
    world: AnyWorld,
    recipe: PpoRecipe,
    agents: Agent,
    tunings: Tuning,
    key: Array,
    shuffle_key: Array,
    total_iterations: Array,
) -> tuple[Agent, Earned]:
    """One iteration of every agent; leaves of `agents` and `tunings` have an axis of agents.

    All agents shuffle their own data in the same order: one sort instead of thousands.
    """

    def iterate(agent: Agent, tuning: Tuning) -> tuple[Agent, Earned]:
        agent_key = jax.random.fold_in(jax.random.fold_in(key, tuning.number), agent.iteration)
        agent, trace, earned = roll_out(world, recipe, agent, tuning, agent_key)
        agent, batch = estimate_advantages(recipe, agent, trace)
        return improve(recipe, agent, tuning, batch, shuffle_key, total_iterations), earned

    return jax.vmap(iterate)(agents, tunings)


def roll_out(
    world: AnyWorld, recipe: PpoRecipe, agent: Agent, tuning: Tuning, key: Array
) -> tuple[Agent, Trace, Earned]:
    """Act for `roll_out_steps` steps in every copy of the agent's world."""
    actor, seen = in_precision(agent.networks.actor, recipe.dtype), agent.seen
    bounds = world.spaces.action_bounds

    def step(carry: tuple[Agent, Earned], time: Array) -> tuple[tuple[Agent, Earned], Trace]:
        now, earned = carry
        step_key, action_key = jax.random.split(jax.random.fold_in(key, time))
        looked = (now.running.observation - seen.mean) / seen.deviation
        action, log_probability = drawn(action_key, actor, looked, continuous=bool(bounds))
        # The gradient is of what was drawn, the world gets what its bounds leave of it.
        taken = in_bounds(action, bounds) if bounds else action
        running, seen_step = advance(
            world, jax.random.split(step_key, recipe.copies), now.running, taken, tuning.params
        )
        done = seen_step.terminated | seen_step.truncated
        discounted = recipe.discount * now.discounted + seen_step.reward
        undiscounted = now.undiscounted + seen_step.reward
        trace = Trace(
            observation=looked,
            action=action,
            log_probability=log_probability,
            reward=seen_step.reward,
            next_observation=seen_step.next_observation,
            terminated=seen_step.terminated,
            done=done,
            discounted=discounted,
        )
        now = now._replace(
            running=running,
            discounted=jnp.where(done, 0.0, discounted),
            undiscounted=jnp.where(done, 0.0, undiscounted),
        )
        total = earned.total + jnp.where(done, undiscounted, 0.0).sum()
        return (now, Earned(total, earned.episodes + done.sum())), trace

    nothing = Earned(jnp.float32(0), jnp.int32(0))
    (agent, earned), trace = jax.lax.scan(step, (agent, nothing), jnp.arange(recipe.roll_out_steps))
    return agent, trace, earned


def estimate_advantages(recipe: PpoRecipe, agent: Agent, trace: Trace) -> tuple[Agent, Batch]:
    """Advantages by GAE, and the running moments with the new data in them.

    A truncated episode bootstraps from its true last observation; only a terminated one is worth
    nothing afterwards. Rewards are divided by the deviation of discounted returns, so that the
    critic works on numbers near one whatever the world pays.
    """
    earned = agent.earned.with_batch(trace.discounted.reshape(-1))
    reward = trace.reward / earned.deviation
    critic = in_precision(agent.networks.critic, recipe.dtype)

    def values(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        now, following = pair
        following = (following - agent.seen.mean) / agent.seen.deviation
        return apply_network(critic, now)[..., 0], apply_network(critic, following)[..., 0]

    value, next_value = jax.lax.map(
        values, (trace.observation, trace.next_observation), batch_size=VALUE_STEPS
    )
    surprise = reward + recipe.discount * jnp.where(trace.terminated, 0.0, next_value) - value

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        surprise_now, done = now
        carried = recipe.discount * recipe.trace_decay * jnp.where(done, 0.0, later)
        return surprise_now + carried, surprise_now + carried

    _, advantage = jax.lax.scan(
        backwards, jnp.zeros(recipe.copies), (surprise, trace.done), reverse=True
    )
    normalised = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    batch = Batch(
        trace.observation, trace.action, trace.log_probability, normalised, advantage + value
    )
    # The moments of observations change only after the update: actor and critic see one scale.
    raw = trace.observation * agent.seen.deviation + agent.seen.mean
    seen = agent.seen.with_batch(raw.reshape(-1, raw.shape[-1]))
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)
    return agent._replace(earned=earned, seen=seen), flat


def improve(
    recipe: PpoRecipe,
    agent: Agent,
    tuning: Tuning,
    batch: Batch,
    shuffle_key: Array,
    total_iterations: Array,
) -> Agent:
    """Several epochs of clipped policy gradient, the learning rate annealed to zero."""
    left = 1.0 - agent.iteration / total_iterations
    rate = tuning.learning_rate * left

    def epoch(carry: tuple[Networks, Adam], key: Array) -> tuple[tuple[Networks, Adam], None]:
        order = jax.random.permutation(key, recipe.steps_per_iteration)
        slices = jax.tree.map(
            lambda leaf: leaf[order].reshape(recipe.slices, recipe.slice_size, *leaf.shape[1:]),
            batch,
        )

        def one_slice(
            carry: tuple[Networks, Adam], numbered: tuple[Array, Batch]
        ) -> tuple[tuple[Networks, Adam], None]:
            number, piece = numbered
            networks, optimiser = carry
            gradient = jax.grad(loss)(networks, recipe, piece)
            due = (number + 1) % tuning.slices_per_update == 0
            return _adam(recipe, networks, optimiser, gradient, rate, tuning, due), None

        return jax.lax.scan(one_slice, carry, (jnp.arange(recipe.slices), slices))

    keys = jax.random.split(shuffle_key, recipe.epochs)
    (networks, optimiser), _ = jax.lax.scan(epoch, (agent.networks, agent.optimiser), keys)
    return agent._replace(networks=networks, optimiser=optimiser, iteration=agent.iteration + 1)


def loss(networks: Networks, recipe: PpoRecipe, batch: Batch) -> Array:
    """PPO's clipped objective, the critic's squared error, and a bonus for staying undecided."""
    networks = Networks(*(in_precision(network, recipe.dtype) for network in networks))
    log_probability, entropy = judged(networks.actor, batch.observation, batch.action)
    ratio = jnp.exp(log_probability - batch.log_probability)
    clipped = jnp.clip(ratio, 1 - recipe.clip, 1 + recipe.clip)
    gain = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()
    value = apply_network(networks.critic, batch.observation)[..., 0]
    error = jnp.square(value - batch.value_target).mean()
    return recipe.value_weight * error - gain - recipe.entropy_weight * entropy.mean()


def _adam(
    recipe: PpoRecipe,
    networks: Networks,
    optimiser: Adam,
    gradient: Networks,
    rate: Array,
    tuning: Tuning,
    due: Array,
) -> tuple[Networks, Adam]:
    """Gather the gradient and, when it is `due`, take a step of Adam with the mean of it."""
    gathered = jax.tree.map(jnp.add, optimiser.gathered, gradient)
    count = tuning.slices_per_update
    squares = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gathered))
    length = jnp.sqrt(squares) / count
    scale = jnp.minimum(1.0, recipe.gradient_norm / (length + 1e-8)) / count
    updates = optimiser.updates + 1
    first_correction = 1 - ADAM_FIRST**updates
    second_correction = 1 - ADAM_SECOND**updates

    def leaf_step(
        weight: Array, first: Array, second: Array, total: Array
    ) -> tuple[Array, Array, Array, Array]:
        slope = total * scale
        new_first = ADAM_FIRST * first + (1 - ADAM_FIRST) * slope
        new_second = ADAM_SECOND * second + (1 - ADAM_SECOND) * slope**2
        root = jnp.sqrt(new_second / second_correction) + ADAM_EPSILON
        moved = weight - rate * (new_first / first_correction) / root
        return (
            jnp.where(due, moved, weight),
            jnp.where(due, new_first, first),
            jnp.where(due, new_second, second),
            jnp.where(due, 0.0, total),
        )

    stepped = jax.tree.map(leaf_step, networks, optimiser.first, optimiser.second, gathered)
    parts = jax.tree.transpose(
        jax.tree.structure(networks), jax.tree.structure((0, 0, 0, 0)), stepped
    )
    new_networks, new_first, new_second, new_gathered = parts
    updates = jnp.where(due, updates, optimiser.updates)
    return new_networks, Adam(new_first, new_second, new_gathered, updates)
