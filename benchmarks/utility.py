"""What privacy costs in return: selective training, DP-SGD and no privacy at all, side by side.

Trains policies on a population of synthetic experts, or on the first so many of them, at several
ε and compares their returns over paired seeds. Everything is charged to a research ledger.

    quorum experts train CartPole --preset paper --out cartpole.safetensors
    python benchmarks/utility.py cartpole.safetensors --seeds 8 --epsilons 2.5 5 10
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from quorum_rl.distributed import prepare, this_machine

prepare()


from quorum_rl.cli.training import world_of  # noqa: E402
from quorum_rl.experts import Population, load_population  # noqa: E402
from quorum_rl.learners import get_learner  # noqa: E402
from quorum_rl.pipeline import (  # noqa: E402
    FitSettings,
    Method,
    Outcome,
    compare,
)
from quorum_rl.pipeline.comparison import ends  # noqa: E402
from reproduction.population import acted, some_of  # noqa: E402

FLOOR = 0.02
BEGUN = time.perf_counter()


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGUN:7.1f} s  {text}", flush=True)


def show(outcome: Outcome) -> None:
    summary = outcome.summary
    low, high = ends(summary.mean_interval) or (float("nan"), float("nan"))
    mean = outcome.returns.mean()
    released = f"  released {sorted(outcome.released)}" if outcome.released else ""
    say(
        f"{outcome.method.name:28} return {mean:8.1f}  score {summary.mean:.3f} "
        f"[{low:.3f}, {high:.3f}]{released}"
    )


def methods_at(epsilon: float, settings: FitSettings, shares: list[float]) -> list[Method]:
    """Both forms of DP-SGD, and selective training with each share of ε for the release."""
    alone = replace(settings, method="dp-sgd")
    each = sorted({1, alone.filled().transitions_per_expert or 1})
    made = [
        Method(
            name=f"DP-SGD, {number} each",
            settings=replace(alone, transitions_per_expert=number),
            epsilon=epsilon,
        )
        for number in each
    ]
    return made + [
        Method(
            name=f"selective, share {share:g}",
            settings=replace(settings, release_share=share),
            epsilon=epsilon,
        )
        for share in shares
    ]


def compared(population: Population, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Every method at every ε for one number of experts."""
    world = world_of(population, None)
    count = len(population)
    log, experts = acted(population, world, FLOOR, given.trajectories, seed=0)
    say(f"{count} experts of {world.name}, {log.transition_count} transitions")
    learner = get_learner(given.learner, hidden_sizes=tuple(given.hidden))
    settings = FitSettings(**json.loads(given.settings))
    common: dict[str, Any] = {
        "delta": 1 / count,
        "seeds": given.seeds,
        "first_seed": given.first_seed,
        "episodes": given.episodes,
    }
    free = Method(name="non-private", settings=replace(settings, method="non-private"))
    bound = compare(experts, log, world, learner, [free], **common)
    show(bound.outcomes[0])
    found = [bound.to_json()]
    for epsilon in given.epsilons:
        say(f"epsilon = {epsilon:g}")
        methods = methods_at(epsilon, settings, given.shares)
        comparison = compare(experts, log, world, learner, methods, **common)
        for outcome in comparison.outcomes:
            show(outcome)
        for method, reason in comparison.infeasible:
            say(f"{method.name}: {reason}")
        ours = [one for one in comparison.outcomes if one.method.settings.method == "selective"]
        others = [one for one in comparison.outcomes if one not in ours]
        facts = comparison.to_json() | {"over": []}
        for mine in ours:
            for other in others:
                gap = mine.better_than(other)
                low, high = ends(gap.mean_interval) or (float("nan"), float("nan"))
                names = f"{mine.method.name} − {other.method.name}"
                say(f"   {names}: {gap.mean:+.3f} [{low:+.3f}, {high:+.3f}]")
                facts["over"].append([names, gap.mean, low, high])
        found.append(facts)
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("experts", type=Path)
    parser.add_argument("--counts", type=int, nargs="*", help="how many experts; otherwise all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.5, 5.0, 10.0])
    parser.add_argument("--shares", type=float, nargs="+", default=[FitSettings.release_share])
    parser.add_argument("--learner", default="cql")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--trajectories", type=int, default=20)
    parser.add_argument("--settings", default="{}", help="FitSettings to change, as JSON")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    population = load_population(given.experts)
    found: list[dict[str, Any]] = []
    for count in given.counts or [len(population)]:
        found += compared(some_of(population, count), given)
        if given.out is not None:  # what is there so far, in case the time runs out
            facts = {
                "machine": this_machine(),
                "arguments": sys.argv[1:],
                "settings": asdict(FitSettings(**json.loads(given.settings))),
                "comparisons": found,
            }
            given.out.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
