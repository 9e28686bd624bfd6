"""What would void the guarantee is refused, or harmless, before anybody is asked anything."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aim_world import Aim
from numbered_logs import EVERYTHING, HORIZON, Scene, scene, seeded
from refusals import refusal
from tree_logs import table_experts

from quorum_rl.budget import Ledger, read_ledger
from quorum_rl.distributed import this_machine
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, Population
from quorum_rl.experts.networks import Layer
from quorum_rl.logs import (
    Demonstrations,
    collect,
    from_episodes,
    open_demonstrations,
    save_demonstrations,
)
from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import release


def unreleased(one: Scene, plan: ReleasePlan, path: Path, **options: Any) -> str:
    """Why this release is refused; nothing is charged for it."""
    before = path.read_bytes()
    given = {"accepted": EVERYTHING, **options}
    with Ledger.open(path) as ledger:
        said = refusal(release, *one, plan, ledger, **given)
    assert path.read_bytes() == before
    assert said.count(". ") == 0  # one sentence
    return said


def declaring(one: Scene, **changes: Any) -> Scene:
    return one._replace(log=replace(one.log, declared=replace(one.log.declared, **changes)))


# What was declared does not fit the plan.


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"actions": 3}, "the plan is for 3 actions and a horizon of 6"),
        ({"horizon": 7}, "the plan is for 2 actions and a horizon of 7"),
        ({"p_min": 0.2}, "floor of 0.2, but the experts and demonstrations declare 0.1"),
    ],
)
def test_a_plan_for_other_declared_numbers_is_refused(
    changes: dict[str, Any], said: str, many: Scene, plan: ReleasePlan, path: Path
) -> None:
    assert said in unreleased(many, replace(plan, event=replace(plan.event, **changes)), path)


def test_a_plan_for_a_lower_floor_than_the_declared_one_is_no_problem(
    many: Scene, plan: ReleasePlan, research: Path
) -> None:
    seeded(many, replace(plan, event=replace(plan.event, p_min=0.05)), research)


@pytest.mark.parametrize("floor", [None, 0.0, 0.05])
def test_a_floor_that_the_log_does_not_declare_is_refused(
    floor: float | None, many: Scene, plan: ReleasePlan, path: Path
) -> None:
    assert "a floor of 0.1" in unreleased(declaring(many, p_min=floor), plan, path)


def test_logs_from_another_machine_are_refused_unless_its_rounding_is_vouched_for(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    elsewhere = declaring(many, machine="gpu of somebody else, jax 0.1")
    assert "may round otherwise" in unreleased(elsewhere, plan, path)
    with Ledger.open(path) as ledger:
        release(*elsewhere, plan, ledger, accepted=[*EVERYTHING, "rounds-alike"])
    assert "rounds-alike" in read_ledger(path).charges[0].facts["accepted"]  # type: ignore[operator]


def test_logs_from_this_machine_need_no_such_promise(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    seeded(declaring(many, machine=this_machine()), plan, path)


def test_nothing_is_released_of_continuous_actions(plan: ReleasePlan, path: Path) -> None:
    layer = Layer(np.zeros((2, 2, 4), np.float32), np.zeros((2, 4), np.float32))
    bounds = Aim.spaces.action_bounds
    experts = Population(observation_size=2, action_count=2, action_bounds=bounds, network=(layer,))
    log, logged = collect(experts, Aim(), trajectories=2, minimum_experts=2, seed=0)
    assert "actions are continuous, and a release counts" in unreleased(
        Scene(logged, log), plan, path
    )


@pytest.mark.parametrize("missing", EVERYTHING)
def test_every_assumption_must_be_accepted_by_name(
    missing: str, many: Scene, plan: ReleasePlan, path: Path
) -> None:
    others = [name for name in EVERYTHING if name != missing]
    assert missing in unreleased(many, plan, path, accepted=others)


WRONG: dict[str, tuple[Callable[[Scene], Any], dict[str, Any]]] = {
    "declare 0:": (
        lambda many: (table_experts(many.experts.probabilities([[0.0]]), p_min=0.0), many.log), {}
    ),
    "experts that the expert set does not": (
        lambda many: (scene([5] * 399).experts, many.log), {}
    ),
    "give the LoggedExperts": (lambda many: (many.experts.generated_by, many.log), {}),
    "would reserve 3 trajectories of every expert and leave 1": (
        lambda many: declaring(many, minimum_trajectories=3), {}
    ),
    "did you mean public-ends?": (
        lambda many: many, {"accepted": [*EVERYTHING, "public-end"]}
    ),
    "training_minimum is -1": (lambda many: many, {"training_minimum": -1}),
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_other_experts_trajectories_and_options_are_refused(
    said: str, many: Scene, plan: ReleasePlan, path: Path
) -> None:
    change, options = WRONG[said]
    assert said in unreleased(Scene(*change(many)), plan, path, **options)


# Hazard: logs of another policy.


def test_experts_smoothed_after_they_acted_are_refused(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    """Their logs say that they acted unchanged."""
    acted = declaring(many, smoothing="none")
    seeded(acted, plan, path)
    smoothed = LoggedExperts(many.experts.generated_by.smoothed(0.1))
    assert "'greedy' to 0.1" in unreleased(Scene(smoothed, acted.log), plan, path)


@pytest.mark.parametrize(
    ("rule", "floor"), [("uniform mixture", 0.1), ("greedy", 0.12), ("none", 0.1)]
)
def test_experts_smoothed_otherwise_than_those_that_acted_are_refused(
    rule: str, floor: float, many: Scene, plan: ReleasePlan, path: Path
) -> None:
    smoothed = LoggedExperts(many.experts.generated_by.smoothed(0.1))
    log = declaring(many, smoothing=rule, p_min=floor).log
    assert f"by {rule!r} to {floor:g}" in unreleased(Scene(smoothed, log), plan, path)


# Hazard: the same pool released twice.


def test_a_copy_of_the_log_is_the_same_pool(
    many: Scene, plan: ReleasePlan, path: Path, tmp_path: Path
) -> None:
    save_demonstrations(many.log, tmp_path / "log.arrow")
    seeded(many, plan, path)
    copy = many._replace(log=open_demonstrations(tmp_path / "log.arrow"))
    assert "stage 1 runs once per pool" in unreleased(copy, plan, path)


def test_a_part_of_the_log_is_the_same_pool(many: Scene, plan: ReleasePlan, path: Path) -> None:
    seeded(many, plan, path)
    part = many._replace(log=many.log.select(np.arange(len(many.log) - 1)))
    assert "stage 1 runs once per pool" in unreleased(part, plan, path)


def test_new_logs_of_the_same_experts_are_another_pool_on_the_same_budget(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    seeded(many, plan, path)
    later = scene([5] * 400, seed=1)
    assert "nothing was charged" in unreleased(later, plan, path)
    less = replace(plan, event=replace(plan.event, iterations=1))
    seeded(later, less, path)
    pools = {charge.pool for charge in read_ledger(path).charges}
    assert pools == {many.log.declared.identity, later.log.declared.identity}


# Hazard: a log cut short.


def cut_short(terminated: bool, truncated: bool, **declared: bool) -> Demonstrations:
    """One episode that ends before the time limit."""
    return from_episodes(
        replace(scene([1]).log.declared, **declared),  # type: ignore[arg-type]
        expert=[0],
        length=[HORIZON - 1],
        observations=np.zeros((HORIZON, 1)),
        actions=np.zeros(HORIZON - 1),
        rewards=np.zeros(HORIZON - 1),
        terminated=[terminated],
        truncated=[truncated],
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "said"),
    [(False, True, "truncated after 5 steps"), (False, False, "leave out logs cut short")],
)
def test_a_log_cut_short_never_becomes_demonstrations(
    terminated: bool, truncated: bool, said: str
) -> None:
    with pytest.raises(QuorumError, match=said):
        cut_short(terminated, truncated)


def test_an_early_end_is_allowed_where_the_world_or_a_public_rule_ended_it() -> None:
    assert len(cut_short(True, False)) == 1
    assert len(cut_short(False, True, early_truncation_is_public=True)) == 1


# Hazard: an interrupted release is taken up again.


def test_after_a_crash_while_charging_nothing_more_is_released(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    """The line was cut off, so nobody knows what was charged: all of the budget counts."""
    header = path.read_bytes()
    seeded(many, plan, path)
    charge = path.read_bytes()[len(header) :].splitlines()[0]
    path.write_bytes(header + charge[:40])
    assert "cut off" in unreleased(scene([5] * 400, seed=1), plan, path)
