"""Does a user's own world keep the protocol? Like Gymnasium's `check_env`, for `World`."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.rollout import roll_out, start, uniform_policy
from quorum_rl.envs.world import AnyWorld, Facts, Spaces, Step, Units, World
from quorum_rl.errors import QuorumError

COPIES = 3
STEPS = 5
SEED = 0


def check_world(world: AnyWorld) -> None:
    """Try everything the protocol asks of `world` on a few steps; silent when all is well.

    Raises:
        QuorumError: naming the first thing that is wrong and what it should be.
    """
    _check_members(world)
    _check_equality(world)
    _check_spaces(world)
    _check_facts(world)
    _check_units(world)
    _check_params(world)
    _check_settings(world)
    step = _compiled(world.step)
    _check_reset_and_step(world, step)
    _check_time_limit(world, step)
    _check_transformations(world)


def _require(world: AnyWorld, holds: Any, complaint: str) -> None:
    if not holds:
        raise QuorumError(f"world {world.name!r}: {complaint}.")


def _check_members(world: object) -> None:
    if not isinstance(world, World):
        wanted = ("name", "spaces", "facts", "default_params", "settings", "reset", "step")
        missing = [member for member in wanted if not hasattr(world, member)]
        raise QuorumError(
            f"{type(world).__name__} is not a world: it has no {', '.join(missing)}; "
            "give it the members that quorum_rl.envs.World lists."
        )
    if not isinstance(world.name, str) or not world.name:
        raise QuorumError(f"{type(world).__name__}.name is {world.name!r}: give it a text.")


def _check_equality(world: AnyWorld) -> None:
    """Equal worlds share compiled programs, which hold whatever the first of them was."""
    made: Any = world
    for field in fields(made) if is_dataclass(made) else ():
        _require(
            world,
            field.compare,
            f"field {field.name!r} has compare=False, so worlds that differ would share compiled "
            "programs; let it be compared",
        )


def _check_no_keys(world: AnyWorld, tree: Any, what: str) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        name = jax.tree_util.keystr(path, simple=True)
        _require(
            world,
            not is_key,
            f"{what} holds a typed random key {name!r}, with which training could not be saved; "
            "keep its jax.random.key_data, or take randomness from the key of step",
        )


def _check_spaces(world: AnyWorld) -> None:
    spaces = world.spaces
    _require(world, isinstance(spaces, Spaces), f"spaces is {spaces!r}, not a Spaces")
    size = spaces.observation_size
    _require(world, size > 0, "spaces.observation_names is empty, name at least one number")
    _require(world, spaces.action_count > 1, "spaces.action_names needs at least two actions")
    for name, bound in (("low", spaces.low), ("high", spaces.high)):
        _require(
            world,
            len(bound) == size,
            f"spaces.{name} has {len(bound)} numbers for {size} observation names",
        )
    for name, low, high in zip(spaces.observation_names, spaces.low, spaces.high, strict=True):
        _require(world, low <= high, f"spaces.low is not at most spaces.high for {name!r}")


def _check_facts(world: AnyWorld) -> None:
    facts = world.facts
    _require(world, isinstance(facts, Facts), f"facts is {facts!r}, not a Facts")
    _require(
        world,
        facts.random_return < facts.reference_return,
        f"facts.random_return {facts.random_return} must lie below facts.reference_return "
        f"{facts.reference_return}, for returns are normalised between them",
    )
    for name in ("demonstration_time_limit", "evaluation_time_limit"):
        value = getattr(facts, name)
        _require(
            world,
            isinstance(value, int) and value >= 1,
            f"facts.{name} is {value!r}, give a whole number of steps",
        )


def _check_units(world: AnyWorld) -> None:
    units = getattr(world, "units", None)
    if units is None:
        return
    _require(world, isinstance(units, Units), f"units is {units!r}, not a Units")
    size = world.spaces.observation_size
    for name, numbers in (("centre", units.centre), ("scale", units.scale)):
        _require(
            world,
            len(numbers) == size and np.isfinite(numbers).all(),
            f"units.{name} is {numbers}, give {size} finite numbers, one per observation name",
        )
    positive = min(*units.scale, units.reward_scale) > 0 and np.isfinite(units.reward_scale)
    _require(world, positive, "units.scale and units.reward_scale must be positive numbers")


def _check_params(world: AnyWorld) -> None:
    params = world.default_params()
    _require(
        world,
        is_dataclass(params) and _is_frozen(params),
        "default_params() must give a frozen dataclass, decorate its class with "
        "quorum_rl.pytree.pytree",
    )
    leaves = jax.tree.leaves(params)
    _require(
        world,
        not any(leaf is params for leaf in leaves),
        "default_params() gives something JAX cannot look into, decorate its class with "
        "quorum_rl.pytree.pytree",
    )
    _require(
        world,
        "time_limit" in {field.name for field in fields(params)},
        "its params have no field 'time_limit'",
    )
    _check_no_keys(world, params, "default_params()")
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = jax.tree_util.keystr(path, simple=True)
        _require(
            world,
            np.ndim(leaf) == 0 and np.isfinite(leaf),
            f"default parameter {name!r} is {leaf!r}, give one finite number",
        )


def _is_frozen(made: Any) -> bool:
    """Whether setting a field is refused, as it must be; sets it to what it is."""
    name = fields(made)[0].name
    try:
        setattr(made, name, getattr(made, name))
    except FrozenInstanceError:
        return True
    return False


def _check_settings(world: AnyWorld) -> None:
    default, settings = world.default_params(), world.settings()
    _require(
        world,
        type(settings) is type(default),
        f"settings() gives a {type(settings).__name__}, not the {type(default).__name__} of "
        "default_params()",
    )
    _check_no_keys(world, settings, "settings()")
    shapes = {
        jax.tree_util.keystr(path, simple=True): np.shape(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(settings)
    }
    alike = len(set(shapes.values())) == 1 and len(next(iter(shapes.values()))) == 1
    _require(
        world,
        alike and next(iter(shapes.values()))[0] > 0,
        f"every leaf of settings() needs the same shape (settings,), but they are {shapes}; "
        "quorum_rl.envs.grid makes such a stack",
    )


def _check_reset_and_step(world: AnyWorld, jitted: Any) -> None:
    """What comes back has the right form, and the same again for the same arguments."""
    params, key, action = world.default_params(), jax.random.key(SEED), jnp.int32(0)
    begun = world.reset(key, params)
    _require(
        world,
        isinstance(begun, tuple) and len(begun) == 2,
        f"reset gives {type(begun).__name__}, not the pair (state, observation)",
    )
    state, observation = begun
    _check_observation(world, observation, "reset")
    _check_no_keys(world, state, "the state from reset")
    again, _ = world.reset(key, params)
    _require(world, _equal(state, again), "reset with the same key gives two different states")
    after = world.step(key, state, action, params)
    _check_step(world, state, after)
    second = world.step(key, state, action, params)
    _require(world, _equal(after, second), "step called twice alike gives two different results")
    traced = _trying(world, "jit", lambda: jitted(key, state, action, params))
    pairs = zip(_numbers(traced), _numbers(after), strict=True)
    close = all(np.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs)
    _require(world, close, "step under jit gives other numbers than without")
    for other in range(1, world.spaces.action_count):
        _check_step(world, state, jitted(key, state, jnp.int32(other), params))


def _check_step(world: AnyWorld, before: Any, after: Any) -> None:
    _require(
        world,
        isinstance(after, Step),
        f"step gives {type(after).__name__}, not a quorum_rl.envs.Step",
    )
    _check_observation(world, after.observation, "step")
    for name, kind in (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool")):
        _check_array(world, getattr(after, name), f"{name} from step", (), kind)
    _require(world, np.isfinite(after.reward), f"reward from step is {after.reward}")
    _require(
        world,
        _outline(after.state) == _outline(before),
        f"step turns the state {_outline(before)} of reset into {_outline(after.state)}; shapes "
        "and dtypes must stay the same",
    )


def _check_observation(world: AnyWorld, observation: Any, origin: str) -> None:
    spaces = world.spaces
    _check_array(
        world, observation, f"observation from {origin}", (spaces.observation_size,), "float32"
    )
    values = np.asarray(observation)
    inside = (values >= np.array(spaces.low, np.float32)) & (
        values <= np.array(spaces.high, np.float32)
    )
    if not inside.all():
        worst = int(np.argmin(inside))
        _require(
            world,
            False,
            f"{spaces.observation_names[worst]!r} from {origin} is {values[worst]}, outside "
            f"spaces.low and spaces.high [{spaces.low[worst]}, {spaces.high[worst]}]",
        )


def _check_array(
    world: AnyWorld, value: Any, what: str, shape: tuple[int, ...], dtype: str
) -> None:
    actual = f"{value.dtype}{value.shape}" if isinstance(value, jax.Array) else repr(value)
    right = isinstance(value, jax.Array) and value.shape == shape and value.dtype == dtype
    _require(world, right, f"{what} is {actual}, not a JAX array {dtype}{shape}")


def _outline(tree: Any) -> Any:
    """The structure of `tree` with a dtype and shape for each leaf, in words."""
    arrays = jax.tree.map(jnp.asarray, tree)
    return jax.tree.map(lambda array: f"{array.dtype}{array.shape}", arrays)


def _equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(_numbers(one), _numbers(other), strict=True))


def _numbers(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def _check_time_limit(world: AnyWorld, jitted: Any) -> None:
    """Truncated exactly from the last step of the limit on, whatever the policy does."""
    key = jax.random.key(SEED)
    params = replace(world.default_params(), time_limit=2)
    state, _ = world.reset(key, params)
    for step in (1, 2):
        after = jitted(key, state, jnp.int32(0), params)
        state = after.state
        _require(
            world,
            bool(after.truncated) == (step == 2),
            f"with time_limit 2, truncated is {bool(after.truncated)} after step {step}; it must "
            "be state.time >= params.time_limit, counted in the state",
        )


def _check_transformations(world: AnyWorld) -> None:
    """`vmap` over states and settings, and `scan`, with autoreset."""
    keys = jax.random.split(jax.random.key(SEED))
    settings = world.settings()
    count = min(COPIES, len(jax.tree.leaves(settings)[0]))
    some = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:count], settings)

    def scanned(over: Any) -> Any:
        running = start(world, keys[0], over, count)
        return roll_out(world, uniform_policy(world), keys[1], running, over, STEPS)

    _, seen = _trying(
        world, "vmap over states and settings, and scan", lambda: _compiled(scanned)(some)
    )
    _require(world, np.isfinite(seen.reward).all(), "a reward in its settings is not finite")
    _require(
        world, np.isfinite(seen.observation).all(), "an observation in its settings is not finite"
    )


def _compiled(function: Callable[..., Any]) -> Any:
    """For a handful of steps the fastest code is not worth the wait."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def _trying(world: AnyWorld, what: str, call: Callable[[], Any]) -> Any:
    """`call()`, its failure told in one sentence; the whole story stays as the cause."""
    try:
        return call()
    except (jax.errors.JAXTypeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise QuorumError(
            f"world {world.name!r}: reset or step fails under {what} ({reason}); use jax.numpy "
            "and jnp.where instead of Python's if, float and bool."
        ) from error
