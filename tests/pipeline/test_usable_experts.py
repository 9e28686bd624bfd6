"""Experts who are left out for want of trajectories do not count towards the declared minimum."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits import DELTA, EPSILON, LEARNER, SETTINGS, Crowd, crowd, fitted, named
from refusals import refusal

from quorum_rl.budget import ASSUMPTIONS, Budget, Ledger, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations, open_demonstrations, save_demonstrations
from quorum_rl.pipeline import fit_after_release, plan_fit
from quorum_rl.privacy import event_to_json, plan_release
from quorum_rl.release import release, save_released

MINIMUM = 399


def shortened(log: Demonstrations, whole: int, kept: int) -> Demonstrations:
    """The same log, in which all but the first so many experts have only `kept` trajectories."""
    position = np.arange(len(log)) - np.repeat(
        log.expert_episode_offsets[:-1], np.diff(log.expert_episode_offsets)
    )
    return log.select((log.episodes.expert < whole) | (position < kept))


def filed(one: Crowd, folder: Path) -> Crowd:
    save_demonstrations(one.log, folder / "log.arrow")
    return one._replace(log=open_demonstrations(folder / "log.arrow"))


def refused(one: Crowd, tmp_path: Path, **choices: Any) -> str:
    """Why the fit is refused; it costs nothing and leaves nothing behind."""
    ledger = tmp_path / "ledger.jsonl"
    Ledger.create(ledger, epsilon=EPSILON, delta=DELTA)
    before = ledger.read_bytes()
    one = filed(one, tmp_path)
    said = refusal(fitted, one, tmp_path / "run", budget=Budget.open(ledger), **choices)
    assert ledger.read_bytes() == before
    assert not list(tmp_path.glob("log.arrow.*"))
    assert not (tmp_path / "run").exists()
    return said


@pytest.mark.parametrize("usable", [12, MINIMUM - 1])
def test_fewer_usable_experts_than_declared_are_refused_at_no_cost(
    usable: int, tmp_path: Path
) -> None:
    one = crowd()
    few = one._replace(log=shortened(one.log, usable, 1))
    assert few.log.expert_count == 400
    assert f"fewer than {MINIMUM} experts have" in refused(few, tmp_path)


def test_no_more_experts_are_counted_on_than_there_are_or_were_declared(tmp_path: Path) -> None:
    one = crowd()
    assert one.log.of_at_least(None) is one.log
    assert one.log.of_at_least(20).declared.minimum_experts == 20
    said = refused(one, tmp_path, minimum_experts=MINIMUM + 1)
    assert f"minimum_experts is {MINIMUM + 1}, but the demonstrations declare" in said
    unknown = replace(one.log, declared=replace(one.log.declared, minimum_experts=None))
    assert unknown.of_at_least(400).declared.minimum_experts == 400
    assert "of fewer experts than the 401 that are" in refusal(unknown.of_at_least, 401)
    few = one.log.select(one.log.episodes.expert < 3)
    assert "of fewer experts than" in refusal(few.of_at_least, None)


def test_just_as_many_usable_experts_as_declared_are_enough(tmp_path: Path) -> None:
    one = named(crowd(), "just enough")
    enough = one._replace(log=shortened(one.log, MINIMUM, 1))
    assert fitted(enough, tmp_path / "run").released is not None


def a_release(log: Demonstrations, **changes: Any) -> Any:
    declared = log.declared
    return plan_release(
        **{
            "experts": MINIMUM,
            "actions": declared.action_count,
            "horizon": declared.horizon,
            "p_min": declared.p_min,
            "epsilon": EPSILON / 2,
            "delta": DELTA / 2,
            "iterations": 6,
            **changes,
        }
    )


def test_training_after_a_release_needs_as_many_who_have_something_left(tmp_path: Path) -> None:
    """The release was told to leave nothing for training: it may, but nobody can train then."""
    one = filed(crowd(), tmp_path)
    plan, ledger = a_release(one.log), tmp_path / "ledger.jsonl"
    Ledger.create(ledger, epsilon=2 * EPSILON, delta=DELTA)
    log = shortened(one.log, 12, plan.event.pool_size)
    with Ledger.open(ledger) as opened:
        prefixes = release(
            one.experts, log, plan, opened, accepted=tuple(ASSUMPTIONS), training_minimum=0
        ).released
        facts = {"ledger": opened.record.identity, **event_to_json(plan.event)}
    save_released(prefixes, tmp_path / "released.parquet", facts)
    with pytest.raises(QuorumError, match="fewer experts than the 399"):
        fit_after_release(
            log,
            tmp_path / "released.parquet",
            epsilon=EPSILON,
            delta=DELTA,
            budget=Budget.open(ledger),
            learner=LEARNER,
            settings=SETTINGS,
            folder=tmp_path / "run",
            accepted=tuple(ASSUMPTIONS),
            report=lambda _: None,
        )
    assert len(read_ledger(ledger).charges) == 1


def test_without_a_release_experts_without_a_transition_do_not_count(tmp_path: Path) -> None:
    one = crowd()
    few = one._replace(log=one.log.select(one.log.episodes.expert < MINIMUM - 1))
    local = {"experts": None, "settings": replace(SETTINGS, method="dp-sgd", iterations=None)}
    assert "fewer experts than the 399" in refused(few, tmp_path, **local)


# The pool is planned from what is declared.


def declaring(one: Crowd, minimum_trajectories: int | None) -> Crowd:
    declared = replace(one.log.declared, minimum_trajectories=minimum_trajectories)
    return one._replace(log=replace(one.log, declared=declared))


def test_a_release_asks_for_the_declared_trajectories(tmp_path: Path) -> None:
    """Three trajectories each, of which a plan that knew nothing would have reserved eight."""
    one = named(crowd(), "three of each")
    three = declaring(one._replace(log=shortened(one.log, 0, 3)), None)
    chosen = replace(SETTINGS, iterations=None)
    said = refused(three, tmp_path, settings=chosen)
    assert "declare minimum_trajectories (--minimum-trajectories)" in said
    made = fitted(three, tmp_path / "told", settings=chosen, minimum_trajectories=3)
    assert made.plan.release is not None
    assert made.plan.release.event.pool_size <= 2
    assert made.released is not None


def test_more_iterations_than_the_declared_trajectories_serve_are_refused(tmp_path: Path) -> None:
    one = declaring(crowd(), 2)
    many = replace(SETTINGS, iterations=500)
    assert "but minimum_trajectories is 2" in refused(one, tmp_path, settings=many)
    with pytest.raises(QuorumError, match="but minimum_trajectories is 2"):
        a_release(one.log, iterations=500, minimum_trajectories=2)
    assert a_release(one.log, iterations=None, minimum_trajectories=2).event.pool_size == 1


def test_more_trajectories_than_the_log_declares_are_refused(tmp_path: Path) -> None:
    one = declaring(crowd(), 4)
    said = refused(one, tmp_path, minimum_trajectories=5)
    assert "minimum_trajectories is 5, but the demonstrations declare only 4" in said


def test_nothing_is_asked_where_nothing_is_released() -> None:
    one = declaring(crowd(), None)
    plan = plan_fit(
        one.log.declared, LEARNER, epsilon=EPSILON, delta=DELTA, settings=SETTINGS, can_query=False
    )
    assert plan.release is None
