"""The folder of a bundle: what is in it, written whole or not at all, and checked by anybody."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from quorum_rl import __version__
from quorum_rl.budget import (
    BUNDLE,
    LEDGER,
    SCHEMA_FILE,
    SUFFIX,
    Checked,
    certificate_of,
    check_consistent,
    check_guarantees,
    check_signed,
    signature_path,
)
from quorum_rl.errors import QuorumError
from quorum_rl.files import flush_folder, read_file
from quorum_rl.json_files import strict_object
from quorum_rl.policy import Policy

FORMAT: Final = 1  # of the manifest
CERTIFICATE: Final = "certificate.json"
POLICY: Final = "policy.safetensors"
ONNX: Final = "policy.onnx"
RELEASED: Final = "released.parquet"
REPORT: Final = "report.html"
README: Final = "README.txt"
CARD: Final = "README.md"
MANIFEST: Final = "MANIFEST.json"

ABOUT: Final = {
    POLICY: "The learned policy. quorum_rl.Policy.load reads it, and so does any safetensors "
    "reader.",
    ONNX: "The same policy for any ONNX runtime: float32 `observations`, a row each and NaN where "
    "a value is missing, give `actions` and, of finite ones, `values` and `labels`. It "
    "cannot refuse: where nothing stands for a value that is missing, its answer means nothing.",
    CERTIFICATE: "What is guaranteed, under which assumptions, and what is not covered.",
    CERTIFICATE + SUFFIX: "A signature of the certificate (Ed25519).",
    SCHEMA_FILE: "What every field of the certificate means, as a JSON Schema.",
    LEDGER: "What was spent on these experts up to the certificate, line by line; each line "
    "vouches for those before. It says what was done with which constants, and nothing about the "
    "data.",
    RELEASED: "Prefixes of trajectories that a quorum of experts would have generated. They are "
    "covered by the guarantee, and they contain raw states.",
    REPORT: "The run as a page to read. It needs no network.",
    README: "This file.",
    CARD: "This file.",
}
"""All that a bundle may hold, the manifest and its signature apart."""


def check_bundle(
    folder: Path, *, ledger: Path | None = None, public_key: str | None = None
) -> Checked:
    """Check a bundle: every file against its manifest, the certificate against the ledger.

    `public_key` must have signed the whole bundle: a certificate that it signed may stand beside
    any policy that names it.

    Raises:
        QuorumError: naming the first thing that is wrong.
    """
    listing = plain_file(folder, MANIFEST, "no bundle of 'quorum publish'")
    contents = _listed_contents(folder, _listed(listing, folder / MANIFEST))
    claim = certificate_of(contents[CERTIFICATE], folder / CERTIFICATE)
    book = contents.get(LEDGER) if ledger is None else read_file(ledger, "ledger")
    consistency = None
    if book is not None:
        consistency = check_consistent(claim, book, ledger or folder / LEDGER)
    check_guarantees(claim, consistency)
    check_bound(Policy.load(folder / POLICY), contents[CERTIFICATE])
    whole = check_signed(folder / MANIFEST, listing, public_key, BUNDLE)
    certified = check_signed(
        folder / CERTIFICATE, contents[CERTIFICATE], public_key, "the certificate"
    )
    if public_key is not None and whole is None:
        raise QuorumError(
            f"the bundle {str(folder)!r} is not signed as a whole, so its policy may be anybody's: "
            f"get one that is, or check its {CERTIFICATE} alone."
        )
    signed = tuple(signature for signature in (whole, certified) if signature is not None)
    return Checked(claim, consistency, signed, len(contents))


def _listed(listing: bytes, path: Path) -> dict[str, Any]:
    """The files that a manifest names, all of them such as `publish` writes."""
    facts = strict_object(listing, path)
    files = facts.get("files")
    if facts.get("format") != FORMAT or not isinstance(files, dict):
        raise QuorumError(f"{str(path)!r} is no manifest that this version reads: update it.")
    if not files.keys() <= ABOUT.keys() or not {CERTIFICATE, POLICY} <= files.keys():
        raise QuorumError(
            f"{str(path)!r} does not name the files of a bundle: get the bundle anew."
        )
    return files


def _listed_contents(folder: Path, listed: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a bundle, which are those of its manifest and no others."""
    signatures = {signature_path(Path(MANIFEST)).name, MANIFEST}
    found = {path.name for path in folder.iterdir()} - signatures
    if found != listed.keys():
        name = sorted(found ^ listed.keys())[0]
        what = "is not in its manifest" if name in found else "is missing"
        raise QuorumError(f"{name} of the bundle {str(folder)!r} {what}: get the bundle anew.")
    contents = {name: plain_file(folder, name, "no whole bundle") for name in listed}
    for name, content in contents.items():
        if listed[name] != _fingerprint(content):
            raise QuorumError(
                f"{name} of the bundle {str(folder)!r} is not the file that was published (its "
                "SHA-256 is another): get the bundle anew."
            )
    return contents


def check_bound(policy: Policy, certificate: bytes) -> None:
    """Fail for a policy that does not name this file as its certificate, by its SHA-256."""
    if policy.certificate != hashlib.sha256(certificate).hexdigest():
        raise QuorumError(
            "the policy does not name the certificate beside it as its own: bring back the file "
            "that was written with it."
        )


def plain_file(folder: Path, name: str, lacking: str) -> bytes:
    """A plain file of a folder, never through a link to elsewhere."""
    path = folder / name
    if not os.path.lexists(path):
        raise QuorumError(f"{str(folder)!r} has no {name}: there is {lacking}.")
    if path.is_symlink() or not path.is_file():
        raise QuorumError(f"{str(path)!r} is not a plain file: put the file itself there.")
    return read_file(path, name)


def _fingerprint(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def manifest(contents: Mapping[str, bytes]) -> bytes:
    """The manifest of a bundle with these files."""
    facts = {
        "format": FORMAT,
        "made_by": f"quorum-rl {__version__}",
        "files": {name: _fingerprint(content) for name, content in sorted(contents.items())},
    }
    return (json.dumps(facts, indent=2) + "\n").encode()


def about(names: Iterable[str], own: str) -> dict[str, str]:
    """What each file of a bundle is; `own` is the file that says it."""
    held = {*names, own}
    told = {name: text for name, text in ABOUT.items() if name in held}
    return told | {MANIFEST: "The size and the SHA-256 of every file here."}


def write_bundle(out: Path, contents: Mapping[str, bytes]) -> None:
    """All files in a new folder, which appears when they are on the disk."""
    place = out.parent / f".{out.name}.{secrets.token_hex(4)}"
    try:
        place.mkdir()
        for name, content in contents.items():
            with (place / name).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        place.rename(out)
        flush_folder(out.parent)
    except OSError as error:
        raise QuorumError(
            f"the bundle {str(out)!r} cannot be written: {error.strerror}; nothing was left behind."
        ) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
