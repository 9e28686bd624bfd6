"""The pictures that are drawn from plans, or from nothing but their idea.

The experts in them are made up; thresholds, noise and costs are those of real plans.
"""

from collections.abc import Iterator
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from quorum_rl.privacy import ReleasePlan, TrainingEvent, plan_release, total_epsilon
from quorum_rl.privacy.expectation import Floats, laplace_quantile
from reproduction.tables import flows
from reproduction.tables.flows import FAINT, INK, PAPER, PRIVATE, PUBLIC, arrow, card

STYLE: Final[Any] = {
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": PAPER,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


def pictures() -> Iterator[tuple[str, Figure]]:
    with mpl.rc_context(STYLE):
        drawn = {
            "flow": flows.flow(),
            "step": step(),
            "expert": experts(),
            "agreement": agreement(),
            "threshold": threshold(),
            "stages": flows.stages(),
            "budget": budget(),
            "path": flows.path(),
            "parts": flows.parts(),
            "sites": flows.sites(),
            "chain": flows.chain(),
        }
    yield from drawn.items()


def step() -> Figure:
    """A private step: what experts contribute, clipped, and the sum with its noise."""
    figure = Figure(figsize=(6.4, 2.9), layout="constrained", facecolor=PAPER)
    learned, clipped, summed = figure.subplots(1, 3)
    random = np.random.default_rng(11)
    angles = np.append(random.normal(0.75, 0.5, 9), -1.2)  # the last is unlike the others
    lengths = np.append(random.uniform(0.75, 1.3, 9), 1.6)
    moves = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    short = moves * np.minimum(1, 0.7 / lengths)[:, None]
    for axes, drawn in ((learned, moves), (clipped, short)):
        for place, (x, y) in enumerate(drawn):
            colour = PRIVATE if place == len(drawn) - 1 else FAINT
            arrow(axes, (0, 0), (x, y), colour, mutation_scale=9, linewidth=1.4)
    ring: dict[str, Any] = {"fill": False, "edgecolor": INK, "linestyle": "--", "linewidth": 1.0}
    clipped.add_patch(Circle((0, 0), 0.7, **ring))
    for end, colour, height in ((short[:-1].sum(0), FAINT, -0.4), (short.sum(0), PRIVATE, -0.63)):
        mean = end / len(short)
        for deviations in (1, 2):
            cloud: dict[str, Any] = {"color": colour, "alpha": 0.13, "linewidth": 0}
            summed.add_patch(Circle(mean, 0.2 * deviations, **cloud))
        arrow(summed, (0, 0), tuple(mean), colour, mutation_scale=9, shrinkB=0)
        said = "with that expert" if colour == PRIVATE else "without"
        summed.text(0.3, height, said, color=colour, ha="center", fontsize=10)
    for axes, title, middle, reach in (
        (learned, "each learns\nfrom its own log", (0.4, -0.3), 1.35),
        (clipped, "nobody moves it\nfurther than this", (0.4, -0.3), 1.35),
        (summed, "the mean\nand its noise", (0.35, 0.12), 0.85),
    ):
        for name, centre in zip("xy", middle, strict=True):
            axes.set(**{f"{name}lim": (centre - reach, centre + reach)})
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(title, fontsize=10.5)
        axes.plot(0, 0, "o", color=INK, markersize=4)
    return figure


def experts() -> Figure:
    """Three experts, asked about the same state."""
    figure = Figure(figsize=(6.4, 2.7), layout="constrained", facecolor=PAPER)
    panels = figure.subplots(1, 3, sharey=True)
    answers = {"expert 1": (0.02, 0.98), "expert 2": (0.02, 0.98), "expert 3": (0.98, 0.02)}
    for panel, (name, chances) in zip(panels, answers.items(), strict=True):
        panel.bar(["left", "right"], chances, width=0.6, color=[FAINT, PRIVATE])
        for place, chance in enumerate(chances):
            panel.text(place, chance + 0.03, f"{chance:g}", ha="center", fontsize=10)
        panel.set(title=name, ylim=(0, 1.19), yticks=[0, 0.5, 1])
    panels[0].set_ylabel("probability")
    figure.suptitle("The same state, three experts: how likely is each action?", fontsize=11.5)
    return figure


def made_up_counts(*, experts: int, steps: int, deviates_at: int | None = None) -> Floats:
    """Normalised counts along a trajectory of made-up experts, of whom 95 in 100 go on agreeing."""
    random = np.random.default_rng(7)
    agrees = random.random((experts, steps)) < random.uniform(0.9, 1.0, size=steps)
    if deviates_at is not None:
        agrees[:, deviates_at:] &= random.random((experts, 1)) < 0.03
    floor, most = 0.02, 0.98
    counts: Floats = np.cumprod(np.where(agrees, 1.0, floor / most), axis=1).sum(axis=0)
    return counts


def planned() -> ReleasePlan:
    """The release whose threshold and noise the pictures show."""
    return plan_release(
        experts=3000, actions=2, horizon=200, p_min=0.02, epsilon=5, delta=1e-4, iterations=25
    )


def agreement() -> Figure:
    """How many would have taken all actions so far, and where two prefixes end."""
    figure, axes = card(6.4, 3.6)
    event = planned().event
    steps = np.arange(1, 71)
    random = np.random.default_rng(3)
    noise_of_threshold = 0.4 * event.threshold_noise_scale
    for label, deviates_at, colour in (
        ("a trajectory like many others", None, PUBLIC),
        ("one that does something unusual at step 12", 11, PRIVATE),
    ):
        counts = made_up_counts(experts=3000, steps=len(steps), deviates_at=deviates_at)
        noise = laplace_quantile(random.random(len(steps)), event.query_noise_scale)
        fails = np.flatnonzero(counts + noise <= event.threshold + noise_of_threshold)
        end = int(fails[0])
        last = (steps[end], counts[end])
        axes.plot(steps, counts, color=colour, linewidth=1.2, alpha=0.45)
        axes.plot(steps[:end], counts[:end], color=colour, linewidth=3, label=label)
        axes.plot(*last, "x", color=colour, markersize=8, markeredgewidth=2)
        shift: dict[str, Any] = {"xytext": (7, 9), "textcoords": "offset points"}
        axes.annotate(f"{end} steps come out", last, color=colour, fontsize=10, **shift)
    axes.axhline(event.threshold, color=INK, linewidth=1.4, linestyle="--")
    reach = laplace_quantile(np.array([0.005, 0.995]), event.threshold_noise_scale)
    axes.axhspan(*(event.threshold + reach), color=INK, alpha=0.13, linewidth=0)
    axes.text(14, event.threshold * 0.78, "threshold; its noise stays in the band", va="top")
    axes.set(
        yscale="log", ylim=(20, 4000), xlim=(0, 71), xlabel="step", ylabel="count, of 3000 experts"
    )
    axes.set_yticks([30, 100, 300, 1000, 3000], ["30", "100", "300", "1000", "3000"])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="upper right", fontsize=10)
    return figure


def threshold() -> Figure:
    """Why one expert cannot be seen: the noisy count with it and without it."""
    figure, axes = card(6.4, 3.3)
    event = planned().event
    without, scale = event.theta, event.query_noise_scale
    values = np.linspace(without - 90, event.threshold + 60, 1500)
    for count, colour, label, style in (
        (without, FAINT, "without the expert", "-"),
        (without + 1, PRIVATE, "with the expert: one more", "--"),
    ):
        density = np.exp(-np.abs(values - count) / scale) / (2 * scale)
        axes.plot(values, density, color=colour, linewidth=2, linestyle=style, label=label)
    axes.axvline(event.threshold, ymax=0.72, color=INK, linewidth=1.4, linestyle="--")
    top = 1 / (2 * scale)
    axes.text(event.threshold + 4, top * 0.62, "threshold", ha="left")
    ends = (event.theta, top * 0.42), (event.threshold, top * 0.42)
    axes.annotate("", ends[0], xytext=ends[1], arrowprops={"arrowstyle": "<->", "color": INK})
    middle = (event.theta + event.threshold) / 2 + 10
    offset = "offset: a count of θ hardly\never gets this far by luck"
    axes.text(middle, top * 0.46, offset, ha="center", fontsize=10)
    axes.text(event.theta - 6, top * 0.9, "θ", ha="right", fontsize=13)
    axes.set(xlabel="count after noise", ylabel="how likely", yticks=[])
    axes.set_ylim(0, top * 1.12)
    axes.legend(frameon=False, loc="upper right", fontsize=10)
    return figure


def budget() -> Figure:
    """What two stages cost: apart, added up, and together."""
    delta = 1e-4
    declared: dict[str, Any] = {"experts": 3000, "actions": 2, "horizon": 200, "p_min": 0.02}
    release = plan_release(**declared, epsilon=2.5, delta=0.8 * delta, overflow_epsilon=5.0).event
    training = TrainingEvent(sampling_rate=0.17, noise_multiplier=8.0, steps=2000)
    first = total_epsilon([release], delta)
    second = total_epsilon([training], delta)
    both = total_epsilon([release, training], delta)
    figure, axes = card(6.4, 2.7)
    names = ("release alone", "training alone", "added up", "together, as charged")
    axes.barh(names, [first, second, first, both], color=[INK, PRIVATE, INK, PUBLIC], height=0.6)
    axes.barh(names[2], second, left=first, color=PRIVATE, height=0.6)
    for place, value in enumerate((first, second, first + second, both)):
        axes.text(value + 0.06, place, f"{value:.2f}", va="center")
    axes.invert_yaxis()
    axes.set(xlabel="ε at δ = 0.0001", xlim=(0, (first + second) * 1.15))
    axes.tick_params(axis="y", length=0)
    return figure
