"""How good learned policies are: greedy returns of whole episodes in a world."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Dictionary
from quorum_rl.distributed import over_experts, padded, placed
from quorum_rl.envs import AnyWorld, advance, checked, start, with_params
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.learners import Decision, Learner, outputs_of, within_bounds
from quorum_rl.policy import Policy

Array: TypeAlias = jax.Array
Returns: TypeAlias = npt.NDArray[np.floating[Any]]

GreedyPolicy: TypeAlias = Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]
"""Actions `(n,)`, counted from 0, for observations `(n, observation_size)`; continuous ones
`(n, action_count)`."""


def returns_of(
    learner: Learner,
    stacked_params: Any,
    world: AnyWorld,
    params: Any,
    key: Array,
    episodes: int,
    numbers: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.float32]:
    """Undiscounted returns of many trained policies, each in episodes of its own, in one program.

    Every leaf of `stacked_params` has a leading axis of runs: seeds, hyper-parameters or both.
    `params` is one setting of the world; `None` takes the default one with the time limit that
    `world.facts` states for evaluation.

    Run i plays the episodes that `envs.episode_returns` plays with `fold_in(key, i)`. So runs are
    independent of one another, while run i of one method meets the same starts as run i of
    another that is evaluated with the same key; and the first episodes are the same however many
    there are. `numbers` says which i each run has, where they are not simply counted.

    Shapes: the result is `(runs, episodes)`.

    Raises:
        QuorumError: if `episodes` is below 1, `params` is a stack of settings or not finite, or
            the learner is not a frozen dataclass.
    """
    require("episodes", episodes, at_least(1))
    if not isinstance(learner, Hashable):
        raise QuorumError(
            f"{type(learner).__name__} cannot be hashed: make the learner a frozen dataclass."
        )
    setting = evaluation_params(world) if params is None else checked(world, params)
    if any(np.ndim(leaf) for leaf in jax.tree.leaves(setting)):
        raise QuorumError(
            f"the {world.name} parameters are a stack of settings: evaluate in one at a time."
        )
    runs = len(jax.tree.leaves(stacked_params)[0])
    if numbers is None:
        numbers = np.arange(runs, dtype=np.int32)
    every = placed(padded((stacked_params, numbers), runs))
    found = _compiled(learner, world, episodes)(*every, setting, key)
    return np.asarray(found)[:runs]


def evaluation_params(world: AnyWorld) -> Any:
    """The default setting of `world`, with the time limit for evaluation."""
    return with_params(world, time_limit=world.facts.evaluation_time_limit)


@lru_cache(maxsize=32)
def _compiled(learner: Any, world: AnyWorld, episodes: int) -> Callable[..., Any]:
    def every(trained: Any, numbers: Array, params: Any, key: Array) -> Array:
        return _returns(learner, world, episodes, trained, numbers, params, key)

    return over_experts(every, shared=2)


def _returns(
    learner: Learner,
    world: AnyWorld,
    episodes: int,
    trained: Any,
    numbers: Array,
    params: Any,
    key: Array,
) -> Array:
    """The returns of all runs: the copies of the world are their episodes, one run after another.

    Copies whose episode has ended go on without counting, until the last one has ended.
    """
    runs = len(numbers)
    copies = runs * episodes
    run_keys = jax.vmap(jax.random.split)(jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers))

    def step(carry: tuple[Any, Array, Array, Array]) -> tuple[Any, Array, Array, Array]:
        running, going, total, time = carry
        seen_by_run = running.observation.reshape(runs, episodes, -1)
        with jax.default_matmul_precision("highest"):  # as a policy acts outside of JAX
            acted = jax.vmap(learner.act)(trained, seen_by_run)
        actions = acted.reshape(copies, *acted.shape[2:])

        def own_keys(run_key: Array) -> Array:
            return jax.random.split(jax.random.fold_in(run_key, time), (episodes, 2))[:, 1]

        keys = jax.vmap(own_keys)(run_keys[:, 1]).reshape(copies)
        running, seen = advance(world, keys, running, actions, params)
        total = total + jnp.where(going, seen.reward, 0.0)
        return running, going & ~(seen.terminated | seen.truncated), total, time + 1

    def unfinished(carry: tuple[Any, Array, Array, Array]) -> Array:
        _, going, _, time = carry
        more: Array = going.any() & (time < params.time_limit)
        return more

    fresh = jax.vmap(lambda run_key: start(world, run_key, params, episodes))(run_keys[:, 0])
    running = jax.tree.map(lambda leaf: leaf.reshape(copies, *leaf.shape[2:]), fresh)
    begin = (running, jnp.ones(copies, bool), jnp.zeros(copies), jnp.zeros((), jnp.int32))
    total: Array = jax.lax.while_loop(unfinished, step, begin)[2]
    return total.reshape(runs, episodes)


@dataclass(frozen=True)
class _Acting:
    """What `returns_of` needs of a learner. A policy that acts by code decides by its learner."""

    decision: Decision | Learner
    dictionary: Dictionary

    def act(self, params: Any, observations: Array) -> Array:
        if self.dictionary.constants is not None:
            fill, least, most = self.dictionary.constants
            observations = jnp.where(jnp.isnan(observations), fill, observations)
            observations = jnp.clip(observations, least, most)
        if not isinstance(self.decision, Decision):
            acted, bounds = self.decision.act(params, observations), self.dictionary.action_bounds
            return jnp.clip(acted, *jnp.asarray(bounds, jnp.float32).T) if bounds else acted
        outputs = outputs_of(params, observations)
        if self.decision.squashed is not None:
            squashed = jnp.tanh(outputs[self.decision.squashed])
            return within_bounds(squashed, self.dictionary.action_bounds)
        return self.decision.scores(outputs).argmax(axis=-1)


def policy_returns(
    policy: Policy, world: AnyWorld, key: Array, episodes: int
) -> npt.NDArray[np.float32]:
    """Undiscounted returns of a policy in the default world, with the time limit for evaluation.

    They are those that `returns_of` gives for the learner and the parameters it was made from,
    with observations filled and cut off as in its training.

    Shapes: the result is `(episodes,)`.

    Raises:
        QuorumError: if the policy is not for this world, or `episodes` is below 1.
    """
    spaces = world.spaces
    sizes = (policy.observation_size, policy.action_count)
    if sizes != (spaces.observation_size, spaces.action_count):
        raise QuorumError(
            f"the policy sees {sizes[0]} numbers and has {sizes[1]} actions, but {world.name} "
            f"shows {spaces.observation_size} and takes {spaces.action_count}: name its own world."
        )
    if policy.action_bounds != spaces.action_bounds:
        raise QuorumError(
            f"the bounds of the policy's actions are {policy.action_bounds}, but those of "
            f"{world.name} are {spaces.action_bounds}: name its own world."
        )
    decision: Decision | Learner
    if policy.by_code is not None:
        decision, params = policy.by_code.given, policy.by_code.params
    else:
        decision = Decision(policy.highest, policy.among_likely, policy.threshold, policy.squashed)
        params = dict(policy.networks)
    acting: Any = _Acting(decision, policy.dictionary or Dictionary())
    params = jax.tree.map(lambda leaf: leaf[None], params)
    returns: npt.NDArray[np.float32] = returns_of(acting, params, world, None, key, episodes)[0]
    return returns


def greedy_policy(learner: Learner, trained: Any) -> GreedyPolicy:
    """What `learner` does with the parameters of one run, as a function of NumPy arrays."""

    @jax.jit
    def act(observations: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            return learner.act(trained, observations)

    return lambda observations: np.asarray(act(observations))


def scores_of(world: AnyWorld, returns: Returns) -> npt.NDArray[np.float64]:
    """The mean return of each run on the scale 0 (random policy) to 1 (reference policy).

    The scale holds for the default setting with the time limit for evaluation.

    Shapes: `(…, episodes) -> (…)`.
    """
    means = np.asarray(returns, np.float64).mean(axis=-1)
    scores: npt.NDArray[np.float64] = np.vectorize(world.facts.normalised)(means)
    return scores


def as_fraction_of(scores: Returns, baseline: Returns) -> npt.NDArray[np.float64]:
    """Normalised scores as a fraction of the mean score of a baseline, as the paper reports them.

    The baseline's mean counts as a fixed number: intervals over these fractions leave out that it
    was measured too.

    Raises:
        QuorumError: if the baseline is no better than the random policy.
    """
    whole = float(np.mean(baseline))
    if not whole > 0:
        raise QuorumError(
            f"the baseline scores {whole:.3g}, no better than a random policy (0): "
            "train it longer, or report scores instead of fractions."
        )
    return np.asarray(scores, np.float64) / whole
