"""Who judges: by a name and a key alone, settled once for a ledger, and told to nobody."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ledger_records import DELTA, charged
from scipy.stats import binomtest, chi2_contingency

from quorum_rl.budget import Budget, Ledger, SeededEntropy, SplitKey, certificate, key_path, verify
from quorum_rl.budget.record import Split
from quorum_rl.errors import QuorumError
from quorum_rl.privacy.accounting import total_epsilon
from quorum_rl.privacy.events import TrainingEvent

NAMES = tuple(f"desk {number}" for number in range(400))
LEARNED = TrainingEvent(sampling_rate=1.0, noise_multiplier=9.0, steps=20, part="training")
JUDGED = replace(LEARNED, steps=10, part="judging")


def test_an_experts_part_depends_on_its_name_and_the_key_alone() -> None:
    key = SplitKey(0.3, bytes(range(32)))
    whole = dict(zip(NAMES, key.judges(NAMES), strict=True))
    some = NAMES[5:300:7]
    assert key.judges(some[::-1]).tolist() == [whole[name] for name in some[::-1]]
    assert SplitKey(0.3, bytes(32)).judges(NAMES).tolist() != list(whole.values())
    assert "key" not in repr(key)


def test_coins_are_fair_and_independent() -> None:
    """False alarms: 1e-6 each."""
    keys = [SplitKey(0.15, number.to_bytes(32, "big")) for number in range(200)]
    thrown = np.array([key.judges(NAMES[:100]) for key in keys])
    assert binomtest(int(thrown.sum()), thrown.size, 0.15).pvalue > 1e-6
    own, next_to = thrown[:, 0::2].ravel(), thrown[:, 1::2].ravel()
    table, _, _ = np.histogram2d(own.astype(float), next_to.astype(float), bins=2)
    assert chi2_contingency(table)[1] > 1e-6


def test_a_judge_of_a_small_share_judges_in_a_larger_one_too() -> None:
    """The share alone moves nobody back: coins are compared with it."""
    few, many = (SplitKey(share, bytes(32)).judges(NAMES) for share in (0.1, 0.5))
    assert (few <= many).all()
    assert few.sum() < many.sum()


def split_of(path: Path, share: float = 0.15) -> SplitKey:
    with Ledger.open(path) as ledger:
        return ledger.split(share)


@pytest.fixture
def ledger(path: Path) -> Path:
    return Budget.create(path, epsilon=5.0, delta=DELTA).ledger


def test_a_ledger_always_has_the_same_split_and_keeps_its_key_to_its_owner(ledger: Path) -> None:
    first = split_of(ledger)
    assert split_of(ledger) == first
    assert key_path(ledger).stat().st_mode & 0o777 == 0o600
    said = ledger.read_text()
    assert first.key.hex() not in said
    assert first.commitment(Budget.open(ledger).record.identity) in said
    other = ledger.with_name("other.jsonl")
    Budget.create(other, epsilon=5.0, delta=DELTA)
    assert split_of(other).key != first.key


def test_a_run_that_died_between_key_and_ledger_goes_on_with_that_key(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = split_of(ledger)
    content = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(content[0])
    monkeypatch.setenv("QUORUM_STATE", str(tmp_path / "told nothing yet"))
    assert split_of(ledger) == first


def test_a_link_to_a_ledger_leads_to_its_key_too(ledger: Path) -> None:
    first, link = split_of(ledger), ledger.with_name("link.jsonl")
    link.symlink_to(ledger)
    assert split_of(link) == first
    assert not link.with_name("link.jsonl.split-key").exists()


def test_no_copy_of_the_key_stays_behind_a_death(ledger: Path) -> None:
    first = split_of(ledger)
    left = ledger.with_name(f".{ledger.name}.unfinished-abc.split-key")
    left.write_text(first.key.hex())
    assert split_of(ledger) == first
    assert not left.exists()


def test_a_seed_gives_the_same_split(tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        Budget.create(tmp_path / name, epsilon=5.0, delta=DELTA)
        with Ledger.open(tmp_path / name) as opened:
            keys.append(opened.split(0.15, SeededEntropy(3)))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_text("ab" * 32), "is another than the ledger was given"),
        (lambda path: path.write_text("xyz"), "holds no key"),
        (lambda path: path.write_bytes(b"\xff"), "holds no key"),
    ],
)
def test_another_key_is_refused_in_one_sentence(ledger: Path, damage: object, said: str) -> None:
    split_of(ledger)
    before = ledger.read_bytes()
    damage(key_path(ledger))  # type: ignore[operator]
    with pytest.raises(QuorumError, match=said) as refused:
        split_of(ledger)
    assert "\n" not in str(refused.value)
    assert ledger.read_bytes() == before


def test_another_share_is_refused(ledger: Path) -> None:
    split_of(ledger)
    with pytest.raises(QuorumError, match="once and for good"):
        split_of(ledger, 0.2)
    with pytest.raises(QuorumError, match="between 0 and 1"):
        split_of(ledger, 1.0)


def test_a_part_is_charged_only_after_a_split(ledger: Path) -> None:
    with Ledger.open(ledger) as opened:
        with pytest.raises(QuorumError, match="not split"):
            opened.charge(JUDGED, run="one")
        opened.split(0.15)
        opened.charge(JUDGED, run="one")
    lines = ledger.read_text().splitlines()
    entries = [json.loads(line)["entry"] for line in lines]
    assert [entry["entry"] for entry in entries] == ["header", "split", "charge"]


def test_what_one_part_has_lost_leaves_the_other_its_budget(path: Path) -> None:
    alone = total_epsilon([LEARNED], DELTA)
    Budget.create(path, epsilon=alone * 1.001, delta=DELTA)
    with Ledger.open(path) as opened:
        opened.split(0.15)
        opened.check_affordable([LEARNED, JUDGED])
        opened.charge(LEARNED, run="one")
        opened.charge(JUDGED, run="one")
        for part in ("training", "everybody"):
            with pytest.raises(QuorumError, match="over the ledger's budget"):
                opened.charge(replace(JUDGED, part=part), run="two")


def test_the_second_opinion_agrees_and_a_forgotten_part_is_found() -> None:
    split = Split(0.15, "0" * 64, "2030-01-01")
    plain = replace(JUDGED, part="everybody", steps=5)
    record = charged(plain, LEARNED, JUDGED, split=split)
    made = certificate(record)
    assert verify(record, epsilon=made.epsilon).holds
    assert "judges with probability 0.15" in made.statement
    assert [one.name for one in made.assumptions] == ["one-expert-each", "own-names"]
    for forgotten in range(2):  # everybody's events, or those of the dearer part
        rest = [event for n, event in enumerate((plain, LEARNED, JUDGED)) if n != forgotten]
        assert not verify(record, epsilon=total_epsilon(rest, DELTA)).holds
    together = charged(*(replace(event, part="everybody") for event in (plain, LEARNED, JUDGED)))
    assert not verify(together, epsilon=made.epsilon).holds
    unsplit = verify(charged(JUDGED), epsilon=5.0)
    assert "no split was committed to" in " ".join(unsplit.reasons)
