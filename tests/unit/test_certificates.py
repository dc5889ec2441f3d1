"""Certificates of dbbench's own authority, as TLS libraries verify them."""

import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dbbench.remote import certificates
from dbbench.remote.certificates import KeyPair

pytestmark = [pytest.mark.needs("openssl"), pytest.mark.starts_processes]


class Authority(NamedTuple):
    """An authority, and what signs with its key."""

    cert: Path
    sign: Callable[[str, KeyPair], None]


@contextlib.contextmanager
def authority(folder: Path) -> Iterator[Authority]:
    """Make an authority in a folder."""
    with certificates.authority(folder / "ca.pem", "dbbench test") as sign:
        yield Authority(folder / "ca.pem", sign)
    assert not (folder / "ca.key").exists()


@pytest.fixture
def ca(tmp_path: Path) -> Iterator[Authority]:
    """An authority."""
    with authority(tmp_path) as made:
        yield made


def signed(ca: Authority, name: str) -> KeyPair:
    """A certificate of that authority."""
    folder = ca.cert.parent / name
    folder.mkdir()
    pair = KeyPair(folder / "cert.pem", folder / "key.pem")
    ca.sign(name, pair)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == {"cert.pem", "key.pem"}
    return pair


def strict(ca: Authority, pair: KeyPair, protocol: int) -> ssl.SSLContext:
    """One end that verifies the other as strictly as Python 3.13 does by default."""
    context = ssl.SSLContext(protocol)
    context.load_verify_locations(ca.cert)
    context.load_cert_chain(pair.cert, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A whole handshake in memory; what either side refuses is raised."""
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    open_ends = list(ends)
    for _ in range(20):
        for end in list(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not open_ends


@pytest.mark.parametrize("name", ["db1.example", "192.0.2.7", "2001:db8::7"])
def test_strict_verification_accepts_both_ends(ca: Authority, name: str) -> None:
    """The server's name or address, the client's certificate and the authority hold under
    VERIFY_X509_STRICT.
    """
    server = strict(ca, signed(ca, name), ssl.PROTOCOL_TLS_SERVER)
    client = strict(ca, signed(ca, "dbbench_client"), ssl.PROTOCOL_TLS_CLIENT)
    shaken(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid"):
        shaken(server, client, "db2.example")


def test_a_certificate_of_another_authority_is_refused(ca: Authority, tmp_path: Path) -> None:
    """The same name is not enough."""
    (tmp_path / "other").mkdir()
    with authority(tmp_path / "other") as other:
        server = strict(other, signed(other, "db1.example"), ssl.PROTOCOL_TLS_SERVER)
    client = strict(ca, signed(ca, "dbbench_client"), ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, client, "db1.example")
