"""A comparison of methods on the screen."""

from typing import TYPE_CHECKING

from quorum_rl.cli.output import console

if TYPE_CHECKING:
    from quorum_rl.pipeline import Comparison


def show_comparison(comparison: "Comparison") -> None:
    """What a study found, as a table, those that could not be run last."""
    from rich.table import Table

    made = Table("method", "epsilon", "score [95%]", "return", "released")
    for outcome in comparison.outcomes:
        spread = outcome.summary.mean_interval
        interval = "" if spread is None else f" [{spread.low:.2f}, {spread.high:.2f}]"
        epsilon = outcome.method.epsilon
        made.add_row(
            outcome.method.name,
            "none" if epsilon is None else f"{epsilon:g}",
            f"{outcome.summary.mean:.3f}{interval}",
            f"{outcome.returns.mean():.4g}",
            " ".join(map(str, outcome.released)),
        )
    for method, reason in comparison.infeasible:
        made.add_row(method.name, f"{method.epsilon:g}", "infeasible", "", reason)
    console().print(made)
    for outcome in comparison.outcomes:
        if outcome.method.epsilon is not None and outcome.plan.notes:
            what = f"{outcome.method.name} at {outcome.method.epsilon:g}"
            console().print(f"{what}: {'; '.join(outcome.plan.notes)}")
