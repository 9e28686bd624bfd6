"""The audit of the release: it sees the exact distribution, and the bugs that are planted."""

import jax
import numpy as np
import pytest
from enumeration import iteration_distribution
from scipy.stats import chisquare
from trees import along, always, chain, experts

from quorum_rl.audit.audits import audit_release
from quorum_rl.audit.cases import DEVIATOR, LEAVER, Case
from quorum_rl.audit.planted_bugs import planted
from quorum_rl.audit.releases import outcomes, spread
from quorum_rl.privacy.pairs import pair_of

CASES = {"deviator": DEVIATOR, "leaver": LEAVER}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("present", [True, False])
def test_what_comes_out_has_the_enumerated_distribution(name: str, present: bool) -> None:
    """False alarm 1e-4 for each of the four, but for the fixed seeds."""
    case, runs = CASES[name], 3000
    world, floor = case.chain, case.chain.p_min
    tree = chain(world.horizon)
    crowd = (world.others, always(tree, 0, floor))
    canary = along(tree, [0] * world.leaves_at + [1], floor)
    who = experts(crowd, (1, canary)) if present else experts(crowd)
    expected = iteration_distribution(tree, who, case.release.event) * runs
    seen = np.bincount(outcomes(case, runs, present, 5)[:, 0], minlength=tree.nodes)
    assert not seen[expected == 0].any()
    rare = expected < 10
    cells = [np.append(values[~rare], values[rare].sum()) for values in (seen, expected)]
    used = cells[1] > 0
    if used.sum() > 1:
        assert chisquare(cells[0][used], cells[1][used]).pvalue > 1e-4


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_claim_is_that_of_one_iteration(case: Case) -> None:
    pair = pair_of(case.release.event)
    assert pair.delta <= case.plan.delta
    most = max(pair.epsilon_remove, pair.epsilon_add)
    assert 0.9 * most < case.claimed <= most


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_release_is_not_accused(case: Case) -> None:
    """Wrongly it would be with probability 0.1% at most, but for the fixed seed."""
    finding = audit_release(case, 8000, seed=1)
    assert not finding.refuted
    assert finding.bound.epsilon < case.claimed
    if case is LEAVER:  # a sound release hides the deviator altogether
        assert finding.bound.epsilon > 0.2


@pytest.mark.parametrize(
    ("bug", "case", "runs"),
    [("offset-halved", DEVIATOR, 50_000), ("query-noise-halved", LEAVER, 18_000)],
)
def test_a_planted_bug_is_caught(bug: str, case: Case, runs: int) -> None:
    with planted(bug):
        assert audit_release(case, runs, seed=2).refuted


def test_parts_come_back_in_their_order_whoever_did_them() -> None:
    for workers in (1, 2):
        assert spread(abs, [-1, 2, -3], workers) == [1, 2, 3]


def test_other_processes_leave_a_gpu_alone_and_this_one_stays_as_it_is() -> None:
    before = jax.config.values["jax_platforms"]
    assert spread(platforms, [0, 1], 2) == ["cpu", "cpu"]
    assert jax.config.values["jax_platforms"] == before


def platforms(_: int) -> str | None:
    return jax.config.values["jax_platforms"]  # type: ignore[no-any-return]
