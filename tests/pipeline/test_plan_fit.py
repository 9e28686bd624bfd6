"""What a fit will spend: within the budget, nearly all of it, and said before it is."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.errors import QuorumError
from quorum_rl.judging import Judges
from quorum_rl.learners import get_learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline import FitPlan, FitSettings, plan_fit
from quorum_rl.privacy import ReleaseEvent, TrainingEvent, total_delta, total_epsilon
from quorum_rl.privacy.calibration import noise_multiplier_for

SMALL = get_learner("cql", hidden_sizes=(8,))
LARGE = get_learner("cql", hidden_sizes=(256, 256))
DECLARED = Declared(2, 4, 10, p_min=0.1, minimum_experts=2000, minimum_trajectories=20)
EPSILON, DELTA = 4.0, 1e-5
# A given number of iterations is planned quickly.
FEW = FitSettings(method="selective", iterations=16).filled()

PUBLISHED = FitSettings(method="selective", mode="paper").filled()


def planned(
    chosen: FitSettings = FEW, declared: Declared = DECLARED, learner: Any = SMALL, **choices: Any
) -> FitPlan:
    budget = {"epsilon": EPSILON, "delta": DELTA}
    return plan_fit(declared, learner, settings=chosen, **{**budget, **choices})


@pytest.fixture(scope="module", name="both")
def _both() -> FitPlan:
    return planned()


def test_both_stages_take_place_and_together_spend_nearly_all_and_no_more(both: FitPlan) -> None:
    first, second = both.events
    assert isinstance(first, ReleaseEvent)
    assert isinstance(second, TrainingEvent)
    assert total_delta(both.events, EPSILON) <= DELTA
    assert 0.99 * EPSILON < total_epsilon(both.events, DELTA) <= EPSILON
    assert both.notes == ()


def test_the_events_are_of_the_steps_that_will_be_taken(both: FitPlan) -> None:
    _, training = both.events
    assert isinstance(training, TrainingEvent)
    assert both.private is not None
    assert training.steps == both.private_steps == FEW.private_steps
    assert training.sampling_rate == both.private.sampling_rate == FEW.sampling_rate
    assert training.noise_multiplier == both.private.noise_multiplier
    assert both.private.expected_batch == FEW.sampling_rate * 2000
    assert both.plain_steps == round(both.private_steps / 19)  # of twenty steps one is plain


def test_accounting_the_stages_together_needs_less_noise_than_adding_up_their_parts(
    both: FitPlan,
) -> None:
    assert both.private is not None
    apart = noise_multiplier_for(
        steps=both.private_steps,
        sampling_rate=both.private.sampling_rate,
        epsilon=(1 - FEW.release_share) * EPSILON,
        delta=0.2 * DELTA,
    )
    assert both.private.noise_multiplier < 0.99 * apart


@settings(max_examples=8, derandomize=True)
@given(
    epsilon=st.floats(0.2, 8.0),
    log_delta=st.floats(-8.0, -3.0),
    experts=st.integers(20, 5000),
    share=st.floats(0.05, 1.0),
    rate=st.floats(0.05, 1.0),
    steps=st.integers(50, 5000),
    method=st.sampled_from(["selective", "dp-sgd"]),
)
def test_no_plan_spends_more_than_its_budget(
    epsilon: float,
    log_delta: float,
    experts: int,
    share: float,
    rate: float,
    steps: int,
    method: Any,
) -> None:
    chosen = replace(
        FEW, release_share=share, sampling_rate=rate, private_steps=steps, method=method
    )
    delta = 10**log_delta
    plan = planned(chosen, replace(DECLARED, minimum_experts=experts), epsilon=epsilon, delta=delta)
    assert plan.events
    assert total_delta(plan.events, epsilon) <= delta
    assert plan.private_steps + plan.plain_steps > 0


def test_with_a_given_noise_steps_are_taken_until_the_budget_is_spent() -> None:
    plan = planned(replace(FEW, private_steps=None, noise_multiplier=3.0))
    assert plan.private is not None
    assert plan.private.noise_multiplier == 3.0
    assert total_delta(plan.events, EPSILON) <= DELTA
    release, training = plan.events
    assert isinstance(training, TrainingEvent)
    more = replace(training, steps=round(1.01 * training.steps) + 1)
    assert total_delta([release, more], EPSILON) > DELTA


def test_given_noise_and_fewer_steps_than_it_allows_are_both_kept() -> None:
    plan = planned(replace(FEW, private_steps=7, noise_multiplier=3.0))
    assert plan.private is not None
    assert (plan.private_steps, plan.private.noise_multiplier) == (7, 3.0)


@pytest.mark.parametrize(
    ("steps", "noise", "says"),
    [
        (
            100_000,
            3.0,
            r"noise multiplier of 3 the budget is enough for \d+ private steps, not 100",
        ),
        (None, 0.3, "enough for 0 private steps, not one"),
    ],
)
def test_steps_and_noise_that_do_not_fit_the_budget_are_refused(
    steps: int | None, noise: float | None, says: str
) -> None:
    with pytest.raises(QuorumError, match=says):
        planned(replace(FEW, method="dp-sgd", private_steps=steps, noise_multiplier=noise))


def test_where_nothing_could_be_released_every_step_is_private_and_a_note_says_so() -> None:
    plan = planned(declared=replace(DECLARED, minimum_experts=10))
    assert plan.release is None
    assert plan.private is not None
    assert plan.plain_steps == 0
    assert plan.notes == (
        "about 0 transitions would be released with 0.5 of epsilon, too few to pay, so every step "
        "is private",
    )
    assert 0.99 * EPSILON < total_epsilon(plan.events, DELTA) <= EPSILON
    assert plan.notes[0] in plan.describe()


@pytest.mark.parametrize("iterations", [None, 16])
def test_a_budget_too_small_for_any_release_is_no_error_but_makes_every_step_private(
    iterations: int | None,
) -> None:
    chosen = FitSettings(method="selective", iterations=iterations, release_share=0.05)
    few = replace(DECLARED, minimum_experts=5)
    plan = planned(chosen, few, epsilon=0.1, delta=1e-8)
    assert plan.release is None
    assert plan.private is not None
    assert "nothing could be released even with all of epsilon" in plan.describe()


def test_where_private_steps_would_be_noise_the_release_gets_everything_and_a_note_says_so(
    both: FitPlan,
) -> None:
    """A larger net has more parameters to hide an expert in, and as large a gradient as before."""
    chosen = replace(FEW, iterations=4)
    plan = planned(chosen, replace(DECLARED, minimum_experts=100), LARGE)
    assert plan.private is None
    assert plan.private_steps == 0
    assert plan.plain_steps == FEW.release_only_steps
    (note,) = plan.notes
    assert "private steps would be mostly noise" in note
    assert note in plan.describe()
    assert 0.99 * EPSILON < total_epsilon(plan.events, DELTA) <= EPSILON
    assert both.private is not None  # the small net with more experts does train privately


def test_private_steps_have_the_rate_that_suits_their_noise_and_number(both: FitPlan) -> None:
    """16 · √(noise of the mean / steps): with four times the steps half the rate, though each of
    them has twice the noise; with a quarter of the experts twice the rate."""
    alone = replace(FEW, method="dp-sgd")
    plan = planned(alone)
    longer = planned(replace(alone, private_steps=4 * 8000))
    fewer = planned(alone, replace(DECLARED, minimum_experts=500))
    assert plan.private is not None
    noise = plan.private.noise_multiplier / plan.private.expected_batch
    expected = 16 * (noise / 8000**0.5 / 8000) ** 0.5
    assert plan.private_learning_rate == pytest.approx(expected)
    assert longer.private_learning_rate == pytest.approx(expected / 2, rel=0.01)
    assert fewer.private_learning_rate == pytest.approx(2 * expected)
    assert f"learning rate {both.private_learning_rate:.2g}" in both.describe()


def test_a_rate_that_is_given_is_taken_and_mode_paper_has_one_for_all_steps() -> None:
    asked = replace(FEW, private_learning_rate=0.5)
    assert planned(asked).private_learning_rate == 0.5
    published = replace(PUBLISHED, private_steps=500, learning_rate=3e-4)
    assert planned(published).private_learning_rate == 3e-4
    with pytest.raises(QuorumError, match="private_learning_rate is open, and the optimiser 'sgd'"):
        planned(replace(FEW, optimiser="sgd"))
    assert planned(replace(asked, optimiser="sgd")).private_learning_rate == 0.5


def test_a_release_as_small_as_one_likes_can_be_asked_for() -> None:
    small = replace(FEW, iterations=2)
    assert planned(small).release is None
    wanted = planned(replace(small, least_released=0)).release
    assert wanted is not None
    assert 0 < wanted.expected_transitions < FEW.least_released


def test_prefixes_that_reach_little_of_a_long_episode_are_not_released_and_a_note_says_so() -> None:
    usual = planned().release
    assert usual is not None
    share = usual.expected_transitions / usual.event.iterations / DECLARED.horizon
    assert planned(replace(FEW, least_reached=0.99 * share)).release == usual
    short = replace(FEW, least_reached=1.01 * share)
    plan = planned(short)
    assert plan.release is None
    (note,) = plan.notes
    assert note.endswith("of at most 10 steps long, too short to pay, so every step is private")
    assert planned(replace(short, release_share=1.0)).release is not None  # asked for, so made


def test_a_release_alone_gets_all_of_epsilon_or_is_refused() -> None:
    alone = planned(replace(FEW, release_share=1.0))
    assert alone.release is not None
    assert alone.release.event in alone.events
    assert (alone.private, alone.plain_steps) == (None, FEW.release_only_steps)
    few = replace(DECLARED, minimum_experts=3)
    with pytest.raises(QuorumError, match="nothing can be released with all of epsilon"):
        planned(replace(FEW, release_share=1.0), few)


def test_experts_who_cannot_be_queried_make_every_step_private() -> None:
    plan = planned(can_query=False)
    assert plan.release is None
    assert plan.private is not None
    assert "cannot be queried" in plan.describe()
    assert plan.events == planned(replace(FEW, method="dp-sgd")).events


def test_experts_without_a_floor_are_released_from_with_random_stopping() -> None:
    plan = planned(replace(FEW, stop_probability=0.05), replace(DECLARED, p_min=None))
    assert plan.release is not None
    assert plan.release.event.p_min == 0
    assert plan.release.event.stop_probability == 0.05


@pytest.mark.parametrize(("each", "reserved"), [(2, 1), (4, 3), (20, FitSettings().pool_limit)])
def test_a_release_leaves_every_expert_a_trajectory_to_train_on(each: int, reserved: int) -> None:
    many = replace(DECLARED, minimum_trajectories=each)
    plan = planned(FitSettings(method="selective", least_released=0), many)
    assert plan.release is not None
    assert 1 <= plan.release.event.pool_size <= reserved


def test_where_each_expert_has_one_trajectory_nothing_is_released() -> None:
    plan = planned(FEW, replace(DECLARED, minimum_trajectories=1))
    assert plan.release is None
    assert plan.plain_steps == 0


@pytest.mark.parametrize("method", ["selective", "dp-sgd"])
def test_an_undeclared_number_of_experts_is_refused(method: Any) -> None:
    with pytest.raises(QuorumError, match="declare minimum_experts"):
        planned(replace(FEW, method=method), replace(DECLARED, minimum_experts=None))


def test_the_plan_says_what_will_be_spent_released_and_done(both: FitPlan) -> None:
    said = both.describe()
    assert both.private is not None
    for part in (
        f"epsilon = {EPSILON:g} at delta = {DELTA:g}, of which the stages together spend 4",
        "release: 16 trajectories",
        "of at least 2000 experts",
        f"private steps: 8000, each expert drawn with probability {FEW.sampling_rate:g}",
        f"noise multiplier {both.private.noise_multiplier:.4g}",
        "steps without noise: 421",
    ):
        assert part in said


def test_mode_paper_splits_and_calibrates_as_published() -> None:
    """The coin p enters the rate, q = p·b/m over all steps, and both stages are added up."""
    chosen = replace(PUBLISHED, release_share=0.4, private_share=0.25, private_steps=500)
    plan = planned(chosen)
    release, training = plan.events
    assert isinstance(release, ReleaseEvent)
    assert isinstance(training, TrainingEvent)
    assert release.mode == "paper"
    assert release.pool_size == 0
    assert (training.steps, training.sampling_rate) == (500, chosen.sampling_rate)
    assert plan.plain_steps == 1500
    assert training.noise_multiplier == noise_multiplier_for(
        steps=2000,
        sampling_rate=0.25 * training.sampling_rate,
        epsilon=0.6 * EPSILON,
        delta=(1 - 0.9) * DELTA,
    )
    assert any("claim does not hold" in note for note in plan.notes)
    assert plan.recipe.shared_optimiser


def test_mode_paper_with_all_of_epsilon_for_the_release_has_no_private_steps() -> None:
    plan = planned(replace(PUBLISHED, release_share=1.0))
    assert plan.private is None
    assert [type(event) for event in plan.events] == [ReleaseEvent]
    with pytest.raises(QuorumError, match="mode paper needs it"):
        planned(replace(PUBLISHED, private_steps=None, noise_multiplier=2.0))


def test_the_non_private_plan_has_no_events_and_says_that_it_is_not_private() -> None:
    plan = planned(FitSettings(method="non-private"), replace(DECLARED, minimum_experts=None))
    assert plan.events == ()
    assert "NOT PRIVATE" in plan.describe()


@pytest.mark.parametrize(
    "choice",
    [
        {"sampling_rate": 1.01},
        {"sampling_rate": 0.0},
        {"release_share": 0.0},
        {"private_share": 1.5},
        {"method": "magic"},
        {"private_steps": 0},
        {"release_only_steps": 0},
        {"learning_rate": 0.0},
        {"private_learning_rate": float("nan")},
        {"clip_norm": 0.0},
        {"transitions_per_expert": 0},
        {"local_steps": 0},
        {"local_rate": -1.0},
        {"mode": "paper"},  # local updates are not the paper's
    ],
)
def test_settings_out_of_range_are_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(QuorumError):
        FitSettings(**choice)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"averaging": 1.1}, "averaging is 1.1"),
        ({"optimiser": "lion"}, "optimiser 'lion'"),
        ({"clip_norm": 1e-16}, "clip_norm is 1e-16"),
    ],
)
def test_what_training_would_refuse_is_refused_by_the_plan(
    choice: dict[str, Any], says: str
) -> None:
    """The release comes first, and would be paid for in vain."""
    with pytest.raises(QuorumError, match=says):
        planned(replace(FEW, **choice))


def test_more_judges_than_one_sum_has_room_for_are_refused_before_anything_is_paid() -> None:
    """A sample of them may be few enough for steps."""
    declared = Declared(2, 1, 5, minimum_experts=20_000_000)
    few = FitSettings(method="dp-sgd", sampling_rate=0.01, private_steps=10)

    def plan(share: float) -> FitPlan:
        learner = get_learner("bc", hidden_sizes=(2,))
        judges = Judges(share=share)
        return plan_fit(declared, learner, epsilon=1.0, delta=1e-9, settings=few, judges=judges)

    assert plan(0.1).judging is not None
    with pytest.raises(QuorumError, match="a sum over 18,000,000 experts, leaves nothing"):
        plan(0.9)
