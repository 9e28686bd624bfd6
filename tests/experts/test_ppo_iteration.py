"""One iteration of PPO: its parts against NumPy, episode by episode and weight by weight."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.distributed import placed
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.experts.ppo.agent import (
    Agent,
    Networks,
    PpoRecipe,
    RunningMoments,
    Tuning,
    new_agent,
)
from quorum_rl.experts.ppo.iteration import (
    Batch,
    Trace,
    _adam,
    estimate_advantages,
    improve,
    loss,
    roll_out,
)
from quorum_rl.experts.ppo.training import _chunk, _new_agents

WORLD = CartPole()
STEPS, COPIES = 16, 4


def tuning(number: int = 0, rate: float = 1e-3, slices: int = 1, **params: float) -> Tuning:
    made = WORLD.default_params().__class__(**{"time_limit": 12, **params})  # type: ignore[arg-type]
    own = jax.tree.map(
        lambda value: np.asarray(value, np.int32 if isinstance(value, int) else np.float32), made
    )
    return Tuning(jnp.float32(rate), jnp.int32(slices), own, jnp.int32(number))


@pytest.fixture(scope="module")
def agent(recipe: PpoRecipe) -> Agent:
    """An agent that has seen something: its moments are not the trivial ones."""
    rng = np.random.default_rng(5)
    fresh = new_agent(WORLD, recipe, jax.random.key(0), tuning())
    # Weights of size one, so that values, probabilities and their slopes are far from zero.
    networks = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.7, leaf.shape), jnp.float32), fresh.networks
    )
    data = jnp.asarray(rng.normal([0, 1, 2, 3], [1, 2, 3, 0.5], (40, 4)), jnp.float32)
    return fresh._replace(
        networks=networks,
        seen=RunningMoments.fresh((4,)).with_batch(data),
        earned=RunningMoments.fresh().with_batch(jnp.asarray([3.0, 9.0, 4.0])),
    )


def doubles(values: Any) -> Any:
    return np.asarray(values, np.float64)


def network_by_numpy(network: Any, inputs: Any) -> Any:
    hidden = doubles(inputs)
    for weight, bias in network[:-1]:
        hidden = np.tanh(hidden @ doubles(weight) + doubles(bias))
    return hidden @ doubles(network[-1].weight) + doubles(network[-1].bias)


def normalised_by_numpy(agent: Agent, observation: Any) -> Any:
    return (observation - doubles(agent.seen.mean)) / np.sqrt(doubles(agent.seen.variance))


# Rolling out


class Rolled(NamedTuple):
    before: Agent
    after: Agent
    trace: Any
    earned: Any


@pytest.fixture(scope="module")
def rolled(recipe: PpoRecipe, agent: Agent) -> Rolled:
    act = jax.jit(partial(roll_out, WORLD, recipe))
    after, trace, earned = act(agent, tuning(), jax.random.key(3))
    return Rolled(agent, after, jax.tree.map(np.asarray, trace), earned)


def test_a_roll_out_logs_what_the_actor_thought_and_did(rolled: Rolled) -> None:
    logits = network_by_numpy(rolled.before.networks.actor, rolled.trace.observation)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    taken = np.take_along_axis(log_probabilities, rolled.trace.action[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(rolled.trace.log_probability, taken, atol=1e-5)


def test_a_roll_out_goes_on_from_the_true_successor_unless_the_episode_ended(
    rolled: Rolled,
) -> None:
    trace = rolled.trace
    successor = normalised_by_numpy(rolled.before, trace.next_observation)
    going = ~trace.done[:-1]
    assert 0 < going.sum() < going.size
    np.testing.assert_allclose(trace.observation[1:][going], successor[:-1][going], atol=1e-4)
    # After an end: a fresh start, within 0.05 of the middle.
    raw = trace.observation * np.sqrt(rolled.before.seen.variance) + rolled.before.seen.mean
    assert (np.abs(raw[1:][~going]) < 0.0501).all()
    assert (np.abs(trace.next_observation[:-1][~going]).max(axis=-1) > 0.0501).all()


def test_a_roll_out_keeps_discounted_returns_and_counts_finished_episodes(
    rolled: Rolled, recipe: PpoRecipe
) -> None:
    total = episodes = 0.0
    for copy in range(COPIES):
        discounted = undiscounted = 0.0
        for time in range(STEPS):
            discounted = recipe.discount * discounted + rolled.trace.reward[time, copy]
            undiscounted += rolled.trace.reward[time, copy]
            assert rolled.trace.discounted[time, copy] == pytest.approx(discounted, rel=1e-5)
            if rolled.trace.done[time, copy]:
                total, episodes = total + undiscounted, episodes + 1
                discounted = undiscounted = 0.0
        assert rolled.after.undiscounted[copy] == undiscounted
    assert episodes > 0
    assert (float(rolled.earned.total), int(rolled.earned.episodes)) == (total, episodes)


# Judging


def random_trace(seed: int) -> Trace:
    """Episodes that end in every way, among them on the first and the last step."""
    rng = np.random.default_rng(seed)
    ending = rng.random((STEPS, COPIES))
    terminated, truncated = ending < 0.15, (ending > 0.75) & (ending < 0.95)
    terminated[0, 0], truncated[-1, 1], terminated[-1, 2] = True, True, True
    truncated[-1, 2] = True  # both at once: terminated counts
    return Trace(
        observation=jnp.asarray(rng.normal(size=(STEPS, COPIES, 4)), jnp.float32),
        action=jnp.asarray(rng.integers(2, size=(STEPS, COPIES))),
        log_probability=jnp.asarray(rng.normal(-0.7, 0.1, (STEPS, COPIES)), jnp.float32),
        reward=jnp.asarray(rng.normal(1, 3, (STEPS, COPIES)), jnp.float32),
        next_observation=jnp.asarray(rng.normal(2, 3, (STEPS, COPIES, 4)), jnp.float32),
        terminated=jnp.asarray(terminated),
        done=jnp.asarray(terminated | truncated),
        discounted=jnp.asarray(rng.normal(10, 5, (STEPS, COPIES)), jnp.float32),
    )


def advantages_by_numpy(
    recipe: PpoRecipe, agent: Agent, trace: Trace, deviation: float, bootstrap_from: Any
) -> tuple[Any, Any]:
    """GAE as its definition: Σ (γλ)^l δ_{t+l} over the rest of the episode. And the values."""
    value = network_by_numpy(agent.networks.critic, trace.observation)[..., 0]
    following = network_by_numpy(agent.networks.critic, bootstrap_from)[..., 0]
    done, terminated = np.asarray(trace.done), np.asarray(trace.terminated)
    reward = doubles(trace.reward) / deviation
    decay = recipe.discount * recipe.trace_decay
    advantage = np.zeros((STEPS, COPIES))
    for copy in range(COPIES):
        for begin in range(STEPS):
            for time in range(begin, STEPS):
                worth = 0.0 if terminated[time, copy] else following[time, copy]
                surprise = reward[time, copy] + recipe.discount * worth - value[time, copy]
                advantage[begin, copy] += decay ** (time - begin) * surprise
                if done[time, copy]:
                    break
    return advantage, value


@pytest.mark.parametrize("seed", [0, 1])
def test_advantages_are_gae_with_a_bootstrap_from_the_true_last_observation(
    recipe: PpoRecipe, agent: Agent, seed: int
) -> None:
    trace = random_trace(seed)
    after, batch = estimate_advantages(recipe, agent, trace)
    seen = np.concatenate([[3.0, 9.0, 4.0], np.asarray(trace.discounted).ravel()])
    deviation = float(np.std(seen))
    assert float(after.earned.deviation) == pytest.approx(deviation, rel=1e-4)

    true_successor = normalised_by_numpy(agent, trace.next_observation)
    advantage, value = advantages_by_numpy(recipe, agent, trace, deviation, true_successor)
    normalised = (advantage - advantage.mean()) / advantage.std()
    np.testing.assert_allclose(batch.advantage, normalised.ravel(), atol=2e-4)
    np.testing.assert_allclose(batch.value_target, (advantage + value).ravel(), atol=2e-4)

    # The classic fault, to bootstrap from the observation after a reset, would be seen.
    reset = np.concatenate([trace.observation[1:], true_successor[-1:]])
    faulty, _ = advantages_by_numpy(recipe, agent, trace, deviation, reset)
    assert np.abs(faulty - advantage).max() > 0.1


def test_judging_adds_the_raw_observations_to_the_moments(recipe: PpoRecipe, agent: Agent) -> None:
    trace = random_trace(3)
    after, batch = estimate_advantages(recipe, agent, trace)
    mean, deviation = np.asarray(agent.seen.mean), np.sqrt(agent.seen.variance)
    raw = np.asarray(trace.observation).reshape(-1, 4) * deviation + mean
    before, new = float(agent.seen.weight), len(raw)
    expected = (before * mean + new * raw.mean(axis=0)) / (before + new)
    second = before * (deviation**2 + mean**2) + new * (raw**2).mean(axis=0)
    np.testing.assert_allclose(after.seen.mean, expected, rtol=1e-4)
    np.testing.assert_allclose(
        after.seen.variance, second / (before + new) - expected**2, rtol=1e-3
    )
    # The batch is on the old scale, on which it was acted.
    np.testing.assert_array_equal(batch.observation, trace.observation.reshape(-1, 4))


# The loss


def random_batch(size: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(
        observation=jnp.asarray(rng.normal(size=(size, 4)), jnp.float32),
        action=jnp.asarray(rng.integers(2, size=size)),
        log_probability=jnp.asarray(rng.normal(-0.7, 0.4, size), jnp.float32),
        advantage=jnp.asarray(rng.normal(size=size), jnp.float32),
        value_target=jnp.asarray(rng.normal(size=size), jnp.float32),
    )


def loss_by_numpy(networks: Any, recipe: PpoRecipe, batch: Batch) -> float:
    batch = Batch(*map(np.asarray, batch))  # type: ignore[arg-type]
    total = 0.0
    for row in range(len(batch.action)):
        observation = doubles(batch.observation[row])
        logits = network_by_numpy(networks.actor, observation)
        probabilities = np.exp(logits) / np.exp(logits).sum()
        ratio = probabilities[int(batch.action[row])] / np.exp(float(batch.log_probability[row]))
        advantage = float(batch.advantage[row])
        bound = min(max(ratio, 1 - recipe.clip), 1 + recipe.clip)
        entropy = -sum(p * np.log(p) for p in probabilities)
        value = network_by_numpy(networks.critic, observation)[0]
        total += recipe.value_weight * (value - float(batch.value_target[row])) ** 2
        total -= min(ratio * advantage, bound * advantage) + recipe.entropy_weight * entropy
    return total / len(batch.action)


def slopes_by_numpy(networks: Networks, recipe: PpoRecipe, batch: Batch) -> list[Any]:
    """Central differences in double precision, one weight after the other."""
    leaves, structure = jax.tree.flatten(networks)
    weights = [np.array(leaf, np.float64) for leaf in leaves]
    slopes = []
    for leaf in weights:
        slope = np.zeros_like(leaf)
        for place in np.ndindex(leaf.shape):
            sides = []
            for sign in (1, -1):
                leaf[place] += sign * 1e-6
                sides.append(loss_by_numpy(jax.tree.unflatten(structure, weights), recipe, batch))
                leaf[place] -= sign * 1e-6
            slope[place] = (sides[0] - sides[1]) / 2e-6
        slopes.append(slope)
    return slopes


def test_the_loss_and_its_gradient_are_those_of_a_plain_one(
    recipe: PpoRecipe, agent: Agent
) -> None:
    batch = random_batch(12, 0)
    value, gradient = jax.value_and_grad(loss)(agent.networks, recipe, batch)
    assert float(value) == pytest.approx(loss_by_numpy(agent.networks, recipe, batch), abs=1e-5)
    for found, expected in zip(
        jax.tree.leaves(gradient), slopes_by_numpy(agent.networks, recipe, batch), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "moves"),
    [
        (1.5, 1.0, 1.2, False),  # good, and taken often enough already
        (1.5, -1.0, -1.5, True),  # bad, and taken more often than before
        (0.5, 1.0, 0.5, True),  # good, and taken too rarely
        (0.5, -1.0, -0.8, False),  # bad, and taken rarely enough already
        (1.1, 1.0, 1.1, True),
        (0.9, -1.0, -0.9, True),
    ],
)
def test_the_objective_is_clipped_only_where_it_would_reward_going_further(
    agent: Agent, ratio: float, advantage: float, gain: float, moves: bool
) -> None:
    recipe = PpoRecipe(hidden=(8,), clip=0.2, entropy_weight=0.0, value_weight=0.0)
    networks = jax.tree.map(jnp.zeros_like, agent.networks)  # each action has probability 1/2
    batch = Batch(
        observation=jnp.zeros((1, 4)),
        action=jnp.array([1]),
        log_probability=jnp.log(jnp.array([0.5 / ratio])),
        advantage=jnp.array([advantage]),
        value_target=jnp.zeros(1),
    )
    value, gradient = jax.value_and_grad(loss)(networks, recipe, batch)
    assert float(value) == pytest.approx(-gain, rel=1e-5)
    slope = gradient.actor[-1].bias
    # By hand: the ratio's slope in the taken action's logit is ratio · (1 − 1/2).
    expected = np.array([1, -1]) * ratio * advantage / 2 if moves else np.zeros(2)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-9)


# The optimiser


class AdamByNumPy:
    """Kingma and Ba (2015), Algorithm 1, after clipping by the global norm."""

    def __init__(self, weights: list[Any]) -> None:
        self.first = [np.zeros_like(weight) for weight in weights]
        self.second = [np.zeros_like(weight) for weight in weights]
        self.time = 0

    def step(self, weights: list[Any], gradient: list[Any], rate: float, most: float) -> list[Any]:
        self.time += 1
        norm = np.sqrt(sum((slope**2).sum() for slope in gradient))
        gradient = [slope * min(1, most / norm) for slope in gradient]
        moved = []
        for number, (weight, slope) in enumerate(zip(weights, gradient, strict=True)):
            self.first[number] = 0.9 * self.first[number] + 0.1 * slope
            self.second[number] = 0.999 * self.second[number] + 0.001 * slope**2
            mean = self.first[number] / (1 - 0.9**self.time)
            square = self.second[number] / (1 - 0.999**self.time)
            moved.append(weight - rate * mean / (np.sqrt(square) + 1e-5))
        return moved


@pytest.mark.parametrize("size", [0.01, 10.0], ids=["short gradients", "clipped gradients"])
@pytest.mark.parametrize("slices", [1, 3])
def test_gathered_slices_make_one_step_of_adam_with_their_mean(
    recipe: PpoRecipe, agent: Agent, size: float, slices: int
) -> None:
    rng = np.random.default_rng(slices)
    networks, optimiser, own = agent.networks, agent.optimiser, tuning(slices=slices)
    weights = [doubles(leaf) for leaf in jax.tree.leaves(networks)]
    oracle = AdamByNumPy(weights)
    step = jax.jit(partial(_adam, recipe))
    for update in range(3):
        rate = 0.01 / (1 + update)
        gathered = [np.zeros_like(weight) for weight in weights]
        for number in range(slices):
            gradient = jax.tree.map(
                lambda leaf: jnp.asarray(rng.normal(0, size / 10, leaf.shape), jnp.float32),
                networks,
            )
            for total, leaf in zip(gathered, jax.tree.leaves(gradient), strict=True):
                total += doubles(leaf) / slices
            due = jnp.asarray(number == slices - 1)
            before = networks
            networks, optimiser = step(networks, optimiser, gradient, jnp.float32(rate), own, due)
            if not due:
                assert int(optimiser.updates) == update
                assert jax.tree.all(jax.tree.map(np.array_equal, before, networks))
        weights = oracle.step(weights, gathered, rate, recipe.gradient_norm)
        for found, expected in zip(jax.tree.leaves(networks), weights, strict=True):
            np.testing.assert_allclose(found, expected, atol=2e-6)
        assert not any(leaf.any() for leaf in jax.tree.leaves(optimiser.gathered))
    assert int(optimiser.updates) == 3


def test_an_epoch_gathered_whole_is_one_annealed_step_with_the_full_gradient(agent: Agent) -> None:
    recipe = PpoRecipe(hidden=(8,), copies=4, roll_out_steps=16, slice_size=16, epochs=1)
    batch = random_batch(recipe.steps_per_iteration, 1)
    third_of_four = agent._replace(iteration=jnp.int32(2))
    own = tuning(rate=0.01, slices=recipe.slices)
    run = jax.jit(partial(improve, recipe))
    after = run(third_of_four, own, batch, jax.random.key(0), jnp.int32(4))
    gradient = [
        doubles(leaf) for leaf in jax.tree.leaves(jax.grad(loss)(agent.networks, recipe, batch))
    ]
    weights = [doubles(leaf) for leaf in jax.tree.leaves(agent.networks)]
    expected = AdamByNumPy(weights).step(weights, gradient, 0.01 * (1 - 2 / 4), 0.5)
    for found, wanted in zip(jax.tree.leaves(after.networks), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert int(after.iteration) == 3


# The population


def test_agents_with_different_tunings_learn_as_they_would_among_copies_of_themselves(
    recipe: PpoRecipe,
) -> None:
    different = [
        tuning(0, rate=1e-3, slices=1, gravity=9.0),
        tuning(1, rate=5e-3, slices=2, force=11.0),
        tuning(2, rate=2e-3, slices=4, cart_mass=0.8, time_limit=9),
    ]

    def learned(own: list[Tuning]) -> Agent:
        """Three iterations in the program of the trained population, made for four agents."""
        four = [own[number % len(own)] for number in range(4)]
        together: Any = placed(jax.tree.map(lambda *leaves: np.stack(leaves), *four))
        agents = _new_agents(WORLD, recipe)(together, jax.random.key(0))
        after, _ = _chunk(WORLD, recipe)(agents, together, jax.random.key(1), 0, 3, 10)
        made: Agent = after
        return made

    mixed = learned(different)
    # Three iterations of four epochs over four slices are 48 updates, if none are gathered.
    assert mixed.optimiser.updates[:3].tolist() == [48, 24, 12]
    for number, own in enumerate(different):
        copies = learned([own])
        for found, expected in zip(jax.tree.leaves(mixed), jax.tree.leaves(copies), strict=True):
            np.testing.assert_array_equal(found[number], expected[number])
