"""Does a user's own world keep the protocol? Like Gymnasium's `check_env`, for `World`.

A check yields what is wrong, in words that follow the world's name. Only its first complaint is
asked for: what comes after may assume that all before is well.
"""

from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.rollout import roll_out, start, uniform_policy
from quorum_rl.envs.world import AnyWorld, Facts, Spaces, Step, Units, World
from quorum_rl.errors import QuorumError, at_least

COPIES = 3
STEPS = 5
SEED = 0

Complaints: TypeAlias = Iterator[str]


def check_world(world: AnyWorld) -> None:
    """Try everything the protocol asks of `world` on a few steps; silent when all is well.

    Raises:
        QuorumError: naming the first thing that is wrong and what it should be.
    """
    _check_members(world)
    step = _compiled(world.step)
    for complaints in (
        _about_equality(world),
        _about_spaces(world),
        _about_facts(world),
        _about_units(world),
        _about_params(world),
        _about_settings(world),
        _about_reset_and_step(world, step),
        _about_time_limit(world, step),
        _about_transformations(world),
    ):
        for complaint in complaints:
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


def _about_equality(world: AnyWorld) -> Complaints:
    """Equal worlds share compiled programs, which hold whatever the first of them was."""
    made: Any = world
    for field in fields(made) if is_dataclass(made) else ():
        if not field.compare:
            yield (
                f"field {field.name!r} has compare=False, so worlds that differ would share "
                "compiled programs; let it be compared"
            )


def _about_keys(tree: Any, what: str) -> Complaints:
    for name, leaf in _named_leaves(tree):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            yield (
                f"{what} holds a typed random key {name!r}, with which training could not be "
                "saved; keep its jax.random.key_data, or take randomness from the key of step"
            )


def _about_spaces(world: AnyWorld) -> Complaints:
    spaces: Any = world.spaces
    if not isinstance(spaces, Spaces):
        yield f"spaces is {spaces!r}, not a Spaces"
    size = spaces.observation_size
    if size < 1:
        yield "spaces.observation_names is empty, name at least one number"
    if spaces.action_count < (1 if spaces.continuous else 2):
        yield "spaces.action_names needs at least two actions, or one number of a continuous one"
    if spaces.continuous and len(spaces.action_bounds) != spaces.action_count:
        yield (
            f"spaces.action_bounds has {len(spaces.action_bounds)} pairs for "
            f"{spaces.action_count} action names"
        )
    for name, (least, most) in zip(spaces.action_names, spaces.action_bounds, strict=False):
        if not -np.inf < least < most < np.inf:
            yield f"spaces.action_bounds of {name!r} are {least} and {most}, not a finite range"
    for name, bound in (("low", spaces.low), ("high", spaces.high)):
        if len(bound) != size:
            yield f"spaces.{name} has {len(bound)} numbers for {size} observation names"
    for name, low, high in zip(spaces.observation_names, spaces.low, spaces.high, strict=True):
        if not low <= high:
            yield f"spaces.low is not at most spaces.high for {name!r}"


def _about_facts(world: AnyWorld) -> Complaints:
    facts: Any = world.facts
    if not isinstance(facts, Facts):
        yield f"facts is {facts!r}, not a Facts"
    if not facts.random_return < facts.reference_return:
        yield (
            f"facts.random_return {facts.random_return} must lie below facts.reference_return "
            f"{facts.reference_return}, for returns are normalised between them"
        )
    for name in ("demonstration_time_limit", "evaluation_time_limit"):
        value = getattr(facts, name)
        if not at_least(1).holds(value):
            yield f"facts.{name} is {value!r}, give a whole number of steps"


def _about_units(world: AnyWorld) -> Complaints:
    units = getattr(world, "units", None)
    if units is None:
        return
    if not isinstance(units, Units):
        yield f"units is {units!r}, not a Units"
    size = world.spaces.observation_size
    for name, numbers in (("centre", units.centre), ("scale", units.scale)):
        if len(numbers) != size or not np.isfinite(numbers).all():
            yield f"units.{name} is {numbers}, give {size} finite numbers, one per observation name"
    if min(*units.scale, units.reward_scale) <= 0 or not np.isfinite(units.reward_scale):
        yield "units.scale and units.reward_scale must be positive numbers"


def _about_params(world: AnyWorld) -> Complaints:
    params = world.default_params()
    fix = "decorate its class with quorum_rl.pytree.pytree"
    if not is_dataclass(params) or not _is_frozen(params):
        yield f"default_params() must give a frozen dataclass, {fix}"
    if any(leaf is params for leaf in jax.tree.leaves(params)):
        yield f"default_params() gives something JAX cannot look into, {fix}"
    if "time_limit" not in {field.name for field in fields(params)}:
        yield "its params have no field 'time_limit'"
    yield from _about_keys(params, "default_params()")
    for name, leaf in _named_leaves(params):
        if np.ndim(leaf) or not np.isfinite(leaf):
            yield f"default parameter {name!r} is {leaf!r}, give one finite number"


def _is_frozen(made: Any) -> bool:
    """Whether setting a field is refused, as it must be; sets it to what it is."""
    name = fields(made)[0].name
    try:
        setattr(made, name, getattr(made, name))
    except FrozenInstanceError:
        return True
    return False


def _about_settings(world: AnyWorld) -> Complaints:
    default, settings = world.default_params(), world.settings()
    if type(settings) is not type(default):
        yield (
            f"settings() gives a {type(settings).__name__}, not the {type(default).__name__} of "
            "default_params()"
        )
    yield from _about_keys(settings, "settings()")
    shapes = {name: np.shape(leaf) for name, leaf in _named_leaves(settings)}
    first = next(iter(shapes.values()))
    if len(set(shapes.values())) > 1 or len(first) != 1 or first[0] < 1:
        yield (
            f"every leaf of settings() needs the same shape (settings,), but they are {shapes}; "
            "quorum_rl.envs.grid makes such a stack"
        )


def _about_reset_and_step(world: AnyWorld, jitted: Any) -> Complaints:
    """What comes back has the right form, and the same again for the same arguments."""
    params, key = world.default_params(), jax.random.key(SEED)
    action, *others = _actions(world)
    begun: Any = world.reset(key, params)
    if not isinstance(begun, tuple) or len(begun) != 2:
        yield f"reset gives {type(begun).__name__}, not the pair (state, observation)"
    state, observation = begun
    yield from _about_observation(world, observation, "reset")
    yield from _about_keys(state, "the state from reset")
    if not _equal(state, world.reset(key, params)[0]):
        yield "reset with the same key gives two different states"
    after = world.step(key, state, action, params)
    yield from _about_step(world, state, after)
    if not _equal(after, world.step(key, state, action, params)):
        yield "step called twice alike gives two different results"
    traced = _trying(world, "jit", lambda: jitted(key, state, action, params))
    pairs = zip(jax.tree.leaves(traced), jax.tree.leaves(after), strict=True)
    if not all(np.allclose(found, wanted, rtol=1e-3, atol=1e-5) for found, wanted in pairs):
        yield "step under jit gives other numbers than without"
    for other in others:
        yield from _about_step(world, state, jitted(key, state, other, params))


def _actions(world: AnyWorld) -> list[Any]:
    """Every action; of continuous ones, the least, the middle and the most."""
    if not world.spaces.continuous:
        return [jnp.int32(action) for action in range(world.spaces.action_count)]
    low, high = jnp.array(world.spaces.action_bounds, jnp.float32).T
    return [low, (low + high) / 2, high]


def _about_step(world: AnyWorld, before: Any, after: Any) -> Complaints:
    if not isinstance(after, Step):
        yield f"step gives {type(after).__name__}, not a quorum_rl.envs.Step"
    yield from _about_observation(world, after.observation, "step")
    for name, kind in (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool")):
        yield from _about_array(getattr(after, name), f"{name} from step", (), kind)
    if not np.isfinite(after.reward):
        yield f"reward from step is {after.reward}"
    if _outline(after.state) != _outline(before):
        yield (
            f"step turns the state {_outline(before)} of reset into {_outline(after.state)}; "
            "shapes and dtypes must stay the same"
        )


def _about_observation(world: AnyWorld, observation: Any, origin: str) -> Complaints:
    spaces = world.spaces
    what = f"observation from {origin}"
    yield from _about_array(observation, what, (spaces.observation_size,), "float32")
    low, high = np.array(spaces.low, np.float32), np.array(spaces.high, np.float32)
    values = np.asarray(observation)
    inside = (values >= low) & (values <= high)
    if not inside.all():
        worst = int(np.argmin(inside))
        yield (
            f"{spaces.observation_names[worst]!r} from {origin} is {values[worst]}, outside "
            f"spaces.low and spaces.high [{spaces.low[worst]}, {spaces.high[worst]}]"
        )


def _about_array(value: Any, what: str, shape: tuple[int, ...], dtype: str) -> Complaints:
    wanted = f"{dtype}{shape}"
    actual = _outline(value) if isinstance(value, jax.Array) else repr(value)
    if actual != wanted:
        yield f"{what} is {actual}, not a JAX array {wanted}"


def _outline(tree: Any) -> Any:
    """The structure of `tree` with a dtype and shape for each leaf, in words."""
    arrays = jax.tree.map(jnp.asarray, tree)
    return jax.tree.map(lambda array: f"{array.dtype}{array.shape}", arrays)


def _equal(first: Any, second: Any) -> bool:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(leaf, other) for leaf, other in pairs)


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    return [
        (jax.tree_util.keystr(path, simple=True), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _about_time_limit(world: AnyWorld, jitted: Any) -> Complaints:
    """Truncated exactly from the last step of the limit on, whatever the policy does."""
    key = jax.random.key(SEED)
    params = replace(world.default_params(), time_limit=2)
    state, _ = world.reset(key, params)
    for step in (1, 2):
        after = jitted(key, state, _actions(world)[0], params)
        state = after.state
        if bool(after.truncated) != (step == 2):
            yield (
                f"with time_limit 2, truncated is {bool(after.truncated)} after step {step}; it "
                "must be state.time >= params.time_limit, counted in the state"
            )


def _about_transformations(world: AnyWorld) -> Complaints:
    """`vmap` over states and settings, and `scan`, with autoreset."""
    keys = jax.random.split(jax.random.key(SEED))
    settings = world.settings()
    count = min(COPIES, len(jax.tree.leaves(settings)[0]))
    some = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:count], settings)

    def scanned(over: Any) -> Any:
        running = start(world, keys[0], over, count)
        return roll_out(world, uniform_policy(world), keys[1], running, over, STEPS)

    what = "vmap over states and settings, and scan"
    _, seen = _trying(world, what, lambda: _compiled(scanned)(some))
    if not np.isfinite(seen.reward).all():
        yield "a reward in its settings is not finite"
    if not np.isfinite(seen.observation).all():
        yield "an observation in its settings is not finite"


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
