"""Experts at sites: the policy of a plain fit to the bit, and what its papers say."""

from pathlib import Path

import pytest
from at_sites import (
    ACCEPTED,
    COST,
    LEARNER,
    MOST,
    OTHERS,
    SETTINGS,
    Failing,
    fitted_at_sites,
    sites,
    whole_log,
)
from fits import same_weights

from quorum_rl.budget import read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import Fitted, fit
from quorum_rl.report import publish
from quorum_rl.sites import SitesHere


@pytest.fixture(scope="module", name="central")
def _central(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fit(
        whole_log(), **COST, learner=LEARNER, settings=SETTINGS, seed=1,
        accepted=(ACCEPTED[0], OTHERS),
        folder=tmp_path_factory.mktemp("central") / "run", report=lambda _: None,
    )  # fmt: skip


@pytest.fixture(scope="module", name="apart")
def _apart(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fitted_at_sites(Failing(), tmp_path_factory.mktemp("apart") / "run")


def test_three_sites_give_the_policy_of_one_machine_to_the_bit(
    central: Fitted, apart: Fitted
) -> None:
    assert same_weights(central, apart)


def test_the_event_and_its_cost_are_those_of_one_machine(central: Fitted, apart: Fitted) -> None:
    events = [read_ledger(made.folder / "ledger.jsonl").events for made in (central, apart)]
    assert events[0] == events[1]
    assert central.certificate is not None
    assert apart.certificate is not None
    assert central.certificate.epsilon == apart.certificate.epsilon


def test_the_certificate_says_who_is_trusted(central: Fitted, apart: Fitted) -> None:
    assert apart.certificate is not None
    names = [held.name for held in apart.certificate.assumptions if held.accepted]
    assert names == list(ACCEPTED)
    assert "the coordinator is trusted" in " ".join(apart.certificate.limitations)
    assert central.certificate is not None
    assert "coordinator" not in central.certificate.to_json()


def test_the_plan_says_who_is_trusted_before_anything_is_charged(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(QuorumError, match="one-site-each"):
        fitted_at_sites(SitesHere(sites()), tmp_path / "run", accepted=(), report=said.append)
    assert "trusted by everybody" in said[0]
    assert not (tmp_path / "run").exists()


def test_a_bundle_says_which_sites_and_nothing_else_of_them(tmp_path: Path) -> None:
    fitted_at_sites(SitesHere(sites()), tmp_path / "run", seed=None, accepted=ACCEPTED)
    publish(tmp_path / "run", tmp_path / "bundle")
    (charge,) = read_ledger(tmp_path / "bundle" / "ledger.jsonl").charges
    assert charge.facts["sites"] == {"most_experts": MOST, "minimum_sites": 1, "sums": "plain"}


def test_nothing_secret_stays_in_a_finished_folder(apart: Fitted) -> None:
    assert not (apart.folder / "private").exists()
