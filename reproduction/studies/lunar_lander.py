"""Whether LunarLander has Gymnasium's distribution of returns, over paired episodes.

    python -m reproduction.studies.lunar_lander --episodes 5000
    python -m reproduction.studies.lunar_lander --gravity 9 --wind 5 --turbulence 0.5
    python -m reproduction.studies.lunar_lander --policy heuristic --passes 180/60/30 60/60/30
    python -m reproduction.studies.lunar_lander --nudge 1e-6   # Gymnasium beside itself

Both sides play from the same draws (`lander_pairs.py`). A statistic is held equivalent if the
90% interval of its difference (bootstrap over pairs) lies within the margin: two one-sided tests
at 5%. The power is how often that would happen if there were no difference.

It needs Box2D. It exits with 1 if the first of `--passes` is not equivalent.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from quorum_rl.distributed import prepare, this_machine
from quorum_rl.envs.lunar_lander import LunarLander, LunarLanderParams
from reproduction.results import add, read
from reproduction.studies.lander_pairs import (
    Floats,
    Played,
    play_gymnasium_in_processes,
    play_ours,
)

RESAMPLES: Final = 4000
SAME: Final = 0.5  # returns that differ by less are the same
BEGUN: Final = time.perf_counter()

Statistic = Callable[[Played, Any], Any]
"""Of the episodes with the indices given, along the last axis."""

STATISTICS: Final[dict[str, Statistic]] = {
    "mean return": lambda played, chosen: played.returns[chosen].mean(axis=-1),
    "landed": lambda played, chosen: played.landed[chosen].mean(axis=-1),
    "5% quantile": lambda played, chosen: np.quantile(played.returns[chosen], 0.05, axis=-1),
    "median": lambda played, chosen: np.median(played.returns[chosen], axis=-1),
}
MARGINS: Final = {
    "heuristic": {"mean return": 5.0, "landed": 0.02, "5% quantile": 25.0},
    "random": {"mean return": 8.0, "median": 8.0},
}


@dataclass(frozen=True)
class Finding:
    """One statistic of both sides."""

    statistic: str
    theirs: float
    ours: float
    difference: float
    standard_error: float
    low: float  # ends of the 90% interval of the difference
    high: float
    margin: float | None
    equivalent: bool | None
    power: float | None


@dataclass(frozen=True)
class Comparison:
    policy: str
    episodes: int
    gravity: float
    wind_power: float
    turbulence_power: float
    passes: str
    same: float  # share of pairs with the same return
    their_steps: float  # mean length of an episode
    our_steps: float
    findings: tuple[Finding, ...]


def compare(policy: str, theirs: Played, ours: Played) -> tuple[Finding, ...]:
    """Every statistic of both sides, with the margins that the policy has."""
    count = len(theirs.returns)
    rng = np.random.default_rng(0)
    chosen = [rng.integers(count, size=(100, count)) for _ in range(RESAMPLES // 100)]
    found = []
    for name, statistic in STATISTICS.items():
        values = [float(statistic(side, slice(None))) for side in (theirs, ours)]
        difference = values[1] - values[0]
        resampled = np.concatenate([statistic(ours, c) - statistic(theirs, c) for c in chosen])
        low, high = np.quantile(resampled, [0.05, 0.95])
        margin = MARGINS[policy].get(name)
        found.append(
            Finding(
                statistic=name,
                theirs=values[0],
                ours=values[1],
                difference=difference,
                standard_error=float(resampled.std(ddof=1)),
                low=float(low),
                high=float(high),
                margin=margin,
                equivalent=None if margin is None else bool(-margin < low and high < margin),
                power=None if margin is None else power(resampled - difference, margin),
            )
        )
    return tuple(found)


def power(errors: Floats, margin: float) -> float:
    """How often equivalence is found if there is none but chance's difference: an error."""
    low, high = np.quantile(errors, [0.05, 0.95])
    return float(((errors + low > -margin) & (errors + high < margin)).mean())


def world_of(passes: str) -> LunarLander:
    velocity, position, impact = map(int, passes.split("/"))
    return LunarLander(velocity, position, impact)


def compare_all(given: argparse.Namespace, console: Console) -> list[Comparison]:
    params = LunarLanderParams(given.gravity, given.wind, given.turbulence)
    made = []
    for policy in MARGINS if given.policy == "both" else (given.policy,):
        theirs = play_gymnasium_in_processes(policy, params, given.episodes)
        say(f"Gymnasium has played {given.episodes} episodes, {policy}")
        for passes in given.passes:
            if given.nudge:
                ours = play_gymnasium_in_processes(policy, params, given.episodes, given.nudge)
            else:
                ours = play_ours(world_of(passes), policy, params, given.episodes)
            say("Gymnasium nudged" if given.nudge else f"ours with passes {passes}")
            comparison = Comparison(
                policy=policy,
                episodes=given.episodes,
                gravity=given.gravity,
                wind_power=given.wind,
                turbulence_power=given.turbulence,
                passes=f"Gymnasium's, nudged by {given.nudge:g}" if given.nudge else passes,
                same=float((np.abs(ours.returns - theirs.returns) < SAME).mean()),
                their_steps=float(theirs.steps.mean()),
                our_steps=float(ours.steps.mean()),
                findings=compare(policy, theirs, ours),
            )
            console.print(table_of(comparison))
            made.append(comparison)
    return made


def table_of(comparison: Comparison) -> Table:
    table = Table(
        title=f"{comparison.policy}, passes {comparison.passes}, gravity {comparison.gravity:g}, "
        f"wind {comparison.wind_power:g}, turbulence {comparison.turbulence_power:g}: "
        f"{comparison.episodes} pairs, {comparison.same:.1%} the same within {SAME}"
    )
    for heading in ("", "Gymnasium", "ours", "difference", "s.e.", "90% interval", "margin"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_column("equivalent")
    table.add_column("power", justify="right")
    for finding in comparison.findings:
        digits = 4 if finding.statistic == "landed" else 2
        verdict = {None: "", True: "yes", False: "NO"}[finding.equivalent]
        table.add_row(
            finding.statistic,
            *(f"{value:.{digits}f}" for value in (finding.theirs, finding.ours)),
            f"{finding.difference:+.{digits}f}",
            f"{finding.standard_error:.{digits}f}",
            f"[{finding.low:+.{digits}f}, {finding.high:+.{digits}f}]",
            "" if finding.margin is None else f"±{finding.margin:g}",
            verdict,
            "" if finding.power is None else f"{finding.power:.3f}",
        )
    return table


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGUN:7.1f} s  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=5000, help="pairs for each row")
    parser.add_argument("--policy", choices=(*MARGINS, "both"), default="both")
    parser.add_argument("--gravity", type=float, default=10.0)
    parser.add_argument("--wind", type=float, default=0.0, help="its power")
    parser.add_argument("--turbulence", type=float, default=0.0, help="its power")
    parser.add_argument(
        "--passes",
        nargs="+",
        default=["180/60/30"],
        metavar="V/P/I",
        help="of our solver, over velocities, positions and impacts; one row each",
    )
    parser.add_argument(
        "--nudge",
        type=float,
        default=0.0,
        help="instead of ours, Gymnasium with a hull so many metres a second faster at the start",
    )
    parser.add_argument("--out", type=Path, help="the Parquet file to add what was found to")
    given = parser.parse_args()
    prepare()
    if any(importlib.util.find_spec(needed) is None for needed in ("Box2D", "pygame")):
        print("This comparison needs Box2D and pygame: pip install 'quorum-rl[box2d]'.")
        return 2
    made = compare_all(given, Console(width=120))
    if given.out:
        nothing = {"machine": this_machine(), "commands": [], "comparisons": []}
        before = read(given.out).get("distributions", nothing)
        before["commands"] += [" ".join(["lunar_lander.py", *sys.argv[1:]])]
        before["comparisons"] += [asdict(comparison) for comparison in made]
        add(given.out, "distributions", before)
    judged = [pairs for pairs in made if given.nudge or pairs.passes == given.passes[0]]
    return int(any(finding.equivalent is False for pairs in judged for finding in pairs.findings))


if __name__ == "__main__":
    sys.exit(main())
