"""Signatures: of what a certificate says, by a key that its holder alone can use."""

import json
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Quorum
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from ledger_files import EXAMPLES, certificate_in

Run = Callable[..., str]


@pytest.fixture
def run(quorum: Quorum) -> Run:
    return partial(quorum, "certificate")


@pytest.fixture
def refused(quorum: Quorum) -> Run:
    return partial(quorum.refused, "certificate")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A certificate beside its ledger."""
    (tmp_path / "ledger.jsonl").write_bytes(EXAMPLES["training only"])
    path = tmp_path / "certificate.json"
    path.write_text(certificate_in(EXAMPLES["training only"]).to_json())
    return path


@pytest.fixture
def key(tmp_path: Path, run: Run) -> tuple[Path, str]:
    path = tmp_path / "desks.key"
    return path, run("keygen", path).strip()


def test_a_key_is_its_owners_alone_and_never_replaced(key: tuple[Path, str], refused: Run) -> None:
    path, public = key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(public)) == 32
    before = path.read_bytes()
    assert "is not replaced" in refused("keygen", path)
    assert path.read_bytes() == before
    held = serialization.load_pem_private_key(before, password=None)
    assert held.public_key().public_bytes_raw().hex() == public  # type: ignore[union-attr]


def test_a_signature_is_one_by_anybody_elses_reckoning(
    made: Path, key: tuple[Path, str], run: Run
) -> None:
    """As the docs tell a third party to check it, without Quorum."""
    run("sign", made, "--key", key[0])
    signature = json.loads((made.parent / "certificate.json.sig").read_text())
    assert set(signature) == {"algorithm", "public_key", "signature"}
    assert signature["algorithm"] == "Ed25519"
    facts = json.loads(made.read_text())
    signed = b"quorum-rl signature 1\n"
    signed += json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key[1]))
    public.verify(bytes.fromhex(signature["signature"]), signed)
    with pytest.raises(InvalidSignature):
        public.verify(bytes.fromhex(signature["signature"]), signed + b" ")


def test_a_signature_says_whose_it_is_only_against_a_key_that_is_given(
    made: Path, key: tuple[Path, str], run: Run, refused: Run, tmp_path: Path
) -> None:
    assert "UNSIGNED: the certificate is not signed" in run("verify", made)
    assert "is not signed" in refused("verify", made, "--public-key", key[1], status=1)
    run("sign", made, "--key", key[0])
    said = run("verify", made)
    assert "shows only that the holder of that key signed" in said
    assert key[1] in said
    assert "signed with the key that you gave" in run("verify", made, "--public-key", key[1])
    other = run("keygen", tmp_path / "other.key").strip()
    assert "does not hold the key that you gave" in refused(
        "verify", made, "--public-key", other, status=1
    )
    facts = json.loads(run("verify", made, "--public-key", key[1], "--json"))
    assert facts["signed"] == [{"what": "the certificate", "public_key": key[1], "asked_for": True}]


def test_a_public_key_may_be_a_file_in_hex_or_pem(
    made: Path, key: tuple[Path, str], run: Run, tmp_path: Path
) -> None:
    run("sign", made, "--key", key[0])
    (tmp_path / "hex").write_text(key[1].upper() + "\n")
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key[1]))
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "pem").write_bytes(pem)
    for name in ("hex", "pem"):
        assert "that you gave" in run("verify", made, "--public-key", tmp_path / name)


def test_a_signature_is_of_the_facts_and_not_of_their_layout(
    made: Path, key: tuple[Path, str], run: Run, refused: Run
) -> None:
    run("sign", made, "--key", key[0])
    made.write_text(json.dumps(json.loads(made.read_text()), sort_keys=True))
    run("verify", made)
    signature = made.parent / "certificate.json.sig"
    facts = json.loads(signature.read_text())
    for name, wrong in (
        ("signature", "00" * 64),
        ("signature", facts["signature"][:-2]),
        ("signature", "no hex"),
        ("public_key", "00" * 32),
        ("public_key", "7f"),
    ):
        signature.write_text(json.dumps(facts | {name: wrong}))
        assert "one of them was changed" in refused("verify", made, status=1)
    for damaged in (facts | {"algorithm": "RSA"}, facts | {"more": 1}, {"algorithm": "Ed25519"}):
        signature.write_text(json.dumps(damaged))
        refused("verify", made, status=1)
    signature.write_text("rubbish")
    assert "is not a JSON object" in refused("verify", made, status=1)


def test_a_certificate_and_ledger_that_were_both_written_anew_are_not_signed(
    made: Path, key: tuple[Path, str], run: Run, refused: Run
) -> None:
    run("sign", made, "--key", key[0])
    (made.parent / "ledger.jsonl").write_bytes(EXAMPLES["a floor"])
    made.write_text(certificate_in(EXAMPLES["a floor"]).to_json())
    said = refused("verify", made, "--public-key", key[1], status=1)
    assert "one of them was changed" in said


def test_what_cannot_be_signed_or_signed_with_is_named(
    made: Path, key: tuple[Path, str], run: Run, refused: Run, tmp_path: Path
) -> None:
    assert "key file" in refused("sign", made, "--key", tmp_path / "none.key")
    (tmp_path / "rubbish.key").write_text("rubbish")
    (tmp_path / "rubbish.key").chmod(0o600)
    assert "holds no private key" in refused("sign", made, "--key", tmp_path / "rubbish.key")
    key[0].chmod(0o644)
    assert "chmod 600" in refused("sign", made, "--key", key[0])
    key[0].chmod(0o600)
    assert "is not a JSON object" in refused("sign", tmp_path / "ledger.jsonl", "--key", key[0])
    assert not (tmp_path / "ledger.jsonl.sig").exists()
    run("sign", made, "--key", key[0])
    assert "is not replaced" in refused("sign", made, "--key", key[0])
    words = ("verify", made, "--public-key")
    assert "no public key at 'nothing'" in refused(*words, "nothing")
    (tmp_path / "bad.pem").write_text("-----BEGIN PUBLIC KEY-----\n")
    assert "no public key" in refused(*words, tmp_path / "bad.pem")
    (tmp_path / "bad.hex").write_text("12ab")
    assert "is no public key" in refused(*words, tmp_path / "bad.hex")


@pytest.mark.parametrize("password", [None, b"secret"])
def test_keys_of_another_kind_are_refused(
    made: Path, refused: Run, tmp_path: Path, password: bytes | None
) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    hidden: Any = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password)
    )
    path = tmp_path / "other.key"
    path.write_bytes(
        other.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )
    path.chmod(0o600)
    said = refused("sign", made, "--key", path)
    assert ("is encrypted" if password else "is not of Ed25519") in said


def test_without_the_package_the_error_says_what_to_install(
    made: Path, key: tuple[Path, str], run: Run, refused: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("sign", made, "--key", key[0])
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    for words in (("keygen", made.with_name("new")), ("verify", made)):
        assert "pip install 'quorum-rl[sign]'" in refused(*words)
    (made.parent / "certificate.json.sig").unlink()
    run("verify", made)  # what is not signed needs no package
