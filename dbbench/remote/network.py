"""How another host reaches a server: one address, one port, TLS on both sides, a password from a file.

Certificates of a private authority, for the machines of a fleet and for a server whose load generator is on another
host.

The `openssl` program makes them; keys use elliptic curves and have mode 0600.

The connection to the agent there goes through one ssh, which lives as long as its block.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import ipaddress
import json
import os
import queue
import re
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from dbbench import process
from dbbench.errors import ClientLost, ClientUnusable, DbbenchError
from dbbench.machine import threads
from dbbench.model import ClientSpec
from dbbench.remote import ssh

ROLE: Final = "dbbench_client"  # role in the database that may log in only from the client's address
# File names that sysbench 1.0 expects in its current directory (drv_mysql.c).
CA, CERT, KEY = "cacert.pem", "client-cert.pem", "client-key.pem"
_TEXT: Final = re.compile(r"[!#-&(-\[\]-~]{8,100}")  # ASCII without space, quotes and backslash
_PROBES_S: Final = 10.0
_WORD_S: Final = 2.0  # seconds for the word of a connection; others cannot connect meanwhile
DAYS: Final = 825  # some libraries refuse certificates that are valid for longer
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_OPENSSL_S: Final = 60.0
# Extensions that RFC 5280 requires, and that Python checks from 3.13 on. They are listed here, because
# /etc/ssl/openssl.cnf differs between releases.
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

    address: str  # address of this machine, the only one on which the server listens
    port: int
    peer: str  # the client's address as this machine sees it
    password: str = field(repr=False)
    ca: Path = Path()
    cert: Path = Path()  # certificate of the server
    key: Path = Path()

    def own(self, uid: int, gid: int) -> None:
        """Make the server's account the owner of the certificates and the key."""
        if os.geteuid() == 0:
            for path in (self.key.parent, self.ca, self.cert, self.key):
                os.chown(path, uid, gid)


def password(spec: ClientSpec) -> str:
    """Return the password from its file. Raises ClientUnusable if others can read it, or if it is not valid."""
    path = Path(spec.password_file)
    try:
        with path.open() as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(4096).rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(
            f"{path} cannot be read: {error}", f"Make it:  (umask 077; openssl rand -hex 16 > {path})"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise _unusable(f"{path} is readable by other users (mode {stat.S_IMODE(mode):o})", f"chmod 600 {path}")
    if not _TEXT.fullmatch(text):
        raise _unusable(
            f"{path} must contain one line of 8 to 100 letters, digits or signs, without spaces, quotes and "
            "backslashes",
            f"(umask 077; openssl rand -hex 16 > {path})",
        )
    return text


def certified(folder: Path, spec: ClientSpec) -> tuple[Pair, dict[str, bytes]]:
    """Make the server's certificate and key in `folder`; return them with the files for the client.

    The authority's own key is deleted before this returns, so that nothing else can be signed with it.
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711)  # the server's account must be able to enter the directory below it
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
def answering(spec: ClientSpec, word: str) -> Iterator[set[str]]:
    """Listen in the server's place within the block; yield the set of addresses that connect and send the secret word.

    Raises ClientUnusable if the address does not belong to this machine, or the port is in use.
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
                effect="No load was started.",
                remedy="Set `address` to an address of this machine (ip -brief address) and `port` to a free port.",
            ) from None
        with threads.beside("probes", functools.partial(_accept, listener, word, peers), limit_s=_PROBES_S):
            yield peers


def _accept(listener: socket.socket, word: str, peers: set[str], ended: threading.Event) -> None:
    listener.settimeout(0.1)
    while not ended.is_set():
        with contextlib.suppress(OSError):
            connection, (peer, *_) = listener.accept()
            with connection:
                connection.settimeout(_WORD_S)
                if hmac.compare_digest(connection.recv(len(word), socket.MSG_WAITALL), word.encode()):
                    peers.add(peer)


def _unusable(evidence: str, remedy: str) -> DbbenchError:
    return ClientUnusable(evidence, effect="No load was started.", remedy=remedy)


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
    """Return whether the name is an IP address."""
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _openssl(*words: str | Path) -> None:
    process.run(["openssl", *words], timeout_s=_OPENSSL_S)


CONNECT_S: Final = 20.0  # seconds for ssh, the login and the start of Python
ASK_S: Final = 60.0
_BEAT_S: Final = 5.0  # the agent ends after 60 s without data (SILENCE_S)
_END_S: Final = 15.0  # seconds for the agent to end the load generator and remove its directory, and for ssh to end
_THREADS_S: Final = 1.0  # seconds until a thread whose pipe is closed has ended
# Exit statuses if Python is too old (1), or the shell cannot start it (126, 127); ssh reports its errors with 255.
_OF_PYTHON: Final = (1, 126, 127)


class Session:
    """Sends requests to the agent, one at a time. Output of the load generator goes to `prints` ("out", "err")."""

    def __init__(self, host: str, ssh: process.Running, log: Path) -> None:
        self.host, self.log = host, log
        self.prints: dict[str, Path] = {}
        self.ended: dict[str, Any] | None = None  # the agent's message about the end of the load generator
        self.facts: dict[str, Any] = {}
        self._ssh, self._writing = ssh, threading.Lock()
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._target: Path | None = None  # file for the bytes that arrive next
        self._done = threading.Event()
        self._helpers = [threads.Helper(f"client {what}", work)
                         for what, work in (("listen", self._listen), ("beat", self._beat))]  # fmt: skip

    @property
    def gone(self) -> bool:
        """Whether the connection has ended."""
        return self._done.is_set()

    def begin(self, agent: bytes) -> None:
        """Send the agent and wait for its first message. Raises ClientUnusable."""
        with contextlib.suppress(BrokenPipeError):
            self._write(agent)
        for helper in self._helpers:
            helper.start()
        try:
            first = self._answers.get(timeout=CONNECT_S)
        except queue.Empty:
            raise self._unreachable(f"no answer within {CONNECT_S:.0f} s") from None
        if first is None or "hello" not in first:
            status = self._ssh.wait(_END_S)
            if status in _OF_PYTHON:
                raise ClientUnusable(f"{self.host}: no Python: {self._said()}", effect="No load was started.",
                                  remedy=f"Install python3 (3.7 or later) on {self.host}.")  # fmt: skip
            raise self._unreachable(self._said())
        self.facts = first["hello"]

    def ask(self, do: str, content: bytes = b"", timeout_s: float = ASK_S, **what: Any) -> Any:
        """Send a request; return the agent's answer. Raises ClientLost, or ClientUnusable if it failed there."""
        try:
            self._write(json.dumps({"do": do, **what}).encode() + b"\n" + content)
            answer = self._answers.get(timeout=timeout_s)
        except (OSError, queue.Empty):
            answer = None
        if answer is None:
            raise self.lost(f"no answer to the request {do}")
        if "error" in answer:
            raise ClientUnusable(f"{self.host}: {answer['error']}", effect="The trial is marked failed.")
        return answer.get("answer")

    def put(self, name: str, content: bytes) -> str:
        """Write a file into the agent's directory; return its path there."""
        return str(self.ask("put", content, name=name, size=len(content)))

    def get(self, name: str, target: Path) -> None:
        """Copy a file of the agent's directory. Raises ClientLost."""
        self._target = target
        self.ask("get", name=name, timeout_s=3600.0)

    def lost(self, what: str) -> DbbenchError:
        """Return the error for a broken connection: HelperDied if a thread of dbbench caused it."""
        if self.gone:
            self._helpers[0].join(_THREADS_S)
        self.check()
        return ClientLost(
            f"{self.host}: {what}; ssh says: {self._said()}",
            effect="The trial is marked failed.",
            remedy=f"Check the network between the two hosts, for example with: ssh {self.host} true",
        )

    def close(self) -> None:
        """Have the agent end the load generator and remove its directory; then ssh ends by itself."""
        pipe = self._ssh.popen.stdin
        with self._writing, contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(Exception):
            self._ssh.wait(_END_S)
        self._done.set()
        for helper in self._helpers:
            if helper.started:
                helper.join(_THREADS_S)

    def check(self) -> None:
        """Raise the exception of a thread of this connection."""
        for helper in self._helpers:
            helper.check()

    def _write(self, content: bytes) -> None:
        pipe = self._ssh.popen.stdin
        with self._writing:
            if pipe is None or pipe.closed:
                raise BrokenPipeError
            pipe.write(content)
            pipe.flush()

    def _beat(self) -> None:
        while not self._done.wait(_BEAT_S):
            with contextlib.suppress(OSError):
                self._write(b'{"do": "beat"}\n')

    def _listen(self) -> None:
        pipe = self._ssh.popen.stdout
        assert pipe is not None
        try:
            while line := _line(pipe):
                self._hear(line, pipe)
        finally:
            self._done.set()
            self._answers.put(None)

    def _hear(self, line: bytes, pipe: IO[bytes]) -> None:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            return  # output of a login shell
        if "output" in answer:
            _append(self.prints.get(answer["output"]), answer["text"])
        elif "ended" in answer:
            self.ended = answer
        elif "bytes" in answer:
            self._answers.put({} if self._took(int(answer["bytes"]), pipe) else None)
        else:
            self._answers.put(answer)

    def _took(self, size: int, pipe: IO[bytes]) -> bool:
        """Write the next bytes into the requested file; return False if they did not all arrive."""
        assert self._target is not None
        with self._target.open("wb") as file:
            while size and (piece := pipe.read(min(size, 1 << 20))):
                file.write(piece)
                size -= len(piece)
        return size == 0

    def _said(self) -> str:
        """Return the last lines of ssh's error messages."""
        try:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            lines = []
        return "; ".join(lines[-3:]) or "nothing"

    def _unreachable(self, why: str) -> DbbenchError:
        return ClientUnusable(
            f"{self.host}: {why}",
            effect="No load was started.",
            remedy=f"Make this command work for this user without a prompt: ssh -o BatchMode=yes {self.host} true",
        )


@contextlib.contextmanager
def opened_session(host: str, log: Path) -> Iterator[Session]:
    """Yield a session with an agent on `host`, an ssh destination; at the end nothing of it is left there.

    `log` takes ssh's error messages. Raises ClientUnusable, ProgramMissing.
    """
    agent = Path(__file__).with_name("agent.py").read_bytes()
    start = f"import os;exec(b''.join(os.read(0,1)for _ in range({len(agent)})))"
    argv = ssh.command(host, ["python3", "-I", "-c", start])
    env = {"SSH_AUTH_SOCK": os.environ["SSH_AUTH_SOCK"]} if "SSH_AUTH_SOCK" in os.environ else {}
    with process.running(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env,
                         own_session=True) as program:  # fmt: skip
        session = Session(host, program, log)
        try:
            session.begin(agent)
            yield session
        finally:
            session.close()
        session.check()


def _line(pipe: IO[bytes]) -> bytes:
    """Return the next line; b"" at the end, and for a pipe that was closed."""
    with contextlib.suppress(OSError, ValueError):
        return pipe.readline()
    return b""


def _append(path: Path | None, text: str) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(text)
