"""How another host reaches a server: one address, one port, TLS on both sides, a password from a
file.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import os
import re
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench.errors import ClientUnusable
from dbbench.machine import threads
from dbbench.model import ClientSpec
from dbbench.remote.certificates import KeyPair, authority

# role in the database that may log in only from the client's address
ROLE: Final = "dbbench_client"
# File names that sysbench 1.0 expects in its current directory (drv_mysql.c).
CA = "cacert.pem"
CERT = "client-cert.pem"
KEY = "client-key.pem"
_TEXT: Final = re.compile(r"[!#-&(-\[\]-~]{8,100}")  # ASCII without space, quotes and backslash
_PROBES_S: Final = 10.0
_WORD_S: Final = 2.0  # seconds for the word of a connection; others cannot connect meanwhile


@dataclass(frozen=True)
class Network:
    """What a server needs to accept the client's host."""

    address: str  # address of this machine, the only one on which the server listens
    port: int
    peer: str  # the client's address as this machine sees it
    password: str = field(repr=False)
    ca: Path = Path()
    cert: Path = Path()  # certificate of the server
    key: Path = Path()

    def own(self, uid: int, gid: int) -> None:
        if os.geteuid() == 0:
            for path in (self.key.parent, self.ca, self.cert, self.key):
                os.chown(path, uid, gid)


def password(spec: ClientSpec) -> str:
    """Return the password from its file. Raises ClientUnusable if others can read it, or if it is
    not valid.
    """
    path = Path(spec.password_file)
    make = f"(umask 077; openssl rand -hex 16 > {path})"
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(4096).rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientUnusable(
            f"{path} cannot be read: {error}", remedy=f"Make it:  {make}"
        ) from None
    if mode & 0o077:
        raise ClientUnusable(
            f"{path} is readable by other users (mode {stat.S_IMODE(mode):o})",
            remedy=f"chmod 600 {path}",
        )
    if not _TEXT.fullmatch(text):
        what = (
            "one line of 8 to 100 letters, digits or signs, without spaces, quotes and backslashes"
        )
        raise ClientUnusable(f"{path} must contain {what}", remedy=make)
    return text


def certify(folder: Path, spec: ClientSpec) -> tuple[KeyPair, dict[str, bytes]]:
    """Make the server's certificate and key in `folder`; return them with the files for the client,
    whose key is not kept here.
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711)  # the server's account must be able to enter the directory below it
    server_files = folder / "server"
    server_files.mkdir(0o700, exist_ok=True)
    server = KeyPair(server_files / "server.pem", server_files / "server.key")
    client = KeyPair(folder / CERT, folder / KEY)
    with authority(server_files / "ca.pem", "dbbench trial") as sign:
        sign(spec.address, server)
        sign(ROLE, client)
    contents = {CA: (server_files / "ca.pem").read_bytes()}
    for path in client:
        contents[path.name] = path.read_bytes()
        path.unlink()
    return server, contents


@contextlib.contextmanager
def answering(spec: ClientSpec, word: str) -> Iterator[set[str]]:
    """Listen in the server's place within the block; yield the set of addresses that connect and
    send the secret word. Raises ClientUnusable if the address does not belong to this machine,
    or the port is in use.
    """
    family = socket.AF_INET6 if ":" in spec.address else socket.AF_INET
    peers: set[str] = set()
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((spec.address, spec.port))
            listener.listen(16)
        except OSError as error:
            raise ClientUnusable(
                f"cannot listen on {spec.address} port {spec.port}: {error.strerror}",
                remedy="Set `address` to an address of this machine (ip -brief address) and `port` "
                "to a free port.",
            ) from None
        with threads.beside(
            "probes",
            functools.partial(_accept, listener, word, peers),
            limit_s=_PROBES_S,
        ):
            yield peers


def _accept(
    listener: socket.socket,
    word: str,
    peers: set[str],
    ended: threading.Event,
) -> None:
    listener.settimeout(0.1)
    while not ended.is_set():
        with contextlib.suppress(OSError):
            connection, (peer, *_) = listener.accept()
            with connection:
                connection.settimeout(_WORD_S)
                if hmac.compare_digest(
                    connection.recv(len(word), socket.MSG_WAITALL), word.encode()
                ):
                    peers.add(peer)
