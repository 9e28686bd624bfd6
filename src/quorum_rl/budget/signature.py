"""An optional signature: Ed25519, by the `cryptography` package, in a small file beside the signed.

A signature shows that the holder of a key signed these facts. Whose key that is, it cannot show.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quorum_rl.budget.record import canonical
from quorum_rl.errors import QuorumError
from quorum_rl.files import create_file, read_file
from quorum_rl.json_files import strict_object

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUFFIX: Final = ".sig"
ALGORITHM: Final = "Ed25519"
CONTEXT: Final = b"quorum-rl signature 1\n"  # so that it signs nothing in another language
_EXISTS: Final = "'{}' exists already and is not replaced: give another name, or move it away."
FIELDS: Final = ("algorithm", "public_key", "signature")


def signature_path(signed: Path) -> Path:
    """Where the signature of a file is."""
    return signed.with_name(signed.name + SUFFIX)


def signed_bytes(facts: Mapping[str, Any]) -> bytes:
    """What is signed for a JSON object, whatever its layout."""
    return CONTEXT + canonical(facts)


def generate_key(path: Path) -> str:
    """Write a new private key, readable by its owner only, and return its public key in hex.

    Raises:
        QuorumError: if there is a file of that name, or it cannot be written.
    """
    ed25519, serialization = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    create_file(path, content, _EXISTS.format(path))
    return key.public_key().public_bytes_raw().hex()  # type: ignore[no-any-return]


def sign(content: bytes, path: Path, key_file: Path) -> bytes:
    """The signature file of the JSON object `content`, the file at `path`.

    Raises:
        QuorumError: if the content is no JSON object, or the key cannot be used.
    """
    key = _private_key(key_file)
    signature = key.sign(signed_bytes(strict_object(content, path)))
    facts = {
        "algorithm": ALGORITHM,
        "public_key": key.public_key().public_bytes_raw().hex(),
        "signature": signature.hex(),
    }
    return (json.dumps(facts, indent=2) + "\n").encode()


def sign_file(path: Path, key_file: Path) -> Path:
    """Sign the JSON object in a file, into a new file beside it, which is returned.

    Raises:
        QuorumError: if it was signed before, cannot be read or the key cannot be used.
    """
    signature = sign(read_file(path, "file to sign"), path, key_file)
    beside = signature_path(path)
    create_file(beside, signature, _EXISTS.format(beside))
    return beside


def check_signature(
    signature: bytes, content: bytes, path: Path, public_key: str | None = None
) -> str:
    """The public key, in hex, that signed the JSON object `content` of the file at `path`.

    `public_key` is the one that must have: in hex, or a file that holds it in hex or PEM.

    Raises:
        QuorumError: if the signature is not one of this content, or by another key.
    """
    ed25519, _ = _cryptography()
    beside = signature_path(path)
    facts = strict_object(signature, beside)
    if facts.keys() != {*FIELDS} or not all(isinstance(fact, str) for fact in facts.values()):
        raise QuorumError(f"{str(beside)!r} is not a signature: it has not the fields of one.")
    if facts["algorithm"] != ALGORITHM:
        raise QuorumError(
            f"{str(beside)!r} is signed by {facts['algorithm']!r}, and only {ALGORITHM} is known."
        )
    signer = facts["public_key"]
    if public_key is not None and (wanted := public_key_in_hex(public_key)) != signer:
        raise QuorumError(
            f"{str(path)!r} is signed with the key {signer}, not with {wanted}: whoever signed it "
            "does not hold the key that you gave."
        )
    if not _verifies(ed25519, signer, facts["signature"], content, path):
        raise QuorumError(
            f"the signature {str(beside)!r} is not of what {str(path)!r} says: one of them was "
            "changed."
        )
    return str(signer)


def _verifies(ed25519: Any, signer: str, signature: str, content: bytes, path: Path) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer))
        key.verify(bytes.fromhex(signature), signed_bytes(strict_object(content, path)))
    except (InvalidSignature, ValueError) as error:
        if isinstance(error, QuorumError):  # the content is no object, which is another matter
            raise
        return False
    return True


def _private_key(path: Path) -> "Ed25519PrivateKey":
    ed25519, serialization = _cryptography()
    content = read_file(path, "key file")
    if path.stat().st_mode & 0o077:
        raise QuorumError(
            f"the key {str(path)!r} can be read by others than its owner: make it private with "
            f"'chmod 600 {path}', or make another if somebody may have."
        )
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError as error:
        raise QuorumError(f"the key {str(path)!r} is encrypted: give one that is not.") from error
    except Exception as error:  # the package has exceptions of its own for what is in a PEM file
        raise QuorumError(
            f"{str(path)!r} holds no private key: make one with 'quorum certificate keygen'."
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise QuorumError(f"the key {str(path)!r} is not of {ALGORITHM}: give one that is.")
    return key  # type: ignore[no-any-return]


def public_key_in_hex(given: str) -> str:
    """A public key in hex, from hex or from a file.

    Raises:
        QuorumError: if it is neither.
    """
    text = given.strip().lower()
    if not _is_hex_key(text):
        content = read_file(Path(given), "public key")
        text = content.decode(errors="replace").strip().lower()
        if content.lstrip().startswith(b"-----BEGIN"):
            text = _from_pem(content, given)
    if not _is_hex_key(text):
        raise QuorumError(
            f"{given!r} is no public key: give the 64 hex digits that 'quorum certificate keygen' "
            "printed, or a file with them."
        )
    return text


def _is_hex_key(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _from_pem(content: bytes, name: str) -> str:
    ed25519, serialization = _cryptography()
    try:
        key = serialization.load_pem_public_key(content)
    except Exception as error:  # as above
        raise QuorumError(f"{name!r} holds no public key in PEM: give one that does.") from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise QuorumError(f"the key {name!r} is not of {ALGORITHM}: give one that is.")
    return key.public_bytes_raw().hex()  # type: ignore[no-any-return]


def _cryptography() -> tuple[Any, Any]:
    """The modules for Ed25519 and for key files."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise QuorumError(
            "signatures need the package cryptography: pip install 'quorum-rl[sign]'."
        ) from error
    return ed25519, serialization
