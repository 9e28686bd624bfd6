"""The folder of a bundle: written whole or not at all, signed, and checked by anybody."""

import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Quorum
from cryptography.exceptions import InvalidSignature
from ledger_files import ACCEPTED, BOTH, FLOOR, TRAINING, charge, ledger_of
from refusals import refusal
from run_folders import USUAL, Making, names, unpublished

from quorum_rl.budget.checking import check_certificate
from quorum_rl.budget.signature import generate_key, sign_file
from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.policy import Layer, Policy
from quorum_rl.report import check_bundle, publish


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Making(tmp_path)(ledger_of(*BOTH), FLOOR, TRAINING)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


def fault(bundle: Path, **given: Any) -> str:
    return refusal(check_bundle, bundle, **given)


CHANGES: dict[str, Callable[[Path], Any]] = {
    "is not in its manifest": lambda out: (out / "notes.txt").write_text("hello"),
    "is missing": lambda out: (out / "policy.onnx").unlink(),
    "is not the file that was published": lambda out: (out / "README.txt").write_text("trust us"),
    "is not a plain file": lambda out: _linked(out / "README.txt"),
    "is not a JSON object": lambda out: (out / "MANIFEST.json").write_text("rubbish"),
    "is no manifest": lambda out: (out / "MANIFEST.json").write_text("{}"),
    "no MANIFEST.json": lambda out: (out / "MANIFEST.json").unlink(),
    "does not name the files of a bundle": lambda out: _relisted(out, "../secret"),
    "does not name": lambda out: _relisted(out, None),
}


def _linked(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def _relisted(out: Path, name: str | None) -> None:
    facts = json.loads((out / "MANIFEST.json").read_text())
    if name is None:
        facts["files"].pop("certificate.json")
    else:
        facts["files"][name] = {"bytes": 1, "sha256": "0"}
    (out / "MANIFEST.json").write_text(json.dumps(facts))


def _listed_anew(path: Path) -> None:
    """As whoever changed a file would write the manifest."""
    content, manifest = path.read_bytes(), path.with_name("MANIFEST.json")
    facts = json.loads(manifest.read_text())
    digest = hashlib.sha256(content).hexdigest()
    facts["files"][path.name] = {"bytes": len(content), "sha256": digest}
    manifest.write_text(json.dumps(facts))


@pytest.mark.parametrize("said", CHANGES)
def test_a_changed_bundle_is_noticed(run: Path, out: Path, said: str) -> None:
    publish(run, out)
    CHANGES[said](out)
    assert said in fault(out)


def test_a_bundle_whose_manifest_was_written_anew_still_needs_a_true_certificate(
    run: Path, out: Path
) -> None:
    publish(run, out)
    path = out / "certificate.json"
    path.write_text(path.read_text().replace('"steps": 100', '"steps": 10'))
    _listed_anew(path)
    assert "events[1].steps is 10, not 100" in fault(out)


def test_a_signed_bundle_shows_that_one_key_signed_all_of_it(
    run: Path, out: Path, tmp_path: Path
) -> None:
    public = generate_key(tmp_path / "desks.key")
    publish(run, out, key=tmp_path / "desks.key")
    assert names(out) == USUAL | {"MANIFEST.json.sig"}
    checked = check_bundle(out, public_key=public)
    assert [signature.what for signature in checked.signed] == ["the whole bundle"]
    other = generate_key(tmp_path / "other.key")
    assert "does not hold the key that you gave" in fault(out, public_key=other)
    facts = json.loads((out / "MANIFEST.json").read_text())
    (out / "MANIFEST.json").write_text(json.dumps(facts | {"made_by": "us"}))
    assert "one of them was changed" in fault(out)
    (out / "MANIFEST.json.sig").unlink()
    assert "is not signed" in fault(out, public_key=public)


def test_whoever_writes_the_whole_bundle_anew_is_told_apart_by_a_signature_alone(
    run: Path, out: Path, tmp_path: Path, quorum: Quorum
) -> None:
    """The attack: a ledger of 100 steps becomes one of 4, and all else follows it."""
    publish(run, out, key=_key(tmp_path))
    assert "UNSIGNED" not in quorum("certificate", "verify", out)
    cheaper = replace(TRAINING, steps=4)
    (tmp_path / "forger").mkdir()
    ledger = ledger_of(charge(FLOOR, 1, **ACCEPTED), charge(cheaper, 1, **ACCEPTED))
    forged = Making(tmp_path / "forger")(ledger, FLOOR, cheaper)
    publish(forged, tmp_path / "forged")
    words = ("certificate", "verify", tmp_path / "forged")
    assert "UNSIGNED: the whole bundle is not signed" in quorum(*words)
    assert quorum.facts(*words)["unsigned"]
    said = quorum("certificate", "verify", forged)
    assert "UNSIGNED: the certificate is not signed" in said


def _key(folder: Path) -> Path:
    generate_key(folder / "owner.key")
    return folder / "owner.key"


def test_a_policy_put_beside_a_signed_certificate_is_not_taken_for_signed(
    run: Path, out: Path, tmp_path: Path
) -> None:
    """Who can write the bundle can leave its signature out, but not that of the certificate."""
    public = generate_key(tmp_path / "desks.key")
    sign_file(run / "certificate.json", tmp_path / "desks.key")
    publish(run, out, key=tmp_path / "desks.key")
    check_bundle(out, public_key=public)
    true = Policy.load(out / "policy.safetensors")
    layer = Layer(np.full((3, 2), 7, np.float32), np.zeros(2, np.float32))
    Policy(**(vars(true) | {"networks": {"values": (layer,)}})).save(out / "policy.safetensors")
    _listed_anew(out / "policy.safetensors")
    (out / "MANIFEST.json.sig").unlink()
    assert "is not signed as a whole" in fault(out, public_key=public)


def test_the_certificates_signature_goes_with_it_if_it_is_good(
    run: Path, out: Path, tmp_path: Path
) -> None:
    public = generate_key(tmp_path / "desks.key")
    signature = sign_file(run / "certificate.json", tmp_path / "desks.key")
    publish(run, out)
    assert names(out) == USUAL | {"certificate.json.sig"}
    checked = check_bundle(out)
    assert [signature.what for signature in checked.signed] == ["the certificate"]
    assert check_certificate(out / "certificate.json", public_key=public).signed[0].asked_for
    signature.write_text(signature.read_text().replace(public, "00" * 32))
    assert "one of them was changed" in unpublished(run, tmp_path / "second")


def test_the_docs_say_how_to_check_a_bundle_without_quorum(
    run: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's own code, run in the folder of a bundle, and in one that was changed."""
    generate_key(tmp_path / "desks.key")
    publish(run, out, key=tmp_path / "desks.key")
    docs = Path(__file__).parent.parent / "docs"
    pages = ((docs / name).read_text() for name in ("certificate.md", "publishing.md"))
    chain, signature = re.findall(r"```python\n(.*?)```", "".join(pages), re.DOTALL)
    monkeypatch.chdir(out)
    for code in (chain, signature):
        assert "quorum_rl import" not in code
        exec(code, {})
    ledger = (out / "ledger.jsonl").read_text()
    (out / "ledger.jsonl").write_text(ledger.replace('"steps":100', '"steps":10'))
    with pytest.raises(AssertionError):
        exec(chain, {})
    (out / "MANIFEST.json").write_text("{}")
    with pytest.raises(InvalidSignature):
        exec(signature, {})


@pytest.mark.parametrize("failing", [0, 3, 6])
def test_a_full_disk_leaves_nothing_behind(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The disk is full at one of the files."""
    written = 0
    sync = os.fsync

    def full(descriptor: int) -> None:
        nonlocal written
        if ".bundle." in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            written += 1
            if written > failing:
                raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in unpublished(run, out)


def test_a_read_only_folder_leaves_nothing_behind(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root may write everywhere, the folder refuses by itself."""

    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("quorum_rl.report.bundle.Path.mkdir", refuse)
        assert "Permission denied" in unpublished(run, out)
    publish(run, out)


def test_without_onnx_the_bundle_is_written_without_its_model(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    made = publish(run, out)
    assert names(out) == USUAL - {"policy.onnx"}
    assert any("quorum-rl[onnx]" in remark for remark in made.remarks)
    check_bundle(out)


def test_the_command_publishes_and_checks(run: Path, out: Path, quorum: Quorum) -> None:
    said = quorum("publish", run, "--out", out)
    assert "stays in" in said
    assert "config.json" in said
    said = quorum("certificate", "verify", out)
    assert "6 files are as the manifest says" in said
    assert "agrees with its ledger" in said
    assert set(quorum.facts("publish", run, "--out", out.with_name("other"))["files"]) == USUAL
    quorum.refused("publish", run)
    quorum.refused("publish", run, "--out", out)


def test_names_are_in_the_bundle_and_its_readme(run: Path, out: Path) -> None:
    named = Dictionary((Column("sugar", "mg/dL", 120, 40, 400), Column("scan", shape=(2,))), LABELS)
    policy = Policy.load(run / "policy.safetensors")
    Policy(**(vars(policy) | {"dictionary": named})).save(run / "policy.safetensors")
    publish(run, out)
    assert Policy.load(out / "policy.safetensors").dictionary == named
    said = (out / "README.txt").read_text()
    assert (
        "- sugar (mg/dL), cut to 40 to 400, 120 where it is missing\n- scan, of shape 2\n" in said
    )
    assert "What it answers:\n- 0: hold\n- 1: treat\n" in said


LABELS = ("hold", "treat")
