"""A fit from end to end: what is charged, written, read by whom, and refused."""

import hashlib
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from fits import (
    DELTA,
    EPSILON,
    HORIZON,
    LEARNER,
    SETTINGS,
    Crowd,
    crowd,
    fitted,
    named,
    same_weights,
)
from tree_logs import table_experts

from quorum_rl.budget import Budget, Ledger, certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations, split_release_pool
from quorum_rl.pipeline import FitSettings, Fitted, fit, plan_fit, run, tracker, training_stage
from quorum_rl.policy import Policy
from quorum_rl.privacy import ReleaseEvent, TrainingEvent, total_epsilon
from quorum_rl.release.run import REPRODUCIBLE_NOISE
from quorum_rl.training.data import ExpertData, expert_data

DP_SGD = replace(SETTINGS, method="dp-sgd")
NON_PRIVATE = replace(SETTINGS, method="non-private")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_ledger_is_charged_for_exactly_the_two_events_of_the_plan(done: Fitted) -> None:
    record = read_ledger(done.folder / "ledger.jsonl")
    assert record.events == done.plan.events
    assert [type(event) for event in record.events] == [ReleaseEvent, TrainingEvent]
    assert len({charge.run for charge in record.charges}) == 1
    assert record.charges[0].pool == "done"
    assert "whole_log" not in record.charges[1].facts


def test_the_certificate_claims_no_more_than_the_budget_and_what_the_events_cost(
    done: Fitted,
) -> None:
    made = done.certificate
    assert made is not None
    spent = total_epsilon(done.plan.events, DELTA)
    assert spent <= made.epsilon <= EPSILON
    assert made.epsilon == pytest.approx(spent, abs=1e-4)
    assert all(assumption.accepted for assumption in made.assumptions)
    assert json.loads((done.folder / "certificate.json").read_text()) == json.loads(made.to_json())


def test_what_stays_behind_is_what_may_be_shown(done: Fitted) -> None:
    assert sorted(path.name for path in done.folder.iterdir()) == [
        "certificate.json",
        "config.json",
        "ledger.jsonl",
        "metrics.jsonl",
        "policy.onnx",
        "policy.safetensors",
        "released.parquet",
    ]


def test_the_policy_that_is_written_is_the_one_that_is_returned_and_acts(done: Fitted) -> None:
    written = Policy.load(done.folder / "policy.safetensors")
    for layer, trained in zip(
        written.networks["action_values"], done.params["action_values"], strict=True
    ):
        np.testing.assert_array_equal(layer.weight, trained.weight)
        np.testing.assert_array_equal(layer.bias, trained.bias)
    states = np.arange(HORIZON, dtype=np.float32)[:, None]
    wanted = LEARNER.act(done.params, jnp.asarray(states))
    np.testing.assert_array_equal(done.act(states), wanted)
    np.testing.assert_array_equal(written.act(states), wanted)
    certified = (done.folder / "certificate.json").read_bytes()
    assert written.certificate == hashlib.sha256(certified).hexdigest()


def test_the_plan_is_told_before_anything_is_charged_and_steps_while_they_are_taken(
    everyone: Crowd, tmp_path: Path
) -> None:
    folder, told, steps = tmp_path / "run", list[str](), list[tuple[int, int]]()

    def report(text: str) -> None:
        if not told:
            assert not folder.exists()
        told.append(text)

    def progress(taken: int, of: int) -> None:
        steps.append((taken, of))

    made = fitted(named(everyone, "told"), folder, report=report, progress=progress)
    assert told[0] == made.plan.describe()
    assert made.released is not None
    assert "a new ledger for these experts" in told[1]
    assert f"released: {len(made.released)} prefixes" in told[2]
    assert steps == [(0, 20), (20, 20)]


def test_secrets_are_their_owners_alone_while_the_run_lasts(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_stage, "SECONDS_BETWEEN_SAVES", 0.0)
    folder, modes = tmp_path / "run", dict[str, int]()
    noise = list[int]()

    def progress(_done: int, _of: int) -> None:
        private = folder / "private"
        modes.update({path.name: mode(path) for path in [private, *private.iterdir()]})
        noise.extend(json.loads((private / "keys.json").read_text())["noise"])

    fitted(named(everyone, "secrets"), folder, progress=progress)
    assert modes.pop("private") == 0o700
    assert modes == dict.fromkeys(
        ("keys.json", "name", "remaining.npz", "standing.safetensors"), 0o600
    )
    assert not (folder / "private").exists()
    for path in folder.iterdir():
        content = path.read_bytes()
        assert not any(str(word).encode() in content for word in noise)
        assert not any(np.uint32(word).tobytes() in content for word in noise)


def test_a_finished_folder_is_refused_and_stays_free_of_secrets(
    everyone: Crowd, done: Fitted
) -> None:
    (done.folder / "private").mkdir()  # as if deleting it had been interrupted
    (done.folder / "private" / "keys.json").write_text("{}")
    with pytest.raises(QuorumError, match="holds a finished run: choose another folder"):
        fitted(named(everyone, "again"), done.folder)
    assert not (done.folder / "private").exists()


def test_a_shared_ledger_refuses_the_run_that_it_cannot_afford(
    everyone: Crowd, tmp_path: Path
) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=1.1 * EPSILON, delta=DELTA)
    fitted(named(everyone, "first"), tmp_path / "first", budget=Budget(book))
    before = book.read_bytes()
    assert len(read_ledger(book).charges) == 2
    with pytest.raises(QuorumError, match="nothing was charged"):
        fitted(named(everyone, "second"), tmp_path / "second", budget=Budget(book))
    assert book.read_bytes() == before
    assert not (tmp_path / "second" / "released.parquet").exists()
    assert not (tmp_path / "first" / "ledger.jsonl").exists()


def test_two_runs_with_one_seed_are_both_charged_to_a_ledger_that_they_share(
    everyone: Crowd, tmp_path: Path
) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=3 * EPSILON, delta=20 * DELTA)
    made = [
        fitted(named(everyone, f"log {n}"), tmp_path / f"{n}", budget=Budget(book)) for n in (1, 2)
    ]
    assert same_weights(*made)
    charges = read_ledger(book).charges
    assert len(charges) == 4
    assert len({charge.run for charge in charges}) == 2


def test_a_missing_assumption_costs_nothing_and_the_same_folder_goes_on_with_it(
    everyone: Crowd, tmp_path: Path
) -> None:
    one = named(everyone, "assumptions")
    with pytest.raises(QuorumError, match="accept by name"):
        fitted(one, tmp_path / "run", accepted=())
    assert not (tmp_path / "run").exists()
    fitted(one, tmp_path / "run")
    assert len(read_ledger(tmp_path / "run" / "ledger.jsonl").charges) == 2


def test_a_seed_reproduces_a_run_to_the_bit_and_is_marked(
    everyone: Crowd, done: Fitted, tmp_path: Path
) -> None:
    again = fitted(named(everyone, "again with the seed"), tmp_path / "run")
    assert same_weights(done, again)
    assert again.certificate is not None
    assert REPRODUCIBLE_NOISE in again.certificate.marks


def test_without_a_seed_no_run_is_another_and_none_is_marked(
    everyone: Crowd, tmp_path: Path
) -> None:
    one, other = (
        fitted(named(everyone, name), tmp_path / name, settings=DP_SGD, seed=None)
        for name in ("one without a seed", "another")
    )
    assert not same_weights(one, other)
    assert one.certificate is not None
    assert one.certificate.marks == ()


@pytest.mark.parametrize("why", ["the method", "nobody to ask"])
def test_a_training_on_all_trajectories_leaves_none_to_release(
    why: str, everyone: Crowd, tmp_path: Path
) -> None:
    one, book = named(everyone, why), tmp_path / "ledger"
    Ledger.create(book, epsilon=3 * EPSILON, delta=DELTA)
    how: dict[str, Any] = {"settings": DP_SGD} if why == "the method" else {"experts": None}
    made = fitted(one, tmp_path / "private", budget=Budget(book), **how)
    assert made.released is None
    (charge,) = read_ledger(book).charges
    assert charge.event == made.plan.events[0]
    assert charge.facts["whole_log"] == why
    with pytest.raises(QuorumError, match="none is fresh any more"):
        fitted(one, tmp_path / "selective", budget=Budget(book))
    assert len(read_ledger(book).charges) == 1


def test_training_after_a_release_sees_only_the_trajectories_that_it_left(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, seen = named(everyone, "watched"), list[Demonstrations]()

    def watched(demonstrations: Demonstrations) -> ExpertData:
        seen.append(demonstrations)
        return expert_data(demonstrations)

    monkeypatch.setattr(training_stage, "private_source", watched)
    made = fitted(one, tmp_path / "run")
    assert made.plan.release is not None
    pool_size = made.plan.release.event.pool_size
    left = split_release_pool(one.log, per_expert=pool_size, training_minimum=1).training
    assert 0 < len(left) < len(one.log)
    for demonstrations in seen:
        for found, wanted in zip(demonstrations.episodes, left.episodes, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert len(seen) == 1


def test_where_nothing_comes_out_only_the_private_steps_are_taken(tmp_path: Path) -> None:
    """Experts who toss coins: the plan expects something, and no prefix passes."""
    told, steps = list[str](), list[tuple[int, int]]()
    made = fitted(
        crowd(preference=0.5, identity="coins"),
        tmp_path / "run",
        settings=replace(SETTINGS, release_share=0.05),
        report=told.append,
        progress=lambda done, of: steps.append((done, of)),
    )
    assert made.plan.release is not None
    assert made.plan.release.event.threshold > 300  # of 400, of whom half would agree
    assert made.released is not None
    assert len(made.released) == 0
    assert "nothing was released, so only the private steps are taken" in told
    assert steps == [(0, 10), (10, 10)]
    assert len(read_ledger(made.folder / "ledger.jsonl").charges) == 2


def test_the_non_private_method_has_no_certificate_and_marks_the_ledger_it_is_given(
    everyone: Crowd, tmp_path: Path
) -> None:
    book, told = tmp_path / "ledger", list[str]()
    Ledger.create(book, epsilon=EPSILON, delta=DELTA)
    made = fitted(
        everyone,
        tmp_path / "run",
        settings=NON_PRIVATE,
        budget=Budget(book),
        diagnostics_not_private=True,
        report=told.append,
    )
    assert made.certificate is None
    assert "NOT PRIVATE" in told[0]
    record = read_ledger(book)
    assert not record.charges
    assert [mark.text for mark in record.marks] == [run.LOOKED]


def test_mode_paper_charges_what_is_run_and_writes_down_what_was_published(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = replace(SETTINGS, mode="paper", release_share=0.4, private_share=0.25)
    one = named(everyone, "paper")

    def enough(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training_stage, "fresh", enough)  # both are charged by then
    with pytest.raises(KeyboardInterrupt):
        fitted(one, tmp_path / "run", settings=paper)
    record = read_ledger(tmp_path / "run" / "ledger.jsonl")
    declared = one.log.declared
    plan = plan_fit(declared, LEARNER, epsilon=EPSILON, delta=DELTA, settings=paper)
    assert record.events == plan.events
    published = record.charges[1].facts["published"]
    assert published == pytest.approx({"epsilon": 0.6 * EPSILON, "delta": 0.1 * DELTA})
    made = certificate(record)
    assert made.epsilon == float("inf")
    assert made.published is not None
    assert made.published.complete
    assert made.published.epsilon == pytest.approx(EPSILON, rel=1e-6)
    assert made.published.delta == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"epsilon": "3"}, "epsilon is '3': give a positive number"),
        ({"delta": None}, "delta is None: give a number between 0 and 1"),
        ({"settings": {"private_steps": 3}}, "give a FitSettings"),
        ({"accepted": "one-expert-each"}, "accepted is 'one-expert-each': give a list of names"),
        ({"budget": "some.ledger"}, r"budget is 'some.ledger': give Budget.open\(path\)"),
        ({"experts": "experts.safetensors"}, "give CallableExperts"),
        ({"learner": 3}, "learner is 3: give a learner, its name, or the class of a DenseLearner"),
        ({"learner_settings": "alpha"}, "give a dictionary"),
        ({"seed": "1"}, "seed is '1': give a whole number"),
        ({"seed": -1}, "seed is -1"),
        ({"minimum_experts": "300"}, "minimum_experts is '300': give a whole number"),
        ({"report": "log.txt"}, "report is 'log.txt': give a function"),
        ({"track": "tensorboard"}, "track is 'tensorboard': give a function of metrics"),
        ({"track": tracker("wandb", "run")}, r"'with pipeline.tracker\(...\) as track' gives"),
        ({"progress": True}, "progress is True: give a function"),
        ({"command": 3}, "command is 3: give a text"),
    ],
)
def test_what_is_of_another_kind_is_refused_in_one_sentence(
    wrong: dict[str, Any], says: str, everyone: Crowd, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match=says):
        fitted(everyone, tmp_path / "run", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_no_log_and_a_number_no_path(everyone: Crowd, tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match="folder is 3: give a path"):
        fitted(everyone, 3)  # type: ignore[arg-type]
    with pytest.raises(QuorumError, match=r"give Demonstrations.open\(path\)"):
        fit("log.arrow", epsilon=1, delta=1e-4, folder=tmp_path / "run")  # type: ignore[arg-type]


@pytest.mark.parametrize("experts", [400, 399], ids=["other sizes", "another set"])
def test_experts_who_did_not_act_are_refused_even_where_nothing_would_be_released(
    experts: int, everyone: Crowd, tmp_path: Path
) -> None:
    sizes = (experts, 6, 3 if experts == 400 else 2)
    others = table_experts(np.full(sizes, 1 / sizes[2]), 0.1)
    log = replace(everyone.log, declared=replace(everyone.log.declared, experts_identity="theirs"))
    with pytest.raises(QuorumError, match=r"not the experts who acted|give the experts that acted"):
        fitted(
            Crowd(others, log),
            tmp_path / "run",
            settings=FitSettings(private_steps=2),
            learner="bc",
            accepted=["one-expert-each"],
        )
    assert list(tmp_path.iterdir()) == []


def test_what_is_shown_of_a_fit_is_short_and_escaped(done: Fitted) -> None:
    assert len(repr(done)) < 300
    assert repr(done.certificate) in repr(done)
    assert f"epsilon={done.certificate.epsilon:g}" in repr(done)  # type: ignore[union-attr]
    page = replace(done, folder=Path("<script>"))._repr_html_()
    assert done.certificate.statement in page  # type: ignore[union-attr]
    assert "<script>" not in page
