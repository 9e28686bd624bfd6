"""A sweep: run once however often it is interrupted, and its winner says who paid for choosing."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fits import DELTA, SETTINGS
from sweeps import CLIPS, PRIVATE, asked, spreading, swept, untrained

from quorum_rl.budget import Budget, SeededEntropy, read_ledger
from quorum_rl.budget.checking import check_certificate
from quorum_rl.envs import Units
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.policy import Policy
from quorum_rl.privacy import ReleaseEvent, SelectionEvent, TrainingEvent, total_epsilon
from quorum_rl.release import read_released_with_facts, save_released
from quorum_rl.report import check_bundle, publish
from quorum_rl.sweep import Common, Search, SweepOptions
from quorum_rl.sweep.programs import Found, Inputs
from quorum_rl.sweep.run import _drawn
from quorum_rl.sweep.trials import Program

ONE_SHAPE = Search(grid={"clip-norm": CLIPS})


def table(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "sweep.parquet").to_pylist()
    return rows


def test_each_trial_has_a_row_and_the_best_wins_marked_as_not_accounted(tmp_path: Path) -> None:
    made = swept(asked(), tmp_path / "sweep")
    rows = table(tmp_path / "sweep")
    assert [row["trial"] for row in rows] == list(range(6))
    assert [row["score"] for row in rows] == pytest.approx([0.42, 0.34, 0.92, 0.84, 1.92, 1.84])
    assert made.trial.choices == {"clip_norm": 2.0, "batch_size": 8}
    policy = Policy.load(tmp_path / "sweep" / "winner" / "policy.safetensors")
    assert policy.values([[0.0]])[0, 0] == pytest.approx(1.92)
    assert made.certificate is not None
    assert made.certificate.kind == "research"
    assert any(mark.startswith("selection not accounted") for mark in made.certificate.marks)
    found = check_certificate(tmp_path / "sweep" / "winner" / "certificate.json")
    assert any("selection not accounted" in sentence for sentence in found.sentences())
    assert len(found.certificate.events) == 1  # the winner's own
    with pytest.raises(QuorumError, match="holds a finished sweep"):
        swept(asked(), tmp_path / "sweep")


def interrupted_after(count: int, seen: list[int]) -> Any:
    """Stops when so many programs have ended."""

    def work(inputs: Inputs, program: Program) -> Found:
        if len(seen) > count:
            raise Interrupted("stopped.")
        return untrained(inputs, program)

    return spreading(seen, work)


@pytest.mark.parametrize("select", [None, "public", "private"])
def test_an_interrupted_sweep_goes_on_without_repeating_or_paying_again(
    select: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked(f"interrupted {select}", select=select, together=1)
    if select == "private":  # or chance says how many there are
        one = replace(one, search=ONE_SHAPE)
        monkeypatch.setattr("quorum_rl.sweep.run._drawn", lambda *_: ONE_SHAPE.all())
    seen: list[int] = []
    with pytest.raises(Interrupted):
        swept(one, tmp_path / "sweep", spread=interrupted_after(1, seen))
    book = tmp_path / "sweep" / "winner" / "ledger.jsonl"
    before = read_ledger(book).charges if select else ()
    again: list[int] = []
    made = swept(one, tmp_path / "sweep", spread=spreading(again))
    assert seen[:1] + again == list(range(len(again) + 1))
    if select:
        assert read_ledger(book).charges == before
    assert made.trial.choices["clip_norm"] == max(CLIPS)
    assert not (tmp_path / "sweep" / "private").exists()


def test_the_noise_of_an_interrupted_sweep_is_not_added_to_another_log(tmp_path: Path) -> None:
    one = asked("swapped", select="public", together=1)
    place = tmp_path / "sweep"
    with pytest.raises(Interrupted):
        swept(one, place, spread=interrupted_after(0, []))
    rewards = one.log.columns.rewards.copy()
    rewards[0] += 1
    other = replace(one.log, columns=one.log.columns._replace(rewards=rewards))
    ledger = (place / "winner" / "ledger.jsonl").read_bytes()
    with pytest.raises(QuorumError, match="data with other contents than it is given now"):
        swept(replace(one, log=other), place)
    with pytest.MonkeyPatch.context() as planted:  # the planted bug
        planted.setattr("quorum_rl.sweep.run.check_contents", lambda *_: None)
        with pytest.raises(Interrupted):
            swept(replace(one, log=other), place, spread=interrupted_after(-1, []))
    assert (place / "winner" / "ledger.jsonl").read_bytes() == ledger


def test_the_noise_of_an_interrupted_sweep_is_not_taken_beside_another_release(
    tmp_path: Path,
) -> None:
    common = Common(5.0, DELTA, SETTINGS, hidden_sizes=(4,))
    one = asked("other prefixes", select="public", search=ONE_SHAPE, common=common, together=1)
    path = tmp_path / "sweep" / "released.parquet"
    with pytest.raises(Interrupted):
        swept(one, tmp_path / "sweep", spread=interrupted_after(0, []))
    released, facts = read_released_with_facts(path)
    steps: Any = released.transitions
    other = replace(released, transitions=steps._replace(reward=np.asarray(steps.reward) + 1))
    save_released(other, path, facts)
    with pytest.raises(QuorumError, match="data with other contents than it is given now"):
        swept(one, tmp_path / "sweep")
    save_released(released, path, facts)
    swept(one, tmp_path / "sweep")


@pytest.mark.parametrize("select", ["public", "private"])
def test_a_sweep_whose_keys_are_gone_makes_no_second_winner_of_its_charges(
    select: Any, tmp_path: Path
) -> None:
    one = asked(f"gone {select}", select=select, search=ONE_SHAPE, together=1)
    place = tmp_path / "sweep"
    with pytest.raises(Interrupted):
        swept(one, place, spread=interrupted_after(0, []))
    kept = place / "private" / "trials.json"
    content, ledger = kept.read_bytes(), (place / "winner" / "ledger.jsonl").read_bytes()
    kept.unlink()
    with pytest.raises(QuorumError, match="other keys or another configuration"):
        swept(one, place)
    assert not kept.exists()
    earlier = json.loads(content)
    del earlier["release"]
    for damaged in (b"", b"[]", content[:-5], json.dumps(earlier).encode()):
        kept.write_bytes(damaged)
        with pytest.raises(QuorumError, match=r"is damaged, or of an earlier version \("):
            swept(one, place)
    assert (place / "winner" / "ledger.jsonl").read_bytes() == ledger
    kept.write_bytes(content)
    swept(one, place)
    assert (place / "winner" / "ledger.jsonl").read_bytes() == ledger


def test_without_the_check_a_sweep_whose_keys_are_gone_makes_another_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug, with which the test above fails."""
    for binding in ("check_committed", "check_contents"):  # without keys there is no salt either
        monkeypatch.setattr(f"quorum_rl.sweep.run.{binding}", lambda *_, **__: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_sweep_whose_keys_are_gone_makes_no_second_winner_of_its_charges("public", tmp_path)


def test_another_sweep_cannot_go_on_in_the_folder_of_an_interrupted_one(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        swept(asked(together=1), tmp_path / "sweep", spread=interrupted_after(1, []))
    with pytest.raises(QuorumError, match=r"was begun with episodes = 100, not 7"):
        swept(asked(together=1, episodes=7), tmp_path / "sweep")


def test_a_sweep_does_not_go_on_where_the_worlds_units_have_become_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in another version: trials that see numbers differently are not one search."""
    with pytest.raises(Interrupted):
        swept(asked(together=1), tmp_path / "sweep", spread=interrupted_after(1, []))
    units = Units(centre=(0.0,), scale=(2.0,))
    monkeypatch.setattr("quorum_rl.pipeline.learner_rule.units_of_world", lambda _: units)
    with pytest.raises(QuorumError, match=r"was begun with learner\.observation_centre = \[\]"):
        swept(asked(together=1), tmp_path / "sweep")


def test_with_public_scores_every_trial_is_charged_and_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys: list[tuple[int, ...]] = []

    def work(inputs: Inputs, program: Program) -> Found:
        assert inputs.keys is not None
        keys.append(inputs.keys)
        return untrained(inputs, program)

    one = asked("public", select="public")
    made = swept(one, tmp_path / "sweep", spread=spreading([], work))
    assert len(set(keys[0])) == 6
    record = read_ledger(tmp_path / "sweep" / "winner" / "ledger.jsonl")
    assert Counter(type(event) for event in record.events) == {TrainingEvent: 6}
    assert record.marks == ()
    assert made.certificate is not None
    assert made.certificate.epsilon == pytest.approx(total_epsilon(record.events, DELTA), abs=1e-4)
    assert made.certificate.epsilon > 5.0
    check_certificate(tmp_path / "sweep" / "winner" / "certificate.json")


def test_private_selection_is_one_charge_and_only_the_winner_comes_out(tmp_path: Path) -> None:
    ledger = tmp_path / "experts.jsonl"
    Budget.create(ledger, epsilon=30.0, delta=DELTA)
    one = asked("private", select="private", search=ONE_SHAPE, ledger=ledger, mean_trials=5)
    made = swept(one, tmp_path / "sweep")
    (event,) = read_ledger(ledger).events
    assert isinstance(event, SelectionEvent)
    assert event.mean_trials == 5
    assert made.certificate is not None
    assert made.certificate.epsilon == pytest.approx(total_epsilon([event], DELTA), abs=1e-4)
    assert made.certificate.marks == ()
    assert {path.name for path in (tmp_path / "sweep").iterdir()} == {"config.json", "winner"}
    published = publish(tmp_path / "sweep" / "winner", tmp_path / "bundle", ledger=ledger)
    assert published.certificate == made.certificate
    check_bundle(tmp_path / "bundle")


def test_a_sweep_under_another_ledger_than_that_of_its_log_is_refused(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for ledger in (own, other):
        Budget.create(ledger, epsilon=30.0, delta=DELTA)
    choice: dict[str, Any] = {"select": "private", "search": ONE_SHAPE, "mean_trials": 1}
    swept(asked("two ledgers", ledger=own, **choice), tmp_path / "sweep")
    with pytest.raises(QuorumError, match=r"belongs? to the ledger .*own"):
        swept(asked("two ledgers", ledger=other, **choice), tmp_path / "again")
    assert read_ledger(other).charges == ()
    assert not (tmp_path / "again").exists()


def test_the_budget_refuses_a_sweep_before_anything_is_charged(tmp_path: Path) -> None:
    ledger = tmp_path / "experts.jsonl"
    Budget.create(ledger, epsilon=8.0, delta=DELTA)
    seen: list[int] = []
    with pytest.raises(QuorumError, match="over the ledger's budget"):
        swept(
            asked("refused", select="public", ledger=ledger),
            tmp_path / "sweep",
            spread=spreading(seen),
        )
    assert read_ledger(ledger).charges == ()
    assert seen == []


def test_a_sweep_of_fewer_usable_experts_than_declared_is_refused_at_no_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve have what the release reserves, and the others a trajectory each."""
    ledger = tmp_path / "experts.jsonl"
    Budget.create(ledger, epsilon=100.0, delta=DELTA)
    common = Common(5.0, DELTA, SETTINGS, hidden_sizes=(4,))
    choices: dict[str, Any] = {"search": ONE_SHAPE, "common": common, "ledger": ledger}
    one = asked("few", select="public", **choices)
    first = np.diff(one.log.episodes.expert, prepend=-1) > 0
    few = replace(one, log=one.log.select((one.log.episodes.expert < 12) | first))
    with pytest.raises(QuorumError, match=r"fewer than 399 experts have .*; nothing was charged"):
        swept(few, tmp_path / "sweep")
    assert read_ledger(ledger).charges == ()
    assert not (tmp_path / "sweep").exists()
    monkeypatch.setattr(type(few.log), "check_usable", lambda *_: None)  # the planted bug
    swept(few, tmp_path / "sweep")
    assert len(read_ledger(ledger).charges) == 4


def test_the_number_of_trials_is_geometric() -> None:
    """Against its mass at 1, 2 and 3: 5 deviations each, 2e-6 by chance (the seeds are fixed)."""
    one, draws = asked(search=ONE_SHAPE, mean_trials=4), 2000
    counts = Counter(len(_drawn(one, SeededEntropy(seed))) for seed in range(draws))
    for number in (1, 2, 3):
        chance = 0.25 * 0.75 ** (number - 1)
        deviation = math.sqrt(draws * chance * (1 - chance))
        assert abs(counts[number] - draws * chance) < 5 * deviation


def test_accounted_trials_share_one_release(tmp_path: Path) -> None:
    common = Common(5.0, DELTA, SETTINGS, hidden_sizes=(4,))
    one = asked("shared", select="private", search=ONE_SHAPE, common=common, mean_trials=3)
    released: list[Any] = []

    def work(inputs: Inputs, program: Program) -> Found:
        released.append(inputs.released)
        return untrained(inputs, program)

    made = swept(one, tmp_path / "sweep", spread=spreading([], work))
    record = read_ledger(tmp_path / "sweep" / "winner" / "ledger.jsonl")
    assert [type(event) for event in record.events] == [ReleaseEvent, SelectionEvent]
    assert released[0] is not None
    assert made.certificate is not None
    assert math.isfinite(made.certificate.epsilon)
    check_certificate(tmp_path / "sweep" / "winner" / "certificate.json")
    winner = json.loads((tmp_path / "sweep" / "winner" / "config.json").read_text())
    assert [event["event"] for event in winner["events"]] == ["release", "selection"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"select": "public", "search": Search(grid={"clip-norm": [1.0, -1.0]})}, "take it out"),
        ({"select": "public", "search": Search(grid={"method": ["non-private"]})}, "not private"),
        ({"select": "private", "search": Search(grid={"private-share": [0.4, 0.5]})}, "same cost"),
        ({"search": Search(grid={"method": ["non-private"]})}, "--diagnostics-not-private"),
        ({"ledger": Path("experts.jsonl")}, "add --select"),
        ({"seeds": 0}, "give at least 1"),
    ],
)
def test_what_cannot_be_accounted_is_refused(changes: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(QuorumError) as refused:
        swept(asked("refusals", **changes), tmp_path / "sweep")
    assert said in str(refused.value)
    assert not (tmp_path / "sweep").exists()


def test_different_releases_are_refused_where_trials_are_accounted(tmp_path: Path) -> None:
    common = Common(5.0, DELTA, SETTINGS, hidden_sizes=(4,))
    search = Search(grid={"iterations": [5, 6]})
    with pytest.raises(QuorumError, match="plan different releases"):
        swept(asked("two", select="public", common=common, search=search), tmp_path / "sweep")


def test_a_sweep_of_nothing_that_can_be_run_says_why(tmp_path: Path) -> None:
    one: SweepOptions = asked(
        search=Search(grid={"clip-norm": [-1.0]}), common=Common(5.0, DELTA, PRIVATE)
    )
    with pytest.raises(QuorumError, match="no trial of 1 can be run"):
        swept(one, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_refused_when_it_would_pay_leaves_nothing_behind(tmp_path: Path) -> None:
    """The ledger, which is made for it, has an objection of its own."""
    one = asked("refused late", select="public", accepted=("unheard-of",))
    with pytest.raises(QuorumError, match="unheard-of"):
        swept(one, tmp_path / "sweep")
    assert list(tmp_path.iterdir()) == []
