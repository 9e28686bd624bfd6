"""A user's own world: the example keeps the protocol, and each way of breaking it is named."""

import runpy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs import AnyWorld, get_world, uniform_policy, world_names
from quorum_rl.envs.cartpole import CartPole, CartPoleParams, CartPoleState
from quorum_rl.envs.conformance import check_world
from quorum_rl.envs.reference import episode_returns
from quorum_rl.errors import QuorumError

OWN_WORLD = Path(__file__).parents[2] / "examples" / "own_world.py"


@pytest.fixture(scope="module")
def shop() -> AnyWorld:
    return get_world(f"{OWN_WORLD}:SHOP")


def test_the_example_runs_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(OWN_WORLD), run_name="__main__")
    assert "a random policy earns" in capsys.readouterr().out


def test_the_example_states_its_random_return(shop: AnyWorld) -> None:
    returns = np.asarray(episode_returns(shop, uniform_policy(shop), jax.random.key(5), 500))
    # Fixed seed; another seed would fail with probability 6e-5 (four standard errors).
    error = 4 * returns.std() / np.sqrt(500)
    assert abs(returns.mean() - shop.facts.random_return) < error


def test_the_example_states_its_reference_return(shop: AnyWorld) -> None:
    def restock(key: jax.Array, observation: jax.Array) -> jax.Array:
        del key
        stock = observation[0]
        return jnp.where(stock < 9, 2, jnp.where(stock < 14, 1, 0))

    returns = np.asarray(episode_returns(shop, restock, jax.random.key(5), 500))
    # As above: four standard errors.
    error = 4 * returns.std() / np.sqrt(500)
    assert abs(returns.mean() - shop.facts.reference_return) < error


# LunarLander compiles for half a minute here; Gymnasium's check in test_gymnasium_bridge.py and
# the roll-outs of test_lunar_lander_world.py look at it.
@pytest.mark.parametrize(
    "name", [name for name in world_names() if not name.startswith("LunarLander")]
)
def test_the_worlds_that_come_along_keep_the_protocol(name: str) -> None:
    check_world(get_world(name))


# Each of the following worlds is CartPole but for one rule that it breaks.


def changed(**members: Any) -> Any:
    """CartPole with other members, such as `reset`."""
    return type("Changed", (CartPole,), members)()


def replacing(member: str, **fields: Any) -> Any:
    """CartPole with a changed field in one of its facts, spaces or units."""
    return changed(**{member: replace(getattr(CartPole, member), **fields)})


def giving(params: Any) -> Any:
    return changed(default_params=lambda _: params)


def with_settings(**fields: Any) -> Any:
    return changed(settings=lambda _: replace(CartPole().settings(), **fields))


def starting(alter: Callable[..., Any]) -> Any:
    """CartPole whose reset goes through `alter(state, observation, key, params)`."""

    def reset(self: Any, key: Any, params: Any) -> Any:
        return alter(*CartPole.reset(self, key, params), key, params)

    return changed(reset=reset)


def stepping(alter: Callable[[Any], Any]) -> Any:
    """CartPole whose step goes through `alter`."""

    def step(self: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
        return alter(CartPole.step(self, key, state, action, params))

    return changed(step=step)


def stepping_with(**fields: Any) -> Any:
    return stepping(lambda after: after._replace(**fields))


@dataclass
class Thawed:
    time_limit: int = 200


@dataclass(frozen=True)
class Opaque:
    time_limit: int = 200


@dataclass(frozen=True)
class NotCompared(CartPole):
    wind: float = field(default=0.0, compare=False)


def remembering_step() -> Any:
    calls = count()
    return stepping(lambda after: after._replace(reward=jnp.float32(next(calls))))


def remembering_reset() -> Any:
    calls = count()

    def reset(self: Any, key: Any, params: Any) -> Any:
        return CartPole.reset(self, jax.random.fold_in(key, next(calls)), params)

    return changed(reset=reset)


def different_when_traced(after: Any) -> Any:
    traced = isinstance(after.reward + after.observation[0], jax.core.Tracer)
    return after._replace(reward=jnp.float32(2.0 if traced else 1.0))


def type_from_params() -> Any:
    def reset(self: Any, key: Any, params: Any) -> Any:
        state, observation = CartPole.reset(self, key, params)
        return replace(state, position=jnp.zeros_like(params.gravity)), observation

    def settings(self: Any) -> Any:
        return replace(CartPole.settings(self), gravity=np.full(1000, 10))  # type: ignore[arg-type]

    return changed(reset=reset, settings=settings)


def breaking_elsewhere() -> Any:
    def step(self: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
        after = CartPole.step(self, key, state, action, params)
        return after._replace(reward=jnp.where(params.gravity == 9.8, after.reward, jnp.nan))

    return changed(step=step)


BROKEN: list[tuple[Any, str]] = [
    (
        SimpleNamespace(name="nothing"),
        "is not a world: it has no spaces, facts, default_params, settings, reset, step",
    ),
    (changed(name=""), "name is '': give it a text"),
    (NotCompared(), "field 'wind' has compare=False, .* share compiled programs"),
    # what it says of itself
    (changed(spaces=4), "spaces is 4, not a Spaces"),
    (replacing("spaces", low=(-1.0, -1.0, -1.0)), "spaces.low has 3 numbers for 4 observation na"),
    (
        replacing("spaces", low=(-5.0, 1.0, -1.0, -9.0), high=(5.0, 0.0, 1.0, 9.0)),
        "spaces.low is not at most spaces.high for 'velocity'",
    ),
    (replacing("spaces", action_names=("left",)), "needs at least two actions"),
    (replacing("spaces", observation_names=(), low=(), high=()), "observation_names is empty"),
    (
        replacing("spaces", action_bounds=((-1.0, 1.0),)),
        "action_bounds has 1 pairs for 2 action names",
    ),
    (
        replacing("spaces", action_bounds=((-1.0, 1.0), (0.0, float("inf")))),
        "action_bounds of 'right' are 0.0 and inf, not a finite range",
    ),
    (changed(units=1), "units is 1, not a Units"),
    (replacing("units", scale=(1.0,)), "give 4 finite numbers, one per observation name"),
    (
        replacing("units", scale=(1.0, 0.0, 1.0, 1.0)),
        "units.scale and units.reward_scale must be positive",
    ),
    (changed(facts=None), "facts is None, not a Facts"),
    (
        replacing("facts", random_return=5.0, reference_return=5.0),
        "facts.random_return 5.0 must lie below facts.reference_return 5.0",
    ),
    (replacing("facts", evaluation_time_limit=0), "facts.evaluation_time_limit is 0"),
    # its parameters
    (giving(Thawed()), "must give a frozen dataclass"),
    (giving(Opaque()), "something JAX cannot look into"),
    (giving(CartPoleState(*[jnp.float32(0.0)] * 5)), "params have no field 'time_limit'"),
    (
        giving(CartPoleParams(gravity=float("nan"))),
        "default parameter 'gravity' is nan, give one finite number",
    ),
    (
        giving(CartPoleParams(gravity=jax.random.key(0))),  # type: ignore[arg-type]
        r"default_params\(\) holds a typed random key 'gravity'",
    ),
    (
        changed(settings=lambda self: [self.default_params()]),
        r"settings\(\) gives a list, not the CartPoleParams",
    ),
    (with_settings(force=np.ones(7, np.float32)), r"needs the same shape .* 'force': \(7,\)"),
    (
        with_settings(force=jax.random.split(jax.random.key(0), 1000)),
        r"settings\(\) holds a typed random key 'force'",
    ),
    # how it starts
    (starting(lambda _state, observation, *_: observation), r"reset gives Array\w*, not the pair"),
    (
        starting(lambda state, observation, *_: (state, observation[:3])),
        r"observation from reset is float32\(3,\), not a JAX array float32\(4,\)",
    ),
    (
        starting(lambda state, observation, *_: (state, observation.at[2].set(7.0))),
        "'angle' from reset is 7.0, outside",
    ),
    (
        starting(lambda state, seen, key, _: (replace(state, position=key), seen)),
        "the state from reset holds a typed random key 'position', .* jax.random.key_data",
    ),
    (remembering_reset(), "reset with the same key gives two different states"),
    (
        starting(lambda state, seen, *_: (state, -seen if seen[0] > 9 else seen)),
        "fails under vmap over states and settings, and scan",
    ),
    # how it goes on
    (stepping(tuple), "step gives tuple, not a quorum_rl.envs.Step"),
    (
        stepping(lambda after: after._replace(observation=after.observation.astype(jnp.int32))),
        r"observation from step is int32\(4,\), not a JAX array float32",
    ),
    (stepping_with(reward=1.0), r"reward from step is 1.0, not a JAX array float32\(\)"),
    (stepping_with(reward=jnp.float32(jnp.inf)), "reward from step is inf"),
    (
        stepping_with(terminated=jnp.float32(0)),
        r"terminated from step is float32\(\), not a JAX array bool",
    ),
    (
        stepping(lambda after: after._replace(state=replace(after.state, position=jnp.zeros(2)))),
        "shapes and dtypes must stay the same",
    ),
    (remembering_step(), "step called twice alike gives two different results"),
    (
        stepping_with(truncated=jnp.bool_(False)),
        "with time_limit 2, truncated is False after step 2",
    ),
    (stepping_with(truncated=jnp.bool_(True)), "with time_limit 2, truncated is True after step 1"),
    (
        stepping(lambda after: after._replace(reward=jnp.float32(1.0 if after.reward > 0 else 0))),
        "fails under jit",
    ),
    (stepping(different_when_traced), "step under jit gives other numbers than without"),
    (type_from_params(), "fails under vmap over states and settings, and scan"),
    (breaking_elsewhere(), "a reward in its settings is not finite"),
]


@pytest.mark.parametrize(("world", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_world_that_breaks_a_rule_is_told_which(world: Any, message: str) -> None:
    with pytest.raises(QuorumError, match=message):
        check_world(world)
