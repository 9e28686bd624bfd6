"""What a fit pays for: every run its own steps, whatever its seed."""

import math
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from fits import DELTA, EPSILON, Crowd, fitted, named

from quorum_rl.budget import Budget, Ledger, read_ledger
from quorum_rl.envs import get_world
from quorum_rl.envs.world import with_params
from quorum_rl.errors import QuorumError
from quorum_rl.experts.networks import Layer
from quorum_rl.experts.population import Population
from quorum_rl.logs import Demonstrations, collect
from quorum_rl.pipeline import fit


@pytest.fixture(scope="module", name="demonstrations")
def _demonstrations() -> Demonstrations:
    """Forty experts, each with two short trajectories."""
    rng = np.random.default_rng(0)
    layer = Layer(
        jnp.asarray(rng.normal(size=(40, 4, 2)), jnp.float32), jnp.zeros((40, 2), jnp.float32)
    )
    experts = Population(observation_size=4, action_count=2, network=(layer,))
    world = get_world("CartPole")
    return collect(
        experts, world, with_params(world, time_limit=4), trajectories=2, minimum_experts=30
    )[0]


def test_a_release_whose_training_cannot_be_paid_is_not_made(
    everyone: Crowd, tmp_path: Path
) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=0.8 * EPSILON, delta=DELTA)
    with pytest.raises(QuorumError, match="this release and training would bring"):
        fitted(named(everyone, "kept whole"), tmp_path / "run", budget=Budget(book))
    assert not read_ledger(book).charges
    assert not read_ledger(book).marks


def test_a_later_run_of_less_delta_than_an_earlier_one_spent_is_certified_at_that_of_the_ledger(
    everyone: Crowd, tmp_path: Path
) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=3 * EPSILON, delta=3 * DELTA)
    first = fitted(named(everyone, "first log"), tmp_path / "first", budget=Budget(book))
    later = fitted(
        named(everyone, "later log"),
        tmp_path / "later",
        experts=None,
        budget=Budget(book),
        delta=DELTA / 100,
    )
    assert first.certificate is not None
    assert later.certificate is not None
    assert (first.certificate.delta, later.certificate.delta) == (DELTA, 3 * DELTA)
    assert later.certificate.epsilon <= 3 * EPSILON
    assert Budget(book).certificate(DELTA / 100).epsilon == math.inf


def test_a_log_of_fewer_experts_than_are_declared_is_refused_for_nothing_would_be_guaranteed(
    demonstrations: Demonstrations,
) -> None:
    known = demonstrations.expert_count
    everyone = replace(
        demonstrations, declared=replace(demonstrations.declared, minimum_experts=None)
    )
    assert everyone.of_at_least(known).declared.minimum_experts == known
    with pytest.raises(QuorumError, match=f"of fewer experts than the {known + 1} that are"):
        everyone.of_at_least(known + 1)
    fewer = demonstrations.select(demonstrations.episodes.expert < 3)
    with pytest.raises(QuorumError, match="of fewer experts than"):
        fewer.of_at_least(None)


def test_every_charge_of_a_fit_names_who_answers(everyone: Crowd, tmp_path: Path) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=EPSILON, delta=DELTA)
    with pytest.raises(QuorumError, match="accepted_by is 'a\\\\nb': give a name"):
        fitted(
            named(everyone, "answered"), tmp_path / "run", budget=Budget(book), accepted_by="a\nb"
        )
    assert not read_ledger(book).charges
    assert not (tmp_path / "run").exists()
    made = fitted(
        named(everyone, "answered"), tmp_path / "run", budget=Budget(book), accepted_by="Ada Day"
    )
    who = [charge.facts["accepted_by"] for charge in read_ledger(book).charges]
    assert len(who) == 2
    assert {one["name"] for one in who if isinstance(one, dict)} == {"Ada Day"}
    assert made.certificate is not None
    today = read_ledger(book).charges[0].date
    said = {assumption.answer for assumption in made.certificate.assumptions}
    assert said == {f"accepted by Ada Day on {today}"}


def test_more_experts_than_the_demonstrations_declare_cannot_be_counted_on(
    demonstrations: Demonstrations, tmp_path: Path
) -> None:
    assert demonstrations.of_at_least(None) is demonstrations
    assert demonstrations.of_at_least(20).declared.minimum_experts == 20
    with pytest.raises(QuorumError, match="minimum_experts is 31, but the demonstrations declare"):
        fit(
            demonstrations,
            None,
            epsilon=1.0,
            delta=1e-3,
            minimum_experts=31,
            folder=tmp_path / "run",
            accepted=("one-expert-each",),
        )
    assert not (tmp_path / "run").exists()
