"""One charge is one result: a run goes on with the keys that it was charged with, or not at all."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from commands import networks
from fits import EXPERTS, HORIZON, SETTINGS, Crowd, fitted, interrupted, named
from tree_logs import TableExperts

from quorum_rl.budget import commitment, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import Bc
from quorum_rl.pipeline import context
from quorum_rl.release import read_released_with_facts, save_released
from quorum_rl.training import Optimiser, TrainsEverything, mean_gradient

PRIVATE: dict[str, Any] = {"settings": replace(SETTINGS, method="dp-sgd"), "seed": None}
OTHER_DATA = (
    r"charged for data with other contents than it is given now, .*; nothing was charged\.$"
)
OTHER_KEYS = r"other keys or another configuration .*; nothing was charged\.$"


def stopped(one: Crowd, folder: Path, patch: pytest.MonkeyPatch, **choices: Any) -> None:
    """A run that has paid for its steps and taken none."""
    at = "quorum_rl.pipeline.training_stage.fresh"
    interrupted(one, folder, at, patch, **{**PRIVATE, **choices})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_keys(folder: Path) -> None:
    (folder / "private" / "keys.json").unlink()


def with_another_key(folder: Path) -> None:
    path = folder / "private" / "keys.json"
    keys = json.loads(path.read_text())
    path.write_text(json.dumps(keys | {"noise": [1, 2]}))


def without_salt(folder: Path) -> None:
    path = folder / "private" / "keys.json"
    keys = json.loads(path.read_text())
    del keys["salt"]
    path.write_text(json.dumps(keys))


@pytest.mark.parametrize("attack", [without_keys, with_another_key, without_salt])
def test_a_copy_of_a_stopped_run_makes_no_second_policy_of_one_charge(
    attack: Callable[[Path], None],
    everyone: Crowd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, copy = named(everyone, attack.__name__), tmp_path / "copy"
    stopped(one, tmp_path / "run", monkeypatch)
    shutil.copytree(tmp_path / "run", copy)
    attack(copy)
    before = contents(copy)
    with pytest.raises(QuorumError, match=OTHER_KEYS) as refused:
        fitted(one, copy, **PRIVATE)
    assert "\n" not in str(refused.value)
    assert contents(copy) == before
    fitted(one, tmp_path / "run", **PRIVATE)
    assert len(read_ledger(tmp_path / "run" / "ledger.jsonl").charges) == 1


def test_the_same_noise_is_not_taken_for_other_settings(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another learning rate costs the same, and the difference of the two has no noise."""
    one, folder = named(everyone, "other settings"), tmp_path / "run"
    stopped(one, folder, monkeypatch)
    (folder / "config.json").unlink()
    faster = replace(PRIVATE["settings"], learning_rate=0.5)
    with pytest.raises(QuorumError, match=OTHER_KEYS):
        fitted(one, folder, **PRIVATE | {"settings": faster})
    (folder / "config.json").unlink()
    fitted(one, folder, **PRIVATE)


def test_keys_that_were_charged_under_one_name_are_not_taken_under_another(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two charges are accounted as two noises, and would be one."""
    one, folder = named(everyone, "another name"), tmp_path / "run"
    stopped(one, folder, monkeypatch)
    (folder / "private" / "name").unlink()
    with pytest.raises(QuorumError, match=r"were charged as run 'fit-.*; nothing was charged\.$"):
        fitted(one, folder, **PRIVATE)
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1


def test_without_the_commitment_a_copy_makes_a_second_policy_of_one_charge(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug, with which the test above fails."""
    for binding in ("check_committed", "check_contents"):  # without keys there is no salt either
        monkeypatch.setattr(context, binding, lambda *_, **__: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_copy_of_a_stopped_run_makes_no_second_policy_of_one_charge(
            without_keys, everyone, tmp_path, monkeypatch
        )
    one = named(everyone, without_keys.__name__)
    fitted(one, tmp_path / "run", **PRIVATE)
    ledgers = [read_ledger(tmp_path / name / "ledger.jsonl") for name in ("run", "copy")]
    assert ledgers[0] == ledgers[1]
    assert len(ledgers[0].charges) == 1
    assert networks(tmp_path / "run") != networks(tmp_path / "copy")


def contributing(times: float) -> dict[str, Any]:
    """A contribution of one's own: what it does is in its code, and in no field of it."""

    @dataclass(frozen=True)
    class Own(TrainsEverything):
        transitions: int = 4

        def __call__(self, *told: Any) -> Any:
            return jax.tree.map(lambda leaf: times * leaf, mean_gradient(*told))

    own = replace(PRIVATE["settings"], transitions_per_expert=None, contribution=Own())
    return {"settings": own}


def learning(times: float) -> dict[str, Any]:
    @dataclass(frozen=True)
    class Own(Bc):
        def loss_from_outputs(self, *told: Any) -> Any:
            return times * super().loss_from_outputs(*told)

    return {"learner": Own(hidden_sizes=(2,))}


def stepping(decay: float) -> dict[str, Any]:
    own = Optimiser("own", optax.trace(decay))
    return {"settings": replace(PRIVATE["settings"], optimiser=own, private_learning_rate=0.1)}


@pytest.mark.parametrize("own", [contributing, learning, stepping])
def test_one_noise_is_not_taken_for_other_code(
    own: Callable[[float], dict[str, Any]],
    everyone: Crowd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code of the same name and fields, edited while the run was stopped."""
    one, folder = named(everyone, own.__name__), tmp_path / "run"
    stopped(one, folder, monkeypatch, **own(0.9))
    (folder / "config.json").rename(tmp_path / "begun.json")
    with pytest.raises(QuorumError, match=OTHER_KEYS):
        fitted(one, folder, **PRIVATE | own(0.5))
    shutil.copy(tmp_path / "begun.json", folder / "config.json")
    with pytest.raises(QuorumError, match=r"begun with (contribution|learner|optimiser)_code = "):
        fitted(one, folder, **PRIVATE | own(0.5))
    fitted(one, folder, **PRIVATE | own(0.9))


def test_without_the_digest_of_code_one_noise_is_taken_for_other_code(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug, with which the test above fails."""
    monkeypatch.setattr("quorum_rl.pipeline.settings.code_digest", lambda *_: "any")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_one_noise_is_not_taken_for_other_code(stepping, everyone, tmp_path, monkeypatch)


def with_one_other_action(one: Crowd) -> Crowd:
    """Another log of the same shape, declared facts and identity."""
    actions = one.log.columns.actions.copy()
    actions[7] = 1 - actions[7]
    return one._replace(log=replace(one.log, columns=one.log.columns._replace(actions=actions)))


def with_another_name(one: Crowd) -> Crowd:
    """The same, but for what one expert is called, who may judge under that name."""
    names = (*map(str, range(one.log.expert_count - 1)), "x")
    return one._replace(log=replace(one.log, expert_names=names))


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("other", [with_one_other_action, with_another_name])
def test_one_noise_is_not_added_to_two_logs(
    other: Callable[[Crowd], Crowd],
    seed: int | None,
    everyone: Crowd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two policies of one charge, whose difference has no noise: the log is swapped in between."""
    one, folder = named(everyone, f"{other.__name__} {seed}"), tmp_path / "run"
    choices = PRIVATE | {"seed": seed}
    stopped(one, folder, monkeypatch, **choices)
    before = contents(folder)
    with pytest.raises(QuorumError, match=OTHER_DATA) as refused:
        fitted(other(one), folder, **choices)
    assert "\n" not in str(refused.value)
    assert contents(folder) == before
    fitted(one, folder, **choices)
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1


def test_a_run_that_lost_what_its_log_held_does_not_go_on(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, path = named(everyone, "no contents"), tmp_path / "run" / "private" / "keys.json"
    stopped(one, tmp_path / "run", monkeypatch)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"contents": {}}))
    with pytest.raises(QuorumError, match=OTHER_DATA):
        fitted(one, tmp_path / "run", **PRIVATE)
    path.write_text(json.dumps(kept | {"contents": 3}))
    with pytest.raises(QuorumError, match="is damaged"):
        fitted(one, tmp_path / "run", **PRIVATE)


def test_a_log_may_be_corrected_before_anything_is_charged(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = named(everyone, "corrected")
    at = "quorum_rl.pipeline.run.recall"
    interrupted(one, tmp_path / "run", at, monkeypatch, **PRIVATE)
    fitted(with_one_other_action(one), tmp_path / "run", **PRIVATE)


def test_one_noise_is_not_taken_beside_two_releases(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private steps start from what the public ones learned, so other prefixes move them."""
    one, folder = named(everyone, "other prefixes"), tmp_path / "run"
    stopped(one, folder, monkeypatch, settings=SETTINGS)
    released, facts = read_released_with_facts(folder / "released.parquet")
    steps: Any = released.transitions
    other = replace(released, transitions=steps._replace(reward=np.asarray(steps.reward) + 1))
    save_released(other, folder / "released.parquet", facts)
    with pytest.raises(QuorumError, match=OTHER_DATA):
        fitted(one, folder, **PRIVATE | {"settings": SETTINGS})
    save_released(released, folder / "released.parquet", facts)
    fitted(one, folder, **PRIVATE | {"settings": SETTINGS})


class Kept(TableExperts):
    """Who can be told from others by what they hold, as those in files can."""

    def contents(self) -> Iterator[Any]:
        return iter([self.tables.tobytes()])


def kept(one: Crowd, preference: float) -> Crowd:
    """The crowd whose first expert prefers action 0 so much, under the same identity."""
    tables = np.broadcast_to([0.9, 0.1], (EXPERTS, HORIZON + 1, 2)).copy()
    tables[0] = preference, 1 - preference
    asked = Kept(observation_size=1, action_count=2, p_min=0.1, tables=tables, identity="same")
    return one._replace(experts=LoggedExperts(asked))


def test_one_noise_is_not_added_to_what_two_sets_of_experts_answer(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, folder = named(everyone, "other experts"), tmp_path / "run"
    choices: dict[str, Any] = {"settings": SETTINGS, "seed": None}

    at = "quorum_rl.pipeline.release_stage.save_released"
    interrupted(kept(one, 0.9), folder, at, monkeypatch, **choices)
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1
    (folder / "private" / "remaining.npz").unlink(missing_ok=True)
    with pytest.raises(QuorumError, match=OTHER_DATA):
        fitted(kept(one, 0.5), folder, **choices)
    fitted(kept(one, 0.9), folder, **choices)


def test_without_the_digest_one_noise_is_added_to_two_logs(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug, with which the tests above fail."""
    monkeypatch.setattr(context, "check_contents", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_one_noise_is_not_added_to_two_logs(
            with_one_other_action, None, everyone, tmp_path, monkeypatch
        )


def test_a_seeded_run_draws_its_keys_again_and_goes_on(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, folder = named(everyone, "seeded keys"), tmp_path / "run"
    stopped(one, folder, monkeypatch, seed=3)
    without_keys(folder)
    fitted(one, folder, **PRIVATE | {"seed": 3})
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1


def test_a_hash_tells_nothing_of_keys_that_are_guessed() -> None:
    """Keys of 64 bits can be tried; the salt beside them cannot."""
    keys = {"noise": [1, 2], "public": [3, 4]}
    salted = [commitment.commitments(keys | {"salt": [salt]}, {}) for salt in (5, 6)]
    assert salted[0]["keys"] != salted[1]["keys"]
    assert salted[0]["configuration"] != salted[1]["configuration"]
    assert commitment.commitments(keys, {})["keys"] not in {each["keys"] for each in salted}


@pytest.mark.parametrize("spare", [0, 1])
def test_a_log_of_no_more_experts_than_declared_covers_no_removal_and_no_file_says_so(
    spare: int, everyone: Crowd, tmp_path: Path
) -> None:
    """Neighbours with one expert fewer are below the declared number: nothing is said of them."""
    log = everyone.log
    declared = replace(
        log.declared, minimum_experts=log.expert_count - spare, identity=f"spare {spare}"
    )
    told: list[str] = []
    one = everyone._replace(log=replace(log, declared=declared))
    fitted(one, tmp_path / "run", **PRIVATE, report=told.append)
    assert any("nobody's removal" in line for line in told) is (spare == 0)
    assert not any(b"removal" in content for content in contents(tmp_path / "run").values())
