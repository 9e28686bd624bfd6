r"""How often the judges' intervals of a policy's value hold, where the truth is known.

    python -m reproduction.studies.judged_values --out results/judged_values.parquet

Worlds: CartPole driven by linear rules, the clinicians of the example, and three of ours with a
crowd that understands the reference policy each in its way. In each there is a policy that imitates
and one by CQL, learned privately from 255 of 1000 experts at ε = 3, and two made by hand: one that
is bad, and one that does what experts do but where it matters. For each size the values are fitted
FITS times, on experts drawn anew from those 1000, with noise drawn anew. Then
RUNS times: one of these fits, as many new experts drawn from 1000 who taught nobody, their coins
and the judges' noise. The policies are the same throughout.

Continuous actions are Pendulum's, in one crowd whose experts often slip and in one whose experts
are nearly alike; their rows are asked for by `--worlds pendulum "pendulum, alike" --out
results/judged_continuous.parquet`. Values are asked there however loud the noise, which a fit does
not (`quorum_rl.pipeline.planning.MOST_NOISE`).

Beside it the naive answer: the mean fitted value of the first states of those who were learned
from, with the interval that such a mean has by itself.
"""

import argparse
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.envs import get_world, with_params
from quorum_rl.judging import (
    Candidate,
    Judges,
    JudgingPlan,
    Values,
    fitted_values,
    plan_judging,
    plan_values,
    told_by,
    value_step,
    verdicts,
)
from quorum_rl.logs import Declared, Demonstrations, StepArrays, from_step_arrays
from quorum_rl.nets import Layer
from quorum_rl.pipeline import fit
from quorum_rl.policy import Policy
from reproduction.population import own_returns
from reproduction.results import add
from reproduction.studies.judged_worlds import (
    ACROBOT,
    HIV,
    LUNAR_LANDER,
    PENDULUM,
    PENDULUM_ALIKE,
    Known,
)

ROOT: Final = Path(__file__).parents[2]
RUNS, FITS, SHARE, POPULATION = 1000, 3, 0.15, 1000
FITS_OF_CONTINUOUS: Final = 5  # they differ more
SIZES: Final = [(m, epsilon) for m in (150, 300, 1000) for epsilon in (1.0, 3.0)]
FEW: Final = (147, 1.0)  # 22 judges

Floats = npt.NDArray[np.float64]


class World(NamedTuple):
    """Logs of those who teach and of those who judge, and what policies are really worth."""

    name: str
    teachers: Demonstrations
    others: Demonstrations
    bounds: tuple[float, float]
    units: tuple[tuple[float, ...], tuple[float, ...]]
    by_hand: dict[str, Any]
    truth: Callable[[Any], float]


def cartpole() -> World:
    crowd = importlib.import_module("cartpole_crowd")
    # It pushes towards where the cart is going, and heeds the angle too little.
    bad = linear(np.array([1, 1, 0.3, 1], np.float32))

    def leaning(seen: Floats) -> npt.NDArray[np.int64]:
        """The mean driver's rule; once the pole leans by 0.03, a push that makes it fall."""
        usual = seen @ crowd.GAINS > 0
        return np.where(abs(seen[:, 2]) > 0.03, seen[:, 2] < 0, usual).astype(np.int64)

    by_hand = {"made by hand": bad, "rarely wrong": Rule(leaning)}
    teachers, others = (crowd.cartpole_crowd(POPULATION, seed=seed) for seed in (1, 2))
    units = (0.0,) * 4, (0.087, 0.38, 0.064, 0.57)
    return World("CartPole", teachers, others, (0.0, crowd.LIMIT), units, by_hand, cartpole_truth)


class Rule(NamedTuple):
    """A policy as code."""

    action_numbers: Callable[[Floats], npt.NDArray[Any]]


def linear(gains: npt.NDArray[np.float32]) -> Policy:
    layer = Layer(np.stack([-gains, gains], axis=1), np.zeros(2, np.float32))
    return Policy(networks={"values": (layer,)}, highest="values", learner="bc")


def cartpole_truth(policy: Any, episodes: int = 2000) -> float:
    world = get_world("CartPole")
    params, keys = with_params(world, time_limit=200), jax.random.split(jax.random.key(3), episodes)
    state, seen = jax.vmap(world.reset, (0, None))(keys, params)
    step = jax.jit(jax.vmap(world.step, (0, 0, 0, None)))
    earned, left = 0.0, np.ones(episodes, bool)
    while left.any():
        after = step(keys, state, policy.action_numbers(np.asarray(seen)), params)
        earned += float(left.sum())
        left &= ~np.asarray(after.terminated | after.truncated)
        state, seen = after.state, after.observation
    return earned / episodes


def clinicians() -> World:
    example = importlib.import_module("clinicians")
    fill, low, high = np.array([(150, 40, 400), (80, 40, 160), (0, 0, 24), (0, -200, 100)]).T

    def prepared(seen: Floats) -> npt.NDArray[np.float32]:
        return np.clip(np.where(np.isnan(seen), fill, seen), low, high).astype(np.float32)

    def log(seed: int) -> Demonstrations:
        kept = example.logs(seed, POPULATION).sort_by(
            [("patient_id", "ascending"), ("at", "ascending")]
        )
        rows = {
            name: kept.column(name).to_numpy(zero_copy_only=False) for name in kept.column_names
        }
        names = ("glucose", "weight", "hours_since_meal", "last_effect")
        before, after = (
            prepared(np.stack([rows[name + end].astype(float) for name in names], axis=1))
            for end in ("", "_after")
        )
        arrays = StepArrays(
            before,
            np.array([example.ORDERS.index(order) for order in rows["order"]]),
            rows["reward"].astype(float),
            rows["moved"].astype(bool),
            rows["ended"].astype(bool) & ~rows["moved"].astype(bool),
            rows["clinician_id"].astype(str),
            after,
        )
        return from_step_arrays(arrays, Declared(4, 4, example.VISITS, minimum_experts=2))

    never = np.zeros((4, 4), np.float32)
    hold = Layer(never, np.array([1, 0, 0, 0], np.float32))
    bad = Policy(networks={"values": (hold,)}, highest="values", learner="bc")

    def lowering(seen: Floats) -> npt.NDArray[np.int64]:
        """What clinicians usually do, but no sugar where there is too little: it gives a dose."""
        sugar = seen[:, 0]
        return np.select([sugar < 100, sugar > 230, sugar > 165], [2, 3, 2], 0)

    by_hand = {"made by hand": bad, "rarely wrong": Rule(lowering)}

    def truth(policy: Any) -> float:
        def act(seen: Floats) -> Any:
            return policy.action_numbers(prepared(seen[:, :4]))

        return float(example.true_return(act, episodes=20_000)[0])

    units = (220.0, 100.0, 12.0, -50.0), (90.0, 30.0, 6.0, 75.0)
    return World("clinicians", log(1), log(2), (-10.0, 20.0), units, by_hand, truth)


def of_reference(known: Known) -> World:
    teachers, others = (known.crowd(POPULATION, seed) for seed in (1, 2))
    by_hand = {name: Rule(rule) for name, rule in known.rules(teachers).items()}
    units = known.units
    return World(known.called, teachers, others, known.bounds, units, by_hand, known.truth)


def some(log: Demonstrations, experts: npt.NDArray[np.int64], least: int) -> Demonstrations:
    """The logs of these experts, of whom so many are declared."""
    chosen = log.select(np.isin(log.episodes.expert, log.experts[experts]))
    return replace(chosen, declared=replace(log.declared, minimum_experts=least))


def policies(world: World) -> dict[str, Any]:
    taught, made = some(world.teachers, np.arange(255), 255), dict(world.by_hand)
    for learner in ("bc",) if world.teachers.declared.continuous else ("bc", "cql"):
        with tempfile.TemporaryDirectory() as folder:
            settings: dict[str, Any] = {
                "observation_centre": world.units[0],
                "observation_scale": world.units[1],
            }
            if learner == "cql":
                settings["reward_scale"] = 10 / (world.bounds[1] - world.bounds[0])
            made[learner] = fit(
                taught, epsilon=3.0, delta=1 / 300, learner=learner, learner_settings=settings,
                folder=Path(folder) / "run", accepted=["one-expert-each", "other-experts"],
                report=lambda _: None,
            ).policy  # fmt: skip
    return made


class Told(NamedTuple):
    """What everybody who may judge tells with one fit of the values, and the naive answer."""

    rows: Floats
    naive: tuple[float, float]


def told(world: World, policy: Any, plan: JudgingPlan, m: int, rng: np.random.Generator) -> Told:
    assert plan.values is not None  # bounds were declared
    count = round((1 - SHARE) * m)
    taught = some(world.teachers, rng.choice(POPULATION, count, replace=False), count)
    step = value_step(plan.values.noise_multiplier, plan.values.expected)
    key = rng.integers(0, 2**32, 2, dtype=np.uint32)
    units = plan.values.units(*world.units, taught.declared.observation_size)
    values = fitted_values(taught, policy, units, step, key)
    rows = told_by(world.others, [Candidate(policy, values)], plan)
    return Told(rows, naive(taught, policy, values))


def naive(taught: Demonstrations, policy: Any, values: Values) -> tuple[float, float]:
    """The mean and its standard error, as if the values were the truth."""
    first = np.stack([episode.observations[0] for episode in taught])
    found = values.of(first, np.zeros(len(first)), policy.action_numbers(first))
    worth = found * values.units.reward
    return float(worth.mean()), float(worth.std() / np.sqrt(len(worth)))


def measured(
    world: World, name: str, policy: Any, truth: float, m: int, epsilon: float
) -> dict[str, Any]:
    low, high = world.bounds
    declared = replace(world.others.declared, minimum_experts=m)
    judges = Judges(share=SHARE, return_bounds=world.bounds)
    taught = replace(declared, minimum_experts=round((1 - SHARE) * m))
    values = plan_values(taught, world.bounds, epsilon=epsilon, delta=1 / m)
    plan = plan_judging(declared, judges, epsilon=epsilon, delta=1 / m, values=values)
    rng = np.random.default_rng([m, round(epsilon)])
    count = FITS_OF_CONTINUOUS if declared.continuous else FITS
    fits = [told(world, policy, plan, m, rng) for _ in range(count)]
    weights = np.concatenate([np.full(block.size, block.weight) for block in plan.blocks.values()])
    returns = own_returns(world.others)
    today = float(np.clip(returns, low, high).mean())
    found = []
    for run in range(RUNS):
        rows, (middle, error) = fits[run % count]
        who = rng.integers(0, POPULATION, m)[rng.random(m) < SHARE]
        noise = plan.noise_multiplier * rng.standard_normal(plan.size)
        said = verdicts((rows[who].sum(axis=0) + noise) / weights, plan)[0]
        value, gain = said.value, said.gain
        assert value is not None
        assert gain is not None
        found.append({
            "value_holds": value.low <= truth <= value.high,
            "gain_holds": gain.low <= truth - today <= gain.high,
            "half_width": (value.high - value.low) / 2 / (high - low),
            "tells": value.tells,
            "yes": said.better == "yes",
            "no": said.better == "no",
            "naive_holds": abs(middle - truth) <= 1.96 * error,
            "error": np.nan if value.estimate is None else (value.estimate - truth) / (high - low),
        })  # fmt: skip
    columns = {key: np.array([row[key] for row in found], float) for key in found[0]}
    means = {key: float(column.mean()) for key, column in columns.items()
             if key not in ("half_width", "error")}  # fmt: skip
    told_of = fits[0].rows[:, plan.blocks["agreement"].place] / plan.blocks["agreement"].weight
    known = columns["error"][~np.isnan(columns["error"])]
    return {
        "world": world.name,
        "policy": name,
        "experts": m,
        "epsilon": epsilon,
        "truth": truth,
        "today": today,
        "agreement": float(told_of.mean() + 1) / 2,
        **means,
        "half_width": float(np.median(columns["half_width"])),
    } | ({"error": float(known.mean())} if len(known) else {})


def rows(worlds: Sequence[Callable[[], World]]) -> Iterator[dict[str, Any]]:
    for world in (made() for made in worlds):
        for name, policy in policies(world).items():
            truth = world.truth(policy)
            continuous = world.teachers.declared.continuous
            for m, epsilon in SIZES if continuous else (FEW, *SIZES):
                row = measured(world, name, policy, truth, m, epsilon)
                print({key: round(value, 3) if isinstance(value, float) else value
                       for key, value in row.items()}, flush=True)  # fmt: skip
                yield row


NAME: Final = ("world", "policy", "experts", "epsilon")
WORLDS: Final = {"clinicians": clinicians, "cartpole": cartpole} | {
    known.called.lower(): partial(of_reference, known)
    for known in (ACROBOT, HIV, LUNAR_LANDER, PENDULUM, PENDULUM_ALIKE)
}

if __name__ == "__main__":
    words = argparse.ArgumentParser(description="Measure how often judged values hold.")
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    given = words.parse_args()
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "examples")]
    for found in rows([WORLDS[name] for name in given.worlds]):
        add(given.out, " ".join(str(found[name]) for name in NAME), found)
