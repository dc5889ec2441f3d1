"""Certificates of dbbench's own authority, as TLS libraries verify them."""

import ssl
from pathlib import Path

import pytest

from dbbench.remote import certificates
from dbbench.remote.certificates import KeyPair

pytestmark = [pytest.mark.needs("openssl"), pytest.mark.starts_processes]


@pytest.fixture
def ca(tmp_path: Path) -> KeyPair:
    """An authority."""
    pair = KeyPair(tmp_path / "ca.pem", tmp_path / "ca.key")
    certificates.make_authority(pair, "dbbench test")
    return pair


def signed(ca: KeyPair, name: str) -> KeyPair:
    """A certificate of that authority."""
    folder = ca.cert.parent / name
    folder.mkdir()
    pair = KeyPair(folder / "cert.pem", folder / "key.pem")
    certificates.sign(ca, name, pair)
    assert {path.name for path in folder.iterdir()} == {"cert.pem", "key.pem"}
    return pair


def strict(ca: KeyPair, pair: KeyPair, protocol: int) -> ssl.SSLContext:
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
def test_strict_verification_accepts_both_ends(ca: KeyPair, name: str) -> None:
    """The server's name or address, the client's certificate and the authority hold under
    VERIFY_X509_STRICT.
    """
    server = strict(ca, signed(ca, name), ssl.PROTOCOL_TLS_SERVER)
    client = strict(ca, signed(ca, "dbbench_client"), ssl.PROTOCOL_TLS_CLIENT)
    shaken(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid"):
        shaken(server, client, "db2.example")


def test_a_certificate_of_another_authority_is_refused(ca: KeyPair, tmp_path: Path) -> None:
    """The same name is not enough."""
    (tmp_path / "other").mkdir()
    other = KeyPair(tmp_path / "other/ca.pem", tmp_path / "other/ca.key")
    certificates.make_authority(other, "dbbench test")
    server = strict(other, signed(other, "db1.example"), ssl.PROTOCOL_TLS_SERVER)
    client = strict(ca, signed(ca, "dbbench_client"), ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, client, "db1.example")
