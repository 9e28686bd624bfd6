"""What coordinator and sites are given to reach a SuperLink by: an address, certificates, keys."""

import http.client
import ssl
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from quorum_rl.errors import QuorumError
from quorum_rl.files import read_file

SECONDS_BETWEEN_LOOKS: Final = 0.25
SECONDS_FOR_AN_ANSWER: Final = 10.0


def reach(
    superlink: str,
    certificates: bytes | None,
    *,
    insecure: bool,
    seconds: float,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until a SuperLink that may be starting answers: Flower's own sites would try for ever.

    Raises:
        QuorumError: if there is none within these seconds, or not one to be spoken to so.
    """
    host, _, port = superlink.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 2**16):
        raise QuorumError(f"{superlink!r} is no address: give host:port.")
    address, end = (host.strip("[]"), int(port)), time.monotonic() + seconds
    while not stopped():
        try:
            _ask(address, certificates, insecure)
            return
        except (ssl.SSLError, http.client.HTTPException, ConnectionResetError) as error:
            raise QuorumError(
                f"{superlink!r} does not speak as told: check --root-certificates, and whether it "
                f"is --insecure ({getattr(error, 'verify_message', None) or type(error).__name__})."
            ) from error
        except OSError as error:
            if time.monotonic() >= end:
                raise QuorumError(
                    f"the SuperLink at {superlink!r} cannot be reached "
                    f"({error.strerror or type(error).__name__}): check its address, or start it."
                ) from error
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _ask(address: tuple[str, int], certificates: bytes | None, insecure: bool) -> None:
    """Ask for anything at all: whatever the answer is, somebody speaks HTTP there."""
    seconds = SECONDS_FOR_AN_ANSWER
    to: http.client.HTTPConnection
    if insecure:
        to = http.client.HTTPConnection(*address, timeout=seconds)
    else:
        trusted = None if certificates is None else certificates.decode("ascii")
        context = ssl.create_default_context(cadata=trusted)
        to = http.client.HTTPSConnection(*address, timeout=seconds, context=context)
    with closing(to):
        to.request("GET", "/")
        to.getresponse()


def certificates_in(path: Path | None) -> bytes | None:
    """The certificates (PEM) by which the SuperLink's own is checked; the system's for none.

    Raises:
        QuorumError: if the file holds none.
    """
    if path is None:
        return None
    content = read_file(path, "file of certificates")
    try:
        ssl.create_default_context(cadata=content.decode("ascii"))
    except (ValueError, ssl.SSLError) as error:
        raise QuorumError(f"{str(path)!r} holds no certificates: give a PEM file.") from error
    return content


def private_key(path: Path) -> Any:
    """The pair of keys in a private key's file, as `ssh-keygen -t ecdsa -b 384` makes it.

    Raises:
        QuorumError: if the file holds none, or another kind.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    content = read_file(path, "key")
    try:
        private = load_ssh_private_key(content, None)
    except (ValueError, TypeError) as error:
        raise QuorumError(f"{str(path)!r} holds no private key without a passphrase.") from error
    if not isinstance(private, EllipticCurvePrivateKey):
        raise QuorumError(f"{str(path)!r} holds another kind of key: make an ecdsa key.")
    return private, private.public_key()


def public_keys(folder: Path) -> dict[str, bytes]:
    """The keys in a folder's NAME.pub, as `ssh-keygen` makes them, by name and as Flower has them.

    Raises:
        QuorumError: for a file that holds none.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_public_key,
    )

    found = {}
    for path in sorted(folder.glob("*.pub")):
        content, key = read_file(path, "public key"), None
        with suppress(ValueError):
            key = load_ssh_public_key(content)
        if not isinstance(key, EllipticCurvePublicKey):
            raise QuorumError(f"{str(path)!r} holds no public ecdsa key: ask its site for it.")
        found[path.stem] = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found
