"""Prints the tables of docs/choosing.md and docs/release-plan.md: all is planned, no data read.

    python -m reproduction.tables.choosing

Plans take more than a minute, so these tables are no part of `python -m reproduction.tables`.
"""

from collections.abc import Sequence
from typing import Any

from quorum_rl.errors import TooLittleBudgetError
from quorum_rl.learners import get_learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline import FitPlan, FitSettings, chosen_learner, plan_fit
from quorum_rl.privacy import ReleasePlan, plan_release
from reproduction.tables.formatting import at_epsilons, table

EPSILONS = (1.0, 2.5, 5.0, 7.5, 10.0)
EXPERTS = (100, 300, 1000, 3000, 10_000)
DELTA = 1e-4


def release(
    *,
    experts: int = 3000,
    epsilon: float = 5.0,
    delta: float = DELTA,
    p_min: float | None = 0.02,
    actions: int = 2,
    iterations: int | None = None,
    agreement: float = 0.9,
) -> ReleasePlan:
    """The plan of `quorum plan release --actions 2 --horizon 200` with these numbers."""
    return plan_release(
        experts=experts,
        actions=actions,
        horizon=200,
        p_min=p_min,
        epsilon=epsilon,
        delta=delta,
        iterations=iterations,
        agreement=agreement,
    )


def both_stages(
    *, experts: int = 3000, epsilon: float = 5.0, settings: FitSettings | None = None
) -> FitPlan:
    """The plan of `quorum fit --method selective`, for CartPole experts with a floor of 0.02."""
    declared = Declared(
        action_count=2,
        observation_size=4,
        horizon=200,
        p_min=0.02,
        minimum_experts=experts,
        minimum_trajectories=20,
    )
    chosen = settings or selective()
    return plan_fit(declared, get_learner("cql"), epsilon=epsilon, delta=DELTA, settings=chosen)


def selective(**chosen: Any) -> FitSettings:
    return FitSettings(method="selective", **chosen)


def local(experts: int, epsilon: float) -> str:
    """The network that `quorum fit` chooses for LunarLander, and its noise over signal."""
    declared = Declared(
        action_count=4, observation_size=8, horizon=1000, p_min=0.02, minimum_experts=experts
    )
    learner = chosen_learner(declared, FitSettings(), (epsilon, DELTA))
    plan = plan_fit(declared, learner, epsilon=epsilon, delta=DELTA)
    if plan.mostly_noise is not None:
        return f"noise ({plan.noise:.1f})"
    width = learner.hidden_sizes[0] if learner.hidden_sizes else "linear"
    return f"{width} ({plan.noise:.2f})"


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table under its title."""
    print(f"\n{title}\n\n{table(head, rows)}", flush=True)


def shown(plan: ReleasePlan) -> list[str]:
    """Iterations, threshold, the share that must agree, pool size, expected transitions."""
    event = plan.event
    return [
        f"{event.iterations}",
        f"{event.threshold:.0f}",
        f"{event.threshold / event.experts:.0%}",
        f"{event.pool_size}",
        f"{plan.expected_transitions:.0f}",
    ]


RELEASE_HEAD = ("T", "threshold", "must agree", "R", "expected transitions")


def by_experts_and_epsilon() -> None:
    rows = []
    for experts in EXPERTS:
        cells = []
        for epsilon in EPSILONS:
            try:
                plan = release(experts=experts, epsilon=epsilon)
            except TooLittleBudgetError:
                cells.append("–")
                continue
            share = plan.event.threshold / experts
            cells.append(
                f"{plan.expected_transitions:.0f} ({share:.0%}, T = {plan.event.iterations})"
                if plan.feasible
                else "nothing"
            )
        rows.append([f"{experts:,}", *cells])
    show("experts and epsilon", ["experts", *at_epsilons(EPSILONS)], rows)


def by_delta() -> None:
    rows = [
        [f"{delta:g}", *shown(release(delta=delta))] for delta in (1e-3, 3e-4, 1e-4, 1e-5, 1e-6)
    ]
    show("delta", ["δ", *RELEASE_HEAD], rows)


def by_iterations() -> None:
    rows = [shown(release(iterations=count)) for count in (5, 10, 25, 50, 100, 200, 400)]
    show("iterations", RELEASE_HEAD, rows)


def by_floor() -> None:
    rows = [
        ["none, stops at random" if floor is None else f"{floor:g}", *shown(release(p_min=floor))]
        for floor in (0.005, 0.01, 0.02, 0.05, 0.1, None)
    ]
    show("floor", ["p_min", *RELEASE_HEAD], rows)


def by_actions() -> None:
    rows = [[f"{count}", *shown(release(actions=count))] for count in (2, 3, 4, 10)]
    show("actions", ["actions", *RELEASE_HEAD], rows)


def by_agreement() -> None:
    rows = [
        [f"{share:g}", *shown(release(agreement=share))] for share in (0.7, 0.8, 0.9, 0.95, 0.99)
    ]
    show("agreement", ["agreement", *RELEASE_HEAD], rows)


def networks_by_experts_and_epsilon() -> None:
    epsilons = (0.1, 0.25, 0.5, 1.0, 3.0, 10.0)
    rows = [
        [f"{experts:,}", *(local(experts, epsilon) for epsilon in epsilons)]
        for experts in (28, 95, 285, 950, 2850)
    ]
    show("networks of local", ["experts", *at_epsilons(epsilons)], rows)


def fit_row(plan: FitPlan) -> list[str]:
    """Expected transitions, private steps, noise multiplier, steps without noise, how it chose."""
    noise = "–" if plan.private is None else f"{plan.private.noise_multiplier:.2f}"
    given = "–" if plan.release is None else f"{plan.release.expected_transitions:.0f}"
    if plan.release is None:
        stages = "training only"
    elif plan.private is None:
        stages = "release only"
    else:
        stages = "both"
    return [stages, given, f"{plan.private_steps}", noise, f"{plan.plain_steps}"]


FIT_HEAD = ("stages", "expected transitions", "private steps", "noise", "steps without noise")


def fits_by_experts_and_epsilon() -> None:
    rows = []
    for experts in (300, 1000, 3000, 10_000):
        for epsilon in (2.5, 5.0, 10.0):
            plan = both_stages(experts=experts, epsilon=epsilon)
            rows.append([f"{experts:,}", f"{epsilon:g}", *fit_row(plan)])
    show("what quorum fit plans", ["experts", "ε", *FIT_HEAD], rows)


def fits_by_release_share() -> None:
    rows = [
        [f"{share:g}", *fit_row(both_stages(settings=selective(release_share=share)))]
        for share in (0.1, 0.25, 0.5, 0.75, 0.9)
    ]
    show("release_share", ["release_share", *FIT_HEAD], rows)


def fits_by_private_steps() -> None:
    rows = [
        [f"{share:g}", *fit_row(both_stages(settings=selective(private_share=share)))]
        for share in (0.5, 0.8, 0.95, 1.0)
    ]
    show("private_share, p", ["p", *FIT_HEAD], rows)
    rows = [
        [f"{steps}", *fit_row(both_stages(settings=selective(private_steps=steps)))]
        for steps in (500, 2000, 8000, 20_000)
    ]
    show("private_steps", ["private_steps", *FIT_HEAD], rows)


if __name__ == "__main__":
    by_experts_and_epsilon()
    by_delta()
    by_iterations()
    by_floor()
    by_actions()
    by_agreement()
    networks_by_experts_and_epsilon()
    fits_by_experts_and_epsilon()
    fits_by_release_share()
    fits_by_private_steps()
