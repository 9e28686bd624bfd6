"""A user's own world: the example keeps the protocol, and each way of breaking it is named."""

import runpy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs import AnyWorld, Step, get_world, uniform_policy, world_names
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
@pytest.mark.parametrize("name", sorted({*world_names()} - {"LunarLander"}))
def test_the_worlds_that_come_along_keep_the_protocol(name: str) -> None:
    check_world(get_world(name))


# Each of the following worlds breaks one rule.

Broken = Callable[[], Any]
BROKEN: list[tuple[str, Broken]] = []


def broken(message: str) -> Callable[[type], type]:
    """Says what `check_world` must say about the class below."""

    def note(cls: type) -> type:
        BROKEN.append((message, cls))
        return cls

    return note


@broken("is not a world: it has no spaces, facts, default_params, settings, reset, step")
class NotAWorld:
    name = "nothing"


@broken("name is '': give it a text")
class Nameless(CartPole):
    name = ""


@broken("spaces is 4, not a Spaces")
class WrongSpaces(CartPole):
    spaces = 4  # type: ignore[assignment]


@broken("spaces.low has 3 numbers for 4 observation names")
class ShortBounds(CartPole):
    spaces = replace(CartPole.spaces, low=(-1.0, -1.0, -1.0))


@broken("spaces.low is not at most spaces.high for 'velocity'")
class CrossedBounds(CartPole):
    spaces = replace(CartPole.spaces, low=(-5.0, 1.0, -1.0, -9.0), high=(5.0, 0.0, 1.0, 9.0))


@broken("needs at least two actions")
class NoChoice(CartPole):
    spaces = replace(CartPole.spaces, action_names=("left",))


@broken("observation_names is empty")
class Blind(CartPole):
    spaces = replace(CartPole.spaces, observation_names=(), low=(), high=())


@broken("units is 1, not a Units")
class WrongUnits(CartPole):
    units = 1  # type: ignore[assignment]


@broken("give 4 finite numbers, one per observation name")
class ShortUnits(CartPole):
    units = replace(CartPole.units, scale=(1.0,))


@broken("units.scale and units.reward_scale must be positive")
class NoScale(CartPole):
    units = replace(CartPole.units, scale=(1.0, 0.0, 1.0, 1.0))


@broken("facts is None, not a Facts")
class NoFacts(CartPole):
    facts = None  # type: ignore[assignment]


@broken("facts.random_return 5.0 must lie below facts.reference_return 5.0")
class NoSpan(CartPole):
    facts = replace(CartPole.facts, random_return=5.0, reference_return=5.0)


@broken("facts.evaluation_time_limit is 0")
class NoTime(CartPole):
    facts = replace(CartPole.facts, evaluation_time_limit=0)


@dataclass
class Thawed:
    time_limit: int = 200


@broken("must give a frozen dataclass")
class ThawedParams(CartPole):
    def default_params(self) -> Any:
        return Thawed()


@dataclass(frozen=True)
class Opaque:
    time_limit: int = 200


@broken("something JAX cannot look into")
class OpaqueParams(CartPole):
    def default_params(self) -> Any:
        return Opaque()


@broken("params have no field 'time_limit'")
class TimelessParams(CartPole):
    def default_params(self) -> Any:
        return CartPoleState(*[jnp.float32(0.0)] * 5)


@broken("default parameter 'gravity' is nan, give one finite number")
class NotANumber(CartPole):
    def default_params(self) -> CartPoleParams:
        return CartPoleParams(gravity=float("nan"))


@broken(r"settings\(\) gives a list, not the CartPoleParams")
class ListOfSettings(CartPole):
    def settings(self) -> Any:
        return [self.default_params()]


@broken("needs the same shape .* 'force': \\(7,\\)")
class RaggedSettings(CartPole):
    def settings(self) -> CartPoleParams:
        return replace(super().settings(), force=np.ones(7, np.float32))  # type: ignore[arg-type]


@broken(r"reset gives Array\w*, not the pair")
class ResetWithoutState(CartPole):
    def reset(self, key: Any, params: Any) -> Any:
        return super().reset(key, params)[1]


@broken(r"observation from reset is float32\(3,\), not a JAX array float32\(4,\)")
class ShortObservation(CartPole):
    def reset(self, key: Any, params: Any) -> Any:
        state, observation = super().reset(key, params)
        return state, observation[:3]


@broken("'angle' from reset is 7.0, outside")
class OutOfBounds(CartPole):
    def reset(self, key: Any, params: Any) -> Any:
        state, observation = super().reset(key, params)
        return state, observation.at[2].set(7.0)


class Altered(CartPole):
    """CartPole whose step goes through `alter`."""

    def alter(self, after: Step[CartPoleState]) -> Any:
        return after

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return self.alter(super().step(key, state, action, params))


@broken("the state from reset holds a typed random key 'position', .* jax.random.key_data")
class KeyInState(CartPole):
    def reset(self, key: Any, params: Any) -> Any:
        state, observation = super().reset(key, params)
        return replace(state, position=key), observation


@broken(r"default_params\(\) holds a typed random key 'gravity'")
class KeyInParams(CartPole):
    def default_params(self) -> CartPoleParams:
        return CartPoleParams(gravity=jax.random.key(0))  # type: ignore[arg-type]


@broken(r"settings\(\) holds a typed random key 'force'")
class KeyInSettings(CartPole):
    def settings(self) -> CartPoleParams:
        return replace(super().settings(), force=jax.random.split(jax.random.key(0), 1000))  # type: ignore[arg-type]


@broken("field 'wind' has compare=False, .* share compiled programs")
@dataclass(frozen=True)
class NotCompared(CartPole):
    wind: float = field(default=0.0, compare=False)


@broken("step gives tuple, not a quorum_rl.envs.Step")
class StepAsTuple(Altered):
    def alter(self, after: Any) -> Any:
        return tuple(after)


@broken(r"observation from step is int32\(4,\), not a JAX array float32")
class WholeNumbers(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(observation=after.observation.astype(jnp.int32))


@broken(r"reward from step is 1.0, not a JAX array float32\(\)")
class PythonReward(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(reward=1.0)


@broken("reward from step is inf")
class EndlessReward(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(reward=jnp.float32(jnp.inf))


@broken(r"terminated from step is float32\(\), not a JAX array bool")
class FloatFlag(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(terminated=after.terminated.astype(jnp.float32))


@broken("shapes and dtypes must stay the same")
class GrowingState(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(state=replace(after.state, position=jnp.zeros(2)))


@broken("step called twice alike gives two different results")
class RememberingStep(Altered):
    calls = [0]  # noqa: RUF012  (the very thing that is forbidden)

    def alter(self, after: Any) -> Any:
        self.calls[0] += 1
        return after._replace(reward=jnp.float32(self.calls[0]))


@broken("reset with the same key gives two different states")
class RememberingReset(CartPole):
    calls = [0]  # noqa: RUF012

    def reset(self, key: Any, params: Any) -> Any:
        self.calls[0] += 1
        return super().reset(jax.random.fold_in(key, self.calls[0]), params)


@broken("with time_limit 2, truncated is False after step 2")
class NeverTruncated(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(truncated=jnp.bool_(False))


@broken("with time_limit 2, truncated is True after step 1")
class TruncatedEarly(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(truncated=jnp.bool_(True))


@broken("fails under jit")
class PythonBranch(Altered):
    def alter(self, after: Any) -> Any:
        return after._replace(reward=jnp.float32(1.0 if after.reward > 0 else 0.0))


@broken("step under jit gives other numbers than without")
class DifferentWhenTraced(Altered):
    def alter(self, after: Any) -> Any:
        traced = isinstance(after.reward + after.observation[0], jax.core.Tracer)
        return after._replace(reward=jnp.float32(2.0 if traced else 1.0))


@broken("fails under vmap over states and settings, and scan")
class PythonBranchInReset(CartPole):
    def reset(self, key: Any, params: Any) -> Any:
        state, observation = super().reset(key, params)
        return state, (-observation if observation[0] > 9 else observation)


@broken("fails under vmap over states and settings, and scan")
class TypeFromParams(CartPole):
    def settings(self) -> CartPoleParams:
        return replace(super().settings(), gravity=np.full(1000, 10))  # type: ignore[arg-type]

    def reset(self, key: Any, params: Any) -> Any:
        state, observation = super().reset(key, params)
        return replace(state, position=jnp.zeros_like(params.gravity)), observation


@broken("a reward in its settings is not finite")
class BreaksElsewhere(CartPole):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        after = super().step(key, state, action, params)
        return after._replace(reward=jnp.where(params.gravity == 9.8, after.reward, jnp.nan))


@pytest.mark.parametrize(("message", "make"), BROKEN, ids=[make.__name__ for _, make in BROKEN])
def test_a_world_that_breaks_a_rule_is_told_which(message: str, make: Broken) -> None:
    with pytest.raises(QuorumError, match=message):
        check_world(make())
