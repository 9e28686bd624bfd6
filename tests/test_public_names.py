"""What `import quorum_rl` offers: six names, typed and documented, loaded when they are used."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quorum_rl
from quorum_rl.errors import QuorumError
from quorum_rl.experts import CallableExperts
from quorum_rl.logs import Declared, save_demonstrations
from quorum_rl.pipeline import FitSettings
from quorum_rl.privacy import TrainingEvent

NAMES = ["Budget", "Certificate", "Demonstrations", "ExpertSet", "Policy", "fit"]


def test_the_package_offers_its_six_names_and_the_version() -> None:
    assert dir(quorum_rl) == sorted([*NAMES, "__version__"])
    for name in NAMES:
        found = getattr(quorum_rl, name)
        assert callable(found)
        assert found.__doc__
    with pytest.raises(AttributeError, match="Polcy"):
        quorum_rl.Polcy  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["Budget", "Certificate", "Demonstrations", "Policy"])
def test_what_makes_a_promise_says_which(name: str) -> None:
    said = getattr(quorum_rl, name).__doc__
    assert "Guarantee" in said or "SENSITIVE" in said


def test_a_policy_acts_without_jax_and_nothing_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys, quorum_rl\n"
        "assert not {'jax', 'numpy', 'quorum_rl.policy'} & set(sys.modules)\n"
        "quorum_rl.Policy, quorum_rl.Budget, quorum_rl.Certificate\n"
        "assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_fit_can_be_called_whatever_was_imported_before() -> None:
    for first in (
        "from quorum_rl.pipeline import FitSettings",
        "import quorum_rl.pipeline.plan",
        "",
    ):
        code = f"{first}\nfrom quorum_rl import fit\nimport quorum_rl\nassert callable(fit)\n"
        code += "assert quorum_rl.fit is fit"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_a_budget_knows_what_was_spent_and_is_kept_in_its_file(tmp_path: Path) -> None:
    from quorum_rl.budget import Ledger

    path = tmp_path / "desks.ledger"
    budget = quorum_rl.Budget.create(path, epsilon=3, delta=1e-5)
    assert (budget.epsilon, budget.delta, budget.spent(), budget.left()) == (3, 1e-5, 0, 3)
    event = TrainingEvent(sampling_rate=0.1, noise_multiplier=2.0, steps=10)
    with Ledger.open(path) as ledger:
        ledger.charge(event, run="a run", facts={"accepted": ["one-expert-each"]})
    again = quorum_rl.Budget.open(path)
    assert 0 < again.spent() < 3
    left = again.left()
    assert left is not None
    assert left + again.spent() == pytest.approx(3)
    assert again.spent(1e-3) < again.spent()
    made = again.certificate()
    assert isinstance(made, quorum_rl.Certificate)
    assert again.spent() <= made.epsilon <= again.spent() + 1e-4
    with pytest.raises(QuorumError, match="already"):
        quorum_rl.Budget.create(path, epsilon=9, delta=1e-5)
    with pytest.raises(QuorumError, match="no ledger"):
        quorum_rl.Budget.open(tmp_path / "none")


def test_a_research_budget_has_no_limit(tmp_path: Path) -> None:
    budget = quorum_rl.Budget.create(tmp_path / "r", epsilon=None, delta=1e-5, kind="research")
    assert budget.epsilon is None
    assert budget.left() is None
    assert budget.spent() == 0


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The logs of somebody who has never heard of Quorum: two desks, one episode of two steps."""
    path = tmp_path / "logs.parquet"
    columns = {
        "desk": ["b", "b", "a", "a"],
        "day": [1, 1, 1, 1],
        "tick": [0, 1, 0, 1],
        "price": [1.0, 2.0, 3.0, 4.0],
        "volume": [0.1, 0.2, 0.3, 0.4],
        "order": [0, 1, 1, 0],
        "profit": [0.0, 1.0, 2.0, 3.0],
        "closed": [False, True, False, True],
    }
    pq.write_table(pa.table(columns), path)
    return path


COLUMNS = {"expert": "desk", "episode": "day", "step": "tick", "observation": ["price", "volume"],
           "action": "order", "reward": "profit", "terminated": "closed"}  # fmt: skip


def test_demonstrations_are_opened_from_tables_with_names_of_their_own(table: Path) -> None:
    log = quorum_rl.Demonstrations.open(table, Declared(2, 2, horizon=3), COLUMNS)
    assert log.expert_count == 2
    np.testing.assert_array_equal(log.episode(0).rewards, [2, 3])
    np.testing.assert_allclose(log.episode(1).observations[:2], [[1, 0.1], [2, 0.2]], rtol=1e-6)
    saved = table.with_suffix(".arrow")
    save_demonstrations(log, saved)
    assert quorum_rl.Demonstrations.open(saved).transition_count == 4
    with pytest.raises(QuorumError, match="leave both out"):
        quorum_rl.Demonstrations.open(saved, Declared(2, 2, horizon=3))
    with pytest.raises(QuorumError, match=r"'expret' \(did you mean expert\?\)"):
        quorum_rl.Demonstrations.open(table, Declared(2, 2, horizon=3), {"expret": "desk"})


def test_experts_and_logs_of_ones_own_need_the_promise_that_they_belong_together(
    table: Path, tmp_path: Path
) -> None:
    """Experts as they are go straight into a fit; before anything is charged it asks for names."""
    declared = Declared(2, 2, horizon=3, p_min=0.3, minimum_experts=100, minimum_trajectories=2)
    two = pq.read_table(table)
    many = pa.concat_tables(
        two.set_column(
            0, "desk", [[f"{name}{number:03d}" for name in two["desk"].to_pylist()]]
        ).set_column(1, "day", [[day] * 4])
        for number in range(60)
        for day in (1, 2)
    )
    pq.write_table(many, table)
    log = quorum_rl.Demonstrations.open(table, declared, COLUMNS)
    experts = CallableExperts(
        [lambda states: np.full((len(states), 2), 0.5)] * 120,
        observation_size=2,
        action_count=2,
        p_min=0.3,
    )
    with pytest.raises(QuorumError, match="accept by name: logs-from-queried-policies"):
        quorum_rl.fit(
            log,
            experts,
            epsilon=50,
            delta=1e-3,
            settings=FitSettings(method="selective", least_released=0),
            folder=tmp_path / "run",
            report=lambda _: None,
        )
    assert not (tmp_path / "run").exists()


def test_a_fit_says_what_it_takes_and_refuses_an_option_that_there_is_not(table: Path) -> None:
    takes = inspect.signature(quorum_rl.fit).parameters
    assert all(option.kind is not option.VAR_KEYWORD for option in takes.values())
    assert (takes["learner"].default, takes["folder"].default) == ("auto", "runs/fit")
    log = quorum_rl.Demonstrations.open(table, Declared(2, 2, horizon=3), COLUMNS)
    with pytest.raises(TypeError, match="lerner"):
        quorum_rl.fit(log, epsilon=1, delta=1e-3, lerner="bc")  # type: ignore[call-arg]
