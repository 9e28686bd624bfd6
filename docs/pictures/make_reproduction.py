"""Writes the tables of reproduction.md and draws its pictures, from results/paper/*.json.

Those of how the defaults were chosen are from results/tuning/*.json (`tuning_tables.py`,
`hiv_tables.py`, `split_tables.py`), those of studies on small experts from results/long,
results/step and results/beside.

python docs/pictures/make_reproduction.py
"""

from typing import Any

import account_tables
import alone_tables
import beside_tables
import grid_tables
import hiv_tables
import long_tables
import matplotlib.pyplot as plt
import numpy as np
import paper_tables
import reward_tables
import split_tables
import step_tables
import tuning_tables
from paper_tables import found, fraction, number
from rendering import DOCS, Sections, provenance, table, write

from quorum_rl.envs import get_world
from quorum_rl.evaluation import summarise

PAGE = "reproduction.md"
STEPS = (1, 5, 10, 20, 40)
INK, BAR, LINE = "#1f2933", "#0b6aa8", "#c9540d"


def populations() -> list[dict[str, Any]]:
    return [one for one in found("experts") if one["stage"] == "experts"]


def experts() -> str:
    rows = []
    for one in populations():
        quantiles = one["return_quantiles"]
        shares = one["agreement"]["mean"]
        rows.append(
            [
                f"{one['world']}, {one['experts']}",
                number(one["mean_return"]),
                " / ".join(
                    number(quantiles[key]) for key in ("0.05", "0.25", "0.5", "0.75", "0.95")
                ),
                ", ".join(f"{shares[step - 1]:.2g}" for step in STEPS if step <= len(shares)),
            ]
        )
    names = ["world, experts", "mean return", "5 / 25 / 50 / 75 / 95%"]
    return table([*names, f"agreement after {', '.join(map(str, STEPS))} steps"], rows)


def comparisons() -> str:
    return "\n\n".join(_comparison(one) for one in found("*-comparison"))


def _comparison(one: dict[str, Any]) -> str:
    """Fractions of the bound without privacy, and returns, method by method."""
    facts = get_world(one["world"]).facts
    methods = [
        m | {"now": np.array([facts.normalised(r) for r in m["returns"]])} for m in one["methods"]
    ]
    bound = next(m for m in methods if m["name"] == "non-private")
    asked = methods + one["infeasible"]
    epsilons = sorted({m["epsilon"] for m in asked if m["epsilon"] is not None})
    names = list(dict.fromkeys(m["name"] for m in asked if m["epsilon"] is not None))
    rows = []
    for name in names:
        cells = [_cell(methods, bound["now"], name, epsilon) for epsilon in epsilons]
        rows.append([name, *cells])
    chosen, spread = one["configuration"], summarise(bound["now"]).mean_interval
    assert spread is not None
    title = (
        f"**{one['world']}, {chosen['learner'].upper()}**: {one['experts']} experts, "
        f"{one['seeds']} seeds, the bound without privacy earns {number(bound['mean_return'])} "
        f"(score {bound['now'].mean():.2f} [{spread.low:.2f}, {spread.high:.2f}]). "
        f"{provenance(one)}."
    )
    head = ["fraction of the bound [95%], return", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    return f"{title}\n\n{table(head, rows)}"


def _cell(methods: list[dict[str, Any]], bound: Any, name: str, epsilon: float) -> str:
    for method in methods:
        if (method["name"], method["epsilon"]) == (name, epsilon):
            return f"{fraction(method['now'], bound)}, {number(method['mean_return'])}"
    return "infeasible"


def draw() -> None:
    """Histograms of the experts' returns, and how long they agree."""
    plt.rcParams["svg.hashsalt"] = "quorum"  # the same picture is the same file
    everyone = populations()
    figure, rows = plt.subplots(
        len(everyone),
        2,
        figsize=(8.4, 2.6 * len(everyone)),
        layout="constrained",
        squeeze=False,
    )
    for (left, right), one in zip(rows, everyone, strict=True):
        edges = one["histogram"]["edges"]
        left.stairs(one["histogram"]["counts"], edges, fill=True, color=BAR)
        left.set_title(f"{one['world']}: mean returns of {one['experts']} experts", color=INK)
        shares = one["agreement"]["mean"]
        right.plot(range(1, len(shares) + 1), shares, color=LINE)
        right.set_yscale("log")
        right.set_ylim(1e-4, 1)
        right.set_title("share that would have gone along, by steps", color=INK)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / "pictures" / "paper-experts.svg", metadata={"Date": None})


SECTIONS: Sections = {
    "experts": experts,
    "goals": paper_tables.goals,
    "comparisons": comparisons,
    "published": paper_tables.published,
    "costs": account_tables.costs,
    "releases": account_tables.releases,
    "long trainings": long_tables.trainings,
    "steps": step_tables.ways,
    "counts": paper_tables.counts,
    "ablation": paper_tables.ablation,
    "beside": beside_tables.ways,
    "grid": grid_tables.grid,
    "low epsilon": grid_tables.split,
    "seconds": paper_tables.seconds,
    "alone": alone_tables.from_nothing,
    "choices": tuning_tables.choices,
    "units": tuning_tables.units,
    "chosen settings": tuning_tables.chosen_settings,
    "rates": tuning_tables.rates,
    "bcq": tuning_tables.bcq,
    "rewards": tuning_tables.rewards,
    "rewards at full scale": reward_tables.at_full_scale,
    "noise": reward_tables.noise,
    "split": split_tables.beside,
    "hiv, small experts": hiv_tables.on_small_experts,
    "hiv, the paper's experts": hiv_tables.on_the_papers_experts,
    "hiv, least epsilon": hiv_tables.at_epsilon_1,
}


if __name__ == "__main__":
    write(PAGE, SECTIONS)
    draw()
