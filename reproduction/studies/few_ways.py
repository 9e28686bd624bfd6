"""Ways to learn from few experts, trained and judged on synthetic experts.

Many runs (seeds, ε) of a way are one program, and policies of all sizes are judged as one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import SeededEntropy, jax_key_data
from quorum_rl.envs import AnyWorld
from quorum_rl.evaluation import returns_of
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import Learner, learner_to_json
from quorum_rl.logs import Demonstrations
from quorum_rl.nets import Layer
from quorum_rl.pipeline import (
    Cost,
    FitPlan,
    FitSettings,
    Keys,
    Study,
    chosen_learner,
    fresh,
    learner_for,
    runs_of,
    steps_of,
    train_runs,
)
from quorum_rl.training import result_of
from quorum_rl.types import Released

DELTA: Final = 1e-4
COUNTS: Final = (30, 100, 300, 1000, 3000)
EPSILONS: Final = (0.1, 0.25, 0.5, 1.0, 3.0, 10.0)
DECLARED: Final = 0.95  # of the experts that there are
KEYS: Final = ("noise", "public")
PRIVATE_SHARE: Final = 0.03  # of all steps, where a release is beside: 60 of 2000
WIDE: Final = 256  # of the network that all policies are judged as


@dataclass(frozen=True)
class Way:
    """One way to learn, and at which ε."""

    name: str
    settings: FitSettings
    learner: str = "auto"
    options: tuple[tuple[str, Any], ...] = ()
    epsilons: tuple[float | None, ...] = EPSILONS


def some(log: Demonstrations, count: int) -> Demonstrations:
    """The log of so many of the experts, spread evenly over all of them, fewer declared."""
    keep = np.zeros(log.expert_count, bool)
    keep[np.arange(count) * log.expert_count // count] = True
    part = log.select(np.repeat(keep, np.diff(log.expert_episode_offsets)))
    return replace(part, declared=replace(part.declared, minimum_experts=int(DECLARED * count)))


@dataclass(frozen=True)
class Trained:
    """One way with so many experts at one ε: its plan and its policies."""

    way: Way
    experts: int
    plan: FitPlan
    params: Any
    seconds: float


def trained(
    ways: Sequence[Way],
    log: Demonstrations,
    world: AnyWorld,
    seeds: int,
    delta: float = DELTA,
) -> tuple[list[Trained], list[dict[str, Any]]]:
    """Every ε of some ways with one number of experts; beside it, what a plan calls noise."""
    count = log.expert_count
    study = Study(None, log, world, delta, range(seeds))
    plans: list[tuple[Way, FitPlan]] = []
    refused = []
    asked = chain.from_iterable(product([way], way.epsilons) for way in ways)
    for way, epsilon in asked:
        cost = epsilon or 1.0, delta  # without privacy none counts
        learner = chosen_learner(log.declared, way.settings, cost, way.learner, dict(way.options))
        plan = study.planned(learner, way.settings, epsilon)
        if plan.mostly_noise is not None and way.settings.method == "local":
            refused.append(
                {"method": way.name, "experts": count, "epsilon": epsilon, "noise": plan.noise}
            )
        else:
            plans.append((way, plan))
    begun = time.perf_counter()
    policies = study.trained([plan for _, plan in plans]) if plans else []
    seconds = time.perf_counter() - begun
    made = [
        Trained(way, count, plan, last, seconds)
        for (way, plan), (*_, last) in zip(plans, policies, strict=True)
    ]
    return made, refused


def as_common(params: Any) -> Any:
    """A policy of no more than two hidden layers as one of two layers of `WIDE`: one program.

    x = relu(x) − relu(−x), and relu(relu(x)) = relu(x).
    """
    layers = [
        (np.asarray(layer.weight), np.asarray(layer.bias)) for layer in next(iter(params.values()))
    ]
    runs, zeros = len(layers[0][0]), np.zeros
    if len(layers) == 1:
        (weight, bias), size = layers[0], layers[0][0].shape[1]
        same = np.broadcast_to(np.eye(size, dtype=np.float32), (runs, size, size))
        first = np.concatenate([same, -same], axis=2), zeros((runs, 2 * size), np.float32)
        layers = [first, (np.concatenate([weight, -weight], axis=1), bias)]
    if len(layers) == 2:
        size = layers[1][0].shape[1]
        same = np.broadcast_to(np.eye(size, dtype=np.float32), (runs, size, size))
        layers.insert(1, (same, zeros((runs, size), np.float32)))
    sizes = [layers[0][0].shape[1], WIDE, WIDE, layers[-1][0].shape[2]]
    made = []
    for (weight, bias), rows, columns in zip(layers, sizes, sizes[1:], strict=False):
        whole, tail = zeros((runs, rows, columns), np.float32), zeros((runs, columns), np.float32)
        whole[:, : weight.shape[1], : weight.shape[2]] = weight
        tail[:, : bias.shape[1]] = bias
        made.append(Layer(jnp.asarray(whole), jnp.asarray(tail)))
    return {"policy": tuple(made)}


def judged(
    every: Sequence[Trained], declared: Any, world: AnyWorld, seeds: int, episodes: int
) -> list[dict[str, Any]]:
    """The mean return of every seed's policy, all on the same episodes.

    Policies of one network are judged in one program, whatever its size.
    """
    if any(len(run.params) > 1 for run in every):
        return [judged_alone(run, world, seeds, episodes) for run in every]
    judge: Learner = learner_for(declared, "bc", hidden_sizes=(WIDE, WIDE))
    rows = []
    room = len(EPSILONS) * len(COUNTS)  # one shape of the program
    for first in range(0, len(every), room):
        part = list(every[first : first + room])
        stacked = [as_common(run.params) for run in part]
        stacked += [stacked[0]] * (room - len(part))
        whole = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *stacked)
        numbers = np.tile(np.arange(seeds, dtype=np.int32), room)
        key = jax.random.key(0)
        found = returns_of(judge, whole, world, None, key, episodes, numbers)
        means = np.asarray(found, np.float64).reshape(room, seeds, episodes).mean(axis=2)
        rows += [_row(run, each) for run, each in zip(part, means, strict=False)]
    return rows


def judged_alone(run: Trained, world: AnyWorld, seeds: int, episodes: int) -> dict[str, Any]:
    """The same with the learner that made the policies."""
    numbers, key = np.arange(seeds, dtype=np.int32), jax.random.key(0)
    found = returns_of(run.plan.learner, run.params, world, None, key, episodes, numbers)
    return _row(run, np.asarray(found, np.float64).mean(axis=1))


def _row(run: Trained, returns: Any) -> dict[str, Any]:
    private = run.plan.private
    return {
        "method": run.way.name,
        "experts": run.experts,
        "minimum_experts": int(DECLARED * run.experts),
        "epsilon": None if private is None else run.plan.epsilon,
        "noise": run.plan.noise,
        "learner": learner_to_json(run.plan.learner),
        "private_steps": run.plan.private_steps,
        "sampling_rate": None if private is None else private.sampling_rate,
        "noise_multiplier": None if private is None else private.noise_multiplier,
        "returns": returns.tolist(),
        "mean": float(returns.mean()),
        "seconds": run.seconds,
    }


def bound(log: Demonstrations, world: AnyWorld, seeds: int) -> list[Trained]:
    """Imitation without privacy, from all experts."""
    way = Way("non-private", FitSettings(method="non-private"), "bc")
    study = Study(None, log, world, DELTA, range(seeds))
    learner = learner_for(log.declared, "bc", hidden_sizes=(64,))
    plan = study.planned(learner, way.settings, None)
    return [Trained(way, log.expert_count, plan, study.trained([plan])[0][-1], 0.0)]


def timed(log: Demonstrations, world: AnyWorld, experts: int, way: Way) -> dict[str, Any]:
    """How long five ε and five seeds take with so many experts; who is missing is there again."""
    times = -(-experts // log.expert_count)
    episodes = jax.tree.map(lambda leaf: np.concatenate([leaf] * times), log.episodes)
    moved = np.concatenate([log.episodes.expert + turn * log.expert_count for turn in range(times)])
    more = some(replace(log, episodes=episodes._replace(expert=moved)), experts)
    seconds = []
    for _ in range(2):  # the first one compiles
        begun = time.perf_counter()
        made, _ = trained([replace(way, epsilons=EPSILONS[1:])], more, world, 5)
        jax.block_until_ready([run.params for run in made])
        seconds.append(time.perf_counter() - begun)
    return {"experts": experts, "runs": 25, "first_s": seconds[0], "again_s": seconds[1]}


def released_beside(
    experts: LoggedExperts,
    log: Demonstrations,
    world: AnyWorld,
    epsilon: float,
    seeds: int,
    say: Callable[[str], None],
    delta: float = DELTA,
    single: FitSettings | None = None,
) -> list[Trained]:
    """Private steps alone, with half of ε for a release mixed in, and with it as a warm start.

    They are local updates, or with `single` steps of one transition of each expert. Seed by seed
    with the same keys; releases are the same for both, however little comes out.
    """
    usual = FitSettings() if single is None else single
    beside = replace(usual, method="selective", least_released=0, least_reached=0.0)
    if single is None:
        beside = replace(beside, local_steps=60, private_share=PRIVATE_SHARE)
    learner = chosen_learner(log.declared, usual, (epsilon, delta))
    study = Study(experts, log, world, delta, range(seeds))
    plain = study.planned(learner, usual, epsilon)
    mixed = study.planned(learner, beside, epsilon)
    if mixed.release is None:
        return []
    say(f"{log.expert_count} experts, ε = {epsilon}: released {study.released_by(mixed)}")
    (*_, alone), (*_, both) = study.trained([plain, mixed])
    mark = "" if single is None else ", one transition"
    found = [("local" if single is None else "alone", plain, alone)]
    found.append(("release mixed in", mixed, both))
    if all(study.released_by(mixed)):
        found.append(("release first", mixed, _after_release(study, mixed)))
    return [
        Trained(Way(name + mark, beside), log.expert_count, plan, params, 0.0)
        for name, plan, params in found
    ]


def values_after_imitation(log: Demonstrations, world: AnyWorld, cost: Cost, seeds: int) -> Trained:
    """Imitation in the first half of the private steps, and from where that ends CQL."""
    study = Study(None, log, world, DELTA, range(seeds))
    learner = chosen_learner(log.declared, FitSettings(), cost)
    values = learner_for(
        log.declared, "cql", hidden_sizes=learner.hidden_sizes, target_rate=0.25, alpha=5.0
    )
    way = Way("CQL after imitation", FitSettings(local_rate=0.1))
    plans = [
        study.planned(learner, FitSettings(), cost[0]),
        study.planned(values, way.settings, cost[0]),
    ]
    halves = [replace(plan, private_steps=plan.private_steps // 2) for plan in plans]
    return Trained(way, log.expert_count, plans[1], _in_turn(study, halves), 0.0)


def _after_release(study: Study, plan: FitPlan) -> Any:
    """Steps on released prefixes, and from where they end the private steps."""
    assert plan.release is not None  # or there is nothing to begin with
    released = study._released(plan.release, plan.delta)
    return _in_turn(
        study,
        [replace(plan, private=None, private_steps=0), replace(plan, plain_steps=0)],
        released,
    )


def _in_turn(study: Study, plans: Sequence[FitPlan], released: Sequence[Released] = ()) -> Any:
    """Plans one after the other, each from where the one before ended, each with its own keys."""
    spaces = study.world.spaces
    made: Any = None
    for number, part in enumerate(plans):
        entropies = [SeededEntropy(1000 * number + seed) for seed in study.seeds]
        words = [[jax_key_data(entropy, name) for entropy in entropies] for name in KEYS]
        steps = steps_of(part, len(study.seeds), 0, () if part.private else released)
        runs = runs_of([part], Keys(*map(np.stack, words)), steps)
        start = fresh(part, runs, (spaces.observation_size, spaces.action_count))
        if made is not None:
            (layers,) = made.params.values()  # one network, whatever its name
            again = jax.tree.map(jnp.copy, layers)  # buffers are given away
            params = dict.fromkeys(start.params, layers)
            start = replace(start, params=params, target=dict.fromkeys(start.target, again))
        made = train_runs(part, runs, steps, start, study._private(plans[-1]))
    return result_of(plans[-1].recipe, made)
