"""Fitted-Q estimates against values that are known by enumeration."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import fitted_q_estimate
from quorum_rl.logs import Demonstrations
from quorum_rl.types import Released, Transition

# Four states, of which the last ends the world; two actions. Probabilities are multiples of a
# tenth, so that ten transitions from each state and action can hold them exactly.
STATES, ACTIONS = 3, 2
TENTHS = np.array(  # of each successor
    [
        [[6, 3, 1, 0], [1, 8, 0, 1]],
        [[5, 0, 5, 0], [0, 2, 5, 3]],
        [[0, 9, 1, 0], [3, 0, 0, 7]],
    ]
)
REWARDS = np.array([[0.5, -0.5], [0.2, 2.0], [-1.0, 4.0]])
# Actions by state. One that changes its mind shows whether next states are asked for theirs.
CAUTIOUS, DARING, FICKLE = np.array([[0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]])

Floats = npt.NDArray[np.float64]


def _true_values(choice: npt.NDArray[np.int64], steps: int, discount: float) -> Floats:
    """The value of each state under a policy with `steps` steps to go, by enumeration."""
    values = np.zeros(STATES + 1)
    for _ in range(steps):
        following = TENTHS / 10 @ values
        values[:STATES] = [
            REWARDS[state, choice[state]] + discount * following[state, choice[state]]
            for state in range(STATES)
        ]
    return values[:STATES]


def _one_hot(states: npt.NDArray[Any]) -> Any:
    return np.eye(STATES + 1, dtype=np.float32)[states]


def _policy(choice: npt.NDArray[np.int64]) -> Any:
    return lambda observations: choice[observations.argmax(axis=1)]


def _released(rows: npt.ArrayLike, offsets: npt.ArrayLike) -> Released:
    """Prefixes of the given (state, action, next state)."""
    states, actions, next_states = np.array(rows).T
    starts = np.array(offsets)
    terminated = next_states == STATES
    last = np.isin(np.arange(len(states)), starts[1:] - 1)
    transitions: Any = Transition(
        observation=_one_hot(states),
        action=actions,
        reward=REWARDS[states, actions].astype(np.float32),
        next_observation=_one_hot(next_states),
        terminated=terminated,
        truncated=last & ~terminated,
    )
    return Released(transitions, starts, STATES + 1, ACTIONS, horizon=12)


@pytest.fixture(scope="module")
def exact() -> Released:
    """Every transition as often as it is probable, each a prefix of its own."""
    rows = [row for row, count in np.ndenumerate(TENTHS) for _ in range(count)]
    return _released(rows, range(len(rows) + 1))


@pytest.mark.parametrize("choice", [CAUTIOUS, DARING, FICKLE], ids=["cautious", "daring", "fickle"])
@pytest.mark.parametrize(("steps", "discount"), [(12, 1.0), (40, 0.9)])
def test_with_every_transition_in_its_proportion_the_estimate_is_the_true_value(
    exact: Released, choice: npt.NDArray[np.int64], steps: int, discount: float
) -> None:
    found = fitted_q_estimate(exact, _policy(choice), steps=steps, discount=discount)
    # The prefixes start in each state equally often.
    expected = _true_values(choice, steps, discount).mean()
    assert found.value == pytest.approx(expected, rel=1e-3)


def test_what_the_estimate_rests_on_is_part_of_it(exact: Released) -> None:
    found = fitted_q_estimate(exact, _policy(DARING))
    assert found.steps == 12  # the declared horizon
    assert (found.prefixes, found.transitions, found.longest_prefix) == (60, 60, 1)
    assert found.terminations == 11
    assert found.agreement == 0.5
    assert str(found).startswith("estimated, not measured")
    assert found == fitted_q_estimate(exact, _policy(DARING))  # the seed is fixed


def _sampled(prefixes: int, seed: int) -> Released:
    """Prefixes of random actions from the first state, of random lengths, none of them empty."""
    rng = np.random.default_rng(seed)
    rows, offsets = [], [0]
    for _ in range(prefixes):
        state, length = 0, rng.integers(1, 6)
        while state != STATES and length > 0:
            action = int(rng.integers(ACTIONS))
            successor = int(rng.choice(STATES + 1, p=TENTHS[state, action] / 10))
            rows.append((state, action, successor))
            state, length = successor, length - 1
        offsets.append(len(rows))
    return _released(rows, offsets)


def test_from_random_prefixes_the_estimate_is_within_its_error_of_the_true_value() -> None:
    # The seed is fixed. For a fresh one the chance of a false alarm is 0.0015: twice that of
    # Student's t with 19 degrees of freedom (20 resamples) beyond 4.
    for choice in (CAUTIOUS, DARING):
        found = fitted_q_estimate(_sampled(300, seed=1), _policy(choice), steps=12)
        expected = _true_values(choice, 12, 1.0)[0]
        assert 0 < found.standard_error < 0.5
        assert abs(found.value - expected) < 4 * found.standard_error
    both = [_true_values(choice, 12, 1.0)[0] for choice in (CAUTIOUS, DARING)]
    assert abs(both[0] - both[1]) > 1  # so one cannot pass for the other


def test_the_error_knows_that_start_states_are_a_sample(exact: Released) -> None:
    # With one step to go and certain rewards, nothing else is uncertain.
    found = fitted_q_estimate(exact, _policy(DARING), steps=1).standard_error
    values = np.repeat(_true_values(DARING, 1, 1.0), 20)
    expected = values.std() / np.sqrt(len(values))
    # The seed is fixed; 20 resamples are this far off with probability 0.002 (chi-squared).
    assert found == pytest.approx(expected, rel=0.5)


def test_the_error_shrinks_with_more_prefixes() -> None:
    few, many = (
        fitted_q_estimate(_sampled(count, seed=2), _policy(DARING)).standard_error
        for count in (40, 640)
    )
    # Four times smaller in theory; with 20 resamples each, twice smaller is certain enough.
    assert many < few / 2


def test_empty_prefixes_count_for_nothing(exact: Released) -> None:
    padded = np.repeat(exact.offsets, np.where(np.arange(len(exact.offsets)) % 7 == 0, 2, 1))
    with_empty = Released(exact.transitions, padded, STATES + 1, ACTIONS, horizon=12)
    assert len(with_empty) > len(exact)
    assert fitted_q_estimate(with_empty, _policy(DARING)) == fitted_q_estimate(
        exact, _policy(DARING)
    )


def test_demonstrations_are_refused() -> None:
    private: Any = object.__new__(Demonstrations)
    with pytest.raises(QuorumError, match="got Demonstrations: it takes Released"):
        fitted_q_estimate(private, _policy(DARING))


def test_an_empty_release_is_refused(exact: Released) -> None:
    nothing = Transition(*(field[:0] for field in exact.transitions))
    empty = Released(nothing, np.zeros(1, np.int64), STATES + 1, ACTIONS, horizon=12)
    with pytest.raises(QuorumError, match="the release is empty"):
        fitted_q_estimate(empty, _policy(DARING))


def test_an_action_that_was_never_released_is_refused(exact: Released) -> None:
    wider = Released(exact.transitions, exact.offsets, STATES + 1, ACTIONS + 1, horizon=12)
    with pytest.raises(QuorumError, match="action 2, which no released transition takes"):
        fitted_q_estimate(wider, _policy(np.array([2, 0, 0, 0])))


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"steps": 0}, "steps is 0"), ({"discount": 0.0}, "discount is"), ({"discount": 1.5}, "1.5")],
)
def test_impossible_settings_are_refused(
    exact: Released, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(QuorumError, match=says):
        fitted_q_estimate(exact, _policy(DARING), **changed)


@pytest.mark.parametrize("answer", [np.zeros(3, int), np.zeros((60,)), np.full(60, 2)])
def test_a_policy_must_answer_with_an_action_for_each_observation(
    exact: Released, answer: npt.NDArray[Any]
) -> None:
    with pytest.raises(QuorumError, match="the policy returns"):
        fitted_q_estimate(exact, lambda _: answer)
