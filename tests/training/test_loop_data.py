"""What each kind of step reads, what stops a training, and that all three configurations learn."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import MIXED, A, B, recipe_of, run_of, same_bits, stacked, trained

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Cql
from quorum_rl.training.contributions import Gradient
from quorum_rl.training.data import ExpertData
from quorum_rl.training.loop import begin, result_of, train
from quorum_rl.training.mechanism import PrivateStep
from quorum_rl.training.recipe import Recipe, new_run, shuffled_schedule
from quorum_rl.types import Transition

ONLY_PLAIN, ONLY_PRIVATE = np.full(8, A, np.int8), np.full(8, B, np.int8)
APART = np.stack([ONLY_PLAIN, ONLY_PRIVATE] * 2 + [MIXED[:8]], axis=1)
WITHOUT = recipe_of(private_shape=None)  # for programs without private steps


@pytest.fixture(scope="module", name="plain")
def _plain(transitions: Callable[..., Transition]) -> Transition:
    return transitions(8, 12)


def poisoned(transitions: Transition) -> Transition:
    nowhere = jnp.full_like(transitions.observation, jnp.nan)
    unknown = jnp.full_like(transitions.reward, jnp.nan)
    return transitions._replace(observation=nowhere, next_observation=nowhere, reward=unknown)


def shifted(transitions: Transition) -> Transition:
    return transitions._replace(observation=transitions.observation + 1)


def test_steps_without_noise_never_read_private_data(data: ExpertData, plain: Transition) -> None:
    bad = ExpertData(poisoned(data.transitions), data.offsets)
    after = trained(WITHOUT, [run_of(0)], ONLY_PLAIN, bad, plain)
    same_bits(after, trained(WITHOUT, [run_of(0)], ONLY_PLAIN, None, plain))


def test_private_steps_never_read_released_data(data: ExpertData, plain: Transition) -> None:
    after = trained(recipe_of(), [run_of(0)], ONLY_PRIVATE, data, poisoned(plain))
    same_bits(after, trained(recipe_of(), [run_of(0)], ONLY_PRIVATE, data, None))


def test_neither_reads_the_others_data_where_both_are_computed_and_one_is_kept(
    data: ExpertData, plain: Transition
) -> None:
    def layers(data: ExpertData, plain: Transition) -> Any:
        after = trained(recipe_of(), list(map(run_of, range(5))), APART, data, plain)
        return np.asarray(after.params["action_values"][0].weight)

    usual = layers(data, plain)
    other_experts = layers(ExpertData(shifted(data.transitions), data.offsets), plain)
    other_release = layers(data, shifted(plain))
    np.testing.assert_array_equal(other_experts[0], usual[0])
    np.testing.assert_array_equal(other_release[1], usual[1])
    assert (other_experts[1] != usual[1]).any()
    assert (other_release[0] != usual[0]).any()


@pytest.mark.parametrize(
    ("schedule", "has_private", "has_plain", "says"),
    [
        (ONLY_PRIVATE, False, True, "private steps but no private data"),
        (ONLY_PLAIN, True, False, "nothing was released for them"),
        (MIXED, False, True, "private steps but no private data"),
        (MIXED, True, False, "nothing was released for them"),
        (APART, True, False, "nothing was released for them"),
    ],
)
def test_a_kind_of_step_without_data_is_refused(
    schedule: Any,
    has_private: bool,
    has_plain: bool,
    says: str,
    data: ExpertData,
    plain: Transition,
) -> None:
    given = (data if has_private else None, plain if has_plain else None)
    with pytest.raises(QuorumError, match=says):
        trained(recipe_of(), [run_of(0)], schedule, *given)


def test_private_steps_need_a_shape_and_plain_ones_none(
    data: ExpertData, plain: Transition
) -> None:
    with pytest.raises(QuorumError, match="no step for them"):
        trained(WITHOUT, [run_of(0)], MIXED, data, plain)
    after = trained(WITHOUT, [run_of(0, step=None)], ONLY_PLAIN, data, plain)
    assert after.step.tolist() == [8]


def test_parameters_that_stop_being_numbers_stop_the_run_with_what_to_change(
    plain: Transition,
) -> None:
    far = plain._replace(reward=plain.reward * jnp.inf)
    with pytest.raises(QuorumError, match=r"before step 4: lower the learning rate"):
        trained(WITHOUT, [run_of(0)], ONLY_PLAIN, None, far)


def test_the_end_of_a_prefix_bootstraps_and_the_end_of_an_episode_does_not(
    plain: Transition,
) -> None:
    def after(**ends: bool) -> Any:
        flags = {name: jnp.full(len(plain.reward), value) for name, value in ends.items()}
        changed = plain._replace(**flags)
        return trained(WITHOUT, [run_of(0)], ONLY_PLAIN, None, changed).params

    goes_on = after(terminated=False, truncated=False)
    same_bits(after(terminated=False, truncated=True), goes_on)
    ends = after(terminated=True, truncated=False)
    assert (ends["action_values"][0].weight != goes_on["action_values"][0].weight).any()


@pytest.mark.parametrize("rates", [(0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_a_learning_rate_that_is_none_is_refused(rates: tuple[float, float]) -> None:
    with pytest.raises(QuorumError, match="learning_rate is"):
        run_of(0, learning_rate=rates[0], private_learning_rate=rates[1])


EXPERTS, OF_EACH, RELEASED, STEPS = 400, 5, 40, 80


def choices_in_a_bandit(count: int, seed: int) -> Transition:
    """Three states on a line; an action is worth 1 if it is the state's number, and 80% are."""
    random = np.random.default_rng(seed)
    state = random.integers(3, size=count)
    action = np.where(random.random(count) < 0.8, state, random.integers(3, size=count))
    seen = np.eye(3)[state] + random.normal(scale=0.1, size=(count, 3))
    return Transition(
        observation=jnp.asarray(seen, jnp.float32),
        action=jnp.asarray(action, jnp.int32),
        reward=jnp.asarray(action == state, jnp.float32),
        next_observation=jnp.asarray(seen, jnp.float32),
        terminated=jnp.ones(count, bool),
        truncated=jnp.zeros(count, bool),
    )


def test_selective_private_and_non_private_training_are_one_program_and_all_learn() -> None:
    """A guess finds one action in three; these find all three."""
    data = ExpertData(
        choices_in_a_bandit(EXPERTS * OF_EACH, 1), jnp.arange(0, EXPERTS * OF_EACH + 1, OF_EACH)
    )
    released = choices_in_a_bandit(RELEASED, 2)
    # Steps without noise see the released transitions, or in the upper bound everything.
    plain = Transition(*map(jnp.concatenate, zip(released, data.transitions, strict=True)))
    step = PrivateStep(
        sampling_rate=0.2,
        clip_norm=1.0,
        noise_multiplier=1.0,
        expected_batch=80.0,
        chunk=112,
        contribution=Gradient(transitions=2),
    )
    recipe = Recipe(
        learner=Cql(hidden_sizes=()), private_shape=step.shape, batch_size=32, averaging=0.9
    )
    schedules = {
        "selective": (shuffled_schedule(STEPS // 2, STEPS // 2, 0), (0, RELEASED)),
        "dp-sgd": (shuffled_schedule(STEPS, 0, 0), (0, RELEASED)),
        "non-private": (shuffled_schedule(0, STEPS, 0), (RELEASED, len(plain.reward))),
    }
    runs = stacked(
        [
            new_run(
                noise_key=[number, 1],
                public_key=[number, 2],
                learning_rate=3e-2,
                private=step,
                plain_part=part,
            )
            for number, (_, part) in enumerate(schedules.values())
        ]
    )
    schedule = np.stack([kinds for kinds, _ in schedules.values()], axis=1)
    state = train(
        recipe,
        runs,
        begin(recipe, runs, 3, 3),
        schedule,
        private=data,
        plain=plain,
        steps_at_once=STEPS,
    )
    params = result_of(recipe, state)
    for number, name in enumerate(schedules):
        own = jax.tree.map(lambda leaf, at=number: leaf[at], params)
        assert recipe.learner.act(own, jnp.eye(3)).tolist() == [0, 1, 2], name
