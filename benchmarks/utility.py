"""What privacy costs in return: selective training, DP-SGD and no privacy at all, side by side.

Trains policies on a population of synthetic experts at several ε and compares their returns over
paired seeds: seed s of every method starts from the same parameters and is judged on the same
episodes. Each seed has a release of its own. Everything is charged to a research ledger.

    quorum experts train CartPole --preset paper --out cartpole.safetensors
    python benchmarks/utility.py cartpole.safetensors --seeds 5 --epsilons 2.5 5 10
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from quorum_rl.devices import prepare, this_machine

prepare()

import jax  # noqa: E402 - the devices are set up first
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from quorum_rl.budget import Ledger, SeededEntropy, jax_key_data  # noqa: E402
from quorum_rl.commands.training import world_of  # noqa: E402
from quorum_rl.evaluation import (  # noqa: E402
    Summary,
    paired_difference,
    returns_of,
    scores_of,
    summarise,
)
from quorum_rl.experts import LoggedExperts, load_population, smoothed  # noqa: E402
from quorum_rl.fit import FitPlan, FitSettings, plan_fit  # noqa: E402
from quorum_rl.learners import get_learner  # noqa: E402
from quorum_rl.logs import Demonstrations, collect, split_release_pool  # noqa: E402
from quorum_rl.release import release  # noqa: E402
from quorum_rl.training.expert_data import ExpertData, expert_data  # noqa: E402
from quorum_rl.training.loop import begin, result_of, train  # noqa: E402
from quorum_rl.training.recipe import new_run  # noqa: E402
from quorum_rl.training.schedule import shuffled_schedule  # noqa: E402
from quorum_rl.types import Released, Transition  # noqa: E402

FLOOR = 0.02
BEGUN = time.perf_counter()


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGUN:7.1f} s  {text}", flush=True)


def releases(
    experts: LoggedExperts, log: Demonstrations, plan: FitPlan, seeds: int
) -> list[Released]:
    """One release for each seed, as if each were the only one."""
    assert plan.release is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "research.jsonl"
        Ledger.create(path, epsilon=None, delta=plan.delta, kind="research")
        with Ledger.open(path) as ledger:
            return [
                release(experts, log, plan.release, ledger, entropy=SeededEntropy(seed))
                for seed in range(seeds)
            ]


def joined(parts: list[Released]) -> tuple[Transition, list[tuple[int, int]]]:
    """All released transitions in a row, and where each seed's lie."""
    ends = np.cumsum([int(part.offsets[-1]) for part in parts])
    columns = zip(*(part.transitions for part in parts), strict=True)
    whole = Transition(*(jnp.asarray(np.concatenate(list(column))) for column in columns))
    return whole, [
        (int(end - part.offsets[-1]), int(end)) for part, end in zip(parts, ends, strict=True)
    ]


def trained_returns(
    plan: FitPlan,
    study: "Study",
    private: ExpertData | None,
    plain: Transition | None,
    parts: list[tuple[int, int]] | None,
) -> Any:
    """The returns of the policies of all seeds, trained as one program.

    Shapes: (seeds, episodes).
    """
    recipe = plan.recipe
    runs = [
        new_run(
            noise_key=jax_key_data(SeededEntropy(seed), "noise"),
            public_key=jax_key_data(SeededEntropy(seed), "public"),
            learning_rate=plan.settings.learning_rate,
            private_learning_rate=plan.settings.private_learning_rate,
            private=plan.private,
            plain_part=(0, 0) if parts is None else parts[seed],
        )
        for seed in range(study.seeds)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    schedule = shuffled_schedule(plan.private_steps, plan.plain_steps, seed=0)
    spaces = study.world.spaces
    fresh = begin(recipe, stacked, spaces.observation_size, spaces.action_count)
    standing = train(recipe, stacked, fresh, schedule, private=private, plain=plain)
    policies, key = result_of(recipe, standing), jax.random.key(0)
    return returns_of(plan.learner, policies, study.world, None, key, study.episodes)


@dataclass
class Study:
    """One population, and what has been found on it."""

    experts: LoggedExperts
    log: Demonstrations
    world: Any
    learner: Any
    delta: float
    seeds: int
    episodes: int
    methods: dict[str, Any] = field(default_factory=dict)

    def plan(self, epsilon: float, settings: FitSettings) -> FitPlan:
        return plan_fit(
            self.log.declared, self.learner, epsilon=epsilon, delta=self.delta, settings=settings
        )

    def run(
        self,
        name: str,
        plan: FitPlan,
        private: ExpertData | None,
        plain: Transition | None,
        parts: list[tuple[int, int]] | None = None,
    ) -> Any:
        """Train and judge a method; remember and return the score of each seed."""
        returns = trained_returns(plan, self, private, plain, parts)
        scores = scores_of(self.world, returns)
        summary = summarise(scores)
        self.methods[name] = {
            "returns": np.asarray(returns).mean(axis=1).tolist(),
            "score": summary.mean,
            "interval": _ends(summary),
            "settings": asdict(plan.settings),
            "notes": plan.notes,
        }
        low, high = _ends(summary)
        mean = float(np.mean(returns))
        say(f"{name:28} return {mean:8.1f}  score {summary.mean:.3f} [{low:.3f}, {high:.3f}]")
        return scores

    def compare(self, name: str, scores: Any, other: str, others: Any) -> None:
        """Remember and say how much better one method is than another, seed by seed."""
        gap = paired_difference(scores, others)
        low, high = _ends(gap)
        self.methods[name][f"over {other}"] = [gap.mean, low, high]
        say(f"   {name} − {other}: {gap.mean:+.3f} [{low:+.3f}, {high:+.3f}]")


def _ends(summary: Summary) -> tuple[float, float]:
    interval = summary.mean_interval
    return (float("nan"), float("nan")) if interval is None else (interval.low, interval.high)


def compare_at(study: Study, epsilon: float, settings: FitSettings, alone: FitSettings) -> None:
    """Both forms of DP-SGD and selective training at one ε."""
    everything = expert_data(study.log)
    found = {}
    for each in (1, alone.transitions_per_expert):
        plan = study.plan(epsilon, replace(alone, transitions_per_expert=each))
        name = f"ε={epsilon:g} DP-SGD, {each} each"
        found[name] = study.run(name, plan, everything, None)
    plan = study.plan(epsilon, settings)
    assert plan.release is not None, plan.describe()
    plain, parts = joined(releases(study.experts, study.log, plan, study.seeds))
    say(f"released transitions of each seed: {[end - begin for begin, end in parts]}")
    split = split_release_pool(study.log, per_expert=plan.release.event.pool_size)
    private = None if plan.private is None else expert_data(split.training)
    name = f"ε={epsilon:g} selective"
    scores = study.run(name, plan, private, plain, parts)
    for other, others in found.items():
        study.compare(name, scores, other, others)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("experts", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.5, 5.0, 10.0])
    parser.add_argument("--learner", default="cql")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--trajectories", type=int, default=20)
    parser.add_argument("--settings", default="{}", help="FitSettings to change, as JSON")
    parser.add_argument("--dp-sgd", default="{}", help="FitSettings of DP-SGD alone, as JSON")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    population = load_population(given.experts)
    world = world_of(population, None)
    acting = smoothed(population, FLOOR)
    log, experts = collect(
        acting,
        world,
        trajectories=given.trajectories,
        minimum_experts=len(population) - 1,
        seed=0,
    )
    say(f"{len(population)} experts of {world.name}, {log.transition_count} transitions")
    learner = get_learner(given.learner, hidden_sizes=tuple(given.hidden))
    delta = 1 / len(population)
    study = Study(experts, log, world, learner, delta, given.seeds, given.episodes)
    settings = FitSettings(**json.loads(given.settings))
    alone = replace(settings, method="dp-sgd", **json.loads(given.dp_sgd))
    plan = study.plan(1.0, replace(settings, method="non-private"))
    study.run("non-private", plan, None, expert_data(log).transitions)
    for epsilon in given.epsilons:
        compare_at(study, epsilon, settings, alone)
    if given.out is not None:
        facts = {"machine": this_machine(), "arguments": sys.argv[1:], "methods": study.methods}
        given.out.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
