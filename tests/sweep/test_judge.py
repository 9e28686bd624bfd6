"""Trials judged by what was released: public, because it was paid for; no simulator is needed."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from fits import DELTA, SETTINGS
from sweeps import CLIPS, CLOCK, asked, spreading, swept, untrained

from quorum_rl.budget import Budget, commitments, read_ledger
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.learners import Bc
from quorum_rl.policy import Layer, Policy
from quorum_rl.privacy import ReleaseEvent, TrainingEvent
from quorum_rl.release import read_released, read_released_with_facts
from quorum_rl.sweep import Common, Search, one_by_one
from quorum_rl.sweep.judge import PAID_ELSEWHERE, agreement
from quorum_rl.sweep.programs import Found, Inputs, TrialResult, found_by
from quorum_rl.sweep.run import JUDGED_BY
from quorum_rl.sweep.trials import Program
from quorum_rl.types import Released, Transition

RATES = Search(grid={"private-learning-rate": (0.01, 0.1)})
BOTH_STAGES = Common(5.0, DELTA, replace(SETTINGS, private_steps=2), "bc", hidden_sizes=())


def prefixes(states: int = 6, width: int = 1) -> Released:
    """Released transitions whose action is 0 where the state is even."""
    observation = np.arange(states * width, dtype=np.float32).reshape(states, width)
    action = (np.arange(states) % 2).astype(np.int32)
    flags = np.zeros(states, np.bool_)
    reward = np.zeros(states, np.float32)
    found: Any = Transition(observation, action, reward, observation, flags, flags)  # type: ignore[arg-type]
    return Released(found, np.array([0, states]), width, 2, 9)


NOTHING = replace(prefixes(states=0), offsets=np.zeros(1, np.int64))


def test_agreement_is_the_share_of_released_actions_that_the_policy_takes() -> None:
    """Against each state by hand: the higher of two straight lines."""
    learner = Bc(hidden_sizes=())
    params = jax.vmap(lambda key: learner.init(key, 1, 2))(jax.random.split(jax.random.key(0), 3))
    released = prefixes()
    (name,) = params
    for number, found in enumerate(agreement(learner, params, released)):
        ((weight, bias),) = jax.tree.map(lambda leaf, i=number: np.asarray(leaf[i]), params[name])
        values = np.asarray(released.transitions.observation) @ weight + bias
        assert found == np.mean(values.argmax(axis=1) == np.arange(6) % 2)


def test_a_sweep_without_a_world_is_judged_by_its_own_release(tmp_path: Path) -> None:
    """Nothing at all is released, and the test fails for it, with probability 8e-7."""
    seen: list[Inputs] = []

    def work(inputs: Inputs, program: Program) -> Found:
        seen.append(inputs)
        return found_by(inputs, program)

    one = asked(
        "judged", search=RATES, common=BOTH_STAGES, world=None, judge="released", select="public"
    )
    made = swept(one, tmp_path / "sweep", spread=spreading([], work))
    record = read_ledger(tmp_path / "sweep" / "winner" / "ledger.jsonl")
    assert sum(isinstance(event, ReleaseEvent) for event in record.events) == 1
    assert seen[0].judged_on is seen[0].released
    rows = pq.read_table(tmp_path / "sweep" / "sweep.parquet").to_pylist()
    assert all(0 <= row["score"] <= 1 and row["mean_return"] is None for row in rows)
    assert made.judged.score == max(row["score"] for row in rows)
    winner = Policy.load(tmp_path / "sweep" / "winner" / "policy.safetensors")  # acts without JAX
    found = read_released(tmp_path / "sweep" / "released.parquet").transitions
    assert made.judged.score == np.mean(winner.act(found.observation) == found.action)


def test_another_release_judges_trials_and_is_remembered_by_the_folder(tmp_path: Path) -> None:
    judges = []

    def work(inputs: Inputs, program: Program) -> Found:
        judges.append(inputs.judged_on)
        found = untrained(inputs, program)
        judged = tuple(TrialResult(result.number, result.scores) for result in found.judged)
        return replace(found, judged=judged)

    released = prefixes()
    made = swept(
        asked(world=None, judge=released, together=1),
        tmp_path / "sweep",
        spread=spreading([], work),
    )
    assert made.certificate is not None
    assert PAID_ELSEWHERE in made.certificate.marks
    assert set(map(id, judges)) == {id(released)}
    assert "released " in (tmp_path / "sweep" / "config.json").read_text()


def test_a_release_that_the_ledger_holds_leaves_no_mark_and_any_other_one_does(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "experts.jsonl"
    Budget.create(ledger, epsilon=100.0, delta=DELTA)
    choices: dict[str, Any] = {"search": RATES, "select": "public", "ledger": ledger}
    earlier = tmp_path / "earlier"
    swept(
        asked("earlier", common=BOTH_STAGES, **choices),
        earlier,
        spread=spreading([], unscored),
    )
    released, facts = read_released_with_facts(earlier / "released.parquet")
    held = asked("held", judge=released, judge_facts=facts, **choices)
    made = swept(held, tmp_path / "held", spread=spreading([], unscored))
    assert made.certificate is not None
    assert made.certificate.marks == ()
    elsewhere = asked("other", judge=released, judge_facts=facts | {"ledger": "0" * 32}, **choices)
    made = swept(elsewhere, tmp_path / "elsewhere", spread=spreading([], unscored))
    assert made.certificate is not None
    assert made.certificate.marks == (PAID_ELSEWHERE,)


def unscored(_: Inputs, program: Program) -> Found:
    """As if trained, all alike."""
    layer = Layer(np.zeros((1, 2), np.float32), np.zeros(2, np.float32))
    judged = tuple(TrialResult(trial.number, (0.5,)) for trial in program.trials)
    return Found(
        program.number, judged, Policy(networks={"q": (layer,)}, highest="q", learner="bc")
    )


def test_a_sweep_whose_release_gives_nothing_goes_on_by_another_judge_and_pays_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained for real, on private steps alone."""
    choices: dict[str, Any] = {"search": RATES, "common": BOTH_STAGES, "select": "public"}
    book = tmp_path / "sweep" / "winner" / "ledger.jsonl"
    own = asked("lost", world=None, judge="released", **choices)
    monkeypatch.setattr("quorum_rl.sweep.payment.read_released", lambda _: NOTHING)
    with pytest.raises(QuorumError, match="the same command and --world, or with --judge"):
        swept(own, tmp_path / "sweep")
    paid = read_ledger(book).charges
    assert [type(charge.event) for charge in paid] == [ReleaseEvent, *[TrainingEvent] * 2]
    other = asked("lost", world=None, judge=prefixes(), **choices)
    swept(other, tmp_path / "sweep", spread=one_by_one)
    assert read_ledger(book).charges == paid
    rows = pq.read_table(tmp_path / "sweep" / "sweep.parquet").to_pylist()
    assert [(row["released"], row["plain_steps"], row["reason"]) for row in rows] == [
        ([0], 0, "")
    ] * 2


def test_a_world_is_added_to_a_sweep_whose_release_gave_nothing_and_then_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices: dict[str, Any] = {"search": RATES, "common": BOTH_STAGES, "select": "public"}
    folder = tmp_path / "sweep"
    monkeypatch.setattr("quorum_rl.sweep.payment.read_released", lambda _: NOTHING)
    with pytest.raises(QuorumError, match="nothing was released that trials could be judged by"):
        swept(asked("nothing", world=None, judge="released", **choices), folder)

    def stopped(inputs: Inputs, _: Program) -> Found:
        assert inputs.judged_on is None
        raise Interrupted("stopped.")

    with pytest.raises(Interrupted):
        swept(asked("nothing", judge="released", **choices), folder, spread=spreading([], stopped))
    with pytest.raises(QuorumError, match=r"was begun with judge = released, not released "):
        swept(asked("nothing", judge=prefixes(), **choices), folder)


PRIVATELY: Final[dict[str, Any]] = {
    "search": Search(grid={"clip-norm": CLIPS}),
    "common": replace(BOTH_STAGES, learner="auto", hidden_sizes=(4,)),
    "select": "private",
    "together": 1,
}


def without_judge(config: Path) -> None:
    """As if this sweep had wanted to be judged by its own release alone."""
    facts = json.loads(config.read_text())
    config.write_text(json.dumps(facts | {"world": None, "world_code": None}))


def stopped(folder: Path, identity: str) -> None:
    def stop(*_: Any) -> Found:
        raise Interrupted("stopped.")

    with pytest.raises(Interrupted):
        swept(asked(identity, judge="released", **PRIVATELY), folder, spread=spreading([], stop))
    (folder / "private" / "programs").rmdir()


@pytest.mark.parametrize("forget", [without_judge, Path.unlink])
def test_a_copy_of_a_private_selection_chooses_no_second_winner_of_one_charge(
    forget: Callable[[Path], None], tmp_path: Path
) -> None:
    """The same trials under the same keys; only the best of them is paid for."""
    folder, identity = tmp_path / "sweep", f"two winners {forget.__name__}"
    stopped(folder, identity)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    forget(copy / "config.json")
    with pytest.raises(QuorumError, match=r"another configuration .*; nothing was charged\.$"):
        swept(asked(identity, judge=prefixes(), **PRIVATELY), copy)
    swept(asked(identity, judge="released", **PRIVATELY), folder)
    assert len(read_ledger(folder / "winner" / "ledger.jsonl").charges) == 2


def test_without_the_judge_in_the_commitment_a_copy_chooses_a_second_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug, with which the test above fails."""

    def forgetful(keys: Any, facts: Any) -> Any:
        return commitments(keys, {name: facts[name] for name in facts.keys() - {*JUDGED_BY}})

    monkeypatch.setattr("quorum_rl.sweep.run.commitments", forgetful)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_copy_of_a_private_selection_chooses_no_second_winner_of_one_charge(
            Path.unlink, tmp_path
        )


def test_a_world_that_was_edited_judges_no_sweep_that_began_before(tmp_path: Path) -> None:
    world = tmp_path / "clock.py"
    world.write_bytes(Path(CLOCK.rpartition(":")[0]).read_bytes())
    one, folder = asked("edited", world=f"{world}:WORLD", select="public"), tmp_path / "sweep"

    def stop(*_: Any) -> Found:
        raise Interrupted("stopped.")

    with pytest.raises(Interrupted):
        swept(one, folder, spread=spreading([], stop))
    world.write_text(world.read_text() + "\n# edited\n")
    with pytest.raises(QuorumError, match="was begun with world_code = "):
        swept(one, folder)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (
            {"world": None, "judge": "released", "select": "private"},
            "a private selection is by what was settled before it is paid for",
        ),
        ({"world": None}, "judged in a public world"),
        ({"judge": "released"}, "releases of its own"),
        ({"judge": prefixes(width=3)}, "cannot judge trials on demonstrations of 1 and 2"),
        ({"world": "Acrobot"}, "'Acrobot', with 6 numbers in a state and 3 actions"),
        ({"judge": "released", "select": "public"}, "no release that they could be judged by"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_paid(
    choices: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(QuorumError, match=said):
        swept(asked("refused", **choices), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
