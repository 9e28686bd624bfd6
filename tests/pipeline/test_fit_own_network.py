"""Fits of networks that are not dense: planned, paid, trained, interrupted, judged, published."""

import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import own_networks
import pytest
from dosing import dosing
from fits import Crowd, crowd, fitted, interrupted, same_weights
from own_networks import Alike, Steering

from quorum_rl.budget import check_certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import FitSettings, Fitted, fit, plan_asked
from quorum_rl.policy import Policy

LOCAL: Final = FitSettings(private_steps=30, local_steps=3, transitions_per_expert=4)
CHOICES: Final[dict[str, Any]] = {"experts": None, "settings": LOCAL, "learner": Alike()}
PARAMETERS: Final = 2 * 3 + 3 * 2 + 2
SEEN: Final = np.linspace(0, 5, 30, dtype=np.float32)[:, None]


@pytest.fixture(scope="module")
def everyone() -> Crowd:
    return crowd(identity="filtered")


@pytest.fixture(scope="module")
def done(everyone: Crowd, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fitted(everyone, tmp_path_factory.mktemp("own") / "run", **CHOICES)


def test_its_parameters_are_counted_and_its_size_is_left_alone(done: Fitted) -> None:
    plan = done.plan
    assert plan.learner == Alike()
    assert plan.private is not None
    step = plan.private
    alone = step.noise_multiplier / (step.expected_batch * math.sqrt(plan.private_steps))
    assert plan.noise == pytest.approx(alone * math.sqrt(PARAMETERS))
    assert "learner: Alike" in plan.describe()
    few: Any = {"epsilon": 0.1, "delta": 1e-4, "learner": Alike(filters=200)}
    declared = crowd(minimum=20).log.declared
    assert plan_asked(declared, **few).mostly_noise is not None


def test_it_is_paid_for_and_its_policy_is_kept(done: Fitted) -> None:
    assert read_ledger(done.folder / "ledger.jsonl").events == done.plan.events
    check_certificate(done.folder / "certificate.json")
    policy = Policy.load(done.folder / "policy.safetensors", learner=Alike())
    np.testing.assert_array_equal(policy.act(SEEN), done.act(SEEN))
    assert set(done.act(SEEN)) == {0}  # which nine in ten did
    assert policy.learner == "Alike"
    assert not (done.folder / "policy.onnx").exists()
    facts = json.loads((done.folder / "config.json").read_text())
    assert facts["learner"] == {"name": "Alike", "filters": 3}
    assert len(facts["learner_code"]) == 64


def test_an_interrupted_run_goes_on_to_the_same_bits(
    done: Fitted, everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    interrupted(everyone, folder, "quorum_rl.pipeline.run.policy_of", monkeypatch, **CHOICES)
    assert not folder.exists()  # that is asked before anything is spent
    at = "quorum_rl.budget.Budget.finite_certificate"
    interrupted(everyone, folder, at, monkeypatch, **CHOICES)
    with pytest.raises(QuorumError, match=r"learner\.filters = 3, not 4"):
        fitted(everyone, folder, **CHOICES | {"learner": Alike(filters=4)})
    with monkeypatch.context() as patched:
        patched.setattr(own_networks, "BIASES", 2)
        with pytest.raises(QuorumError, match="was begun with learner_code"):
            fitted(everyone, folder, **CHOICES)
    again = fitted(everyone, folder, **CHOICES)
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1
    assert same_weights(done, again)
    np.testing.assert_array_equal(again.act(SEEN), done.act(SEEN))


class Logits(Alike):
    def act(self, params: Any, observations: Any) -> Any:
        return self.outputs(params, observations)


def test_what_could_not_be_kept_is_refused_before_anything_is_written(
    everyone: Crowd, tmp_path: Path
) -> None:
    for learner, said in (
        (Logits(), "the method act of Logits returns"),
        (Alike, "give a learner, its name, or the class of a DenseLearner"),
        (Steering(), "the method act of Steering returns"),
    ):
        with pytest.raises(QuorumError, match=said):
            fitted(everyone, tmp_path / "run", **CHOICES | {"learner": learner})
    with pytest.raises(QuorumError, match="learner_settings are for a learner by name"):
        fitted(everyone, tmp_path / "run", learner_settings={"filters": 2}, **CHOICES)
    assert not (tmp_path / "run").exists()


def test_judges_may_choose_it_or_another() -> None:
    asked: dict[str, Any] = {"judges": 0.3, "return_bounds": (0, 5), "epsilon": 5, "delta": 0.01}
    plan = plan_asked(crowd().log.declared, choose=(Alike(), "bc"), settings=LOCAL, **asked)
    assert [type(learner).__name__ for learner in plan.candidates] == ["Alike", "Bc"]


def test_it_learns_continuous_actions_within_their_bounds(tmp_path: Path) -> None:
    log = dosing("steered")
    made = fit(
        log,
        epsilon=20.0,
        delta=1e-3,
        learner=Steering(),
        settings=LOCAL,
        seed=0,
        judges=0.2,
        accepted=["one-expert-each", "own-names"],
        folder=tmp_path / "run",
        report=lambda _: None,
    )
    policy = Policy.load(made.folder / "policy.safetensors", learner=Steering())
    acted = policy.act(SEEN)
    low, high = np.asarray(log.declared.action_bounds, np.float32).T
    assert acted.shape == (30, log.declared.action_count)
    assert ((low <= acted) & (acted <= high)).all()
    assert policy.continuous
