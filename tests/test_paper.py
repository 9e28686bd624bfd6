"""The paper's evaluation: its columns are what the paper ran, its stages say what they miss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from quorum_rl.envs import get_world
from quorum_rl.envs.hiv import Hiv
from quorum_rl.experts import Population, save_population
from quorum_rl.experts.networks import new_network
from quorum_rl.learners import Bcq, Cql
from quorum_rl.logs import Declared, collect, save_demonstrations
from quorum_rl.pipeline import FitPlan, Result, plan_fit
from reproduction.__main__ import main
from reproduction.columns import (
    EPSILONS,
    GRID_EPSILONS,
    ablation_columns,
    best_settings,
    grid_columns,
    learner_of,
    main_columns,
    published_column,
)
from reproduction.paper import Paper
from reproduction.population import some_of
from reproduction.published import published_release, published_steps
from reproduction.published_settings import (
    BEST_SETTINGS,
    DELTA,
    EXPERTS,
    P_MIN,
    WORLDS,
    PublishedSetting,
    published_split,
)
from reproduction.results import read, save

OBSERVATIONS = {"CartPole": 4, "Acrobot": 6, "LunarLander": 8, "HIV": 6}
RELEASES = [setting for setting in BEST_SETTINGS if setting.iterations and setting.private_share]
ALL_RELEASED = [setting for setting in BEST_SETTINGS if setting.private_share == 0]
ALL_PRIVATE = [setting for setting in BEST_SETTINGS if setting.private_share == 1]


def planned(setting: PublishedSetting, steps: int | None = None) -> FitPlan:
    facts = WORLDS[setting.world]
    declared = Declared(
        facts.actions,
        OBSERVATIONS[setting.world],
        facts.horizon,
        p_min=P_MIN,
        minimum_experts=EXPERTS,
        world=setting.world,
    )
    method = published_column(setting, steps)
    assert method.epsilon is not None
    learner = learner_of(declared, setting.learner)
    return plan_fit(
        declared, learner, epsilon=method.epsilon, delta=DELTA, settings=method.settings
    )


def named(setting: PublishedSetting) -> str:
    return f"{setting.world} {setting.learner} {setting.epsilon:g}"


@pytest.mark.parametrize("setting", RELEASES, ids=named)
def test_a_published_setting_is_run_with_the_papers_release_noise_and_steps(
    setting: PublishedSetting,
) -> None:
    plan = planned(setting)
    assert plan.release is not None
    assert plan.private is not None
    ours, theirs = plan.release.event, published_release(setting)
    assert ours.iterations == theirs.iterations == setting.iterations
    assert ours.threshold == pytest.approx(theirs.threshold)
    assert plan.private.noise_multiplier == setting.noise_multiplier
    assert plan.private.sampling_rate == setting.batch_size / EXPERTS
    total = plan.private_steps + plan.plain_steps
    assert total == pytest.approx(published_steps(setting), abs=2)
    assert plan.private_steps / total == pytest.approx(setting.private_share, abs=1e-3)


@pytest.mark.parametrize("setting", ALL_PRIVATE, ids=named)
def test_a_published_setting_without_a_release_is_dp_sgd_until_its_budget_is_spent(
    setting: PublishedSetting,
) -> None:
    plan = planned(setting)
    assert plan.release is None
    assert plan.private_steps == published_steps(setting)
    assert plan.plain_steps == 0


def test_a_short_training_has_less_noise_at_the_same_claim() -> None:
    setting = RELEASES[0]
    short = planned(setting, steps=5000)
    assert short.private is not None
    assert setting.noise_multiplier is not None
    assert short.private.noise_multiplier < setting.noise_multiplier
    assert short.private_steps + short.plain_steps == 5000


def test_the_main_columns_are_all_methods_at_every_epsilon() -> None:
    methods = main_columns()
    assert [method.epsilon for method in methods[:2]] == [None, None]
    assert [method.epsilon for method in methods[2::4]] == list(EPSILONS)
    assert len({(m.name, m.epsilon) for m in methods}) == len(methods) == 2 + 4 * 5
    papers = {method.name for method in methods if method.hidden_sizes is None}
    assert papers == {"non-private", "DP-SGD, one transition"}


def test_the_grid_is_the_papers_without_the_noise_that_follows_from_the_steps() -> None:
    methods = grid_columns("CartPole", "cql", 100)
    by_epsilon = {each: [m for m in methods if m.epsilon == each] for each in GRID_EPSILONS}
    assert [len(some) for some in by_epsilon.values()] == [5 * 3 * 5] * 4
    assert len({(m.name, m.epsilon) for m in methods}) == len(methods) == 300
    best = next(best for best in best_settings("CartPole", "cql") if best.epsilon == 10)
    (found,) = (m for m in by_epsilon[10] if m.settings == published_column(best, 100).settings)
    assert found.name == f"rate {best.learning_rate:g}, batch {best.batch_size}, p = 0.8"


def test_the_grid_gives_all_of_epsilon_to_one_stage_or_three_quarters_to_the_release() -> None:
    (all_private, mixed, *_, released) = grid_columns("CartPole", "bcq", 100, (5.0,))[:5]
    assert [all_private.settings.method, mixed.settings.method] == ["dp-sgd", "selective"]
    assert mixed.settings.release_share == released.settings.release_share == 0.75
    # The paper's setting at 5 has no release: the iterations are those of 7.5.
    assert mixed.settings.iterations == released.settings.iterations == 20
    acrobot = grid_columns("Acrobot", "bcq", 100, (5.0,))[:5]
    assert [method.settings.release_share for method in acrobot[1:]] == [0.75, 0.75, 0.75, 1.0]


@pytest.mark.parametrize("setting", ALL_RELEASED, ids=named)
def test_a_published_setting_of_a_release_alone_has_the_papers_split_and_no_private_step(
    setting: PublishedSetting,
) -> None:
    plan, split = planned(setting), published_split(setting)
    assert plan.release is not None
    assert "whose claim does not hold" in plan.notes[0]
    assert plan.release.event.threshold == pytest.approx(published_release(setting).threshold)
    assert plan.release.epsilon == pytest.approx(split.release_epsilon)
    assert plan.release.delta == pytest.approx(split.release_delta)
    assert (plan.private, plan.private_steps, plan.plain_steps) == (None, 0, 20_000)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_papers_columns_have_the_optimiser_that_is_asked_for(optimiser: str) -> None:
    setting = RELEASES[0]
    grid = grid_columns("CartPole", "bcq", 100, (10.0,), optimiser)
    ablation = ablation_columns("CartPole", "bcq", 100, optimiser=optimiser)
    theirs = [published_column(setting, 100, optimiser), *grid, *ablation[:5]]
    assert {method.settings.optimiser for method in theirs} == {optimiser}
    assert {method.settings.optimiser for method in ablation[5:]} == {None}  # our own


def test_the_ablation_marks_the_published_best_and_gives_all_private_steps_all_of_epsilon() -> None:
    methods = ablation_columns("CartPole", "bcq", 100)
    names = [method.name for method in methods[:5]]
    none = ["p = 0", "p = 0, all of ε for the release"]
    assert names == [*none, "p = 0.5, the published best", "p = 1", "p = 1, less noise"]
    shares = [method.settings.release_share for method in methods[:3]]
    assert shares == [0.75, 1.0, 0.75]
    assert methods[3].settings.method == "dp-sgd"
    assert methods[4].settings == methods[3].settings
    assert (methods[3].epsilon, methods[4].epsilon) == (10, 50)
    assert (methods[-1].settings.method, methods[-1].epsilon) == ("dp-sgd", 50)


def test_every_column_sees_the_world_in_its_units() -> None:
    declared = Declared(4, 6, 50, p_min=P_MIN, minimum_experts=EXPERTS, world="HIV")
    cql, bcq = (learner_of(declared, name) for name in ("CQL", "BCQ"))
    assert isinstance(cql, Cql)
    assert isinstance(bcq, Bcq)
    assert (cql.reward_scale, bcq.reward_scale) == (1e-8, 1e-8)
    assert (cql.alpha, bcq.threshold, bcq.target_rate) == (0.1, 0.1, 0.02)
    assert cql.observation_centre == bcq.observation_centre == Hiv.units.centre
    assert learner_of(declared, "CQL", 3.0) == replace(cql, reward_scale=3.0)


@pytest.fixture(scope="module", name="population")
def _population() -> Population:
    networks = [new_network(jax.random.key(seed), (4, 4, 2), 1.0) for seed in range(6)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *networks)
    return Population(observation_size=4, action_count=2, network=stacked)


def with_experts(population: Population, folder: Path, **origin: Any) -> None:
    """The experts in a world's folder, with what is known of how they came to be."""
    folder.mkdir()
    save_population(replace(population, origin=origin), folder / "experts.safetensors")


def refused(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says when it stops."""
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--folder", str(folder)])
    assert stopped.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in said
    return said


def test_fewer_experts_are_spread_over_all_of_them(population: Population) -> None:
    some = some_of(population, 3)
    for before, after in zip(
        jax.tree.leaves(population.network), jax.tree.leaves(some.network), strict=True
    ):
        np.testing.assert_array_equal(after, before[[0, 2, 4]])


def test_stages_write_what_they_found_and_how(population: Population, tmp_path: Path) -> None:
    with_experts(population, tmp_path / "cartpole", world="CartPole")
    folder = ["--folder", str(tmp_path), "--commit", "abc"]
    main(["CartPole", "--stage", "demonstrations", *folder])
    short = ["--steps", "4", "--seeds", "1", "--episodes", "1", "--learners", "cql"]
    main(["CartPole", "--stage", "published", "--epsilons", "5", *short, *folder])
    found = read(tmp_path / "results.parquet")
    experts, published = found["cartpole-experts"], found["cartpole-cql-published-5-4-steps"]
    assert experts["commit"] == published["commit"] == "abc"
    assert experts["experts"] == sum(experts["histogram"]["counts"]) == 6
    assert 1 >= experts["agreement"]["mean"][0] > 0
    (method,) = published["methods"]
    assert (method["name"], method["private_steps"]) == ("as published, 4 steps", 4)
    assert len(method["returns"]) == published["seeds"] == 1


@pytest.mark.parametrize(
    ("stage", "origin", "said"),
    [
        ("demonstrations", {"experts": 6}, "have experts = 6, and those of --preset paper"),
        ("demonstrations", {"seed": 2}, "have seed = 2, and those of --preset paper --expert-seed"),
        ("demonstrations", {"hidden": [64, 64]}, "in CartPole have [512, 256, 64]: say whose"),
        ("counts", {}, "takes 1000 or 2000 of the experts, and there are 6: --preset paper has"),
    ],
)
def test_results_are_not_of_other_experts_than_they_say(
    population: Population,
    stage: str,
    origin: dict[str, Any],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with_experts(population, tmp_path / "cartpole", **origin)
    assert said in refused(tmp_path, ["CartPole", "--stage", stage], capsys)
    assert not (tmp_path / "results.parquet").exists()


@pytest.mark.parametrize(
    ("world", "identity", "said"),
    [
        ("Acrobot", None, "is a log of CartPole, and not of Acrobot: run --stage demonstrations"),
        ("CartPole", "others", "is a log of other experts than those in the folder: run --stage"),
    ],
)
def test_a_log_of_another_world_or_of_others_is_named(
    population: Population,
    world: str,
    identity: str | None,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / world.lower()
    others = replace(population, identity=identity) if identity else population
    with_experts(others, home)
    log, _ = collect(population.smoothed(0.1), get_world("CartPole"), trajectories=1, seed=0)
    save_demonstrations(log, home / "demonstrations.arrow")
    assert said in refused(tmp_path, [world, "--stage", "comparison"], capsys)


def test_a_result_is_not_lost_after_an_hour_of_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is looked at before experts are trained."""
    kept = Result("CartPole", "bcq-comparison", {"seeds": [0, 1, 2, 3, 4]})
    save(kept, tmp_path / "results.parquet", {})
    said = refused(tmp_path, ["CartPole"], capsys)
    assert "has seeds = [0, 1, 2, 3, 4], and this run seeds = [0, 1, 2]" in said
    assert [file.name for file in tmp_path.iterdir()] == ["results.parquet"]


@pytest.mark.parametrize("stage", ["experts", "comparison", "main"])
def test_kernels_are_raced_for_the_training_of_experts_alone(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is asked must round as those did who acted, maybe in another process."""
    raced = []
    monkeypatch.setattr("reproduction.paper.prepare", lambda *, fast=False: raced.append(fast))
    monkeypatch.setattr(Paper, "_check", lambda *_: None)
    monkeypatch.setattr("reproduction.paper.MAIN_STAGES", ())
    for name in ("_experts", "_comparison"):
        monkeypatch.setattr(Paper, name, lambda _: None)
    Paper("CartPole", stage=stage, folder=tmp_path).run()
    assert raced == [stage == "experts"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Cartpole"], "did you mean CartPole?"),
        (["CartPole", "--seeds", "0"], "seeds is 0: give at least 1"),
        (["CartPole", "--stage", "published", "--steps", "0"], "steps is 0: give at least 1"),
        (["CartPole", "--epsilons", "nan"], "epsilon is nan: give a positive number"),
        (["CartPole", "--epsilons", "5", "5"], "give at least one, and each once"),
        (["CartPole", "--learners", "--seeds", "1"], "--learners is (): give at least one"),
        (["CartPole", "--reward-scale", "0"], "reward_scale is 0"),
        (["CartPole", "--stage", "grid", "--epsilons", "3"], "run at 2.5, 5, 7.5, 10: give some"),
        (["CartPole", "--stage", "published", "--epsilons", "3"], "run at 5, 7.5, 10: give some"),
        (["CartPole", "--stage", "comparison"], "run --stage demonstrations"),
        (["CartPole", "--stage", "counts"], "run --stage experts"),
        (["CartPole", "--results", f"{__file__}/in"], "is a file, and is to be a folder"),
    ],
)
def test_what_is_wrong_or_missing_is_said_in_one_sentence_before_anything_is_written(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(tmp_path, words, capsys)
    assert not list(tmp_path.iterdir())


def test_a_result_of_other_numbers_does_not_replace_the_usual_one() -> None:
    usual = Paper("CartPole", stage="ablation")
    changes: list[dict[str, Any]] = [
        {"steps": 20},
        {"reward_scale": 0.5},
        {"reward_scale": 0.5, "steps": 20},
        {"preset": "small"},
        {"expert_seed": 0},
        {"paper_optimiser": "sgd"},
    ]
    names = {replace(usual, **change)._other_than_usual for change in changes}
    assert len(names) == len(changes)
    assert usual._other_than_usual == "" not in names
    unused = Paper("CartPole", stage="comparison", paper_optimiser="sgd")
    assert unused._other_than_usual == ""
