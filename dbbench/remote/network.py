"""How another host reaches a server: one address, one port, TLS on both sides, a password from a file.

Certificates of a private authority, for the machines of a fleet and for a server whose load generator is on another
host.

The `openssl` program makes them; keys use elliptic curves and have mode 0600.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import os
import re
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from dbbench import process
from dbbench.errors import AddressUnusable, DbbenchError, PasswordUnusable
from dbbench.machine import threads
from dbbench.model import ClientSpec

ROLE: Final = "dbbench_client"  # of the database; it may log in from the client's address alone
# What sysbench 1.0 looks for in its current folder (drv_mysql.c).
CA, CERT, KEY = "cacert.pem", "client-cert.pem", "client-key.pem"
_TEXT: Final = re.compile(r"[!#-&(-\[\]-~]{8,100}")  # ASCII without space, quotes and backslash
_PROBES_S: Final = 10.0
DAYS: Final = 825  # longer ones are refused by some libraries
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_OPENSSL_S: Final = 60.0
# What RFC 5280 demands, and Python from 3.13 on with it. Written out, because /etc/ssl/openssl.cnf differs by release.
_AUTHORITY: Final = """\
[req]
distinguished_name = name
x509_extensions = authority
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
"""
_SIGNED: Final = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {kind}:{name}
"""


@dataclass(frozen=True)
class Network:
    """What a server needs to accept the client's host."""

    address: str  # of this machine, the only one that is listened on
    port: int
    peer: str  # the client's address as it is seen here
    password: str = field(repr=False)
    ca: Path = Path()
    cert: Path = Path()  # the server's
    key: Path = Path()

    def own(self, uid: int, gid: int) -> None:
        """Give the key to the server's account."""
        if os.geteuid() == 0:
            for path in (self.key.parent, self.ca, self.cert, self.key):
                os.chown(path, uid, gid)


def password(spec: ClientSpec) -> str:
    """Return the password from its file. Raises PasswordUnusable if others can read it, or if it is not valid."""
    path = Path(spec.password_file)
    try:
        with path.open() as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(4096).rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(
            f"{path} cannot be read: {error}", f"Make it:  (umask 077; openssl rand -hex 16 > {path})"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise _unusable(f"{path} can be read by others (mode {stat.S_IMODE(mode):o})", f"chmod 600 {path}")
    if not _TEXT.fullmatch(text):
        raise _unusable(
            f"{path} should have one line of 8 to 100 letters, digits or signs, without spaces, quotes and backslashes",
            f"(umask 077; openssl rand -hex 16 > {path})",
        )
    return text


def certified(folder: Path, spec: ClientSpec) -> tuple[Pair, dict[str, bytes]]:
    """Make the server's certificate and key in `folder`; return them with the files for the client.

    The authority's own key is deleted before this returns, so that nothing else can be signed with it.
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711)  # the server's account gets through to its own
    with private():
        for name in ("server", "client"):
            (folder / name).mkdir(exist_ok=True)
        ca = Pair(folder / "server" / "ca.pem", folder / "ca.key")
        server = Pair(folder / "server" / "server.pem", folder / "server" / "server.key")
        client = Pair(folder / "client" / CERT, folder / "client" / KEY)
        make_authority(ca, "dbbench trial")
        sign(ca, spec.address, server)
        sign(ca, ROLE, client)
        ca.key.unlink()
        files = {CA: ca.cert.read_bytes(), CERT: client.cert.read_bytes(), KEY: client.key.read_bytes()}
        client.key.unlink()
    return server, files


@contextlib.contextmanager
def answering(spec: ClientSpec) -> Iterator[set[str]]:
    """Listen in the server's place within the block; yield the set of addresses that connect.

    Raises AddressUnusable if the address does not belong to this machine, or the port is in use.
    """
    family = socket.AF_INET6 if ":" in spec.address else socket.AF_INET
    peers: set[str] = set()
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((spec.address, spec.port))
            listener.listen(16)
        except OSError as error:
            raise AddressUnusable(
                f"{spec.address} port {spec.port} cannot be listened on: {error.strerror}",
                effect="No load was started.",
                remedy="Set `address` to an address of this machine (ip -brief address) and `port` to a free port.",
            ) from None
        with threads.beside("probes", functools.partial(_accept, listener, peers), limit_s=_PROBES_S):
            yield peers


def _accept(listener: socket.socket, peers: set[str], ended: threading.Event) -> None:
    listener.settimeout(0.1)
    while not ended.is_set():
        with contextlib.suppress(OSError):
            connection, (peer, *_) = listener.accept()
            peers.add(peer)
            connection.close()


def _unusable(evidence: str, remedy: str) -> DbbenchError:
    return PasswordUnusable(evidence, effect="No load was started.", remedy=remedy)


class Pair(NamedTuple):
    """A certificate and its key."""

    cert: Path
    key: Path


@contextlib.contextmanager
def private() -> Iterator[None]:
    """Make files that are created within the block readable only by their owner."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_authority(ca: Pair, name: str) -> None:
    """Make a self-signed authority. Raises CommandFailed, ProgramMissing."""
    config = ca.cert.parent / "authority.cnf"
    config.write_text(_AUTHORITY)
    _openssl("req", "-x509", *_NEW_KEY, "-nodes", "-days", str(DAYS), "-subj", f"/CN={name}", "-config", config,
             "-keyout", ca.key, "-out", ca.cert)  # fmt: skip
    config.unlink()


def sign(ca: Pair, name: str, own: Pair) -> None:
    """Make a key and a certificate for `name`, a host's name or address, for both ends of a connection.

    The name is also the common name: libpq before version 15 looks for an address only there.
    """
    folder = own.cert.parent
    request, extension = folder / "request.pem", folder / "extension.cnf"
    kind = "IP" if is_address(name) else "DNS"
    extension.write_text(_SIGNED.format(kind=kind, name=name))
    _openssl("req", "-new", *_NEW_KEY, "-nodes", "-subj", f"/CN={name}", "-keyout", own.key, "-out", request)
    _openssl("x509", "-req", "-in", request, "-CA", ca.cert, "-CAkey", ca.key, "-CAcreateserial",
             "-days", str(DAYS), "-extfile", extension, "-out", own.cert)  # fmt: skip
    request.unlink()
    extension.unlink()


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _openssl(*words: str | Path) -> None:
    process.run(["openssl", *words], timeout_s=_OPENSSL_S)
