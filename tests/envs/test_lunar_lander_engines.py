"""The engines of both LunarLanders against Gymnasium's own code, which runs here without Box2D."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs import draw_episode, reference_policy
from quorum_rl.envs.lunar_lander import FULL_THROTTLE, LunarLander, LunarLanderContinuous
from quorum_rl.envs.lunar_lander.geometry import (
    HULL,
    PIXELS_PER_METRE,
    Body,
    Motion,
    Pose,
    vec,
)
from quorum_rl.envs.lunar_lander.world import MAIN_FUEL, SIDE_FUEL, fired
from quorum_rl.types import Transition

CONTINUOUS = LunarLanderContinuous()
MODULE = "gymnasium.envs.box2d.lunar_lander"


@pytest.fixture(scope="module")
def theirs() -> Iterator[Any]:
    """Gymnasium's module, with empty shells where it imports Box2D."""
    shells = {name: ModuleType(name) for name in ("Box2D", "Box2D.b2")}
    names = "circleShape contactListener edgeShape fixtureDef polygonShape revoluteJointDef"
    for name in names.split():
        setattr(shells["Box2D.b2"], name, type(name, (), {}))
    package = [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]
    kept = {name: sys.modules.pop(name) for name in (*package, *shells) if name in sys.modules}
    sys.modules.update(shells)
    folder = ModuleType("gymnasium.envs.box2d")  # whose __init__ imports the other worlds
    found = importlib.util.find_spec("gymnasium.envs")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder.__path__ = [f"{where}/box2d" for where in found.submodule_search_locations]
    sys.modules[folder.__name__] = folder
    yield importlib.import_module(MODULE).LunarLander
    for name in (MODULE, folder.__name__, *shells):
        sys.modules.pop(name, None)
    sys.modules.update(kept)


class Hull:
    """What `step` asks of a Box2D body; impulses change its motion as Box2D's manual says."""

    def __init__(self, body: Body) -> None:
        origin = HULL.origin(body.pose)
        self.centre = np.array([body.pose.centre.x, body.pose.centre.y], np.float64)
        self.position = SimpleNamespace(x=float(origin.x), y=float(origin.y))
        self.angle = float(body.pose.angle)
        self.velocity = np.array([body.motion.velocity.x, body.motion.velocity.y], np.float64)
        self.angularVelocity = float(body.motion.spin)
        self.awake = True

    @property
    def linearVelocity(self) -> Any:  # noqa: N802 - Box2D's name
        return SimpleNamespace(x=self.velocity[0], y=self.velocity[1])

    def ApplyLinearImpulse(self, impulse: Any, at: Any, wake: bool) -> None:  # noqa: N802
        del wake
        self.velocity = self.velocity + HULL.inverse_mass * np.array(impulse)
        arm = np.array(at) - self.centre
        turn = arm[0] * impulse[1] - arm[1] * impulse[0]
        self.angularVelocity += HULL.inverse_inertia * turn


class Point(SimpleNamespace):
    def __getitem__(self, index: int) -> float:
        return float((self.x, self.y)[index])


def stepped(theirs: Any, body: Body, action: Any, dispersion: Any) -> tuple[Hull, float]:
    """Gymnasium's step with the engines alone, and what it takes for their fuel."""
    hull = Hull(body)
    hull.position = Point(x=hull.position.x, y=hull.position.y)
    draws = iter(dispersion)
    env = SimpleNamespace(
        lander=hull,
        continuous=np.ndim(action) > 0,
        enable_wind=False,
        legs=[SimpleNamespace(ground_contact=False)] * 2,
        np_random=SimpleNamespace(uniform=lambda *_: next(draws)),
        render_mode=None,
        world=SimpleNamespace(Step=lambda *_: None),
        helipad_y=0.0,
        prev_shaping=None,
        game_over=False,
        action_space=SimpleNamespace(contains=lambda _: True),
    )
    _, reward, *_ = theirs.step(env, action)
    return hull, -float(reward)


def bodies(count: int, seed: int) -> list[Body]:
    rng = np.random.default_rng(seed)
    return [
        Body(
            Pose(vec(rng.uniform(8, 12), rng.uniform(5, 12)), jnp.float32(rng.uniform(-3, 3))),
            Motion(vec(*rng.normal(0, 2, 2)), jnp.float32(rng.normal())),
            jnp.float32(0),
        )
        for _ in range(count)
    ]


def assert_same(theirs: Any, world: Any, actions: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)

    @jax.jit
    def ours(body: Body, action: Any, dispersion: Any) -> Any:
        engines = world.engines(action)
        fuel = MAIN_FUEL * engines.main + SIDE_FUEL * jnp.abs(engines.side)
        return fired(body, engines, dispersion / PIXELS_PER_METRE), fuel

    for body, action in zip(bodies(len(actions), seed), actions, strict=True):
        dispersion = rng.uniform(-1, 1, 2).astype(np.float32)
        hull, fuel = stepped(theirs, body, action, dispersion.astype(np.float64))
        motion, burned = ours(body, jnp.asarray(action), dispersion)
        np.testing.assert_allclose(motion.velocity.x, hull.velocity[0], atol=1e-5)
        np.testing.assert_allclose(motion.velocity.y, hull.velocity[1], atol=1e-5)
        np.testing.assert_allclose(motion.spin, hull.angularVelocity, atol=1e-5)
        np.testing.assert_allclose(burned, fuel, atol=1e-6)


def test_continuous_engines_burn_as_gymnasiums(theirs: Any) -> None:
    rng = np.random.default_rng(0)
    edges = [(main, side) for main in (-1, 0, 1e-6, 1) for side in (-1, -0.5, 0, 0.5, 0.51, 1)]
    actions = np.concatenate([rng.uniform(-1.2, 1.2, (60, 2)), np.array(edges)])
    assert_same(theirs, CONTINUOUS, actions.astype(np.float32), seed=1)


def test_a_wrong_throttle_would_be_noticed(theirs: Any) -> None:
    class FromNothing(LunarLanderContinuous):
        def engines(self, action: Any) -> Any:
            right = super().engines(action)
            return right._replace(main=jnp.where(right.main > 0, action[0], 0.0))

    with pytest.raises(AssertionError):
        assert_same(theirs, FromNothing(), np.array([[0.5, 0.0]], np.float32), seed=1)


def test_engines_that_are_on_or_off_burn_as_gymnasiums(theirs: Any) -> None:
    assert_same(theirs, LunarLander(), np.arange(24) % 4, seed=2)


def test_full_throttle_is_what_the_list_of_actions_does() -> None:
    for action, numbers in enumerate(FULL_THROTTLE):
        listed = LunarLander().engines(jnp.int32(action))
        assert jax.tree.map(float, CONTINUOUS.engines(jnp.float32(numbers))) == jax.tree.map(
            float, listed
        )


def test_the_reference_policy_is_that_of_the_other_lander_at_full_throttle() -> None:
    seen: Any = np.random.default_rng(0).normal(0, 1, (60, 8)).astype(np.float32)
    key = jax.random.key(0)
    listed = jax.vmap(reference_policy(LunarLander()), (None, 0))(key, seen)
    numbers = jax.vmap(reference_policy(CONTINUOUS), (None, 0))(key, seen)
    assert set(np.asarray(listed)) == {0, 1, 2, 3}
    np.testing.assert_array_equal(numbers, np.array(FULL_THROTTLE)[listed])
    assert CONTINUOUS.facts.reference_return == LunarLander.facts.reference_return


def test_flames_are_drawn_where_engines_burn() -> None:
    seen = np.zeros((7, 8), np.float32)
    seen[:, 1] = 1.0
    actions = np.array([[-1, 0], [1, 0], [0, 1], [0, -1], [1, 1], [-1, 0.4]], np.float32)
    ended = np.zeros(6, bool)
    columns: Any = (seen[:-1], actions, np.zeros(6), seen[1:], ended, ended)
    figure = draw_episode(CONTINUOUS, Transition(*columns), CONTINUOUS.default_params())
    rows = figure.axes[-1].collections
    burned = [
        round(sum(np.ptp(np.asarray(path.vertices)[:, 0]) for path in bars.get_paths()) * 50)
        for bars in rows
    ]
    assert burned == [1, 2, 2]  # left, main and right, in steps


def test_its_number_types_stay_the_same_under_64_bit_jax() -> None:
    def types() -> list[str]:
        return [str(leaf.dtype) for leaf in CONTINUOUS.engines(jnp.zeros(2, jnp.float32))]

    narrow = types()
    with jax.enable_x64(True):
        assert types() == narrow == ["float32", "float32"]
