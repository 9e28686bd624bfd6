"""What is given to reach a SuperLink by: mistakes are one sentence, before anything is asked."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from quorum_rl.errors import QuorumError
from quorum_rl.sites.link import certificates_in, private_key, public_keys, reach

PEM = serialization.Encoding.PEM


class Nothing(BaseRequestHandler):
    """Whatever is asked, there is nothing."""

    def handle(self) -> None:
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def listening(context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[str]:
    """The address of a server on the loopback."""
    server = TCPServer(("127.0.0.1", port), Nothing)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module", name="papers")
def _papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for the loopback and its key, and another certificate."""
    folder = tmp_path_factory.mktemp("papers")
    now = datetime.datetime.now(datetime.UTC)
    for name in ("link", "other"):
        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(named).issuer_name(named).public_key(key.public_key())
            .serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(1))
            .add_extension(x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
            .sign(key, hashes.SHA256())
        )  # fmt: skip
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
    return folder


def by_tls(papers: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers / "link.pem", papers / "link.key")
    return context


def test_whoever_answers_is_reached(papers: Path) -> None:
    with listening() as address:
        reach(address, None, insecure=True, seconds=0)
    with listening(by_tls(papers)) as address:
        reach(address, certificates_in(papers / "link.pem"), insecure=False, seconds=0)


def test_one_that_is_starting_is_waited_for() -> None:
    port, started = free_port(), threading.Event()

    def later() -> None:
        with listening(port=port):
            started.wait(10)

    threading.Timer(0.3, later).start()
    reach(f"127.0.0.1:{port}", None, insecure=True, seconds=10)
    started.set()


def test_who_is_told_to_stop_waits_no_more() -> None:
    reach(f"127.0.0.1:{free_port()}", None, insecure=True, seconds=600, stopped=lambda: True)


def test_where_nobody_is_it_is_said_with_the_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(QuorumError, match=f"the SuperLink at '{address}' cannot be reached"):
        reach(address, None, insecure=True, seconds=0)


@pytest.mark.parametrize("address", ["", "127.0.0.1", ":8000", "host:port", "host:70000", "h:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(QuorumError, match="is no address: give host:port"):
        reach(address, None, insecure=True, seconds=600)


def test_another_certificate_or_none_is_refused_at_once(papers: Path) -> None:
    """And not tried again: it would be the same."""
    with listening(by_tls(papers)) as address:
        for trusted in (certificates_in(papers / "other.pem"), None):
            with pytest.raises(QuorumError, match="--root-certificates"):
                reach(address, trusted, insecure=False, seconds=600)


def test_tls_on_one_side_alone_is_refused_at_once(papers: Path) -> None:
    trusted = certificates_in(papers / "link.pem")
    with listening() as address, pytest.raises(QuorumError, match="does not speak as told"):
        reach(address, trusted, insecure=False, seconds=600)
    with listening(by_tls(papers)) as address, pytest.raises(QuorumError, match="does not speak"):
        reach(address, None, insecure=True, seconds=600)


def test_a_file_that_is_something_else_is_named(papers: Path, tmp_path: Path) -> None:
    (tmp_path / "noise.pem").write_bytes(b"\xdd\x00 no certificate")
    for path in (tmp_path / "noise.pem", papers / "link.key"):
        with pytest.raises(QuorumError, match=f"'{path}' holds no certificates"):
            certificates_in(path)
        with pytest.raises(QuorumError, match=f"'{path}' holds no private key"):
            private_key(path)
    with pytest.raises(QuorumError, match="there is no file of certificates at"):
        certificates_in(tmp_path / "none.pem")
    with pytest.raises(QuorumError, match="there is no key at"):
        private_key(tmp_path / "none")


def write_pair(folder: Path, name: str, key: ec.EllipticCurvePrivateKey) -> None:
    (folder / name).write_bytes(
        key.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    (folder / f"{name}.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )


def test_the_public_keys_of_a_folder_are_those_of_its_sites(tmp_path: Path) -> None:
    for name in ("north", "south"):
        write_pair(tmp_path, name, ec.generate_private_key(ec.SECP384R1()))
    found = public_keys(tmp_path)
    assert list(found) == ["north", "south"]
    for name, key in found.items():
        _, public = private_key(tmp_path / name)
        assert serialization.load_pem_public_key(key) == public


@pytest.mark.parametrize("content", [
    b"ssh-rsa AAAA", b"\xff\x00", b"",
    ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH),
], ids=["another kind, cut", "no text", "nothing", "another curve"])  # fmt: skip
def test_a_public_key_of_another_kind_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "north.pub").write_bytes(content)
    with pytest.raises(QuorumError, match=r"north\.pub' holds no public ecdsa key"):
        public_keys(tmp_path)
