"""Fits of continuous actions: what is planned, charged, learned, judged, exported and refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from dosing import BOUNDS, dosing, right

from quorum_rl.budget import check_certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations, save_demonstrations
from quorum_rl.pipeline import FitPlan, FitSettings, Fitted, fit, plan_asked
from quorum_rl.policy import Policy
from quorum_rl.report import publish
from quorum_rl.report.facts import Judged
from quorum_rl.report.gathering import _judged

SMALL: Final = FitSettings(private_steps=20, local_steps=10, transitions_per_expert=8)
JUDGED: Final[dict[str, Any]] = {"judges": 0.2, "return_bounds": (-5, 0)}
MOST_NOISE: Final = "quorum_rl.pipeline.planning.MOST_NOISE"
SEEN: Final = np.linspace(-0.9, 0.9, 20, dtype=np.float32)[:, None]


def fitted(folder: Path, log: Demonstrations | None = None, **chosen: Any) -> Fitted:
    usual: dict[str, Any] = {
        "epsilon": 20.0,
        "delta": 1e-3,
        "accepted": ["one-expert-each", "own-names"],
        "settings": SMALL,
        "seed": 0,
    }
    return fit(log or dosing(folder.name), folder=folder, **usual | chosen)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    with pytest.MonkeyPatch.context() as context:
        context.setattr(MOST_NOISE, 1.0)  # so that values are fitted of so few
        return fitted(tmp_path_factory.mktemp("doses") / "run", **JUDGED)


def off(made: Fitted) -> Any:
    return np.abs(made.act(SEEN) - right(SEEN)).mean(axis=0)


def test_a_fit_learns_the_doses_and_its_files_give_them(done: Fitted) -> None:
    low, high = np.array(BOUNDS).T
    assert (off(done) < (high - low) / 8).all(), off(done)
    assert done.plan.release is None
    again = Policy.load(done.folder / "policy.safetensors")
    np.testing.assert_array_equal(again.act(SEEN), done.act(SEEN))
    assert again.dictionary == dosing().declared.dictionary
    check_certificate(done.folder / "certificate.json")


def test_a_killed_run_goes_on_to_the_same_bits(
    done: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MOST_NOISE, 1.0)

    class PowerCutError(Exception):
        pass

    def cut(steps: int, _: int) -> bool:
        if steps:
            raise PowerCutError
        return False

    log = dosing("doses again")
    with pytest.raises(PowerCutError):
        fitted(tmp_path / "run", log, progress=cut, **JUDGED)
    made = fitted(tmp_path / "run", log, **JUDGED)
    np.testing.assert_array_equal(made.act(SEEN), done.act(SEEN))
    assert len(read_ledger(made.folder / "ledger.jsonl").charges) == 3


def test_judges_say_how_near_the_policy_comes_and_what_it_earns(done: Fitted) -> None:
    said = done.judging
    assert said is not None
    assert said.value is not None
    assert (said.value.low, said.value.high) == (-5, 0)  # what is right earns nothing, hence 0
    assert said.better == "cannot tell"
    assert said.mean_return is not None
    assert len(said.agreement_by_action) == 2
    words = said.describe(("dose", "flow"))
    assert "how near the policy comes to what they did, 1 being the same" in words
    assert "as near, in 'dose'" in words
    assert "the policy earns: cannot tell" in words


def test_values_are_asked_for_where_noise_does_not_move_them_too_far() -> None:
    def plan(experts: int) -> FitPlan:
        return plan_asked(
            replace(dosing().declared, minimum_experts=experts), epsilon=3.0, delta=1e-3,
            judges=0.15, return_bounds=(-5, 0),
        )  # fmt: skip

    few, many = plan(300), plan(1000)
    assert few.judging is not None
    assert few.judging.values is None
    assert any("continuous actions many experts" in note for note in few.notes)
    assert many.judging is not None
    assert many.judging.values is not None


def test_a_number_of_an_action_without_a_name_is_no_action(done: Fitted) -> None:
    assert done.judging is not None
    words = done.judging.describe()
    assert "as near, in number 1 of the action" in words
    assert "action 1" not in words
    assert "as near, in &#x27;flow&#x27;" in done._repr_html_()
    found = _judged(done.folder)
    assert isinstance(found, Judged)
    assert [one.what for one in found.by_action] == [
        "as near, in number 0 of the action",
        "as near, in number 1 of the action",
    ]


def test_a_bundle_says_between_what_each_number_lies(tmp_path: Path) -> None:
    made = fitted(tmp_path / "run", dosing(None), seed=None)
    publish(made.folder, tmp_path / "bundle")
    report = (tmp_path / "bundle" / "report.html").read_text()
    assert "and answers with 2 (dose, from -2 to 2; flow, from 0 to 1), step by step" in report
    assert "floor under every action" not in report
    text = (tmp_path / "bundle" / "README.txt").read_text()
    assert "What it answers, in this order:\n- dose, from -2 to 2\n- flow, from 0 to 1" in text


@pytest.mark.parametrize("learner", ["bc-gaussian", "td3-bc", "iql"])
def test_other_learners_of_continuous_actions_train(learner: str, tmp_path: Path) -> None:
    made = fitted(tmp_path / learner, learner=learner)
    low, high = np.array(BOUNDS).T
    assert ((made.act(SEEN) >= low) & (made.act(SEEN) <= high)).all()


def test_a_mapped_log_gives_the_same_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_demonstrations(dosing("mapped"), tmp_path / "log.arrow")
    # One step: the tests' compiler rounds two programs alike only so far.
    once = replace(SMALL, private_steps=1)
    held = fitted(tmp_path / "held" / "run", dosing("held"), settings=once)
    monkeypatch.setattr("quorum_rl.training.sources.MEMORY_SHARE", 0.0)
    log = Demonstrations.open(tmp_path / "log.arrow")
    mapped = fitted(tmp_path / "mapped" / "run", log, settings=once)
    np.testing.assert_array_equal(mapped.act(SEEN), held.act(SEEN))


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (
            {**JUDGED, "choose": ["bc", "td3-bc"]},
            "judges say what a policy earns at most, and that",
        ),
        ({"learner": "cql"}, "cql learns finite actions, and these are continuous"),
        (
            {"settings": replace(SMALL, method="solve", local_steps=None, private_steps=None)},
            "method solve learns finite actions, and these are continuous: give local",
        ),
    ],
)
def test_what_continuous_actions_do_not_go_with_is_refused_for_free(
    choices: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match=said):
        fitted(tmp_path / "run", **choices)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_the_papers_method_says_that_nothing_is_released(tmp_path: Path) -> None:
    selective = FitSettings(method="selective", private_steps=3, transitions_per_expert=4)
    made = fitted(tmp_path / "run", settings=replace(selective, allow_noise=True))
    assert made.released is None
    assert any("densities have no floor" in note for note in made.plan.notes)
