"""How a server is reached from another host: one address, one port, TLS on both sides, a password from a file."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench import certificates
from dbbench.certificates import Pair
from dbbench.errors import AddressUnusable, PasswordUnusable
from dbbench.model import ClientSpec

ROLE: Final = "dbbench_client"  # of the database; it may log in from the client's address alone
# What sysbench 1.0 looks for in its current folder (drv_mysql.c).
CA, CERT, KEY = "cacert.pem", "client-cert.pem", "client-key.pem"
_TEXT: Final = re.compile(r"[!#-&(-\[\]-~]{8,100}")  # ASCII without space, quotes and backslash
_PROBES_S: Final = 10.0


@dataclass(frozen=True)
class Network:
    """What a server needs to let the client's host in."""

    address: str  # of this machine, the only one that is listened on
    port: int
    peer: str  # the client's address as it is seen here
    password: str = field(repr=False)
    ca: Path = Path()
    cert: Path = Path()  # the server's
    key: Path = Path()

    def own(self, uid: int, gid: int) -> None:
        """The server's account reads its key."""
        if os.geteuid() == 0:
            for path in (self.key.parent, self.ca, self.cert, self.key):
                os.chown(path, uid, gid)


def password(spec: ClientSpec) -> str:
    """The password, from its file. PasswordUnusable where others can read it, or it is none."""
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
    """The server's certificate and key in `folder`, which hold for this trial, and the files that the client needs.
    The authority's own key is gone when this returns: nobody can sign with it again."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711)  # the server's account gets through to its own
    with certificates.private():
        for name in ("server", "client"):
            (folder / name).mkdir(exist_ok=True)
        ca = Pair(folder / "server" / "ca.pem", folder / "ca.key")
        server = Pair(folder / "server" / "server.pem", folder / "server" / "server.key")
        client = Pair(folder / "client" / CERT, folder / "client" / KEY)
        certificates.make_authority(ca, "dbbench trial")
        certificates.sign(ca, spec.address, server)
        certificates.sign(ca, ROLE, client)
        ca.key.unlink()
        found = {CA: ca.cert.read_bytes(), CERT: client.cert.read_bytes(), KEY: client.key.read_bytes()}
        client.key.unlink()
    return server, found


@contextlib.contextmanager
def answering(spec: ClientSpec) -> Iterator[set[str]]:
    """Listen in the server's place while the block lasts; the addresses from which somebody connects.
    AddressUnusable where it is none of this machine, or the port is taken."""
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
                remedy="`address` is one that this machine has (ip -brief address), `port` one that is free.",
            ) from None
        ended = threading.Event()
        thread = threading.Thread(target=_accept, args=(listener, peers, ended), daemon=True)
        thread.start()
        try:
            yield peers
        finally:
            ended.set()
            thread.join(_PROBES_S)


def _accept(listener: socket.socket, peers: set[str], ended: threading.Event) -> None:
    listener.settimeout(0.1)
    while not ended.is_set():
        with contextlib.suppress(OSError):
            connection, (peer, *_) = listener.accept()
            peers.add(peer)
            connection.close()


def _unusable(evidence: str, remedy: str) -> PasswordUnusable:
    return PasswordUnusable(evidence, effect="No load was started.", remedy=remedy)
