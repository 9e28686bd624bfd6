"""Draws result.svg, the README's picture of what privacy costs, from results/cartpole-utility.json.

python docs/pictures/make_result.py
"""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results" / "cartpole-utility.json"
INK, FAINT = "#1f2933", "#7b8794"
METHODS = {
    "selective": ("release, then training (ours)", "#0b6aa8", "o"),
    "DP-SGD, 16 each": ("DP-SGD, mean of 16 transitions", "#7b4fa3", "s"),
    "DP-SGD, 1 each": ("DP-SGD as published", "#c9540d", "^"),
}


def draw(axes: Any, experts: int, comparisons: list[dict[str, Any]]) -> None:
    some = sorted(
        (one for one in comparisons if one["experts"] == experts),
        key=lambda one: one["methods"][0]["epsilon"] or 0,
    )
    bound = next(m for one in some for m in one["methods"] if m["name"] == "non-private")
    axes.axhspan(*bound["interval"], color="#12805c", alpha=0.15, lw=0)
    axes.axhline(bound["score"], color="#12805c", lw=1.5, label="no privacy")
    for shift, (name, (label, colour, marker)) in enumerate(METHODS.items()):
        found = [m for one in some for m in one["methods"] if m["name"] == name]
        places = [place + 0.12 * (shift - 1) for place in range(len(found))]
        scores = [m["score"] for m in found]
        errors = [
            [m["score"] - m["interval"][0] for m in found],
            [m["interval"][1] - m["score"] for m in found],
        ]
        axes.errorbar(
            places, scores, errors, fmt=marker, color=colour, label=label, capsize=3, ms=6
        )
        axes.set_xticks(range(len(found)), [f"{m['epsilon']:g}" for m in found])
    axes.set_title(f"{experts} experts", fontsize=11, color=INK)
    axes.set_xlabel("ε", color=INK)
    axes.set_ylim(0, 1.05)
    axes.grid(axis="y", color=FAINT, alpha=0.25)
    axes.tick_params(colors=INK)
    for side in axes.spines:
        axes.spines[side].set_visible(False)


def main() -> None:
    plt.rcParams["svg.hashsalt"] = "quorum"  # the same picture is the same file
    comparisons = json.loads(RESULTS.read_text())["comparisons"]
    figure, both = plt.subplots(1, 2, figsize=(8.4, 3.6), sharey=True, layout="constrained")
    figure.patch.set_facecolor("white")
    for axes, experts in zip(both, (1000, 3000), strict=True):
        draw(axes, experts, comparisons)
    both[0].set_ylabel("normalised return, 95% intervals", color=INK)
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(HERE / "result.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
