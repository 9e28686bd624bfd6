"""HIV treatment against SciPy's LSODA, published check values and NumPy's linear solver."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import odeint

from quorum_rl.envs.hiv import (
    EFFICACY,
    UNHEALTHY_START,
    Concentrations,
    Equations,
    Hiv,
    HivParams,
    HivState,
    administered,
)

WORLD = Hiv()
STEP = jax.jit(WORLD.step)
NO_DRUG, DRUG_1, DRUG_2, BOTH = range(4)

# Found by search: pauses that train the immune response to about 9e4; return 2.0e9.
GOOD_TREATMENT = [int(a) for a in "32221113332211133333313333311111111111111111111111"]


@partial(jax.jit, static_argnums=0)
def follow(world: Hiv, key: jax.Array, actions: Any, params: HivParams) -> tuple[Any, Any]:
    """Every state of one episode under given actions, the first included, and its rewards."""
    start, _ = world.reset(key, params)

    def advance(state: HivState, given: Any) -> tuple[HivState, Any]:
        action, time = given
        after = world.step(jax.random.fold_in(key, time), state, action, params)
        return after.state, (jnp.stack(after.state.concentrations), after.reward)

    _, (states, rewards) = jax.lax.scan(advance, start, (actions, jnp.arange(len(actions))))
    return jnp.concatenate([jnp.stack(start.concentrations)[None], states]), rewards


@jax.jit
def steps_from(keys: Any, states: Any, actions: Any, params: HivParams) -> Any:
    def step_of(key: Any, state: Any, action: Any) -> Any:
        held = HivState(Concentrations(*state), time=jnp.int32(0))
        return jnp.stack(WORLD.step(key, held, action, params).state.concentrations)

    return jax.vmap(step_of)(keys, states, actions)


def equations(now: Any, time: float, drug_1: float, drug_2: float) -> list[float]:
    """The six equations as the literature writes them, for SciPy."""
    del time
    t1, t2, t1_infected, t2_infected, v, e = now
    x = t1_infected + t2_infected
    i1 = (1 - drug_1) * 8e-7 * v * t1
    i2 = (1 - 0.34 * drug_1) * 1e-4 * v * t2
    return [
        1e4 - 0.01 * t1 - i1,
        31.98 - 0.01 * t2 - i2,
        i1 - 0.7 * t1_infected - 1e-5 * e * t1_infected,
        i2 - 0.7 * t2_infected - 1e-5 * e * t2_infected,
        (1 - drug_2) * 100 * 0.7 * x - 13 * v - i1 - i2,
        1 + 0.3 * x / (x + 100) * e - 0.25 * x / (x + 500) * e - 0.1 * e,
    ]


def lsoda(state: Any, drugs: Any, days: float = 20.0) -> Any:
    """`odeint` is LSODA."""
    start, given = np.asarray(state, np.float64), tuple(float(drug) for drug in drugs)
    return odeint(equations, start, (0.0, days), given, rtol=1e-10, atol=1e-12, mxstep=100_000)[-1]


@pytest.fixture(scope="module")
def reached() -> Any:
    """204 states: under good treatment, random treatment, and drugs that change now and then."""
    rng = np.random.default_rng(0)
    held_long = np.repeat(rng.integers(4, size=10), 5)
    schedules = [GOOD_TREATMENT, rng.integers(4, size=50), held_long, rng.integers(4, size=50)]
    params = WORLD.default_params()
    followed = [follow(WORLD, jax.random.key(0), jnp.asarray(s), params)[0] for s in schedules]
    states = np.concatenate(followed)
    assert states[:, 5].max() > 8e4
    assert states[:, 5].min() < 30
    return states


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_every_action_from_two_hundred_reached_states_is_lsodas(noise: float, reached: Any) -> None:
    """816 steps with and 816 without noise, each entry within 1e-4 of its value."""
    states = np.repeat(reached, 4, axis=0)
    actions = np.tile(np.arange(4), len(reached))
    keys = jax.random.split(jax.random.key(1), len(states))
    after = steps_from(keys, states, actions, HivParams(efficacy_noise=noise))
    doses = jnp.asarray(EFFICACY, jnp.float32)[actions]
    drugs = np.asarray(jax.vmap(administered, (0, 0, None))(keys, doses, noise), np.float64)
    if noise:
        assert np.abs(drugs - doses).max() > 0.02
    else:
        drugs = np.asarray(EFFICACY)[actions]  # not rounded to float32
    expected = np.array([lsoda(*pair) for pair in zip(states, drugs, strict=True)])
    assert len(reached) >= 200
    assert np.abs(np.asarray(after, np.float64) / expected - 1).max() <= 1e-4


def test_untreated_years_earn_the_published_return() -> None:
    """200 steps of 5 days without drugs.

    The published 3432807.3 adds up the rewards of the states at the *start* of each step; ours
    is of the state at its end, which drops the first state, adds the last, and gives 3432351.3.
    """
    params = HivParams(days_per_step=5.0, time_limit=200)
    followed = follow(WORLD, jax.random.key(0), jnp.zeros(200, int), params)
    states, rewards = (np.asarray(column, np.float64) for column in followed)
    of_states = 1000 * states[:, 5] - 0.1 * states[:, 4]
    assert of_states[:-1].sum() == pytest.approx(3432807.3, rel=1e-4)
    assert of_states[1:].sum() == pytest.approx(3432351.3, rel=1e-4)
    assert rewards.sum() == pytest.approx(of_states[1:].sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("action", "published"), [(NO_DRUG, 8.6e5), (DRUG_1, 8.0e5), (DRUG_2, 9.9e5), (BOTH, 1.76e6)]
)
def test_constant_treatment_earns_the_published_return(action: int, published: float) -> None:
    _, rewards = follow(WORLD, jax.random.key(0), jnp.full(50, action), WORLD.default_params())
    assert float(rewards.sum()) == pytest.approx(published, abs=0.006e6)


def test_random_treatment_earns_the_published_return() -> None:
    """Mean 1.50e6, standard deviation 0.54e6.

    The mean of 512 episodes has a standard error of 0.024e6: six of them, and the rounding of the
    published mean, fail about once in 10^8 runs.
    """
    keys = jax.random.split(jax.random.key(2), 512)
    actions = jax.random.randint(jax.random.key(3), (512, 50), 0, 4)
    many = jax.jit(jax.vmap(partial(follow, WORLD), (0, 0, None)))
    returns = np.asarray(many(keys, actions, WORLD.default_params())[1]).sum(axis=1)
    assert returns.mean() == pytest.approx(1.50e6, abs=6 * 0.54e6 / np.sqrt(512) + 0.005e6)
    assert returns.std() == pytest.approx(0.54e6, rel=0.25)


def reward_of(action: int, key: int, params: HivParams) -> tuple[float, Any]:
    start, _ = WORLD.reset(jax.random.key(0), params)
    after = STEP(jax.random.key(key), start, jnp.int32(action), params)
    return float(after.reward), np.asarray(after.state.concentrations, np.float64)


def test_the_penalty_is_on_the_nominal_dose() -> None:
    for key in range(5):
        params = HivParams(efficacy_noise=0.1, penalty_drug_1=19000.0, penalty_drug_2=2100.0)
        reward, state = reward_of(BOTH, key, params)
        health = 1000 * state[5] - 0.1 * state[4]
        assert health - reward == pytest.approx(19000 * 0.7**2 + 2100 * 0.3**2, abs=0.05)


def test_noise_acts_only_on_drugs_that_are_given() -> None:
    quiet, loud = HivParams(), HivParams(efficacy_noise=0.5)
    np.testing.assert_array_equal(reward_of(NO_DRUG, 1, quiet)[1], reward_of(NO_DRUG, 1, loud)[1])
    for action in (DRUG_1, DRUG_2, BOTH):
        assert (reward_of(action, 1, quiet)[1] != reward_of(action, 1, loud)[1]).any()


def test_an_administered_efficacy_stays_between_none_and_full() -> None:
    keys = jax.random.split(jax.random.key(4), 1_000)
    for dose in EFFICACY:
        given = jax.vmap(administered, (0, None, None))(keys, jnp.asarray(dose, jnp.float32), 5.0)
        for drug, nominal in enumerate(dose):
            expected = {0.0, 1.0} if nominal > 0 else {0.0}
            assert {float(given[:, drug].min()), float(given[:, drug].max())} == expected


def dense_solution(rates: Equations, now: Any, shift: float, right: Any) -> Any:
    """NumPy's solution with JAX's own Jacobian."""

    def derivative(state: Any) -> Any:
        return jnp.stack(rates.derivative(Concentrations(*state)))

    jacobian = np.asarray(jax.jacfwd(derivative)(now))
    return np.linalg.solve(shift * np.eye(6) - jacobian, right)


log_states = st.tuples(*[st.floats(low, high) for low, high in
    [(3, 6.5), (-1, 4), (-2, 5), (-3, 3), (-2, 7), (0, 6)]])  # fmt: skip


@settings(max_examples=60, derandomize=True)
@given(
    logs=log_states,
    drugs=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    substep=st.floats(0.01, 0.3),
    right=st.lists(st.floats(-1, 1), min_size=6, max_size=6),
)
def test_the_closed_form_solves_the_linear_system(
    logs: tuple[float, ...], drugs: tuple[float, float], substep: float, right: list[float]
) -> None:
    shift = 1 / (0.25 * substep)
    with jax.enable_x64(True):
        now = 10.0 ** jnp.asarray(logs)
        rates = Equations.under(jnp.float64(drugs[0]), jnp.float64(drugs[1]))
        side = np.asarray(right) * np.asarray(now)
        solve: Callable[[Concentrations], Concentrations] = rates.solver(
            Concentrations(*now), jnp.float64(shift)
        )
        got = np.asarray(solve(Concentrations(*jnp.asarray(side))))
        expected = dense_solution(rates, now, shift, side)
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


def test_the_patient_starts_unhealthy_and_is_seen_in_logarithms() -> None:
    state, observation = WORLD.reset(jax.random.key(0), WORLD.default_params())
    np.testing.assert_array_equal(state.concentrations, np.array(UNHEALTHY_START, np.float32))
    np.testing.assert_allclose(observation, np.log10(UNHEALTHY_START), rtol=1e-6)
