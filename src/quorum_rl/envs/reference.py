"""What a world's numbers mean: reference policies for its returns, units for its observations.

The paper normalises returns to 0 (random) and 1 ("optimal") and leaves "optimal" unstated. Ours is
the return of a small network or a rule that anyone can run again;
`reproduction/studies/reference_returns.py` found it and measured the numbers that each world states
in its `facts`.

Where observations lie and how far they spread is private in the logs of real experts. A world can
be asked instead, with policies that anybody may run.
"""

import json
from collections.abc import Sequence
from importlib import resources

import jax
import jax.numpy as jnp

from quorum_rl.dictionary import Bounds
from quorum_rl.envs.breakout import Breakout
from quorum_rl.envs.lunar_lander import FULL_THROTTLE, LunarLander, LunarLanderContinuous
from quorum_rl.envs.minatar_rules import catch, shoot
from quorum_rl.envs.rollout import Policy, roll_out, start
from quorum_rl.envs.space_invaders import SpaceInvaders
from quorum_rl.envs.world import AnyWorld, Array, Key, Units, with_params
from quorum_rl.errors import QuorumError
from quorum_rl.pytree import pytree

FOLDER = resources.files("quorum_rl.envs") / "reference_policies"


@pytree
class ReferenceNetwork:
    """Layers of tanh units, the last one linear, over (observation − centre) / scale.

    Shapes: `weights[i]` is `(inputs, outputs)` and `biases[i]` `(outputs,)` of layer i.
    """

    centre: Array
    scale: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def preferences(self, observation: Array) -> Array:
        """One number per action; the largest wins."""
        signal = (observation - self.centre) / self.scale
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            signal = jnp.tanh(signal @ weight + bias)
        return signal @ self.weights[-1] + self.biases[-1]


def greedy(network: ReferenceNetwork, bounds: Bounds = ()) -> Policy:
    """The deterministic policy that takes the action `network` prefers.

    Of continuous actions the network gives the numbers, which are cut to their bounds.
    """

    def act(key: Key, observation: Array) -> Array:
        del key
        said = network.preferences(observation)
        if bounds:
            return jnp.clip(said, *jnp.array(bounds, jnp.float32).T)
        return jnp.argmax(said)

    return act


def reference_policy(world: AnyWorld) -> Policy:
    """The policy whose mean return is `world.facts.reference_return`.

    Raises:
        QuorumError: if Quorum ships none for this world.
    """
    if isinstance(world, Breakout):
        return catch
    if isinstance(world, SpaceInvaders):
        return shoot
    if isinstance(world, LunarLanderContinuous):
        chosen = greedy(reference_network(LunarLander()))
        return lambda key, seen: jnp.array(FULL_THROTTLE, jnp.float32)[chosen(key, seen)]
    return greedy(reference_network(world), world.spaces.action_bounds)


def reference_network(world: AnyWorld) -> ReferenceNetwork:
    """The network behind `reference_policy`; raises as it does."""
    file = FOLDER / f"{world.name.lower()}.json"
    if not file.is_file():
        raise QuorumError(
            f"world {world.name!r} has no reference policy: use one of Quorum's own worlds, "
            "or measure a policy of your own and state its return in the world's facts."
        )
    return network_from_json(file.read_text(encoding="utf-8"))


def network_from_json(text: str) -> ReferenceNetwork:
    """The network that `network_to_json` wrote."""
    stored = json.loads(text)
    return ReferenceNetwork(
        centre=jnp.asarray(stored["centre"], jnp.float32),
        scale=jnp.asarray(stored["scale"], jnp.float32),
        weights=tuple(jnp.asarray(layer["weights"], jnp.float32) for layer in stored["layers"]),
        biases=tuple(jnp.asarray(layer["biases"], jnp.float32) for layer in stored["layers"]),
    )


def network_to_json(network: ReferenceNetwork) -> str:
    """`network` with six decimals, which is also what gets measured."""

    def rounded(array: Array) -> object:
        return [rounded(row) for row in array] if array.ndim else round(float(array), 6)

    layers = zip(network.weights, network.biases, strict=True)
    stored = {
        "centre": rounded(network.centre),
        "scale": rounded(network.scale),
        "layers": [{"weights": rounded(w), "biases": rounded(b)} for w, b in layers],
    }
    return json.dumps(stored) + "\n"


def episode_returns(world: AnyWorld, policy: Policy, key: Key, episodes: int) -> Array:
    """Undiscounted returns of `policy` in the default world, up to the evaluation time limit.

    Shapes: `(episodes,)`.
    """
    time_limit = world.facts.evaluation_time_limit
    params = with_params(world, time_limit=time_limit)
    start_key, run_key = jax.random.split(key)
    running = start(world, start_key, params, episodes)
    _, seen = roll_out(world, policy, run_key, running, params, time_limit)
    ended = jnp.cumsum(seen.terminated | seen.truncated, axis=0)
    # A copy goes on with a fresh episode once its first has ended: those rewards do not count.
    before = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    return jnp.where(before == 0, seen.reward, 0.0).sum(axis=0)


# --- units ---


def units_of(world: AnyWorld) -> Units | None:
    """The units that a world states, if it does."""
    units: Units | None = getattr(world, "units", None)
    return units


def measured_units(
    world: AnyWorld,
    policies: Sequence[Policy],
    key: Key,
    *,
    copies: int = 100,
    reward_scale: float = 1.0,
) -> Units:
    """Mean and standard deviation of what the policies see, each of them counting as much.

    Every policy acts in so many copies of the default world, for as many steps as a demonstration
    may have, in new episodes where one ends. Numbers that never change have the scale 1.

    The `units` of CartPole, Acrobot, HIV and Pendulum are of the uniform policy and of the
    reference policy.
    """
    steps = world.facts.demonstration_time_limit
    params = with_params(world, time_limit=steps)

    def moments(policy: Policy, key: Key) -> tuple[Array, Array]:
        start_key, run_key = jax.random.split(key)
        running = start(world, start_key, params, copies)
        _, seen = roll_out(world, policy, run_key, running, params, steps)
        return seen.observation.mean((0, 1)), seen.observation.var((0, 1))

    keys = jax.random.split(key, len(policies))
    measured = [
        jax.jit(moments, static_argnums=0)(policy, own_key)
        for policy, own_key in zip(policies, keys, strict=True)
    ]
    means, variances = map(jnp.stack, zip(*measured, strict=True))
    deviations = jnp.sqrt(variances.mean(0) + means.var(0))
    return Units(
        centre=tuple(means.mean(0).tolist()),
        scale=tuple(jnp.where(deviations > 0, deviations, 1.0).tolist()),
        reward_scale=reward_scale,
    )
