"""Trains, collects and counts on the devices and processes it is given; run as a program.

Arguments: a file for what was found, the devices of a process and, where there are two processes,
which of them this is and the address of the first.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

EXPERTS = 21


def log() -> Any:
    """Experts with three to nine transitions each, in three episodes."""
    from quorum_rl.logs import Declared, from_episodes

    random = np.random.default_rng(4)
    length = random.integers(1, 4, size=3 * EXPERTS)
    steps, episodes = int(length.sum()), len(length)
    return from_episodes(
        Declared(4, 3, 10, early_truncation_is_public=True),
        expert=np.repeat(np.arange(EXPERTS), 3),
        length=length,
        observations=random.normal(size=(steps + episodes, 3)).astype(np.float32),
        actions=random.integers(4, size=steps),
        rewards=random.normal(size=steps).astype(np.float32),
        terminated=random.random(episodes) < 0.5,
        truncated=np.ones(episodes, np.bool_),
    )


def trained_on(
    data: Any, secret: int = 0, *, rests: bool = False, local: bool = False, chunk: int = 4
) -> dict[str, Any]:
    """The parameters of two runs after five private steps, three in a program.

    If one `rests`, the second run sits two of them out. Experts contribute gradients, or with
    `local` steps of their own; `chunk` of them are worked on at once.
    """
    from loops import PRIVATE_STEP, run_of, stacked

    from quorum_rl.learners import Cql
    from quorum_rl.training.contributions import Local
    from quorum_rl.training.loop import begin, train
    from quorum_rl.training.recipe import Recipe, StepKind, optimiser_of

    step = replace(PRIVATE_STEP, chunk=chunk)
    if local:
        step = replace(step, contribution=Local(steps=3, batch_size=2, rate=0.1))
    learner = Cql(hidden_sizes=(5,) if local else ())
    recipe = Recipe(learner=learner, private_shape=step.shape, optimiser=optimiser_of("sgd"))
    runs = stacked([run_of(secret, step), run_of(secret + 1, step)])
    schedule = np.full((5, 2) if rests else 5, StepKind.PRIVATE, np.int8)
    if rests:
        schedule[[0, 3], 1] = StepKind.NOTHING
    standing = begin(recipe, runs, 3, 4)
    last = train(recipe, runs, standing, schedule, private=data, plain=None, steps_at_once=3)
    leaves = jax.tree.leaves(last.params)
    return {f"parameters {number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}


def refused() -> str:
    """What is said where every process would train by itself, with noise of its own."""
    from quorum_rl.errors import QuorumError
    from quorum_rl.training.data import expert_data

    try:
        trained_on(expert_data(log()))
    except QuorumError as error:
        return str(error)
    return ""


def population() -> dict[str, Any]:
    """Agents after two iterations, what fixed experts do, and what the devices hold of either."""
    from quorum_rl.envs.cartpole import CartPole
    from quorum_rl.experts.population import PlacedNetworks
    from quorum_rl.experts.ppo.agent import PpoRecipe
    from quorum_rl.experts.ppo.plan import Plan
    from quorum_rl.experts.ppo.training import train_population
    from quorum_rl.logs import collect

    world = CartPole()
    recipe = PpoRecipe(hidden=(4,), copies=2, roll_out_steps=8, epochs=1, slice_size=8)
    plan = Plan(settings=3, candidates=3, experts=3, total_steps=32, judging_episodes=1)
    agents: list[Any] = []

    def report(_: Any, standing: Any) -> bool:
        agents.append(held_by_devices(standing.agents))
        return False

    judged, chosen = train_population(world, plan, recipe, seed=0, report=report)
    many = fixed_experts(256)
    demonstrations, _ = collect(fixed_experts(), world, trajectories=2, seed=1)
    return {
        "weights": judged.network[0].weight,
        "agents": judged.returns.shape,
        "chosen": chosen.shape,
        "actions": demonstrations.columns.actions,
        "observations": demonstrations.columns.observations,
        "identity": np.array(demonstrations.declared.identity),
        "bytes of agents": agents[0],
        "bytes of experts": held_by_devices(PlacedNetworks(many.original.network).network),
    }


def held_by_devices(tree: Any) -> Any:
    """How many bytes of a tree each device of this process has. Shapes: (devices,)."""
    every = [
        [shard.data.nbytes for shard in leaf.addressable_shards] for leaf in jax.tree.leaves(tree)
    ]
    return np.sum(every, axis=0)


def fixed_experts(count: int = EXPERTS) -> Any:
    from quorum_rl.experts import Population
    from quorum_rl.experts.networks import Layer

    random = np.random.default_rng(0)
    network = tuple(
        Layer(
            random.normal(size=(count, inputs, outputs)).astype(np.float32),
            random.normal(size=(count, outputs)).astype(np.float32),
        )
        for inputs, outputs in ((4, 8), (8, 2))
    )
    made = Population(observation_size=4, action_count=2, network=network)
    return made.mixed_with_uniform(0.1)


def released(helps: bool) -> dict[str, Any]:
    """How much of some trajectories a release lets out, and its counts; nothing from a helper."""
    from ledger_files import FLOOR

    from quorum_rl.budget.entropy import SeededEntropy
    from quorum_rl.experts import LoggedExperts
    from quorum_rl.release.distributed import counted_by_all, help_release
    from quorum_rl.release.mechanism import released_lengths
    from quorum_rl.release.noise import Noise

    event = replace(
        FLOOR, experts=4, p_min=0.1, horizon=12, prefix_cap=12, iterations=9, theta=1.1,
        threshold=1.5, threshold_epsilon=2.0, query_epsilon=2.0, pool_size=3,
    )  # fmt: skip
    experts = LoggedExperts(fixed_experts())
    if helps:
        help_release(experts)
        return {}
    random = np.random.default_rng(7)
    states = random.normal(size=(9, 12, 4)).astype(np.float32)
    actions = random.integers(2, size=(9, 12)).astype(np.int32)
    counted = np.arange(EXPERTS) % 5 != 1
    seen = []

    with counted_by_all(event, experts, counted, states, actions) as counts:

        def watched(*asked: Any) -> Any:
            seen.append(counts(*asked))
            return seen[-1]

        lengths = released_lengths(event, np.full(9, 12), watched, Noise(SeededEntropy(3), event))
    return {"lengths": lengths, "counts": np.concatenate([np.ravel(counts) for counts in seen])}


def main() -> None:
    path, devices, *process = sys.argv[1:]
    jax.config.update("jax_num_cpu_devices", int(devices))
    if process:
        jax.distributed.initialize(process[1], num_processes=2, process_id=int(process[0]))
    which = jax.process_index()
    from quorum_rl.training.sources import spread_data

    data = spread_data(log())
    held = [shard.data.shape[0] for shard in data.parts.transitions.reward.addressable_shards]
    # Another secret in every process: only that of the first may count.
    found = trained_on(data, secret=100 * which)
    locally = trained_on(data, secret=100 * which, local=True)
    found |= {f"locally trained {name}": leaf for name, leaf in locally.items()}
    found |= released(helps=which > 0) | population()
    if process:
        from fitted_together import fitted_together

        folder = Path(path).with_suffix("")
        found |= {"refused": np.array(refused()), "folder": np.array(str(folder))}
        found |= fitted_together(folder)
    np.savez(path, held=np.array(held), **found)


if __name__ == "__main__":
    main()
