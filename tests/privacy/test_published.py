"""The published settings: what was claimed for them, and what they truly cost."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom

from quorum_rl.errors import QuorumError
from quorum_rl.privacy import TrainingEvent, total_delta, total_epsilon
from quorum_rl.privacy.accounting import training_losses
from quorum_rl.privacy.losses import Losses
from quorum_rl.privacy.pairs import pair_of
from reproduction.published import (
    GAPS,
    advanced_composition,
    coin_losses,
    exact_composition,
    looseness,
    published_cost,
    published_release,
    published_steps,
    true_cost,
)
from reproduction.published_settings import (
    BEST_SETTINGS,
    DELTA,
    EXPERTS,
    PublishedSetting,
    published_split,
)


def setting_of(world: str, learner: str, epsilon: float) -> PublishedSetting:
    (found,) = (
        setting
        for setting in BEST_SETTINGS
        if (setting.world, setting.learner, setting.epsilon) == (world, learner, epsilon)
    )
    return found


LUNAR_LANDER = setting_of("LunarLander", "BCQ", 10)  # b = 128, p = .5, s = 20, ε2 = 2.5
MIXED = [
    LUNAR_LANDER,
    setting_of("CartPole", "BCQ", 7.5),
    setting_of("HIV", "BCQ", 7.5),
    setting_of("CartPole", "CQL", 7.5),
]
PRIVATE_ONLY = [setting_of("HIV", "CQL", 5), setting_of("CartPole", "BCQ", 5)]
RELEASED_ONLY = [setting for setting in BEST_SETTINGS if setting.private_share == 0]


def test_there_are_24_settings_8_without_private_training_and_6_with_nothing_else() -> None:
    assert len(set(BEST_SETTINGS)) == 24
    assert len({(s.world, s.learner, s.epsilon) for s in BEST_SETTINGS}) == 24
    assert len(RELEASED_ONLY) == 8
    assert sum(setting.private_share == 1 for setting in BEST_SETTINGS) == 6
    for setting in BEST_SETTINGS:
        assert (setting.noise_multiplier is None) == (setting.private_share == 0)
        assert (setting.iterations == 0) == (setting.private_share == 1)


@pytest.mark.parametrize("setting", BEST_SETTINGS)
def test_the_shares_add_up_to_the_claim(setting: PublishedSetting) -> None:
    assert published_cost(setting) == pytest.approx((setting.epsilon, DELTA))
    split = published_split(setting)
    assert (split.release_epsilon == 0) == (setting.iterations == 0)
    if setting.private_share > 0:
        assert split.training_epsilon > 0


def test_the_release_has_the_published_constants() -> None:
    event = published_release(setting_of("CartPole", "CQL", 10))
    each = advanced_composition(7.5, 0.9 * DELTA, 25)
    pair = pair_of(event)
    assert (pair.epsilon_remove, pair.delta) == pytest.approx(each, rel=1e-6)
    assert event.threshold == pytest.approx(1360, rel=0.01)


def test_the_steps_follow_from_the_published_account() -> None:
    """They exhaust ε2 at q = p·b/m; half a per cent more would not fit."""
    steps = published_steps(LUNAR_LANDER)
    event = TrainingEvent(sampling_rate=0.5 * 128 / EXPERTS, noise_multiplier=20.0, steps=steps)
    assert total_delta([event], 2.5) <= DELTA / 10
    assert total_delta([replace(event, steps=round(1.005 * steps))], 2.5) > DELTA / 10
    assert published_steps(setting_of("Acrobot", "CQL", 5)) == 0


def test_half_private_steps_cost_3_72_where_2_5_was_claimed() -> None:
    cost = true_cost(LUNAR_LANDER)
    assert cost.training_epsilon == pytest.approx(3.72, rel=0.01)
    assert cost.training_ratio == pytest.approx(cost.training_epsilon / 2.5)


@pytest.mark.parametrize("setting", MIXED)
def test_a_visible_coin_costs_more_than_was_claimed(setting: PublishedSetting) -> None:
    cost = true_cost(setting)
    assert cost.training_ratio is not None
    assert 1.05 < cost.training_ratio < 1.5
    # Together with a release whose account was loose, the sum is not exceeded for all that.
    assert max(cost.release_epsilon, cost.training_epsilon) < cost.total_epsilon
    assert cost.total_epsilon < cost.release_epsilon + cost.training_epsilon
    assert cost.total_ratio < 0.5


@pytest.mark.parametrize("setting", PRIVATE_ONLY)
def test_where_every_step_is_private_the_claim_is_the_cost(setting: PublishedSetting) -> None:
    cost = true_cost(setting)
    assert cost.training_ratio == pytest.approx(1, abs=2e-4)
    assert cost.training_ratio is not None
    assert cost.training_ratio <= 1
    assert cost.release_epsilon == 0
    assert cost.total_epsilon == pytest.approx(cost.training_epsilon, rel=1e-9)


@pytest.mark.parametrize("setting", RELEASED_ONLY)
def test_a_release_alone_costs_less_than_half_of_the_claim(setting: PublishedSetting) -> None:
    cost = true_cost(setting)
    assert cost.steps == 0
    assert cost.training_ratio is None
    # At its own δ; in total it may use the δ of the stage that there is not.
    assert cost.release_epsilon >= cost.total_epsilon > 0
    assert cost.total_ratio < 0.5
    event = published_release(setting)
    share = published_split(setting).release_delta
    assert cost.release_epsilon == pytest.approx(total_epsilon([event], share), rel=1e-6)


def test_what_no_number_covers_is_named() -> None:
    assert true_cost(LUNAR_LANDER).uncovered == ("G2", "G3", "G4", "G5", "G6", "G7", "G9")
    assert true_cost(PRIVATE_ONLY[0]).uncovered == ("G4", "G5", "G7", "G9")
    assert true_cost(RELEASED_ONLY[0]).uncovered == ("G3", "G4", "G6", "G7", "G9")
    assert set(true_cost(LUNAR_LANDER).uncovered) == set(GAPS)


# ---- The coin --------------------------------------------------------------------------------

RATE, NOISE = 0.04, 4.0


def coins(share: float, steps: int) -> tuple[Losses, Losses]:
    return coin_losses(sampling_rate=RATE, noise_multiplier=NOISE, private_share=share, steps=steps)


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.6])
def test_a_visible_coin_is_the_average_over_the_number_of_private_steps(epsilon: float) -> None:
    """Whoever sees the coins knows how many steps were private; δ is linear in that."""
    steps, share = 40, 0.3
    one = pld.from_gaussian_mechanism(
        NOISE, sampling_prob=RATE, value_discretization_interval=2.0**-10
    )
    given_count = np.array(
        [0.0, *(one.self_compose(n).get_delta_for_epsilon(epsilon) for n in range(1, steps + 1))]
    )
    averaged = float(binom.pmf(np.arange(steps + 1), steps, share) @ given_count)
    ours = max(losses.delta(epsilon) for losses in coins(share, steps))
    assert ours == pytest.approx(averaged, rel=1e-2, abs=1e-9)


def test_coins_that_always_fall_alike_are_no_coins() -> None:
    event = TrainingEvent(sampling_rate=RATE, noise_multiplier=NOISE, steps=100)
    for always, training in zip(coins(1.0, 100), training_losses([event]), strict=True):
        assert always.delta(0.5) == pytest.approx(training.delta(0.5), rel=1e-9)


def test_the_published_rate_claims_less_than_the_visible_coin_costs() -> None:
    hidden = TrainingEvent(sampling_rate=0.5 * RATE, noise_multiplier=NOISE, steps=1000)
    visible = max(losses.delta(1.0) for losses in coins(0.5, 1000))
    assert visible > 3 * total_delta([hidden], 1.0)


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        (lambda: coins(0.3, 200), lambda: coins(0.5, 200)),
        (lambda: coins(0.5, 100), lambda: coins(0.5, 200)),
    ],
)
def test_more_private_steps_cost_more(
    cheap: Callable[[], tuple[Losses, Losses]], dear: Callable[[], tuple[Losses, Losses]]
) -> None:
    # At an ε of 1, δ is 2.26e-13 of slack and cut-off tail, and the rest is the FFT's rounding.
    for epsilon in (0.1, 0.3, 0.5):
        assert cheap()[0].delta(epsilon) < dear()[0].delta(epsilon)


# ---- Advanced composition --------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "iterations"), [(5.0, 20), (7.5, 25), (7.5, 100), (10.0, 25)])
def test_advanced_composition_holds_and_is_a_factor_of_two_and_more_loose(
    epsilon: float, iterations: int
) -> None:
    assert 2.2 < looseness(epsilon, 0.9 * DELTA, iterations) < 2.8
    each = advanced_composition(epsilon, 0.9 * DELTA, iterations)
    # Theorem 3.20, from which the corollary is taken where ε < 1, holds at these ε as well.
    tail = math.sqrt(2 * iterations * math.log(2 / (0.9 * DELTA))) * each.epsilon
    assert tail + iterations * each.epsilon * math.expm1(each.epsilon) < epsilon


def test_exact_composition_is_that_of_randomised_response() -> None:
    each = advanced_composition(7.5, 3e-4, 25)
    truth = math.exp(each.epsilon) / (1 + math.exp(each.epsilon))
    response = pld.from_randomized_response(
        2 * (1 - truth), 2, value_discretization_interval=1e-5
    ).self_compose(25)
    left = 1 - (1 - 3e-4) / (1 - each.delta) ** 25  # δ besides what is lost outright
    theirs = response.get_epsilon_for_delta(left)
    assert theirs - 25 * 1e-5 <= exact_composition(each, 25, 3e-4) <= theirs


def test_a_setting_without_its_noise_or_its_release_is_refused_by_name() -> None:
    with pytest.raises(QuorumError, match="noise multiplier is not given"):
        published_steps(replace(LUNAR_LANDER, noise_multiplier=None))
    with pytest.raises(QuorumError, match="has no release"):
        published_release(PRIVATE_ONLY[0])
