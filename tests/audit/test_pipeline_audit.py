"""The audit of the whole: it runs what a fit runs, and finds no more than the plan claims."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from enumeration import iteration_distribution
from scipy.stats import norm
from trees import along, always, chain, experts

from quorum_rl.audit.audits import audit_pipeline, fits
from quorum_rl.audit.cases import Case, pipelines
from quorum_rl.budget import ASSUMPTIONS, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc
from quorum_rl.pipeline import FitSettings, fit, plan_fit
from quorum_rl.privacy import total_epsilon
from quorum_rl.release import read_released

RUNS = 200  # always, so that programs are compiled once
FULL, EMPTY = 0, 20  # seeds of fits that release something, and nothing


@pytest.fixture(scope="module", name="case")
def _case() -> Case:
    return pipelines()[2]


@pytest.mark.parametrize("seed", [FULL, EMPTY], ids=["some", "nothing"])
def test_what_is_audited_is_a_fit_to_the_bit(case: Case, seed: int, tmp_path: Path) -> None:
    """A fit that releases something, and one that does not, each beside many others."""
    plan, world = case.plan, case.chain
    assert plan.release is not None
    audited = fits(case, range(seed, seed + RUNS), present=True, public_seed=seed)
    assert audited.outcomes[0].any() == (seed == FULL)
    log = world.log(True, plan.release.event.pool_size, np.random.default_rng(seed))
    made = fit(
        replace(log, declared=replace(log.declared, identity=f"log {seed}")),
        world.experts(present=True),
        epsilon=plan.epsilon,
        delta=plan.delta,
        settings=plan.settings,
        learner=plan.learner,
        folder=tmp_path / "run",
        accepted=tuple(ASSUMPTIONS),
        seed=seed,
        report=lambda _: None,
    )
    paid = read_ledger(tmp_path / "run" / "ledger.jsonl").charges
    assert [charge.event for charge in paid] == list(plan.events)
    released = read_released(tmp_path / "run" / "released.parquet")
    assert world.outcomes(released).tolist() == [n for n in audited.outcomes[0] if n]
    for ours, theirs in zip(*map(jax.tree.leaves, (audited.params, made.params)), strict=True):
        np.testing.assert_array_equal(ours[0], theirs)


def test_a_claim_that_is_too_small_is_refuted_and_the_true_one_could_not_be(case: Case) -> None:
    """So few runs could not refute the true claim, whatever they showed."""
    white, _ = audit_pipeline(case, RUNS, seed=0)
    assert replace(white, claimed=0.1).refuted
    assert not white.refutable


@pytest.mark.parametrize("number", [0, 1], ids=["training", "release"])
def test_the_worst_cases_leave_nine_tenths_of_their_account_to_be_found(number: int) -> None:
    """By enumeration: what comes out of the release, and a Gaussian of the private steps."""
    case = pipelines()[number]
    world, plan = case.chain, case.plan
    tree = chain(world.horizon)
    crowd = (world.others, always(tree, 0, world.p_min))
    canary = along(tree, [0] * world.leaves_at + [1], world.p_min)
    present, absent = (
        iteration_distribution(tree, experts(*who), case.release.event)
        for who in ((crowd, (1, canary)), (crowd,))
    )
    possible = present > 0
    moved = np.sqrt(plan.private_steps) / case.private.noise_multiplier
    ratio = np.log(present[possible] / absent[possible])

    def excess(epsilon: float) -> float:
        near, far = (sign * moved / 2 - (epsilon - ratio) / moved for sign in (1, -1))
        kept = present[possible] * norm.cdf(near)
        return float((kept - np.exp(epsilon) * absent[possible] * norm.cdf(far)).sum())

    claimed = total_epsilon(plan.events, plan.delta)
    assert excess(claimed) <= plan.delta < excess(0.9 * claimed)


def test_a_plan_without_privacy_has_no_claim_to_audit(case: Case) -> None:
    free = replace(case.plan, release=None, private=None)
    with pytest.raises(QuorumError, match="no claim"):
        audit_pipeline(replace(case, plan=free), 10, seed=0)


@pytest.mark.parametrize(
    "settings",
    [
        FitSettings(private_steps=2, local_steps=2, transitions_per_expert=1),
        FitSettings(method="solve", transitions_per_expert=2),
    ],
    ids=["local", "solve"],
)
def test_the_canary_shows_in_other_contributions(case: Case, settings: FitSettings) -> None:
    """Accused wrongly with probability 0.1% for each finding, but for the fixed seed."""
    made = plan_fit(
        case.chain.declared, Bc(hidden_sizes=()), epsilon=2.0, delta=0.01, settings=settings
    )
    assert made.private is not None
    few = replace(made, private=replace(made.private, chunk=8))
    white, black = audit_pipeline(Case(case.chain, few, trainees=3), 5 * RUNS, seed=0)
    assert white.refutable
    assert not white.refuted
    assert not black.refuted
    assert white.bound.epsilon > 0.25 * white.claimed
