"""Training a population: it learns, and neither stopping nor chunks nor waves change what.

On a CPU, chunks, interruptions and the company of other agents change no bit, as long as a device
has the same number of agents. Another number of them may round differently, and training, which is
chaotic, enlarges that: 1e-3 of a weight after 300 iterations.
"""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.experts.ppo import training
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.training import (
    JudgedAgents,
    PopulationProgress,
    Stopped,
    WaveState,
    load_standing,
    save_standing,
    train_population,
)

CONFIGURATION: dict[str, Any] = {"world": "CartPole", "hidden": (8,), "seed": 1}


def assert_same(judged: JudgedAgents, other: JudgedAgents) -> None:
    for found, expected in zip(jax.tree.leaves(judged), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(found, expected)


def again(trained: Any, **how: Any) -> JudgedAgents:
    world, plan, recipe, seed, *_ = trained
    judged, chosen = train_population(world, plan, recipe, seed=how.pop("seed", seed), **how)
    assert len(chosen) == plan.experts
    return judged


def stopped_after(calls: int, trained: Any, **how: Any) -> WaveState:
    """Where training stands when the report asks to stop at its call of that number."""
    counted = 0

    def report(progress: PopulationProgress, standing: WaveState) -> bool:
        nonlocal counted
        del progress, standing
        counted += 1
        return counted == calls

    with pytest.raises(Stopped) as stopped:
        again(trained, report=report, **how)
    return stopped.value.standing


def test_agents_learn_to_balance(trained: Any) -> None:
    # A random policy stays up for 22 steps; these agents had 19,200 steps each.
    assert trained.judged.returns.mean() > 120
    assert trained.judged.returns.max() == 200
    chosen = trained.judged.returns[trained.chosen]
    assert chosen.mean() > np.delete(trained.judged.returns, trained.chosen).mean()


def test_the_same_seed_gives_the_same_agents_bit_for_bit_and_another_seed_others(
    trained: Any,
) -> None:
    assert_same(again(trained), trained.judged)
    other = again(trained, seed=2)
    assert (np.asarray(other.network[0].weight) != trained.judged.network[0].weight).all()


@pytest.mark.parametrize("iterations_per_chunk", [1, 7, 1000])
def test_the_length_of_chunks_changes_no_bit(trained: Any, iterations_per_chunk: int) -> None:
    assert_same(again(trained, iterations_per_chunk=iterations_per_chunk), trained.judged)


def test_progress_counts_every_step_and_reports_returns(trained: Any) -> None:
    seen: list[PopulationProgress] = []
    again(trained, iterations_per_chunk=100, report=lambda progress, _: seen.append(progress))
    total = trained.plan.agents * trained.plan.total_steps
    assert [progress.steps for progress in seen] == [total // 3, 2 * total // 3, total]
    assert {progress.total_steps for progress in seen} == {total}
    assert 15 < seen[0].mean_return < seen[1].mean_return < seen[2].mean_return <= 200


@pytest.mark.parametrize("calls", [1, 20, 38], ids=["early", "half way", "before judging"])
def test_stopping_saving_and_going_on_changes_no_bit(
    trained: Any, tmp_path: Path, calls: int
) -> None:
    path = tmp_path / "standing.safetensors"
    save_standing(stopped_after(calls, trained), path, CONFIGURATION)
    standing = load_standing(path, trained.world, trained.recipe, CONFIGURATION)
    assert standing.iteration == min(8 * calls, 300)
    assert_same(again(trained, standing=standing), trained.judged)


def test_a_standing_can_be_gone_on_from_more_than_once(trained: Any) -> None:
    standing = stopped_after(30, trained)
    assert_same(again(trained, standing=standing), trained.judged)
    assert_same(again(trained, standing=standing), trained.judged)


@pytest.fixture(scope="module")
def in_waves(trained: Any) -> tuple[Any, JudgedAgents]:
    """A short training of twelve agents in three waves, and what came of it."""
    world, plan, recipe, seed, *_ = trained
    short = replace(plan, settings=6, total_steps=10 * recipe.steps_per_iteration)
    made = (world, short, recipe, seed)
    return made, again(made, agents_per_wave=4)


def test_other_waves_change_no_bit_of_agents_and_returns(
    in_waves: tuple[Any, JudgedAgents],
) -> None:
    made, judged = in_waves
    # Waves of three are filled up to four, so each of the two devices still has two agents.
    assert_same(again(made, agents_per_wave=3), judged)
    assert len(np.unique(judged.returns)) > 6


def test_a_wave_has_left_the_devices_when_the_next_one_is_made(
    in_waves: tuple[Any, JudgedAgents], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, alive = [], []

    def report(_: PopulationProgress, standing: WaveState) -> bool:
        assert standing.agents is not None
        shown.append(weakref.ref(standing.agents.networks.actor[0].weight))
        return False

    make = training._new_agents

    def watched(*how: Any) -> Any:
        alive.append(sum(reference() is not None for reference in shown))
        return make(*how)

    monkeypatch.setattr(training, "_new_agents", watched)
    again(in_waves[0], agents_per_wave=4, report=report)
    assert alive == [0, 0, 0]


@pytest.mark.parametrize("calls", [1, 3, 6])
def test_stopping_in_any_wave_and_going_on_changes_no_bit(
    in_waves: tuple[Any, JudgedAgents], tmp_path: Path, calls: int
) -> None:
    made, judged = in_waves
    path = tmp_path / "standing.safetensors"
    standing = stopped_after(calls, made, agents_per_wave=4)
    assert (standing.judged is None) == (calls <= 2)  # a wave has two chunks
    save_standing(standing, path, CONFIGURATION)
    loaded = load_standing(path, made[0], made[2], CONFIGURATION)
    assert_same(again(made, standing=loaded, agents_per_wave=4), judged)


def test_going_on_does_not_depend_on_the_copies_that_filled_up_the_devices(trained: Any) -> None:
    standing = stopped_after(30, trained)
    filled: Any = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf[:2]]), standing.agents)
    assert_same(again(trained, standing=standing._replace(agents=filled)), trained.judged)


def test_going_on_with_other_waves_finishes_the_one_under_way(
    in_waves: tuple[Any, JudgedAgents],
) -> None:
    made, judged = in_waves
    standing = stopped_after(5, made, agents_per_wave=4)
    assert_same(again(made, standing=standing, agents_per_wave=3), judged)


def test_seeds_may_be_large(in_waves: tuple[Any, JudgedAgents]) -> None:
    made, judged = in_waves
    large = stopped_after(1, made, agents_per_wave=4, seed=2**31 + 1)
    assert large.agents is not None
    assert (large.agents.networks.actor[0].weight != judged.network[0].weight[:4]).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 2}, "begun with seed = 1, not 2"),
        ({"hidden": (8, 8)}, r"begun with hidden = \[8\], not \[8, 8\]"),
        ({"discount": 0.9}, "begun with discount = None, not 0.9"),
    ],
)
def test_a_standing_of_another_configuration_is_refused_by_what_differs(
    trained: Any, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    path = tmp_path / "standing.safetensors"
    save_standing(WaveState(trained.judged, None, 0, 0), path, CONFIGURATION)
    with pytest.raises(QuorumError, match=message):
        load_standing(path, trained.world, trained.recipe, {**CONFIGURATION, **changed})


def test_a_file_that_is_no_standing_is_refused(trained: Any, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "other.safetensors"
    save_file({"weights": np.zeros(3)}, path)
    with pytest.raises(QuorumError, match="holds no standing"):
        load_standing(path, trained.world, trained.recipe, CONFIGURATION)
    with pytest.raises(QuorumError, match="no such file"):
        load_standing(tmp_path / "none", trained.world, trained.recipe, CONFIGURATION)


def test_experts_see_raw_observations(trained: Any, recipe: PpoRecipe) -> None:
    """The saved policy alone, run by NumPy on raw observations of Gymnasium, balances as judged."""
    import gymnasium

    best = int(trained.chosen[np.argmax(trained.judged.returns[trained.chosen])])
    layers = [
        (np.float64(layer.weight[best]), np.float64(layer.bias[best]))
        for layer in trained.judged.network
    ]
    env: Any = gymnasium.make("CartPole-v1", max_episode_steps=200)
    survived = []
    for episode in range(5):
        observation, _ = env.reset(seed=episode)
        for step in range(200):
            hidden = np.tanh(observation @ layers[0][0] + layers[0][1])
            action = int(np.argmax(hidden @ layers[1][0] + layers[1][1]))
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                survived.append(step + 1)
                break
    assert len(recipe.hidden) + 1 == len(layers)
    assert np.mean(survived) > 150
