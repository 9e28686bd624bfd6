"""`quorum paper`: its columns are what the paper ran, and its stages say what they miss."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from quorum_rl.cli.fit import Settings
from quorum_rl.cli.main import main
from quorum_rl.envs import get_world
from quorum_rl.envs.hiv import Hiv
from quorum_rl.errors import QuorumError
from quorum_rl.experts import Population, save_population, smoothed
from quorum_rl.experts.networks import new_network
from quorum_rl.learners import Bcq, Cql
from quorum_rl.logs import Declared, collect, save_demonstrations
from quorum_rl.pipeline import FitPlan, plan_fit
from quorum_rl.pipeline.results import Result
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
from reproduction.checks import check_numbers
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

OBSERVATIONS = {"CartPole": 4, "Acrobot": 6, "LunarLander": 8, "HIV": 6}
RELEASES = [one for one in BEST_SETTINGS if one.iterations and one.private_share]
ALL_RELEASED = [one for one in BEST_SETTINGS if one.private_share == 0]
ALL_PRIVATE = [one for one in BEST_SETTINGS if one.private_share == 1]


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
    assert [one.epsilon for one in methods[:2]] == [None, None]
    assert [one.epsilon for one in methods[2::4]] == list(EPSILONS)
    assert len({(one.name, one.epsilon) for one in methods}) == len(methods) == 2 + 4 * 5
    papers = {one.name for one in methods if one.hidden_sizes is None}
    assert papers == {"non-private", "DP-SGD, one transition"}


def test_the_grid_is_the_papers_without_the_noise_that_follows_from_the_steps() -> None:
    methods = grid_columns("CartPole", "cql", 100)
    by_epsilon = {each: [m for m in methods if m.epsilon == each] for each in GRID_EPSILONS}
    assert [len(some) for some in by_epsilon.values()] == [5 * 3 * 5] * 4
    assert len({(one.name, one.epsilon) for one in methods}) == len(methods) == 300
    best = next(one for one in best_settings("CartPole", "cql") if one.epsilon == 10)
    (found,) = (m for m in by_epsilon[10] if m.settings == published_column(best, 100).settings)
    assert found.name == f"rate {best.learning_rate:g}, batch {best.batch_size}, p = 0.8"


def test_the_grid_gives_all_of_epsilon_to_one_stage_or_three_quarters_to_the_release() -> None:
    (all_private, mixed, *_, released) = grid_columns("CartPole", "bcq", 100, (5.0,))[:5]
    assert [all_private.settings.method, mixed.settings.method] == ["dp-sgd", "selective"]
    assert mixed.settings.release_share == released.settings.release_share == 0.75
    # The paper's setting at 5 has no release: the iterations are those of 7.5.
    assert mixed.settings.iterations == released.settings.iterations == 20
    acrobot = grid_columns("Acrobot", "bcq", 100, (5.0,))[:5]
    assert [one.settings.release_share for one in acrobot[1:]] == [0.75, 0.75, 0.75, 1.0]


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
    assert {one.settings.optimiser for one in theirs} == {optimiser}
    assert {one.settings.optimiser for one in ablation[5:]} == {None}  # ours, as DP-SGD has it


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


@pytest.fixture(scope="module", name="population")
def _population() -> Population:
    networks = [new_network(jax.random.key(seed), (4, 4, 2), 1.0) for seed in range(6)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *networks)
    return Population(observation_size=4, action_count=2, network=stacked)


def test_fewer_experts_are_spread_over_all_of_them(population: Population) -> None:
    some = some_of(population, 3)
    for before, after in zip(
        jax.tree.leaves(population.network), jax.tree.leaves(some.network), strict=True
    ):
        np.testing.assert_array_equal(after, before[[0, 2, 4]])


def test_a_stage_writes_what_it_found_and_how(
    population: Population, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "work" / "cartpole"
    home.mkdir(parents=True)
    world = {"world": "CartPole"}
    save_population(replace(population, origin=world), home / "experts.safetensors")
    folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    main(["paper", "CartPole", "--stage", "demonstrations", "--commit", "abc", *folders])
    assert "CartPole, demonstrations" in capsys.readouterr().out
    facts = json.loads((tmp_path / "results" / "cartpole-experts.json").read_text())
    assert facts["commit"] == "abc"
    assert facts["experts"] == 6
    assert sum(facts["histogram"]["counts"]) == 6
    assert 1 >= facts["agreement"]["mean"][0] > 0
    assert (home / "demonstrations.arrow").exists()


def in_a_folder(population: Population, home: Path, **origin: Any) -> None:
    """The experts, and what a stage needs to know of how they came to be."""
    home.mkdir(parents=True)
    save_population(replace(population, origin=origin), home / "experts.safetensors")


@pytest.mark.parametrize(
    ("stage", "origin", "said"),
    [
        ("demonstrations", {"experts": 6}, "have experts = 6, and those of --preset paper"),
        ("demonstrations", {"seed": 2}, "have seed = 2, and those of --preset paper --expert-seed"),
        ("demonstrations", {"world": "Acrobot"}, "have world = Acrobot, and"),
        ("demonstrations", {"hidden": [64, 64]}, "in CartPole have [512, 256, 64]: say whose"),
        ("counts", {"total_steps": 5}, "have total_steps = 5, and"),
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
    in_a_folder(population, tmp_path / "work" / "cartpole", **origin)
    folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    with pytest.raises(SystemExit) as stopped:
        main(["paper", "CartPole", "--stage", stage, *folders])
    assert stopped.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list((tmp_path / "results").iterdir())


def test_a_log_of_another_world_is_named(
    population: Population, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "work" / "acrobot"
    in_a_folder(population, home)
    log, _ = collect(smoothed(population, 0.1), get_world("CartPole"), trajectories=1, seed=0)
    save_demonstrations(log, home / "demonstrations.arrow")
    (tmp_path / "file").touch()
    for results, said in (
        ("results", "is a log of CartPole, and not of Acrobot: run --stage demonstrations"),
        ("file", "file' is a file, and is to be a folder: choose another"),
        ("file/in", "file' is a file, and is to be a folder: choose another"),
    ):
        folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path / results)]
        with pytest.raises(SystemExit) as stopped:
            main(["paper", "Acrobot", "--stage", "comparison", *folders])
        assert stopped.value.code == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_log_of_other_experts_is_named(
    population: Population, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "work" / "cartpole"
    in_a_folder(replace(population, identity="others"), home)
    log, _ = collect(smoothed(population, 0.1), get_world("CartPole"), trajectories=1, seed=0)
    save_demonstrations(log, home / "demonstrations.arrow")
    folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    with pytest.raises(SystemExit) as stopped:
        main(["paper", "CartPole", "--stage", "comparison", *folders])
    assert stopped.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "is a log of other experts than those in the folder: run --stage demonstrations" in said


def test_a_result_that_was_made_in_another_way_is_not_replaced(tmp_path: Path) -> None:
    first = Result("CartPole", "cql-comparison", {"seeds": [0, 1], "episodes": 100})
    first.check_place(tmp_path)  # nothing is there
    written = first.save(tmp_path, {"found": 1}).read_text()
    first.check_place(tmp_path)
    replace(first, configuration={"seeds": [0, 1], "epsilons": [5.0]}).check_place(tmp_path)
    other = replace(first, configuration={"seeds": (0,), "episodes": 100})
    with pytest.raises(QuorumError, match=r"has seeds = \[0, 1\], and this run seeds = \[0\]: giv"):
        other.check_place(tmp_path)
    nested = replace(first, configuration={"settings": {"p": 0.8, "other": "word" * 20}})
    nested.save(tmp_path, {})
    for settings, said in (
        ({"p": 0.95}, "has settings.p = 0.8, and this run settings.p = 0.95: give"),
        ({"other": "words" * 20}, "has another settings.other, and this run another"),
    ):
        with pytest.raises(QuorumError, match=re.escape(said)):
            replace(nested, configuration={"settings": settings}).check_place(tmp_path)
    written = nested.path(tmp_path).read_text()
    assert first.path(tmp_path).read_text() == written
    for damaged in ("", "[]", '{"configuration": 3}'):
        first.path(tmp_path).write_text(damaged)
        with pytest.raises(QuorumError, match="is in the way, and is no result"):
            first.check_place(tmp_path)


def test_a_result_is_not_lost_after_an_hour_of_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is looked at before experts are trained."""
    Result("CartPole", "bcq-comparison", {"seeds": [0, 1, 2, 3, 4]}).save(tmp_path, {})
    folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path)]
    with pytest.raises(SystemExit) as stopped:
        main(["paper", "CartPole", *folders])
    assert stopped.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "has seeds = [0, 1, 2, 3, 4], and this run seeds = [0, 1, 2]" in said
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("stage", ["experts", "comparison", "main"])
def test_kernels_are_raced_for_the_training_of_experts_alone(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is asked must round as those did who acted, maybe in another process."""
    raced = []
    monkeypatch.setattr("quorum_rl.distributed.prepare", lambda *, fast=False: raced.append(fast))
    paper = Paper("Nowhere", stage=stage, folder=tmp_path, results=tmp_path)
    with pytest.raises(QuorumError, match="Nowhere"):
        paper.run()
    assert raced == [stage == "experts"]


def test_fewer_experts_are_compared_with_the_papers_release_at_the_largest_epsilon() -> None:
    (theirs,) = Paper("Acrobot", stage="counts")._theirs_by_release("cql")
    assert (theirs.name, theirs.epsilon) == ("as published", 10)
    assert theirs.settings.release_share == 1.0
    assert not Paper("CartPole", stage="counts")._theirs_by_release("cql")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Cartpole"], "did you mean CartPole?"),
        (["CartPole", "--stage", "demonstrations"], "run --stage experts"),
        (["CartPole", "--stage", "comparison"], "run --stage demonstrations"),
        (["CartPole", "--stage", "comparison", "--epsilons", "3"], "run --stage demonstrations"),
        (["CartPole", "--seeds", "0"], "give at least 1"),
        (["CartPole", "--stage", "grid", "--epsilons", "3"], "run at 2.5, 5, 7.5, 10: give some"),
        (["CartPole", "--learners", "--seeds", "1"], "--learners is empty"),
    ],
)
def test_what_is_missing_is_named_in_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    with pytest.raises(SystemExit) as stopped:
        main(["paper", *words, *folders])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_wrong_number_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    for words, said in (
        (["--stage", "published", "--epsilons", "3", "5"], "published is run at 5, 7.5, 10: give"),
        (["--stage", "published", "--steps", "0"], "--steps is 0: give at least 1"),
        (["--epsilons", "0"], "--epsilons has 0: give positive numbers"),
        (["--epsilons", "5", "nan"], "--epsilons has nan: give positive numbers"),
        (["--epsilons", "inf"], "--epsilons has inf: give positive numbers"),
        (["--epsilons", "5", "5"], "--epsilons has 5.0 twice: give each once"),
        (["--learners", "cql", "cql"], "--learners has cql twice: give each once"),
        (["--reward-scale", "0"], "reward_scale is 0"),
        (["--reward-scale", "nan"], "reward_scale is nan"),
        (["--clip-norm", "-1"], "clip_norm is -1"),
        (["--averaging", "2"], "averaging is 2"),
        (["--batch-size", "0"], "batch size is 0"),
        (["--private-learning-rate", "-1"], "learning_rate is -1"),
        (["--optimiser", "sgd"], "give a rate"),
        (["--method", "dp-sgd"], "--method is dp-sgd, and quorum paper runs every method itself"),
        (["--mode", "paper"], "--mode is paper, and quorum paper runs every method itself"),
        (["--stage", "comparison"], "run --stage demonstrations"),
        (["--stage", "counts"], "run --stage experts"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["paper", "CartPole", *words, *folders])
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_a_comparison_would_call_infeasible_is_not_refused_before_it() -> None:
    """Here: less noise than the budget allows."""
    world, asked = get_world("CartPole"), Settings(noise_multiplier=0.1, private_steps=8000)
    paper = Paper("CartPole", settings=asked)
    check_numbers(paper, world)
    with pytest.raises(QuorumError, match="sampling"):
        check_numbers(replace(paper, settings=replace(asked, sampling_rate=2.0)), world)


def test_a_result_of_other_numbers_does_not_replace_the_usual_one() -> None:
    usual = Paper("CartPole", stage="ablation")
    other = Settings(private_steps=20)
    names = {
        one._other_than_usual
        for one in (
            usual,
            replace(usual, raw=True),
            replace(usual, steps=20),
            replace(usual, reward_scale=0.5),
            replace(usual, raw=True, steps=20),
            replace(usual, preset="small"),
            replace(usual, expert_seed=0),
            replace(usual, paper_optimiser="sgd"),
            replace(usual, settings=other),
        )
    }
    assert len(names) == 9
    assert usual._other_than_usual == ""


def test_what_a_stage_does_not_use_does_not_name_its_result() -> None:
    optimised = Paper("CartPole", stage="comparison", paper_optimiser="sgd")
    shortened = Paper("CartPole", stage="grid", settings=Settings(private_steps=20))
    assert optimised._other_than_usual == shortened._other_than_usual == ""


def test_every_column_sees_the_world_in_its_units_unless_asked_for_it_raw() -> None:
    declared = Declared(4, 6, 50, p_min=P_MIN, minimum_experts=EXPERTS, world="HIV")
    units = Hiv.units
    cql, bcq = (learner_of(declared, name) for name in ("CQL", "BCQ"))
    assert isinstance(cql, Cql)
    assert isinstance(bcq, Bcq)
    assert (cql.reward_scale, bcq.reward_scale) == (1e-8, 1e-8)
    assert (cql.alpha, bcq.threshold, bcq.target_rate) == (0.1, 0.1, 0.02)
    assert cql.observation_centre == bcq.observation_centre == units.centre
    assert cql.hidden_sizes == (512,)
    raw = learner_of(declared, "CQL", raw=True, reward_scale=3.0)
    assert raw == Cql(hidden_sizes=(512,), alpha=0.1, reward_scale=3.0)
