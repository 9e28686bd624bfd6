"""Experts of continuous actions that somebody else wrote: functions and ONNX files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from aim_world import Aim
from scipy import stats

from quorum_rl.envs import get_world, with_params
from quorum_rl.errors import QuorumError
from quorum_rl.experts import CallableExperts, OnnxExperts, UnloggedExperts
from quorum_rl.logs import Demonstrations, collect, collect_from_gymnasium

BOUNDS = Aim().spaces.action_bounds
LOW, HIGH = np.array(BOUNDS, np.float32).T
SPREAD = np.array([0.5, 0.05])
Floats = npt.NDArray[np.float32]


def aims(seen: Floats) -> Any:
    """What is best in this world; far beyond the bounds at its edges."""
    return np.stack([5 + 20 * seen[:, 0], seen[:, 1]], axis=1)


def spread(seen: Floats) -> Any:
    return np.concatenate([aims(seen) / 10, np.tile(np.log(SPREAD), (len(seen), 1))], axis=1)


def callables(*policies: Callable[[Floats], Any], **changed: Any) -> CallableExperts:
    facts: dict[str, Any] = {"observation_size": 2, "action_count": 2, "action_bounds": BOUNDS}
    return CallableExperts(policies, **facts | changed)


def log_of(experts: UnloggedExperts, trajectories: int = 3) -> Demonstrations:
    return collect(experts, Aim(), trajectories=trajectories, seed=0)[0]


def steps(log: Demonstrations) -> Any:
    return log.transitions(np.arange(log.transition_count))


def model(path: Path, weight: Any, bias: Any, *, whole: bool = False) -> None:
    """A linear policy in a file; `whole` numbers are what is likeliest, as of finite actions."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Gemm", ["seen", "w", "b"], ["numbers"])]
    if whole:
        nodes.append(helper.make_node("ArgMax", ["numbers"], ["action"], axis=1))
    inputs = [helper.make_tensor_value_info("seen", kind, ["batch", 2])]
    last = ("action", onnx.TensorProto.INT64, 1) if whole else ("numbers", kind, len(bias))
    outputs = [helper.make_tensor_value_info(last[0], last[1], ["batch", last[2]])]
    held = [onnx.numpy_helper.from_array(np.asarray(array, np.float32), name)
            for array, name in ((weight, "w"), (bias, "b"))]  # fmt: skip
    graph = helper.make_graph(nodes, "policy", inputs, outputs, held)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def models(folder: Path, **changed: Any) -> OnnxExperts:
    pytest.importorskip("onnxruntime")
    facts: dict[str, Any] = {"observation_size": 2, "action_count": 2, "action_bounds": BOUNDS}
    return OnnxExperts.from_folder(folder, **facts | changed)


# --- what they do ---


@pytest.mark.parametrize("row_by_row", [True, False])
def test_who_answers_with_actions_takes_them_cut_to_the_bounds(row_by_row: bool) -> None:
    log = log_of(callables(aims, lambda seen: -aims(seen), row_by_row=row_by_row))
    assert log.declared.action_bounds == BOUNDS
    wanted = aims(np.asarray(steps(log).observation))
    wanted[log.transition_count // 2 :] *= -1
    np.testing.assert_allclose(steps(log).action, np.clip(wanted, LOW, HIGH), atol=1e-5)
    assert (np.asarray(steps(log).action)[:, 0] == 10).any()


def test_who_answers_with_spreads_draws_from_its_gaussian() -> None:
    """Kolmogorov and Smirnov's test; a right log fails once in 10^6 seeds."""
    log = log_of(callables(spread), trajectories=300)
    mean = aims(np.asarray(steps(log).observation)) / 10
    # The first number's mean lies near its lower bound; the second's is far from both.
    found = (np.asarray(steps(log).action) - mean)[:, 1] / SPREAD[1]
    assert stats.kstest(found, "norm").pvalue > 1e-6
    assert stats.kstest(found + 0.5, "norm").pvalue < 1e-12


def test_functions_act_in_gymnasium_too() -> None:
    def torque(seen: Floats) -> Any:
        return -seen[:, 2:]

    experts = CallableExperts(
        [torque], observation_size=3, action_count=1, action_bounds=((-2.0, 2.0),)
    )
    log, _ = collect_from_gymnasium(
        experts, "Pendulum-v1", {"max_episode_steps": 9}, trajectories=2, horizon=9, seed=0
    )
    wanted = np.clip(-np.asarray(steps(log).observation)[:, 2:], -2, 2)
    np.testing.assert_array_equal(steps(log).action, wanted)


@pytest.mark.parametrize("spreads", [False, True])
def test_onnx_files_do_what_the_same_functions_do(spreads: bool, tmp_path: Path) -> None:
    weight = np.array([[2.0, 0.0], [0.0, 1.0]])
    for number, sign in enumerate((1, -1)):
        bias = np.array([5.0, 0.0])
        layer = sign * weight, bias
        if spreads:
            layer = np.hstack([layer[0], np.zeros((2, 2))]), np.append(bias, np.log(SPREAD))
        model(tmp_path / f"{number}.onnx", *layer)

    def same(sign: int) -> Callable[[Floats], Any]:
        def act(seen: Floats) -> Any:
            mean = seen @ (sign * weight) + [5.0, 0.0]
            return np.hstack([mean, np.tile(np.log(SPREAD), (len(seen), 1))]) if spreads else mean

        return act

    found, wanted = log_of(models(tmp_path)), log_of(callables(same(1), same(-1)))
    np.testing.assert_allclose(steps(found).action, steps(wanted).action, atol=1e-5)
    np.testing.assert_allclose(found.columns.observations, wanted.columns.observations, atol=1e-5)


# --- what is refused ---


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda seen: np.zeros((len(seen), 3)), r"shape \(1, 3\): it must return actions of shape"),
        (lambda seen: np.zeros(len(seen)), r"shape \(1,\): it must return actions of shape \(1, 2"),
        (lambda seen: aims(seen) * np.nan, "answers nan: a mean and a spread must be finite"),
        (lambda seen: aims(seen) + np.inf, "answers inf: a mean and a spread must be finite"),
        (lambda seen: spread(seen) + np.array([0, 0, 0, np.nan]), "answers nan: a mean and a"),
        (
            lambda seen: spread(seen) + np.array([0, 0, 0, 1e4]),
            "answers 9997.*: a mean and",
        ),
    ],
)
def test_an_answer_that_is_no_action_gets_one_sentence(answer: Any, said: str) -> None:
    with pytest.raises(QuorumError, match=said):
        log_of(callables(spread, answer))


def test_enormous_actions_are_cut_and_warn_nobody() -> None:
    log = log_of(callables(lambda seen: np.tile([1e300, -1e300], (len(seen), 1))))
    assert (np.asarray(steps(log).action) == [10, -1]).all()


def test_finite_experts_do_not_act_where_actions_are_continuous_nor_the_other_way_round() -> None:
    finite = CallableExperts([lambda seen: np.full((len(seen), 2), 0.5)],
                             observation_size=2, action_count=2)  # fmt: skip
    with pytest.raises(QuorumError, match="are a finite list, but those of Aim continuous"):
        log_of(finite)
    world = get_world("CartPole")
    with pytest.raises(QuorumError, match="but those of CartPole a finite list"):
        collect(callables(aims), world, with_params(world, time_limit=3), trajectories=1)


def test_bounds_of_another_number_of_numbers_are_refused() -> None:
    with pytest.raises(QuorumError, match="2 numbers of an action have bounds, but action_count 1"):
        callables(aims, action_count=1)
    with pytest.raises(QuorumError, match="number 0 of an action is bounded by 3 and 1"):
        callables(aims, action_bounds=((3, 1), (0, 1)))


def test_nobody_asks_for_probabilities_or_a_floor() -> None:
    experts = callables(aims)
    with pytest.raises(QuorumError, match="they have densities"):
        experts.probabilities(np.zeros((1, 2)))
    with pytest.raises(QuorumError, match="densities have no floor"):
        experts.smoothed(0.02)


def test_files_that_do_not_fit_are_refused_when_they_are_opened(tmp_path: Path) -> None:
    for name, columns in (("three", 3), ("nan", 2), ("list", 2)):
        (tmp_path / name).mkdir()
        bias = np.full(columns, np.nan if name == "nan" else 0.0)
        model(tmp_path / name / "a.onnx", np.zeros((2, columns)), bias, whole=name == "list")
    with pytest.raises(QuorumError, match=r"a.onnx: the output has shape .*: expected \(batch, 2\) "
                                          r"or \(batch, 4\)"):  # fmt: skip
        models(tmp_path / "three")
    with pytest.raises(
        QuorumError, match=r"a.onnx: the output is a tensor\(int64\), and these act"
    ):
        models(tmp_path / "list", action_count=1, action_bounds=BOUNDS[:1])
    experts = models(tmp_path / "nan")
    with pytest.raises(QuorumError, match=r"expert 0 \(a.onnx\) in state 0 answers nan: a mean"):
        log_of(experts)
    with pytest.raises(QuorumError, match="continuous actions have no logits: leave output out"):
        models(tmp_path / "nan", output="logits")
