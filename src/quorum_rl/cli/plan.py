"""`quorum plan`: what a release would cost and give, from declared numbers alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from quorum_rl.cli.output import bar, check_new_file, console, show_facts
from quorum_rl.files import write_json

if TYPE_CHECKING:
    from quorum_rl.privacy import ReleasePlan


@dataclass(frozen=True)
class Plan:
    """Plan a release without touching data: its threshold, its noise, and what should come out.

    All numbers are declared. What is not given is chosen.

    Example: quorum plan --minimum-experts 3000 --actions 2 --horizon 200 --p-min 0.02 --epsilon 7.5
    --delta 3e-4 --out plan.json
    """

    minimum_experts: int
    """The least number of experts there are: a public fact, below which the guarantee ends."""
    actions: int
    """How many actions there are."""
    horizon: int
    """The time limit under which the experts acted."""
    epsilon: float
    """The release's own epsilon."""
    delta: float
    """The release's own delta: less than the ledger's if anything else is to be charged there."""
    p_min: float | None = None
    """The floor under every probability of every expert. Without one, the release stops at random
    and assumes nothing about the policies."""
    stop_probability: float | None = None
    """How often it then stops before a query; chosen unless given."""
    prefix_cap: int | None = None
    """The most steps of a trajectory that may come out; the horizon unless given."""
    iterations: int | None = None
    """How many trajectories are tried; chosen unless given."""
    mode: Literal["tight", "paper"] = "tight"
    """Our analysis, or the published one, which is for reproduction only."""
    objective: Literal["transitions", "threshold"] = "transitions"
    """What is chosen, is chosen for: what should come out, or the lowest threshold
    (of 25 iterations, unless given)."""
    agreement: float = 0.9
    """Of the experts who agree up to a step, the share that is expected to agree at the next."""
    minimum_trajectories: int | None = None
    """How many trajectories every expert has at least, if you declare it: fewer are reserved."""
    pool_limit: int = 8
    """The most trajectories per expert that a chosen number of iterations may need."""
    out: Path | None = None
    """Write the plan to this file, for 'quorum release'."""
    json: bool = False
    """Print one JSON object."""
    overwrite: bool = False
    """Replace the file if it exists."""

    renamed: ClassVar = {"experts": "minimum-experts"}
    common: ClassVar = ("minimum-experts", "actions", "horizon", "epsilon", "delta", "p-min",
                        "iterations", "out", "json")  # fmt: skip

    def run(self) -> None:
        if self.out is not None:
            check_new_file(self.out, overwrite=self.overwrite)
        from quorum_rl.privacy import plan_release

        plan = plan_release(
            experts=self.minimum_experts,
            actions=self.actions,
            horizon=self.horizon,
            epsilon=self.epsilon,
            delta=self.delta,
            p_min=self.p_min,
            stop_probability=self.stop_probability,
            prefix_cap=self.prefix_cap,
            iterations=self.iterations,
            mode=self.mode,
            objective=self.objective,
            agreement=self.agreement,
            pool_limit=self.pool_limit,
            minimum_trajectories=self.minimum_trajectories,
        )
        if self.out is not None:
            write_json(self.out, plan.to_json())
        if self.json:
            show_facts(plan.to_json(), as_json=True)
            return
        show_plan(plan)
        if self.out is not None:
            console().print(f"the plan is in {self.out}")


def show_plan(plan: "ReleasePlan") -> None:
    """A plan for people: a table, a curve, and what would help if nothing can come out."""
    from rich.table import Table

    from quorum_rl.privacy import total_epsilon

    event, pair = plan.event, plan.pair
    counts = "normalised count" if event.mode == "tight" else "count"
    table = Table("what", "value", "meaning")
    rows: list[tuple[str, str, str]] = [
        ("iterations", f"{event.iterations}", "trajectories that are tried"),
        (
            "threshold",
            f"{event.threshold:.1f}",
            f"of the {counts}: {event.threshold / event.experts:.1%} of {event.experts} experts",
        ),
        ("theta", f"{event.theta:.1f}", "the part of it above which a prefix is safe"),
        ("threshold noise scale", f"{event.threshold_noise_scale:.2f}", "Laplace, once for each"),
        ("query noise scale", f"{event.query_noise_scale:.2f}", "Laplace, for every step"),
        (
            "one iteration costs",
            f"{pair.epsilon_remove:.4f} / {pair.epsilon_add:.4f}",
            f"epsilon to remove / to add an expert; delta {pair.delta:.2e}",
        ),
        ("pool size", f"{event.pool_size}", "trajectories per expert that training must not use"),
        ("longest prefix", f"{plan.longest_prefix_if_all_agree}", "steps, if all experts agree"),
        (
            f"at agreement {plan.agreement:g}",
            f"{plan.longest_prefix_at_agreement}",
            "steps, if that share of them agrees at every step",
        ),
        ("expected transitions", f"{plan.expected_transitions:.0f}", "then, noise included"),
    ]
    if event.stop_probability:
        rows.append(("stop probability", f"{event.stop_probability:g}", "before every query"))
    for row in rows:
        table.add_row(*row)
    console().print(
        f"Mode {event.mode}: epsilon = {plan.epsilon:g} at delta = {plan.delta:g} for the release."
    )
    console().print(table)
    spent = total_epsilon([event], plan.delta) if event.mode == "tight" else plan.epsilon
    if spent < 0.99 * plan.epsilon:
        console().print(
            f"It spends only epsilon = {spent:.3g}: more would need a larger --pool-limit to pay."
        )
    if plan.feasible:
        _show_curve(plan)
    else:
        _show_way_out(plan)


def _show_curve(plan: "ReleasePlan") -> None:
    """How long the prefixes should be."""
    from quorum_rl.privacy import expected_lengths

    chance = expected_lengths(plan.event, plan.agreement)
    console().print(f"An iteration releases at least k steps (agreement {plan.agreement:g}):")
    step = 1
    while step <= len(chance):
        share = float(chance[step - 1])
        console().print(f"{step:>6}  {bar(share)} {share:.0%}")
        if share < 0.01:
            break
        step = max(step + 1, round(step * 1.5))


def _show_way_out(plan: "ReleasePlan") -> None:
    """Nothing can come out: say so, and what would change that."""
    from quorum_rl.privacy import what_would_help

    changes = what_would_help(plan)
    console().print(
        "Nothing would come out: not even one step passes if all "
        f"{plan.event.experts} experts agree. "
        + (f"This would change it: {'; or '.join(changes)}." if changes else "")
    )
