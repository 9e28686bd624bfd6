"""Several populations: intervals over them, what a method is offered, tables of made-up rows."""

from argparse import Namespace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from quorum_rl.envs import get_world
from quorum_rl.errors import QuorumError
from reproduction.bootstrap import estimate
from reproduction.results import extend, read
from reproduction.studies import populations as study
from reproduction.studies.offered import (
    FREE,
    LEARNERS,
    METHODS,
    PAPERS,
    THEIRS,
    best,
    offered,
    programs,
)
from reproduction.tables import populations as tables

RANDOM = get_world("CartPole").facts.random_return


def mean(values: Any) -> Any:
    return values


# Intervals


def test_with_one_population_the_interval_is_scipys() -> None:
    seeds = np.random.default_rng(1).gamma(2.0, size=12)
    ours = estimate(mean, seeds[None], resamples=40_000)
    theirs = stats.bootstrap(
        (seeds,), np.mean, n_resamples=40_000, method="percentile", rng=0
    ).confidence_interval
    assert ours.mean == pytest.approx(seeds.mean())
    # Fixed seeds; a quantile's own error is about 0.01.
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03)


def test_every_draw_of_two_populations_has_its_probability() -> None:
    """All 2² choices of populations and 2² of seeds in each, enumerated."""
    table = np.array([[0.0, 1.0], [10.0, 14.0]])
    exact = [
        np.mean(
            [np.mean(table[which][list(seeds)]) for which, seeds in zip(pops, picks, strict=True)]
        )
        for pops in product(range(2), repeat=2)
        for picks in product(product(range(2), repeat=2), repeat=2)
    ]
    found = estimate(mean, table, resamples=200_000)
    # Values are a quarter apart and some have probability 1/64: no quantile lies between two.
    low, high = np.quantile(exact, [0.025, 0.975], method="inverted_cdf")
    assert (found.low, found.high) == (low, high)
    assert found.mean == pytest.approx(np.mean(exact))


def test_what_all_seeds_share_widens_the_interval_and_a_pair_takes_it_out() -> None:
    """Seeds drawn as if they were of one population would hide how much experts differ."""
    rng = np.random.default_rng(0)
    shared = np.array([[0.0], [5.0], [10.0]])
    ours, theirs = (shared + rng.normal(size=(3, 20)) for _ in range(2))
    apart = estimate(mean, ours)
    flat = estimate(mean, ours.reshape(1, -1))
    assert apart.high - apart.low > 2 * (flat.high - flat.low)
    pairs = estimate(mean, ours - theirs)
    assert pairs.high - pairs.low < (apart.high - apart.low) / 5


def test_a_weak_bound_does_not_make_a_fraction_surer_than_it_is() -> None:
    ours, bound = np.full((3, 5), 2.0), np.tile([1.0, 1.0, 4.0, 4.0, 10.0], (3, 1))
    found = estimate(lambda top, below: top / below, ours, bound)
    assert found.mean == 0.5
    assert found.low < 0.4 < 0.6 < found.high


# What is offered


def test_every_method_and_learner_is_offered_as_many_different_settings() -> None:
    for method, learner in product(METHODS, LEARNERS):
        every = offered(method, learner)
        assert len({repr(offer.way) for offer in every}) == len(every) == 48
        assert [offer.number for offer in every] == list(range(48))
        assert len(programs(every)) == 12
        chosen = [offer.way.settings for offer in every]
        assert {settings.optimiser for settings in chosen} == {"adam", "sgd"}
        assert {settings.averaging for settings in chosen} == {0.0, 0.995}
        assert {settings.falling_rates for settings in chosen} == {True, False}


def test_the_papers_step_has_one_transition_and_its_clip_norm_whatever_is_tried() -> None:
    for offer in offered(PAPERS, "cql"):
        assert (offer.way.settings.transitions_per_expert, offer.way.settings.clip_norm) == (1, 1.0)


def test_the_best_is_taken_and_only_when_all_were_tried() -> None:
    offers = offered(THEIRS, "cql", few=2)
    rows = [
        {"method": THEIRS, "learns": "cql", "number": offer.number, "returns": [offer.number % 5]}
        for offer in offers
    ]
    assert best(rows, offers) is offers[4].way
    with pytest.raises(LookupError, match="1 of 8 settings of DP-SGD, cql"):
        best(rows[:-1], offers)


# The program


def given(tmp_path: Path, **more: Any) -> Namespace:
    words = ["CartPole", "--folder", str(tmp_path), "--out", str(tmp_path / "found.parquet")]
    made = study.arguments([*words, "--commit", "none"])
    return Namespace(**vars(made) | more)


class Standing:
    """A population whose cells cost nothing."""

    identity = "these"

    def __init__(self, given: Namespace, world: str, seed: int) -> None:
        del world, seed
        self.given = given

    def facts(self) -> dict[str, Any]:
        facts = {"identity": self.identity, "commit": self.given.commit, "delta": study.DELTA}
        return facts | {name: getattr(self.given, name) for name in ("seeds", "episodes", "steps")}


def test_what_was_interrupted_goes_on_after_the_last_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []

    def rows(number: int) -> list[dict[str, Any]]:
        if number == 2 and trained.count(2) == 0:
            trained.append(2)
            raise KeyboardInterrupt
        trained.append(number)
        return [{"number": number, "mean": 1.0, "returns": [1.0]}]

    def cells(setting: Any) -> Any:
        del setting
        return (study.Cell(f"cell {number}", partial(rows, number)) for number in range(4))

    monkeypatch.setattr(study, "Setting", Standing)
    monkeypatch.setitem(study.PARTS, "ours", cells)
    asked = given(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        study.worked(asked, "CartPole", 1, "ours")
    study.worked(asked, "CartPole", 1, "ours")
    assert sorted(trained) == [0, 1, 2, 2, 3]  # several at once
    found = read(asked.out)["CartPole-1-ours"]
    assert sorted(row["number"] for row in found["rows"]) == [0, 1, 2, 3]
    monkeypatch.setattr(Standing, "identity", "others")
    with pytest.raises(QuorumError, match="CartPole-1-ours has rows with identity = these"):
        study.worked(asked, "CartPole", 1, "ours")


def test_processes_that_add_to_one_result_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "found.parquet"
    for number in range(3):
        extend(file, "one", {"identity": "these"}, rows=[{"number": number}], done=[str(number)])
    extend(file, "two", {}, rows=[{"number": 9}], done=[])
    found = read(file)
    assert [row["number"] for row in found["one"]["rows"]] == [0, 1, 2]
    assert found["one"]["done"] == ["0", "1", "2"]
    assert found["two"]["rows"] == [{"number": 9}]


def test_nothing_is_begun_after_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither experts nor a cell."""
    made: list[int] = []

    class Counted(Standing):
        def __init__(self, given: Namespace, world: str, seed: int) -> None:
            super().__init__(given, world, seed)
            made.append(seed)

    def cells(_: Any) -> Any:
        yield study.Cell("in time", lambda: [{"mean": 1.0}])
        asked.deadline = 1.0
        yield study.Cell("late", lambda: [{"mean": 2.0}])

    monkeypatch.setattr(study, "Setting", Counted)
    monkeypatch.setitem(study.PARTS, "ours", cells)
    asked = given(tmp_path)
    study.worked(asked, "CartPole", 1, "ours")
    assert read(asked.out)["CartPole-1-ours"]["done"] == ["in time"]
    study.worked(asked, "CartPole", 11, "ours")
    assert made == [1]


def test_every_part_is_a_process_and_what_is_tuned_waits_for_the_tuning(tmp_path: Path) -> None:
    asked = given(tmp_path)
    every = study.jobs_of(asked, study.words_of(asked))
    jobs = {job.name: job for job in every}
    assert len(jobs) == len(every)
    assert jobs["CartPole 11 steps DP-SGD cql"].after == "CartPole 2 tuning DP-SGD cql"
    assert jobs["CartPole 11 ours"].after is None
    places = {job.name: place for place, job in enumerate(every)}
    assert all(places[job.after] < places[job.name] for job in every if job.after)
    told = study.arguments(jobs["CartPole 12 bound non-private bcq"].command[4:])
    assert (told.worlds, told.populations, told.parts) == (["CartPole"], [12], ["bound"])
    assert (told.methods, told.learners, told.here) == ([FREE], ["bcq"], True)
    same = ("experts", "counts", "released", "epsilons", "seeds", "episodes", "folder", "out")
    assert all(getattr(told, name) == getattr(asked, name) for name in same)


# Tables of rows that nobody measured


def row(method: str, learns: str, count: int, epsilon: float | None, each: list[float]) -> Any:
    found: dict[str, Any] = {"method": method, "learns": learns, "experts": count}
    found |= {"epsilon": epsilon, "mean": float(np.mean(each))}
    return found | {"returns": (np.array(each) + RANDOM).tolist()}


def made_up() -> dict[str, Any]:
    """Experts earn 100 above a random policy, the default 90 and 110, CQL without privacy 200."""
    results: dict[str, Any] = {}
    for seed in (1, 11):
        each = [90.0, 110.0]
        parts = {
            "experts": [{"mean": 100 + RANDOM, "greedy": 125 + RANDOM}],
            "ours": [
                row("local", "bc", count, epsilon, each)
                for count, epsilon in product(tables.COUNTS, tables.EPSILONS)
            ],
            "bound": [row(FREE, "bc", 3000, None, each), row(FREE, "cql", 3000, None, [200.0] * 2)],
            "steps": [row(THEIRS, "cql", 1000, 1.0, [10.0, 30.0])],
            "release": [
                row(method, "bc", 1000, epsilon, each) | {"trajectories": 20}
                for method, each in (("local", [90.0, 110.0]), ("release mixed in", [95.0, 115.0]))
                for epsilon in tables.EPSILONS
            ],
        }
        for part, rows in parts.items():
            results[f"CartPole-{seed}-{part}"] = {"rows": rows}
    tried = [row(THEIRS, "cql", 1000, 1.0, [7.0]) | {"number": number} for number in range(8)]
    results["CartPole-2-tuning"] = {"rows": tried}
    return results


def test_the_headline_has_returns_and_all_three_fractions() -> None:
    lines = tables.headline(made_up()).splitlines()
    assert len(lines) == 2 + len(tables.GOALS)
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[:3] == ["CartPole", "300", "1"]
    assert cells[3].startswith(f"{100 + RANDOM:.0f} [")
    fractions = [cell.split()[0] for cell in cells[4:7]]
    assert fractions == ["1.00", "0.80", "0.50"]
    assert cells[7] == "met by the mean"


def test_the_bound_is_the_best_learner_and_not_the_first() -> None:
    results = made_up()
    del results["CartPole-1-bound"]["rows"][1]  # one population lacks it
    assert "1.00 [" in tables.headline(results).splitlines()[2].split("|")[7]


def test_a_release_is_judged_in_pairs() -> None:
    (line,) = tables.released(made_up()).splitlines()[2:]
    assert line.count("0.05 [0.05, 0.05]") == len(tables.EPSILONS) + 1  # though seeds differ by 20


def test_a_cell_that_one_population_lacks_is_not_shown() -> None:
    results = made_up()
    ours = results["CartPole-11-ours"]["rows"]
    results["CartPole-11-ours"]["rows"] = [each for each in ours if each["experts"] != 300]
    assert "| 300 |" not in tables.headline(results)


def test_settings_are_counted() -> None:
    assert f"{7:.0f}, 8 of 48" in tables.settings(made_up())


def test_pictures_are_drawn_of_what_is_there() -> None:
    for picture in (tables.by_experts, tables.by_method, tables.beside_others):
        (axes,) = picture(made_up()).axes
        assert axes.get_title() == "CartPole"
        assert len(axes.containers) >= 1
