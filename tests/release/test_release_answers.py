"""Nothing that an expert answers stops a release that is paid for: what is no answer counts 0."""

from asyncio import CancelledError
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fits import crowd, fitted, named
from hostile_models import write_model
from numbered_logs import scene, seeded, states

from quorum_rl.errors import QuorumError
from quorum_rl.experts import (
    CallableExperts,
    LoggedExperts,
    OnnxExperts,
    UnloggedExperts,
    expert_set,
    smoothed_by,
)
from quorum_rl.experts.onnx_process import OnnxProcess
from quorum_rl.experts.policies import Policy
from quorum_rl.experts.smoothing import Rule
from quorum_rl.privacy.planner import ReleasePlan

SOUND = [0.9, 0.1]
OWN = 20  # the first states of a log, where every expert answers as it should


def raising(error: BaseException) -> Any:
    def answer(_: Any) -> npt.ArrayLike:
        raise error

    return answer


FAULTS: dict[str, Any] = {
    "NaN": lambda count: np.full((count, 2), np.nan),
    "infinite": lambda count: np.tile([np.inf, -np.inf], (count, 1)),
    "negative": lambda count: np.tile([1.2, -0.2], (count, 1)),
    "sum": lambda count: np.full((count, 2), 0.9),
    "below the floor": lambda count: np.tile([0.95, 0.05], (count, 1)),
    "shape": lambda count: np.full((count, 3), 1 / 3),
    "no numbers": lambda count: [["left", "right"]] * count,
    "exception": raising(ZeroDivisionError("a policy of somebody else")),
    "exit": raising(SystemExit(3)),
    "cancelled": raising(CancelledError()),
}


def failing(fault: Any) -> Policy:
    """Answers as the others do in the states that it met, and not in those that others reach."""

    def policy(asked: npt.NDArray[np.float32]) -> npt.ArrayLike:
        met = asked[:, :1] < OWN
        answer = sound(asked) if met.all() else fault(len(asked))
        return (
            np.where(met, sound(asked), answer) if np.shape(answer) == (len(asked), 2) else answer
        )

    return policy


def sound(asked: npt.NDArray[np.float32]) -> npt.ArrayLike:
    return np.tile(SOUND, (len(asked), 1))


def asked(policies: list[Policy], row_by_row: bool = True) -> LoggedExperts:
    return LoggedExperts(
        CallableExperts(
            policies, observation_size=1, action_count=2, p_min=0.1, row_by_row=row_by_row
        )
    )


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("row_by_row", [True, False])
def test_an_answer_that_is_none_counts_0_from_there_on(
    fault: str, row_by_row: bool, sharp: ReleasePlan, research: Path
) -> None:
    """The threshold lies between four experts and five: a missing one is seen at once."""
    one = scene([5] * 5)
    high = replace(sharp, event=replace(sharp.event, threshold=4.5))
    policies = [sound, failing(FAULTS[fault]), sound, sound, sound]
    sound_alone = states(seeded(one._replace(experts=asked([sound] * 5)), high, research))
    found = states(seeded(one._replace(experts=asked(policies, row_by_row)), high, research))
    assert max(sound_alone) > OWN
    assert found == [state for state in sound_alone if state < OWN]


@pytest.mark.parametrize("fault", ["NaN", "exception", "exit"])
def test_one_expert_cannot_keep_a_release_from_a_run(fault: str, tmp_path: Path) -> None:
    """The attack: raise after the charge, and the next run trains without what it paid for."""
    one = named(crowd(), f"an expert who answers {fault}")
    policies = [sound] * 399 + [lambda some: FAULTS[fault](len(some))]
    made = fitted(one, tmp_path / "run", experts=asked(policies))
    assert made.released is not None
    assert len(made.released) > 0


def test_a_release_that_takes_every_answer_as_it_comes_is_seen(
    sharp: ReleasePlan, research: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expert_set, "distributions_or_nan", lambda answers, _: answers)
    with pytest.raises(AssertionError):
        test_an_answer_that_is_none_counts_0_from_there_on("below the floor", True, sharp, research)


@pytest.mark.parametrize("rule", [None, "greedy", "uniform mixture"])
def test_a_smoothed_expert_without_an_answer_has_none_whatever_the_rule(rule: Rule | None) -> None:
    """A floor under nothing is nothing."""
    some = np.arange(2 * OWN, dtype=np.float32)[:, None]
    for fault in FAULTS.values():
        experts: UnloggedExperts = CallableExperts(
            [sound, failing(fault)], observation_size=1, action_count=2, p_min=0.1
        )
        if rule is not None:
            experts = smoothed_by(rule, experts, 0.2)
        taken = experts.taken_probabilities(slice(None), some, np.zeros(len(some), np.int64))
        np.testing.assert_array_equal(taken[1, :OWN], taken[0, :OWN])
        assert np.isnan(taken[1, OWN:]).all()
        assert np.isfinite(taken[0]).all()


def test_an_expert_cannot_change_what_the_next_one_sees() -> None:
    def writes(asked: npt.NDArray[np.float32]) -> npt.ArrayLike:
        asked[:] = 0
        return sound(asked)

    def sees(asked: npt.NDArray[np.float32]) -> npt.ArrayLike:
        return np.tile(SOUND if asked[0, 0] == 7 else SOUND[::-1], (len(asked), 1))

    for row_by_row in (True, False):
        taken = asked([writes, sees], row_by_row).taken_probabilities(slice(None), [[7.0]], [0])
        np.testing.assert_allclose(taken, [[0.9], [0.9]])


@pytest.fixture(name="asked_by_onnx")
def _asked_by_onnx(tmp_path: Path) -> Any:
    """Four sound experts and one of some kind, in ONNX files."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")

    def made(kind: str, start: float) -> LoggedExperts:
        kinds = ["sound", kind, "sound", "sound", "sound"]
        files = [write_model(tmp_path / f"{n}.onnx", one, start) for n, one in enumerate(kinds)]
        return LoggedExperts(
            OnnxExperts.from_files(
                files, observation_size=1, action_count=2, p_min=0.1, answer_seconds=0.8
            )
        )

    return made


@pytest.mark.parametrize("kind", ["hangs", "crashes"])
def test_a_model_that_hangs_or_crashes_after_the_charge_counts_0(
    kind: str, asked_by_onnx: Any, sharp: ReleasePlan, research: Path
) -> None:
    one = scene([5] * 5)
    high = replace(sharp, event=replace(sharp.event, threshold=4.5))
    sound_alone = states(seeded(one, high, research))
    harm = sorted(set(sound_alone))[-2]  # the last states that are reached
    found = states(seeded(one._replace(experts=asked_by_onnx(kind, harm)), high, research))
    assert found == [state for state in sound_alone if state < harm]
    assert found


def test_a_release_in_which_a_model_may_raise_is_seen(
    asked_by_onnx: Any, sharp: ReleasePlan, research: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Any = partial(OnnxProcess.answers, strict=True)
    monkeypatch.setattr(OnnxProcess, "answers", lambda *given, **_: answers(*given))
    with pytest.raises(QuorumError, match="died"):
        test_a_model_that_hangs_or_crashes_after_the_charge_counts_0(
            "crashes", asked_by_onnx, sharp, research
        )
