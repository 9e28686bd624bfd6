"""Experts of continuous actions: their Gaussians against SciPy, what they learn, what is kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aim_world import Aim
from scipy import stats

from quorum_rl.envs import check_world
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, Population, load_population, save_population
from quorum_rl.experts.evaluation import population_returns
from quorum_rl.experts.heads import drawn, in_bounds, judged, new_actor, stretched
from quorum_rl.experts.networks import Network, apply_network
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.plan import Plan
from quorum_rl.experts.ppo.training import JudgedAgents, train_population

WORLD = Aim()
BOUNDS = WORLD.spaces.action_bounds
RECIPE = PpoRecipe(
    hidden=(8,), copies=16, roll_out_steps=16, slice_size=64, epochs=4, entropy_weight=0.0,
    discount=0.1,
)  # fmt: skip
PLAN = Plan(
    settings=2, candidates=1, experts=2, total_steps=150 * RECIPE.steps_per_iteration,
    learning_rates=(1e-2,),
)  # fmt: skip


@pytest.fixture(scope="module")
def actor() -> Network:
    """A policy whose spread is not the one that it starts with."""
    *rest, last = new_actor(jax.random.key(0), (2, 8), WORLD.spaces, last_gain=1.0)
    return (*rest, last._replace(bias=jnp.array([0.3, -0.2, -0.5, 0.4])))


@pytest.fixture(scope="module")
def trained() -> JudgedAgents:
    return train_population(WORLD, PLAN, RECIPE, seed=0)[0]


def population(judged: JudgedAgents) -> Population:
    return Population(
        observation_size=2, action_count=2, action_bounds=BOUNDS, network=judged.network
    )


def test_the_world_of_these_tests_keeps_the_protocol() -> None:
    check_world(WORLD)


# What a network says


def test_densities_and_entropies_are_scipys(actor: Network) -> None:
    seen = jax.random.normal(jax.random.key(1), (50, 2))
    action, log_density = drawn(jax.random.key(2), actor, seen, continuous=True)
    mean = np.asarray(apply_network(actor, seen)[:, :2], np.float64)
    normal = stats.norm(mean, np.exp([-0.5, 0.4]))
    np.testing.assert_allclose(log_density, normal.logpdf(action).sum(axis=1), atol=1e-4)
    again, entropy = judged(actor, seen, action)
    np.testing.assert_allclose(again, log_density, atol=1e-6)
    np.testing.assert_allclose(entropy, normal.entropy()[0].sum(), atol=1e-5)


def test_what_is_drawn_has_the_gaussians_distribution(actor: Network) -> None:
    """Kolmogorov and Smirnov's test; a right draw fails once in 10^6 seeds, and this is one."""
    seen = jnp.broadcast_to(jnp.array([0.3, -0.7]), (20_000, 2))
    action, _ = drawn(jax.random.key(3), actor, seen, continuous=True)
    mean = apply_network(actor, seen)[0, :2]
    scaled = (np.asarray(action) - mean) / np.exp([-0.5, 0.4])
    for numbers in scaled.T:
        assert stats.kstest(numbers, "norm").pvalue > 1e-6


def test_a_spread_has_no_weights_and_gets_none_by_training(
    actor: Network, trained: JudgedAgents
) -> None:
    def gain(network: Network) -> Any:
        return judged(network, jnp.ones((3, 2)), jnp.ones((3, 2)))[0].sum()

    slope = jax.grad(gain)(actor)[-1]
    assert (np.asarray(slope.weight[:, 2:]) == 0).all()
    assert (np.asarray(slope.bias) != 0).all()
    last = trained.network[-1]
    assert (last.weight[:, :, 2:] == 0).all()
    assert (last.weight[:, :, :2] != 0).all()


def test_a_policy_in_the_worlds_units_is_the_one_within_one(actor: Network) -> None:
    seen = jax.random.normal(jax.random.key(1), (50, 2))
    mean, log_deviation = jnp.split(apply_network(actor, seen), 2, axis=-1)
    own_mean, own_deviation = jnp.split(apply_network(stretched(actor, BOUNDS), seen), 2, axis=-1)
    unbounded = np.array([5.0, 0.0]) + np.array([5.0, 1.0]) * mean
    np.testing.assert_allclose(own_mean, unbounded, atol=1e-5)
    np.testing.assert_allclose(own_deviation - log_deviation, [[np.log(5), 0]] * 50, atol=1e-6)
    np.testing.assert_allclose(
        in_bounds(mean, BOUNDS), np.clip(own_mean, *np.array(BOUNDS).T), atol=1e-5
    )


# What is learned


def test_agents_learn_to_aim_in_worlds_of_different_bounds(trained: JudgedAgents) -> None:
    """Of five shots; who fires at random misses by 0.6 and more a shot, who never moves by 0.3."""
    assert (trained.returns > -0.15).all()
    seen: Any = np.random.default_rng(0).uniform(-0.7, 0.7, (20, 2)).astype(np.float32)
    said = jax.vmap(apply_network, (0, None))(trained.network, seen)
    np.testing.assert_allclose((said[..., 0] - 5) / 5, [seen[:, 0]] * 2, atol=0.25)
    np.testing.assert_allclose(said[..., 1], [seen[:, 1]] * 2, atol=0.25)
    assert (said[..., 2:] < np.log([5.0, 1.0])).all()  # they became surer


def test_an_expert_that_acts_as_it_is_misses_by_its_spread_and_a_greedy_one_does_not(
    trained: JudgedAgents,
) -> None:
    params = jax.tree.map(lambda leaf: np.repeat(leaf, 2), WORLD.default_params())
    returns = [
        population_returns(WORLD, trained.network, params, episodes=200, p_min=p_min).mean(axis=1)
        for p_min in (0.0, None)
    ]
    missed = np.exp(2 * trained.network[-1].bias[:, 2:]) / np.square([5.0, 1.0])
    lost = 5 * missed.sum(axis=1)
    # The bounds cut off some of it, and 1000 shots have a standard error of a few hundredths.
    np.testing.assert_allclose(returns[0] - returns[1], lost, rtol=0.3)


# What is kept and what is refused


def test_a_population_comes_back_with_its_bounds(trained: JudgedAgents, tmp_path: Path) -> None:
    experts = save_population(population(trained), tmp_path / "experts.safetensors")
    assert experts.action_bounds == BOUNDS
    assert (experts.action_count, len(experts)) == (2, 2)
    for found, expected in zip(
        jax.tree.leaves(experts.network), jax.tree.leaves(trained.network), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([[0, 10]], "bounds for 1 numbers"),
        ([[0, 10], [1, -1]], "have the bounds"),
        ([[0, 10], [1]], "not enough values"),
        (3, "not iterable"),
    ],
)
def test_a_file_whose_bounds_are_none_is_refused(
    trained: JudgedAgents, tmp_path: Path, bounds: Any, message: str
) -> None:
    path = tmp_path / "experts.safetensors"
    with pytest.raises(QuorumError, match=message):
        save_population(replace(population(trained), action_bounds=bounds), path)
    with pytest.raises(QuorumError, match=message):
        load_population(path)


def test_an_answer_is_the_same_alone_and_in_company(trained: JudgedAgents) -> None:
    many = jax.tree.map(lambda leaf: np.concatenate([leaf] * 20), trained.network)
    company = replace(population(trained), network=many)
    states = np.random.default_rng(0).normal(size=(40, 7, 2)).astype(np.float32)
    together = company.among(slice(None))(states)
    assert together.shape == (40, 7, 4)
    alone = population(trained).among(slice(1, 2))(states[5:6, :3])
    np.testing.assert_array_equal(alone[0], together[5, :3])


def test_there_are_no_probabilities_and_no_floor(trained: JudgedAgents) -> None:
    experts, states = population(trained), np.zeros((3, 2))
    for ask in (
        lambda: experts.probabilities(states),
        lambda: experts.greedy_actions(slice(None), states),
        lambda: experts.taken_probabilities(slice(None), states, np.zeros((3, 2))),
        lambda: LoggedExperts(experts).probabilities(states),
    ):
        with pytest.raises(
            QuorumError, match=r"are continuous: they have densities, .*list of the"
        ):
            ask()
    for smooth in (experts.smoothed, experts.mixed_with_uniform):
        with pytest.raises(QuorumError, match="densities have no floor p_min: leave it out"):
            smooth(0.02)
    with pytest.raises(QuorumError, match="have no floor"):
        replace(experts, p_min=0.1)
    params = jax.tree.map(lambda leaf: np.repeat(leaf, 2), WORLD.default_params())
    with pytest.raises(QuorumError, match="have no floor"):
        population_returns(WORLD, trained.network, params, episodes=1, p_min=0.02)


def test_a_network_that_diverged_is_named(trained: JudgedAgents) -> None:
    *rest, last = trained.network
    broken = replace(population(trained), network=(*rest, last._replace(bias=last.bias * np.nan)))
    with pytest.raises(QuorumError, match=r"expert 0 in state 0 answers nan: a mean and a spread"):
        broken.among(slice(None))(np.zeros((2, 1, 2), np.float32))
