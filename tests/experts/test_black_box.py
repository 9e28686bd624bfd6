"""Experts given as Python functions, and Stable-Baselines3 models wrapped as such."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import softmax

from quorum_rl.errors import QuorumError
from quorum_rl.experts.checks import Probabilities, check_batch_independence
from quorum_rl.experts.policies import CallableExperts, Policy

OBSERVATIONS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
EXAMPLE = Path(__file__).parents[2] / "examples" / "sb3_experts.py"


def linear_policy(seed: int) -> Policy:
    weights = np.random.default_rng(seed).normal(size=(4, 3))
    return lambda states: softmax(np.asarray(states, np.float64) @ weights, axis=1)


def experts_of(*policies: Policy, p_min: float = 0.0, row_by_row: bool = True) -> CallableExperts:
    return CallableExperts(
        policies, observation_size=4, action_count=3, p_min=p_min, row_by_row=row_by_row
    )


@pytest.mark.parametrize("row_by_row", [True, False])
def test_callables_are_asked_in_order_and_answer_as_themselves(row_by_row: bool) -> None:
    policies = [linear_policy(seed) for seed in range(5)]
    experts = experts_of(*policies, row_by_row=row_by_row)
    found = experts.probabilities(OBSERVATIONS)
    assert found.shape == (5, 6, 3)
    for expert, policy in enumerate(policies):
        np.testing.assert_allclose(found[expert], np.asarray(policy(OBSERVATIONS)), rtol=1e-13)
    np.testing.assert_array_equal(experts.probabilities_of(slice(1, 4), OBSERVATIONS), found[1:4])
    np.testing.assert_array_equal(
        experts.probabilities_of(slice(None, None, -2), OBSERVATIONS), found[::-2]
    )


def test_callables_see_single_precision_rows_whatever_is_asked() -> None:
    seen: list[npt.NDArray[Any]] = []

    def spy(states: npt.NDArray[np.float32]) -> npt.ArrayLike:
        seen.append(states)
        return np.full((len(states), 3), 1 / 3)

    experts_of(spy).probabilities(OBSERVATIONS.astype(np.float64))
    assert [(states.shape, states.dtype) for states in seen] == [((1, 4), np.dtype(np.float32))] * 6
    seen.clear()
    experts_of(spy, row_by_row=False).probabilities(OBSERVATIONS.tolist())
    assert [(states.shape, states.dtype) for states in seen] == [((6, 4), np.dtype(np.float32))]


def batch_normalised(states: npt.NDArray[np.float32]) -> npt.ArrayLike:
    """A policy left in training mode: it subtracts the mean of whatever else is asked."""
    return np.asarray(softmax((states - states.mean(axis=0))[:, :3], axis=1))


def test_an_answer_that_depends_on_the_batch_is_found_and_named() -> None:
    experts = experts_of(linear_policy(0), batch_normalised, row_by_row=False)
    with pytest.raises(QuorumError, match=r"expert 1 in state 0 .* state is asked alone .*row_by"):
        check_batch_independence(experts, OBSERVATIONS, tolerance=1e-12)


def test_an_answer_that_depends_on_the_other_experts_is_found_and_named() -> None:
    class Coupled(CallableExperts):
        """The last expert of a query answers otherwise when it has company."""

        def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
            found = super().probabilities_of(experts, observations)
            if len(found) > 1:
                found[-1] = found[-1, :, ::-1]
            return found

    experts = Coupled([linear_policy(0), linear_policy(1)], observation_size=4, action_count=3)
    with pytest.raises(QuorumError, match=r"expert 1 in state \d .* expert is asked alone"):
        check_batch_independence(experts, OBSERVATIONS)


def test_row_by_row_evaluation_is_independent_of_the_batch_whatever_the_callable_does() -> None:
    experts = experts_of(linear_policy(0), batch_normalised)
    check_batch_independence(experts, OBSERVATIONS)
    shuffled = experts.probabilities(OBSERVATIONS[::-1])[:, ::-1]
    np.testing.assert_array_equal(shuffled, experts.probabilities(OBSERVATIONS))


@pytest.mark.parametrize("row_by_row", [True, False])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda states: np.full((len(states), 2), 0.5), r"expert 1 answered .*must return"),
        (lambda states: np.full((len(states), 3), np.nan), "expert 1 in state 0, action 0 .*nan"),
        (lambda states: np.full((len(states), 3), 0.5), r"expert 1 in state 0 .*sum to 1\.5"),
        (lambda states: np.tile([0.9, 0.3, -0.2], (len(states), 1)), r"expert 1 .* -0\.2"),
    ],
    ids=["shape", "NaN", "sum", "negative"],
)
def test_a_planted_fault_is_reported_with_the_experts_index(
    fault: Policy, message: str, row_by_row: bool
) -> None:
    def sound(states: npt.NDArray[np.float32]) -> npt.ArrayLike:
        return np.tile([0.5, 0.3, 0.2], (len(states), 1))

    experts = experts_of(sound, fault, sound, p_min=0.05, row_by_row=row_by_row)
    with pytest.raises(QuorumError, match=message):
        experts.probabilities(OBSERVATIONS)
    experts.probabilities_of(slice(2, 3), OBSERVATIONS)


def test_a_set_without_policies_is_refused() -> None:
    with pytest.raises(QuorumError, match="there are no policies"):
        experts_of()


def test_no_states_are_answered_with_no_probabilities() -> None:
    assert experts_of(linear_policy(0)).probabilities(np.empty((0, 4))).shape == (1, 0, 3)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sb3_experts", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeTensor:
    """The few members of a torch tensor that the wrapper uses."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values

    def detach(self) -> "FakeTensor":
        return self

    def cpu(self) -> "FakeTensor":
        return self

    def numpy(self) -> npt.NDArray[Any]:
        return self.values


class FakePolicy:
    """The members that an actor-critic policy of Stable-Baselines3 shares with DQN's."""

    training = True

    def set_training_mode(self, mode: bool) -> None:
        self.training = mode

    def obs_to_tensor(self, observations: npt.NDArray[np.float32]) -> tuple[FakeTensor, bool]:
        return FakeTensor(observations), True


class FakeActorCritic(FakePolicy):
    def get_distribution(self, tensor: FakeTensor) -> SimpleNamespace:
        probabilities = FakeTensor(softmax(tensor.values[:, :3], axis=1))
        return SimpleNamespace(distribution=SimpleNamespace(probs=probabilities))


class FakeQ(FakePolicy):
    def q_net(self, tensor: FakeTensor) -> FakeTensor:
        return FakeTensor(tensor.values[:, :3])


def test_wrapped_stable_baselines_models_give_their_distribution_or_greedy_action(
    example: ModuleType,
) -> None:
    models = [SimpleNamespace(policy=FakeActorCritic()), SimpleNamespace(policy=FakeQ())]
    experts = example.sb3_experts(models, observation_size=4, action_count=3)
    found = experts.probabilities(OBSERVATIONS)
    np.testing.assert_allclose(found[0], softmax(OBSERVATIONS[:, :3], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(found[1], np.eye(3)[OBSERVATIONS[:, :3].argmax(axis=1)])
    assert not any(model.policy.training for model in models)


@pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is not None, reason="it is installed"
)
def test_without_stable_baselines_the_example_says_what_to_install_in_one_sentence() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr.strip().splitlines() == [
        "This example needs Stable-Baselines3: install it with pip install stable-baselines3."
    ]
