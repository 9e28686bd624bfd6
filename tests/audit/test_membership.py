"""The membership game: found by heart without privacy, and not with it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.audit.chain import Chain
from quorum_rl.audit.membership import Attack, GameOutput, attacks_on, membership_game
from quorum_rl.audit.pictures import draw_curves
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.pipeline import FitSettings
from quorum_rl.types import Released

EXPERTS = 16
SETTINGS = FitSettings(
    method="dp-sgd",
    private_steps=20,
    sampling_rate=0.5,
    transitions_per_expert=1,
    release_only_steps=60,
    learning_rate=0.05,
    batch_size=16,
    averaging=0.0,
)


@pytest.fixture(scope="module", name="log")
def _log() -> Demonstrations:
    """Every expert acts once, in a state of its own, as chance will have it."""
    rng = np.random.default_rng(0)
    states = np.repeat(10.0 * np.eye(EXPERTS), 2, axis=0)
    return from_episodes(
        Declared(2, EXPERTS, 1),
        expert=np.arange(EXPERTS),
        length=np.ones(EXPERTS, int),
        observations=states,
        actions=rng.integers(2, size=EXPERTS),
        rewards=np.zeros(EXPERTS),
        terminated=np.ones(EXPERTS, bool),
        truncated=np.zeros(EXPERTS, bool),
    )


@pytest.fixture(scope="module", name="attacks")
def _attacks(log: Demonstrations) -> list[Attack]:
    learner = Bc(hidden_sizes=())
    return membership_game(None, log, learner, epsilon=1.0, delta=0.01, settings=SETTINGS, games=8)


def test_whoever_is_learned_by_heart_is_found_and_with_privacy_nearly_nobody(
    attacks: list[Attack],
) -> None:
    found = {(attack.method, attack.name): attack.true_positives(0.02)[0] for attack in attacks}
    assert found["non-private", "likelihood of its actions, against shadows"] > 0.8
    assert max(share for (method, _), share in found.items() if method == "dp-sgd") < 0.3


def test_every_attack_scores_everybody_once_in_every_game(attacks: list[Attack]) -> None:
    for attack in attacks:
        if "shadows" not in attack.name:
            assert len(attack.members) == len(attack.others) == 8 * EXPERTS // 2
    assert {attack.method for attack in attacks} == {"dp-sgd", "non-private"}


def test_rates_are_counted_above_what_others_reach() -> None:
    attack = Attack("", "", np.array([3.0, 5.0, 7.0, 9.0]), np.arange(5.0))
    share, low, high = attack.true_positives(0.0)
    assert share == 0.75  # all but the 3, which one of the others passes
    assert low < share < high
    assert attack.true_positives(0.2)[0] == 0.75  # 4 may be passed, 3 itself is not
    assert attack.true_positives(0.4)[0] == 1.0
    # None of five may be passed, one, two, all.
    assert attack.curve(np.array([0.0, 0.001, 0.2, 0.4, 1.0])).tolist() == [0.75] * 3 + [1.0] * 2
    drawn = attack.to_json()["curve"]
    assert drawn["true_positives"][drawn["false_positives"].index(0.001)] == 0.75
    assert drawn["true_positives"][-1] == drawn["false_positives"][-1] == 1.0


def test_released_prefixes_point_to_whoever_would_have_made_them() -> None:
    chain = Chain(others=3, actions=2, horizon=2, p_min=0.1, leaves_at=0)
    log, learner = chain.log(True, 1, np.random.default_rng(0)), Bc(hidden_sizes=())
    steps = log.transitions([log.transition_count - 1])  # ends the episode at once
    steps = steps._replace(observation=jnp.zeros((1, 1)))
    released = Released(steps, np.array([0, 1]), 1, 2, 2)
    published = GameOutput(learner.init(jax.random.key(0), 1, 2), released)
    found = attacks_on(chain.experts(present=True), log, learner, published)
    np.testing.assert_allclose(found["released prefixes"], np.log([0.1, 0.1, 0.1, 0.9]))


def test_who_attacks_sees_observations_as_the_networks_do(log: Demonstrations) -> None:
    centre, scale = tuple(np.arange(EXPERTS) / 8), tuple(np.arange(1.0, EXPERTS + 1))
    learner = Bc(hidden_sizes=(), observation_centre=centre, observation_scale=scale)
    standardised = ((log.columns.observations - centre) / scale).astype(np.float32)
    seen = replace(log, columns=log.columns._replace(observations=standardised))
    published = GameOutput(learner.init(jax.random.key(0), EXPERTS, 2), None)
    found = attacks_on(None, log, learner, published)
    expected = attacks_on(None, seen, Bc(hidden_sizes=()), published)
    for name, scores in found.items():
        np.testing.assert_allclose(scores, expected[name], rtol=1e-5)


def test_the_curves_can_be_drawn(attacks: list[Attack]) -> None:
    figure = draw_curves([attack.to_json() for attack in attacks])
    assert [axes.get_title() for axes in figure.axes] == ["dp-sgd", "non-private"]
    assert all(axes.get_xscale() == "log" for axes in figure.axes)


def test_a_game_of_nobody_is_refused(log: Demonstrations) -> None:
    with pytest.raises(QuorumError, match="four experts"):
        membership_game(
            None,
            log.select(np.arange(2)),
            Bc(hidden_sizes=()),
            epsilon=1.0,
            delta=0.01,
            settings=SETTINGS,
            games=1,
        )
