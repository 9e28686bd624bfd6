"""The folder of a bundle: its manifest, written whole or not at all, and checked by anybody."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from quorum_rl import __version__
from quorum_rl.budget import (
    LEDGER,
    Checked,
    Signed,
    certificate_of,
    check_consistent,
    check_guarantees,
    check_signed,
    read_file,
    signature_path,
    strict_object,
)
from quorum_rl.errors import QuorumError
from quorum_rl.policy import Policy
from quorum_rl.publication.words import ABOUT, CERTIFICATE, MANIFEST, POLICY

FORMAT: Final = 1  # of the manifest


def check_bundle(
    folder: Path, *, ledger: Path | None = None, public_key: str | None = None
) -> Checked:
    """Check a bundle: every file against its manifest, the certificate against the ledger.

    `public_key` must have signed the whole bundle: a certificate that it signed may stand beside
    any policy that names it.

    Raises:
        QuorumError: naming the first thing that is wrong.
    """
    content = plain_file(folder, MANIFEST, "no bundle of 'quorum publish'")
    listed = _listed(content, folder / MANIFEST)
    signatures = {signature_path(Path(MANIFEST)).name, MANIFEST}
    found = {path.name for path in folder.iterdir()} - signatures
    if found != listed.keys():
        name = sorted(found ^ listed.keys())[0]
        what = "is not in its manifest" if name in found else "is missing"
        raise QuorumError(f"{name} of the bundle {str(folder)!r} {what}: get the bundle anew.")
    contents = {name: plain_file(folder, name, "no whole bundle") for name in listed}
    for name, facts in listed.items():
        if facts != _fingerprint(contents[name]):
            raise QuorumError(
                f"{name} of the bundle {str(folder)!r} is not the file that was published (its "
                "SHA-256 is another): get the bundle anew."
            )
    claim = certificate_of(contents[CERTIFICATE], folder / CERTIFICATE)
    book = contents.get(LEDGER) if ledger is None else read_file(ledger, "ledger")
    consistency = None
    if book is not None:
        consistency = check_consistent(claim, book, ledger or folder / LEDGER)
    check_guarantees(claim, consistency)
    check_bound(Policy.load(folder / POLICY), contents[CERTIFICATE])
    signed = [
        check_signed(folder / name, one, public_key, what)
        for name, one, what in (
            (MANIFEST, content, "the whole bundle"),
            (CERTIFICATE, contents[CERTIFICATE], "the certificate"),
        )
    ]
    good: tuple[Signed, ...] = tuple(one for one in signed if one is not None)
    if public_key is not None and signed[0] is None:
        raise QuorumError(
            f"the bundle {str(folder)!r} is not signed as a whole, so its policy may be anybody's: "
            f"get one that is, or check its {CERTIFICATE} alone."
        )
    return Checked(claim, consistency, good, len(listed))


def check_bound(policy: Policy, certificate: bytes) -> None:
    """Fail for a policy that does not name this file as its certificate, by its SHA-256."""
    if policy.certificate != hashlib.sha256(certificate).hexdigest():
        raise QuorumError(
            "the policy does not name the certificate beside it as its own: bring back the file "
            "that was written with it."
        )


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


def _listed(content: bytes, path: Path) -> dict[str, Any]:
    """The files that a manifest names, all of them such as `publish` writes."""
    facts = strict_object(content, path)
    files = facts.get("files")
    if facts.get("format") != FORMAT or not isinstance(files, dict):
        raise QuorumError(f"{str(path)!r} is no manifest that this version reads: update it.")
    if not files.keys() <= ABOUT.keys() or not {CERTIFICATE, POLICY} <= files.keys():
        raise QuorumError(
            f"{str(path)!r} does not name the files of a bundle: get the bundle anew."
        )
    return files


def plain_file(folder: Path, name: str, lacking: str) -> bytes:
    """A plain file of a folder, never through a link to elsewhere."""
    path = folder / name
    if not os.path.lexists(path):
        raise QuorumError(f"{str(folder)!r} has no {name}: there is {lacking}.")
    if path.is_symlink() or not path.is_file():
        raise QuorumError(f"{str(path)!r} is not a plain file: put the file itself there.")
    return read_file(path, name)


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
    except OSError as error:
        raise QuorumError(
            f"the bundle {str(out)!r} cannot be written: {error.strerror}; nothing was left behind."
        ) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
