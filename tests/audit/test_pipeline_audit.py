"""The audit of the whole: it runs what a fit runs, and finds no more than the plan claims."""

import json
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
from quorum_rl.audit.from_run_folder import case_of_run
from quorum_rl.budget import ASSUMPTIONS, Budget, Ledger, certificate, read_ledger
from quorum_rl.cli.main import main
from quorum_rl.errors import QuorumError
from quorum_rl.files import write_json
from quorum_rl.learners import Bc
from quorum_rl.pipeline import FitSettings, fit, plan_fit
from quorum_rl.pipeline.context import configuration
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


def test_a_certificate_that_claims_too_little_is_refuted(case: Case) -> None:
    """So few runs could not refute the true claim, whatever they showed."""
    white, black = audit_pipeline(replace(case, certified=0.1), RUNS, seed=0)
    assert white.claimed == black.claimed == 0.1
    assert white.refuted
    assert not replace(white, claimed=case.claimed).refutable


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


def test_the_configuration_of_a_run_is_the_case_that_is_audited(case: Case, tmp_path: Path) -> None:
    found = case_of_run(written(case, tmp_path))
    assert found.plan.events == case.plan.events
    assert found.plan.recipe == case.plan.recipe
    assert found.plan.private == case.plan.private
    assert (found.plan.private_steps, found.plan.plain_steps) == (4, 4)
    assert replace(found.chain, leaves_at=0) == replace(case.chain, leaves_at=0)


@pytest.mark.parametrize(
    "settings",
    [
        FitSettings(private_steps=2, local_steps=2, transitions_per_expert=1),
        FitSettings(method="solve", transitions_per_expert=2),
    ],
    ids=["local", "solve"],
)
def test_so_is_that_of_other_contributions_and_the_canary_shows(
    case: Case, tmp_path: Path, settings: FitSettings
) -> None:
    """Accused wrongly with probability 0.1% for each finding, but for the fixed seed."""
    made = plan_fit(
        case.chain.declared, Bc(hidden_sizes=()), epsilon=2.0, delta=0.01, settings=settings
    )
    assert made.private is not None
    found = case_of_run(written(replace(case, plan=made), tmp_path), trainees=3)
    assert found.plan.events == made.events
    assert found.plan.private == replace(made.private, chunk=8)
    white, black = audit_pipeline(found, 5 * RUNS, seed=0)
    assert white.refutable
    assert not white.refuted
    assert not black.refuted
    assert white.bound.epsilon > 0.25 * white.claimed


def test_a_run_is_audited_by_its_folder(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "audit.json", tmp_path / "audit.svg"
    words = ("--runs", str(RUNS), "--trainees", "0", "--out", str(out), "--picture", str(picture))
    main(["audit", "--run", str(written(case, tmp_path)), *words])
    shown = capsys.readouterr().out
    assert "claimed by its events: epsilon = 7.99" in shown
    assert "200 runs could show at most 2.9" in shown
    assert "cannot be refuted with so few runs, which could show at most 2.9" in shown
    assert "stands" not in shown
    white, black = json.loads(out.read_text())["findings"]
    assert white["claimed"] == pytest.approx(8.0, abs=1e-2)
    assert white["runs"] == black["runs"] == RUNS
    assert not white["refuted"]
    assert "<svg" in picture.read_text()


def test_a_run_whose_claim_does_not_hold_is_not_audited(case: Case, tmp_path: Path) -> None:
    path = written(case, tmp_path) / "config.json"
    facts = json.loads(path.read_text())
    published = {**facts, "settings": {**facts["settings"], "mode": "paper"}}
    for changed, said in ((published, "mode paper"), ({**facts, "events": []}, "not private")):
        write_json(path, changed)
        with pytest.raises(QuorumError, match=said):
            case_of_run(tmp_path)


def test_a_claim_is_that_of_the_certificate_of_what_was_charged(case: Case, tmp_path: Path) -> None:
    folder = written(case, tmp_path)
    assert case_of_run(folder).certified is None  # nothing was certified yet
    Budget.create(tmp_path / "ledger.jsonl", epsilon=8.0, delta=0.01)
    with Ledger.open(tmp_path / "ledger.jsonl") as opened:
        for event in case.plan.events:
            with pytest.raises(QuorumError, match=r"ledger.jsonl' was not charged for just"):
                case_of_run(folder)
            facts = {"accepted": list(ASSUMPTIONS), "pool": "a"}
            opened.charge(event, run="fit-1", facts=facts)
        made = json.loads(certificate(opened.record).to_json())
    write_json(tmp_path / "certificate.json", made)
    found = case_of_run(folder)
    assert found.claimed == found.certified == made["epsilon"]
    other = {**made["events"][1], "run": "fit-2"}
    write_json(tmp_path / "certificate.json", {**made, "events": [*made["events"], other]})
    assert case_of_run(folder).certified is None  # it is of another run, too
    for changed, said in (
        ({"epsilon": 3.0}, "epsilon = 3, but the run's events cost"),
        ({"epsilon": None}, "no claim to audit"),
        ({"events": made["events"][:1]}, "certificate.json' was not charged for just"),
        ({"events": [*made["events"], other | {"run": "fit-1"}]}, "was not charged for just"),
    ):
        write_json(tmp_path / "certificate.json", made | changed)
        with pytest.raises(QuorumError, match=said):
            case_of_run(folder)


def test_a_configuration_that_was_changed_is_not_audited(case: Case, tmp_path: Path) -> None:
    path = written(case, tmp_path) / "config.json"
    facts = json.loads(path.read_text())
    release, training = facts["events"]
    selection = {**training, "event": "selection", "mean_trials": 4}
    for changed, said in (
        ({"events": [release, training | {"sampling_rate": 0.01}]}, "none of the events there"),
        ({"epsilon": 0.1}, "epsilon = 0.1, but the run's events cost"),
        ({"events": [release, selection]}, "the settings of one trial"),
        ({"events": [release, training, training]}, "1 releases and 2 trainings"),
        ({"choices": {}}, "the settings of one trial"),
        ({"learner": {"name": "Mine"}}, "unknown learner 'Mine'"),
        ({"learner": "Cql(hidden_sizes=())"}, "as older versions did"),
    ):
        write_json(path, facts | changed)
        with pytest.raises(QuorumError, match=said) as refused:
            case_of_run(tmp_path)
        assert "damaged" not in str(refused.value)


def written(case: Case, folder: Path) -> Path:
    """A run's folder, as far as an audit reads it."""
    log = case.chain.log(False, 2, np.random.default_rng(0))
    write_json(folder / "config.json", configuration(case.plan, log, None))
    return folder
