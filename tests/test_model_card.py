"""A bundle's model card: its front matter has the certificate's facts, for any reader of YAML."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Quorum
from ledger_files import ACCEPTED, BOTH, FLOOR, TRAINING, charge, ledger_of, mark, research
from run_folders import USUAL, Making, names

from quorum_rl.budget import Certificate, certificate_of
from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.policy import Policy
from quorum_rl.report import check_bundle, publish

NAMES = ["A. Weber: data, protection", "no", "# Ωmega 'x' \"y\" \\", "2026-11-19", "\U0001f600 ok"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Making(tmp_path)(ledger_of(*BOTH), FLOOR, TRAINING)


def read(bundle: Path) -> tuple[dict[str, Any], str]:
    """The front matter of a bundle's card, and what follows it."""
    start, front, body = (bundle / "README.md").read_text().split("---\n", 2)
    assert start == ""
    facts = yaml.safe_load(front)
    assert isinstance(facts, dict)
    return facts, body


def expected(made: Certificate, content: bytes) -> dict[str, Any]:
    return {
        "kind": made.kind,
        "epsilon": made.epsilon if made.epsilon < float("inf") else None,
        "delta": made.delta,
        "relation": made.relation,
        "assumptions": [
            {
                "name": held.name,
                "accepted": held.accepted,
                "accepted_by": [f"{who.name}, {who.at}" for who in held.accepted_by],
            }
            for held in made.assumptions
        ],
        "marks": list(made.marks),
        "ledger": made.identity,
        "ledger_head": made.ledger_head,
        "certificate_sha256": hashlib.sha256(content).hexdigest(),
    }


def check(bundle: Path) -> tuple[dict[str, Any], str]:
    """Compare every fact with the certificate beside the card."""
    facts, body = read(bundle)
    content = (bundle / "certificate.json").read_bytes()
    made = certificate_of(content, bundle / "certificate.json")
    assert facts["differential_privacy"] == expected(made, content)
    shown = body.replace("\\", "")
    for said in (made.statement, *made.not_accounted, *made.limitations, *made.marks):
        assert said.replace("\\", "") in shown
    for held in made.assumptions:
        assert f"- {held.text} ({held.answer})".replace("\\", "") in shown
    return facts, body


def test_a_card_has_the_facts_of_the_certificate(run: Path, out: Path) -> None:
    made = publish(run, out, hub_card=True, license="apache-2.0")
    assert names(out) == set(made.files) == (USUAL - {"README.txt"}) | {"README.md"}
    facts, body = check(out)
    assert facts["license"] == "apache-2.0"
    assert facts["library_name"] == "quorum-rl"
    assert facts["pipeline_tag"] == "reinforcement-learning"
    assert "differential-privacy" in facts["tags"]
    for name in names(out):
        assert f"- {name.replace('_', chr(92) + '_')}: " in body
    assert check_bundle(out).files == len(names(out)) - 1


@pytest.mark.parametrize("name", NAMES)
def test_names_stay_as_they_are_in_yaml_and_markdown(tmp_path: Path, out: Path, name: str) -> None:
    who = {"name": name, "assumptions": ["one-expert-each"]}
    paid = charge(TRAINING, accepted=ACCEPTED["accepted"], accepted_by=who)
    run = Making(tmp_path)(ledger_of(paid), TRAINING, method="local")
    publish(run, out, hub_card=True)
    facts, _ = check(out)
    (held,) = facts["differential_privacy"]["assumptions"]
    assert held["accepted_by"] == [f"{name}, 2030-01-01"]
    assert "license" not in facts


def test_a_research_bundle_says_first_that_it_is_not_private(tmp_path: Path, out: Path) -> None:
    run = Making(tmp_path)(research(*BOTH, mark("noise: *from* a seed")), FLOOR, TRAINING)
    publish(run, out, hub_card=True, research=True)
    facts, body = check(out)
    assert facts["differential_privacy"]["marks"] == ["noise: *from* a seed"]
    assert body.index("research: not private") < body.index("The guarantee")


def test_labels_are_shown_and_not_rendered(run: Path, out: Path) -> None:
    named = Dictionary((Column("sugar", "mg/dL"), Column("<b>x", shape=(2,))), ("*hold*", "treat"))
    policy = Policy.load(run / "policy.safetensors")
    Policy(**(vars(policy) | {"dictionary": named})).save(run / "policy.safetensors")
    publish(run, out, hub_card=True)
    _, body = check(out)
    assert "\n- sugar (mg/dL)\n- \\<b\\>x, of shape 2\n" in body
    assert "\n- 0: \\*hold\\*\n" in body


def test_the_command_writes_a_card_and_says_what_it_lacks(
    run: Path, out: Path, quorum: Quorum
) -> None:
    assert "names no licence" in quorum("publish", run, "--out", out, "--hub-card")
    check(out)
    said = quorum.refused("publish", run, "--out", out.with_name("other"), "--license", "mit")
    assert "--hub-card" in said


@pytest.mark.parametrize("license", ["Apache 2.0", "", "mit\nepsilon: 0"])
def test_a_licence_that_no_hub_knows_is_refused(run: Path, out: Path, license: str) -> None:
    with pytest.raises(QuorumError, match="license is"):
        publish(run, out, hub_card=True, license=license)
    assert not out.exists()
