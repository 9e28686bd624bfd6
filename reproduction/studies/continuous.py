"""What 300 experts with continuous actions teach: local updates, DP-SGD, learners without privacy.

Experts come from `quorum experts train WORLD --settings 100 --candidates 3 --count 300 --hidden 64
64`, on a GPU; the rest takes half an hour of two cores. Each population is a result of its own.

    python -m reproduction.studies.continuous pendulum-1.safetensors pendulum-11.safetensors
"""

import argparse
from pathlib import Path
from typing import Any, Final

from quorum_rl.distributed import this_machine
from quorum_rl.experts import load_population
from quorum_rl.logs import collect, open_demonstrations, save_demonstrations
from quorum_rl.pipeline import FitSettings
from quorum_rl.pipeline.results import source_commit
from reproduction.population import own_returns, world_trained_on
from reproduction.results import add
from reproduction.studies.few_ways import Way, judged_alone, some, trained

DELTA: Final = 1e-5
EPSILONS: Final = (1.0, 3.0)
FREE: Final = FitSettings(method="non-private")
WAYS: Final = (
    Way("local", FitSettings(), "bc-gaussian", epsilons=EPSILONS),
    Way("local", FitSettings(), "bc", epsilons=EPSILONS),
    Way("DP-SGD", FitSettings(method="dp-sgd"), "bc-gaussian", epsilons=EPSILONS),
    *(Way("non-private", FREE, learner, epsilons=(None,))
      for learner in ("bc", "bc-gaussian", "td3-bc", "iql")),
)  # fmt: skip


def measured(given: argparse.Namespace, file: Path) -> tuple[str, dict[str, Any]]:
    population = load_population(file)
    world, path = world_trained_on(population.origin), file.with_suffix(".arrow")
    if not path.exists():
        made, _ = collect(
            population,
            world,
            trajectories=given.trajectories,
            minimum_experts=len(population) - 1,
            seed=0,
        )
        save_demonstrations(made, path)
    log = some(open_demonstrations(path), min(given.experts, len(population)))
    facts = {
        "world": world.name,
        "population": dict(population.origin),
        "delta": DELTA,
        "episodes": given.episodes,
        "transitions": log.transition_count,
        "machine": this_machine(),
        "commit": source_commit(),
        "experts_mean": float(own_returns(log).mean()),
        "rows": [],
    }
    for way in WAYS:
        made_runs, refused = trained([way], log, world, given.seeds, DELTA)
        rows = [judged_alone(run, world, given.seeds, given.episodes) for run in made_runs]
        rows += [row | {"returns": None} for row in refused]
        facts["rows"] += [row | {"learns": way.learner} for row in rows]
        for row in rows:
            print(file.stem, way.name, way.learner, row["epsilon"], row.get("mean"), flush=True)
    return f"{world.name}-{population.origin['seed']}", facts


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("populations", type=Path, nargs="+")
    words.add_argument("--experts", type=int, default=300)
    words.add_argument("--trajectories", type=int, default=20)
    words.add_argument("--seeds", type=int, default=8)
    words.add_argument("--episodes", type=int, default=50)
    words.add_argument("--out", type=Path, default=Path("results/continuous.parquet"))
    given = words.parse_args()
    for file in given.populations:
        add(given.out, *measured(given, file))


if __name__ == "__main__":
    main()
