"""Pictures of populations: how good the experts are, and how long they agree.

Both look at private data directly: fit for synthetic experts, not for publishing about real ones.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import require_packages
from quorum_rl.logs import QUANTILES, AgreementCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREY = "#0072b2", "#666666"


def _new_axes() -> "tuple[Figure, Axes]":
    require_packages("a picture", "report", "matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_returns(
    returns: npt.NDArray[np.floating], title: str, *, log_scale: bool = False
) -> "Figure":
    """Histogram of the experts' mean returns with a density curve, as in the paper's figure."""
    figure, axes = _new_axes()
    values = np.log10(np.maximum(returns, 1)) if log_scale else np.asarray(returns)
    bins = np.histogram_bin_edges(values, bins=40)
    axes.hist(values, bins=bins.tolist(), density=True, color=BLUE, alpha=0.45, edgecolor="white")
    _density_curve(axes, values)
    median = float(np.median(values))
    axes.axvline(median, color=GREY, linestyle="--", linewidth=1)
    axes.set_title(f"{title}\n{len(values)} experts, median {np.median(returns):.4g}", fontsize=9)
    axes.set_xlabel("log10 of mean return" if log_scale else "mean return on the default world")
    axes.set_ylabel("density of experts")
    return figure


def _density_curve(axes: "Axes", values: npt.NDArray[np.floating]) -> None:
    """A Gaussian kernel density estimate with Silverman's bandwidth; none for a single value."""
    spread = min(float(values.std()), float(np.subtract(*np.quantile(values, [0.75, 0.25]))) / 1.34)
    spread = spread or float(values.std())
    if spread == 0:
        return
    # Never narrower than the histogram's bars: most experts may be equally good.
    width = max(0.9 * spread * len(values) ** -0.2, (values.max() - values.min()) / 40)
    at = np.linspace(values.min() - 2 * width, values.max() + 2 * width, 400)
    kernels = np.exp(-0.5 * ((at[:, None] - values) / width) ** 2)
    density = kernels.sum(axis=1) / (len(values) * width * np.sqrt(2 * np.pi))
    axes.plot(at, density, color=BLUE, linewidth=1.5)


def draw_agreement(curve: AgreementCurve, title: str) -> "Figure":
    """The share of experts expected to go along with a trajectory, by the prefix's length."""
    figure, axes = _new_axes()
    steps = 1 + np.arange(len(curve.mean))
    low, inner_low, median, inner_high, high = np.maximum(curve.quantiles, 1e-6).T
    axes.fill_between(steps, low, high, color=BLUE, alpha=0.15, linewidth=0,
                      label=f"{QUANTILES[0]:.0%} to {QUANTILES[-1]:.0%}")  # fmt: skip
    axes.fill_between(steps, inner_low, inner_high, color=BLUE, alpha=0.3, linewidth=0,
                      label=f"{QUANTILES[1]:.0%} to {QUANTILES[3]:.0%}")  # fmt: skip
    axes.plot(steps, median, color=BLUE, linewidth=1.5, label="median trajectory")
    axes.plot(steps, np.maximum(curve.mean, 1e-6), color="black", linewidth=1.2, linestyle="--",
              label="mean")  # fmt: skip
    axes.set(xscale="log", yscale="log", ylim=(1e-4, 1.2), xlabel="length of the prefix (steps)",
             ylabel="count / number of experts")  # fmt: skip
    axes.set_title(title, fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="lower left")
    return figure
