"""Parameters and names: what is refused, in which words, and the paper's grids."""

from dataclasses import fields
from pathlib import Path

import jax
import numpy as np
import pytest
from refusals import refusal

from quorum_rl.envs import AnyWorld, World, checked, get_world, grid, with_params, world_names


@pytest.fixture(params=world_names())
def world(request: pytest.FixtureRequest) -> AnyWorld:
    return get_world(request.param)


def test_the_worlds_are_known_by_name() -> None:
    assert world_names() == (
        "CartPole", "Acrobot", "LunarLander", "HIV", "Pendulum", "LunarLanderContinuous",
        "Breakout", "SpaceInvaders",
    )  # fmt: skip
    assert all(isinstance(get_world(name), World) for name in world_names())
    assert [get_world(name).name for name in world_names()] == list(world_names())


@pytest.mark.parametrize(
    ("content", "attribute", "said"),
    [(None, "WORLD", "there is no file"), ("WORLD = 3\n", "WORLD", "no world called 'WORLD'")],
)
def test_a_file_without_the_world_is_named(
    tmp_path: Path, content: str | None, attribute: str, said: str
) -> None:
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    text = refusal(get_world, f"{path}:{attribute}")
    assert str(path) in text
    assert said in text


def test_a_world_is_found_in_a_users_own_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from quorum_rl.envs.cartpole import CartPole\nMINE = CartPole()\n")
    assert get_world(f"{path}:MINE").name == "CartPole"


def test_unknown_names_and_what_is_no_number_are_named_with_the_nearest_known_one() -> None:
    world, wrong = get_world("CartPole"), {"gravity": "heavy"}
    assert "'cartpol' (did you mean CartPole?)" in refusal(get_world, "cartpol")
    assert "parameter 'gravit' (did you mean gravity?)" in refusal(with_params, world, gravit=9.0)
    assert "'heavy'" in refusal(with_params, world, **wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_parameter_that_is_not_finite_is_refused(world: AnyWorld, value: float) -> None:
    for field in fields(world.default_params()):
        text = refusal(with_params, world, **{field.name: value})
        assert f"{world.name} parameter {field.name!r} is {value}" in text


def test_a_stack_of_settings_is_checked_too(world: AnyWorld) -> None:
    settings = world.settings()
    assert checked(world, settings) is settings
    name = fields(settings)[0].name
    values = np.array(getattr(settings, name))
    values[7] = np.nan
    broken = type(settings)(**{**vars(settings), name: values})
    assert f"{name!r} is nan" in refusal(checked, world, broken)


@pytest.mark.parametrize("limit", [0, -3, 2.5])
def test_a_time_limit_that_is_no_number_of_steps_is_refused(world: AnyWorld, limit: float) -> None:
    text = refusal(with_params, world, time_limit=limit)
    assert f"'time_limit' is {limit}" in text


def test_overrides_keep_the_type_of_the_default(world: AnyWorld) -> None:
    for field in fields(world.default_params()):
        params = with_params(world, **{field.name: 3.0})
        value = getattr(params, field.name)
        assert value == 3
        assert type(value) is type(getattr(world.default_params(), field.name))


VARIED: dict[str, dict[str, tuple[float, float, int]]] = {
    "CartPole": {"gravity": (8.75, 11, 10), "force": (9, 11.25, 10), "cart_mass": (0.8, 1.25, 10)},
    "Acrobot": {
        "link_length_1": (0.8, 1.2, 10),
        "link_mass_1": (0.9, 1.1, 10),
        "link_mass_2": (0.9, 1.1, 10),
    },
    "LunarLander": {
        "gravity": (9, 11, 10),
        "wind_power": (0, 5, 10),
        "turbulence_power": (0, 0.5, 10),
    },
    "HIV": {
        "penalty_drug_1": (18750, 21250, 50),
        "penalty_drug_2": (1850, 2150, 20),
        "efficacy_noise": (0, 0.01, 2),
    },
    "Pendulum": {"gravity": (9, 11, 10), "mass": (0.9, 1.1, 10), "length": (0.9, 1.1, 10)},
    "Breakout": {
        "sticky_probability": (0, 0.2, 25),
        "right_start": (0, 1, 10),
        "start_row": (3, 6, 4),
    },
    "SpaceInvaders": {
        "sticky_probability": (0, 0.2, 25),
        "move_interval": (10, 14, 5),
        "shot_interval": (7, 14, 8),
    },
}
VARIED["LunarLanderContinuous"] = VARIED["LunarLander"]


def test_settings_are_the_stated_grid_around_the_default(world: AnyWorld) -> None:
    settings, default = world.settings(), world.default_params()
    size = 2000 if world.name == "HIV" else 1000
    varied = VARIED[world.name]
    for field in fields(settings):
        values = np.asarray(getattr(settings, field.name))
        assert values.shape == (size,)
        if field.name in varied:
            low, high, count = varied[field.name]
            np.testing.assert_allclose(np.unique(values), np.linspace(low, high, count), rtol=1e-6)
            assert low <= getattr(default, field.name) <= high
        elif field.name != "link_length_2":
            assert (values == np.float32(getattr(default, field.name))).all()
    columns = np.stack([np.asarray(getattr(settings, name)) for name in varied], axis=1)
    assert len(np.unique(columns, axis=0)) == size  # every combination, each once


def test_both_links_of_acrobot_have_the_same_length_in_every_setting() -> None:
    settings = get_world("Acrobot").settings()
    np.testing.assert_array_equal(settings.link_length_1, settings.link_length_2)


def test_a_grid_varies_its_last_axis_fastest_and_repeats_the_rest() -> None:
    default = get_world("CartPole").default_params()
    made = grid(default, gravity=np.array([1.0, 2.0]), force=np.array([3.0, 4.0]))
    np.testing.assert_array_equal(made.gravity, [1, 1, 2, 2])
    np.testing.assert_array_equal(made.force, [3, 4, 3, 4])
    np.testing.assert_array_equal(made.cart_mass, [1, 1, 1, 1])
    types = {str(np.asarray(leaf).dtype) for leaf in jax.tree.leaves(made)}
    assert types == {"float32", "int32"}
