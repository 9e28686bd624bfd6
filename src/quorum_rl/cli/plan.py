"""`quorum plan`: what a fit or a release would cost and give, from declared numbers alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from quorum_rl import logs, pipeline, privacy
from quorum_rl.cli.flags import AskingFlags, LearnerFlags, Settings, given
from quorum_rl.cli.output import bar, check_new_file, show_facts
from quorum_rl.errors import QuorumError
from quorum_rl.files import write_json
from quorum_rl.pipeline import FitSettings


@dataclass(frozen=True, kw_only=True)
class Fit(AskingFlags, LearnerFlags):
    """Plan a fit before there are any logs: its noise, what it costs, and whether it is worth it.

    All numbers are declared. For logs that there are, 'quorum fit --dry-run' says more.

    Example: quorum plan fit --minimum-experts 20 --actions 3 --observations 6 --epsilon 3 --delta
    1e-4
    """

    minimum_experts: int
    """The least number of experts there are: a public fact, below which the guarantee ends."""
    actions: int
    """How many actions there are."""
    observations: int
    """How many numbers an observation has."""
    epsilon: float
    """The most that the policy may cost, all stages together."""
    delta: float
    """The delta of the guarantee."""
    horizon: int = 1
    """The time limit under which the experts acted; only a release needs it."""
    p_min: float | None = None
    """The floor under every probability of every expert, for a release."""
    minimum_trajectories: int | None = None
    """How many trajectories every expert has at least, for a release."""
    json: bool = False
    """Print one JSON object."""
    settings: Settings = field(default_factory=FitSettings)

    common: ClassVar = ("minimum-experts", "actions", "observations", "epsilon", "delta",
                        "learner", "hidden", "method", "judges", "return-bounds",
                        "json")  # fmt: skip

    def run(self) -> None:
        declared = logs.Declared(
            action_count=self.actions,
            observation_size=self.observations,
            **given(self, "horizon p_min minimum_experts minimum_trajectories"),
        )
        plan = planned(self, declared, can_query=True)
        show_plan(plan, pipeline.refusal_of(plan), as_json=self.json)


def planned(
    asked: "Fit | Any", declared: "logs.Declared", *, can_query: bool
) -> "pipeline.FitPlan":
    """The plan of a fit with these flags, which are those of `quorum fit` too."""
    return pipeline.plan_asked(
        declared,
        **given(asked, "epsilon delta settings judges return_bounds units"),
        learner=asked.chosen_learner(),
        learner_settings=asked.learner_settings(),
        can_query=can_query,
        choose=asked.candidates(),
    )


def show_plan(
    plan: "pipeline.FitPlan", refused: str | None, remarks: Sequence[str] = (), *, as_json: bool
) -> None:
    """Say what a fit would do, spend and may be expected to earn.

    Raises:
        QuorumError: `refused`, after that was said.
    """
    hope = pipeline.expected(plan)
    facts = {
        **given(plan, "epsilon delta"),
        "spends": privacy.total_epsilon(plan.events, plan.delta) if plan.events else 0.0,
        "charges": [privacy.event_to_json(event) for event in plan.events],
        "private_steps": plan.private_steps,
        "steps_without_noise": plan.plain_steps,
        "noise_over_signal": plan.noise,
        "expected": hope,
        "notes": (*plan.notes, *remarks),
        "refused": refused,
    }
    said = [plan.describe(), *([hope] if hope else []), *remarks]
    if refused is None:
        said.append("only a plan: nothing was written, and nothing was charged")
    show_facts(facts, *said, as_json=as_json)
    if refused is not None:
        raise QuorumError(refused)


@dataclass(frozen=True)
class Release:
    """Plan a release without touching data: its threshold, its noise, and what should come out.

    All numbers are declared. What is not given is chosen.

    Example: quorum plan release --minimum-experts 3000 --actions 2 --horizon 200 --p-min 0.02
    --epsilon 7.5 --delta 3e-4 --out plan.json
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

    common: ClassVar = ("minimum-experts", "actions", "horizon", "epsilon", "delta", "p-min",
                        "iterations", "out", "json")  # fmt: skip

    def run(self) -> None:
        if self.out is not None:
            check_new_file(self.out, overwrite=self.overwrite)
        names = "actions horizon epsilon delta p_min stop_probability prefix_cap iterations mode "
        names += "objective agreement pool_limit minimum_trajectories"
        plan = privacy.plan_release(experts=self.minimum_experts, **given(self, names))
        if self.out is not None:
            write_json(self.out, plan.to_json())
        where = [] if self.out is None else [f"the plan is in {self.out}"]
        said = [] if self.json else _in_words(plan)
        show_facts(plan.to_json(), *said, *where, as_json=self.json)


def _in_words(plan: "privacy.ReleasePlan") -> list[object]:
    """A plan for people: a table, a curve, and what would help if nothing can come out."""
    from rich.table import Table

    event, pair = plan.event, plan.pair
    share = f"{event.threshold / event.experts:.1%} of {event.experts} experts"
    counts = "normalised count" if event.mode == "tight" else "count"
    costs = f"{pair.epsilon_remove:.4f} / {pair.epsilon_add:.4f}"
    table = Table("what", "value", "meaning")
    for name, value, meaning in (
        ("iterations", event.iterations, "trajectories that are tried"),
        ("threshold", f"{event.threshold:.1f}", f"of the {counts}: {share}"),
        ("theta", f"{event.theta:.1f}", "the part of it above which a prefix is safe"),
        ("threshold noise scale", f"{event.threshold_noise_scale:.2f}", "Laplace, once for each"),
        ("query noise scale", f"{event.query_noise_scale:.2f}", "Laplace, for every step"),
        ("one iteration costs", costs,
         f"epsilon to remove / to add an expert; delta {pair.delta:.2e}"),
        ("pool size", event.pool_size, "trajectories per expert that training must not use"),
        ("longest prefix", plan.longest_prefix_if_all_agree, "steps, if all experts agree"),
        (f"at agreement {plan.agreement:g}", plan.longest_prefix_at_agreement,
         "steps, if that share of them agrees at every step"),
        ("expected transitions", f"{plan.expected_transitions:.0f}", "then, noise included"),
        ("stop probability", f"{event.stop_probability:g}", "before every query"),
    ):  # fmt: skip
        if name != "stop probability" or event.stop_probability:
            table.add_row(name, str(value), meaning)
    said: list[object] = [
        f"Mode {event.mode}: epsilon = {plan.epsilon:g} at delta = {plan.delta:g} for the release.",
        table,
    ]
    tight = event.mode == "tight"
    spent = privacy.total_epsilon([event], plan.delta) if tight else plan.epsilon
    if spent < 0.99 * plan.epsilon:
        said.append(
            f"It spends only epsilon = {spent:.3g}: more would need a larger --pool-limit to pay."
        )
    return [*said, *(_curve(plan) if plan.feasible else _way_out(plan))]


def _curve(plan: "privacy.ReleasePlan") -> Iterator[str]:
    """How long the prefixes should be."""
    chance = privacy.expected_lengths(plan.event, plan.agreement)
    yield f"An iteration releases at least k steps (agreement {plan.agreement:g}):"
    step, share = 1, 1.0
    while step <= len(chance) and share >= 0.01:
        share = float(chance[step - 1])
        yield f"{step:>6}  {bar(share)} {share:.0%}"
        step = max(step + 1, round(step * 1.5))


def _way_out(plan: "privacy.ReleasePlan") -> Iterator[str]:
    """Nothing can come out: say so, and what would change that."""
    changes = privacy.what_would_help(plan)
    yield (
        "Nothing would come out: not even one step passes if all "
        f"{plan.event.experts} experts agree. "
        + (f"This would change it: {'; or '.join(changes)}." if changes else "")
    )
