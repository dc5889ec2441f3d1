"""A load generator on another host, reached by ssh: checks before the server starts, the load
generator of a trial, and the transfer of its logs after the server has stopped. `agent` runs
there; `network` has how it reaches the server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench import packages, process
from dbbench.errors import ClientUnusable, DbbenchError, ProgramMissing, collect_errors
from dbbench.machine import namespaces
from dbbench.metrics.series import Clock
from dbbench.model import ClientFacts, ClientSpec, Figures, Json
from dbbench.remote.network import CA, CERT, KEY, Network, answering, certify, password
from dbbench.remote.ssh import Session, session_on

__all__ = ["Client", "Network", "RemoteProgram", "lacking"]
# Number of connections, whose median time counts, and of clock readings, of which the fastest
# counts.
ROUNDS: Final = 21
# If the client's clock is behind by at most this much, dbbench waits until the certificate is valid
# there.
SKEW_S: Final = 5.0
# where each load generator may be, besides PATH
_PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "pgbench": ("/usr/lib/postgresql/*/bin/pgbench", "/usr/pgsql-*/bin/pgbench"),
    "sysbench": (),
}
# other versions have other options for TLS and another format of the histogram
_SYSBENCH: Final = "1.0."


@dataclass
class RemoteProgram:
    """A load generator on that host; corresponds to `process.Running` for a local one."""

    session: Session
    argv: tuple[str, ...]
    begin_utc: float  # time of the start by the clock of this machine
    there_utc: float  # the same moment by the clock of the client's host
    pids: tuple[int, ...] = ()  # empty, because its processes are on another machine

    def poll(self) -> int | None:
        """Return its exit status, or None while it runs. Raises DriverFailed if it cannot be
        determined.
        """
        if (ended := self.session.ended) is not None:
            return int(ended["ended"])
        if self.session.gone:
            raise self.session.lost("the connection ended while the load generator ran")
        return None


@dataclass
class Client:
    """The load generator's host. `folder` is private, contains keys, and is removed with the trial."""

    spec: ClientSpec
    driver: str
    version: str  # version of the server
    folder: Path
    facts: ClientFacts | None = None
    tool: str = ""  # path of the load generator on that host
    env: dict[str, str] = field(default_factory=dict)  # environment variables for libpq
    session: Session = field(init=False)
    _cpu: Json = field(default_factory=dict)

    @contextlib.contextmanager
    def reach(
        self,
        clock: Clock,
        raw: Path,
        scratch: Path,
    ) -> Iterator[Network]:
        """Connect, check, make certificates; yield how that host reaches the server. At the end of
        a block without an error, the load generator's files are copied into `scratch`.
        Afterwards nothing is left on that host.
        """
        secret = password(self.spec)
        with session_on(self.spec.host, raw / "client_ssh.err") as session:
            # Check that host: its tool, the way back to the server, and its clock.
            self.session = session
            self.tool, version = tool_of(session, self.driver, self.version)
            peer, took = reachable(session, self.spec)
            offset, error = offset_of(session, clock)
            punctual(session, offset)
            # Certificates of this trial alone; the private key of the server stays here.
            server, files = certify(self.folder, self.spec)
            for name, content in files.items():
                session.put(name, content)
            self.env = _libpq(session.facts["folder"], secret)
            # What is recorded about that host.
            self.facts = ClientFacts(
                host=self.spec.host,
                hostname=session.facts["hostname"],
                peer=peer,
                address=self.spec.address,
                port=self.spec.port,
                tool=version,
                tool_here=tool_here(self.driver, self.version),
                kernel=session.facts["kernel"],
                cpus=len(session.facts["cores"]),
                round_trip_ms=1000 * statistics.median(took),
                clock_offset_s=offset,
                clock_error_s=error,
            )
            yield Network(
                self.spec.address,
                self.spec.port,
                peer,
                secret,
                server.cert.with_name("ca.pem"),
                *server,
            )
            # How far the clocks moved during the load; then what the tool wrote.
            later, _ = offset_of(session, clock)
            self.facts = dataclasses.replace(self.facts, clock_drift_s=later - offset)
            for name in session.ask("files"):
                if re.fullmatch(r"(events|pgbench_log|queue)[.\d]*", name):
                    session.get(name, scratch / name)

    @property
    def at(self) -> str:
        return str(self.session.facts["folder"])

    @property
    def secret(self) -> str:
        return self.env["PGPASSWORD"]

    def place(self, path: Path) -> str:
        return self.session.put(path.name, path.read_bytes())

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        stdin: str,
        out: Path,
        err: Path,
    ) -> RemoteProgram:
        """Start the load generator; its output goes into these files line by line, as for a local
        one.
        """
        for path in (out, err):
            path.touch()
        self.session.prints = {"out": out, "err": err}
        began = self.session.ask("start", argv=list(argv), env=dict(env), stdin=stdin)
        assert self.facts is not None and self.facts.clock_offset_s is not None
        return RemoteProgram(
            self.session,
            tuple(argv),
            began["utc"] - self.facts.clock_offset_s,
            began["utc"],
        )

    def read_cpu(self) -> None:
        self._cpu = self.session.ask("cpu")

    def cpu(self) -> Figures:
        """Return `seconds` of the window, `client_cpu_s` of the load generator, `others_share` of
        the host's CPUs.
        """
        before = self._cpu
        after = self.session.ask("cpu")
        seconds = after["monotonic"] - before["monotonic"]
        ended = self.session.ended
        now = ended["cpu_s"] if ended is not None else after["tool_s"]
        tool_s = None if now is None or before["tool_s"] is None else now - before["tool_s"]
        cpus = self.facts.cpus if self.facts else 0
        others = None
        if tool_s is not None and seconds > 0 and cpus:
            others = max(0.0, after["busy_s"] - before["busy_s"] - tool_s) / (seconds * cpus)
        if self.facts is not None:
            self.facts = dataclasses.replace(self.facts, others_share=others)
        return {"seconds": seconds, "client_cpu_s": tool_s}

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(self.session.facts["cores"])


def tool_of(session: Session, driver: str, version: str) -> tuple[str, str]:
    """Return path and version of the load generator there. Raises ClientUnusable. If there are
    several pgbench versions, the one with the server's major version is used, otherwise the
    newest.
    """
    if not session.facts["setpriv"]:
        raise _lacks(session, "setpriv", "util-linux")
    version_of: dict[str, str] = session.ask("versions", name=driver, patterns=_PATTERNS[driver])
    if not version_of:
        package = "postgresql-contrib or postgresql" if driver == "pgbench" else driver
        raise _lacks(session, driver, package)
    same = [path for path, text in version_of.items() if major(text) == major(version)]
    path = (
        same[0]
        if same and driver == "pgbench"
        else max(version_of, key=lambda one: major(version_of[one]))
    )
    if driver == "sysbench" and f" {_SYSBENCH}" not in version_of[path]:
        raise ClientUnusable(f"{session.host} has {version_of[path]}, but sysbench 1.0 is required")
    return path, version_of[path]


def reachable(session: Session, spec: ClientSpec) -> tuple[str, list[float]]:
    """Return the client's address as seen here, and the seconds of each connection. Raises
    ClientUnusable.
    """
    word = secrets.token_hex(16)
    with answering(spec, word) as peers:
        try:
            took: list[float] = session.ask(
                "reach",
                host=spec.address,
                port=spec.port,
                word=word,
                times=ROUNDS,
                within_s=5.0,
            )
        except ClientUnusable as error:
            raise ClientUnusable(
                f"{spec.host} cannot connect to {spec.address} port {spec.port}: {error}",
                remedy="Set `address` to an address of this host that the client host can connect to, "
                "and open the port in the firewall.",
            ) from None
    if len(peers) != 1:
        raise ClientUnusable(
            f"{spec.host} connected from {', '.join(sorted(peers)) or 'no address'}, but exactly "
            "one address is required"
        )
    return peers.pop(), took


def offset_of(session: Session, clock: Clock) -> tuple[float, float]:
    """Return how far that clock is ahead of this one and the maximum error, in seconds. The error
    is half of the fastest of ROUNDS round trips (Cristian's method, 1989).
    """
    offsets = []
    for _ in range(ROUNDS):
        asked = clock.now_utc()
        there = session.ask("clock")["utc"]
        answered = clock.now_utc()
        offsets.append(((answered - asked) / 2, there - (asked + answered) / 2))
    error, offset = min(offsets)
    return offset, error


def punctual(
    session: Session,
    offset: float,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until certificates made now are valid there too. Raises ClientUnusable if that clock is
    far behind.
    """
    if offset < -SKEW_S:
        raise ClientUnusable(
            f"the clock of {session.host} is {-offset:.0f} s behind, so new certificates are not "
            "yet valid there",
            remedy="Synchronize both clocks with a time server (timedatectl set-ntp true).",
        )
    if offset < 0:
        wait(-offset)


def tool_here(driver: str, version: str) -> str:
    """Return the version of the same program on this machine, or "" if it is not installed."""
    if driver == "pgbench":
        return f"pgbench (PostgreSQL) {version}"
    path = process.find(driver)
    if path:
        return process.run([path, "--version"], note=False).stdout.strip()
    return ""


def major(version: str) -> int:
    """Return the major version, for example 15 for "pgbench (PostgreSQL) 15.18 (Debian ...)"; 0
    without a number.
    """
    digits = re.search(r"\d+", version)
    return int(digits[0]) if digits else 0


def _libpq(folder: str, secret: str) -> dict[str, str]:
    """Return libpq's environment: it accepts only a server with this authority's certificate for
    that address.
    """
    return {
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": f"{folder}/{CA}",
        "PGSSLCERT": f"{folder}/{CERT}",
        "PGSSLKEY": f"{folder}/{KEY}",
        "PGGSSENCMODE": "disable",
        "PGPASSWORD": secret,
    }


def _lacks(session: Session, program: str, package: str) -> DbbenchError:
    return ClientUnusable(
        f"{session.host} has no {program}",
        remedy=f"Install it on that host: apt-get install --no-install-recommends {package}",
    )


def lacking(spec: ClientSpec, drivers: Mapping[str, str]) -> Iterator[DbbenchError]:
    """Yield all problems of the client. `drivers` maps each load generator of the plan to its
    server's version.
    """
    if absent := [name for name in ("ssh", "openssl") if process.find(name) is None]:
        yield ProgramMissing(
            f"not installed: {', '.join(absent)}",
            effect="No load was started.",
            remedy=packages.install(["openssh-client", "openssl"], "--no-install-recommends"),
        )
        return
    errors: list[DbbenchError] = []
    with collect_errors(errors):
        password(spec)
    with (
        collect_errors(errors),
        namespaces.temporary_folder() as folder,
        session_on(spec.host, folder / "ssh.err") as session,
    ):
        for driver, version in drivers.items():
            with collect_errors(errors):
                tool_of(session, driver, version)
        with collect_errors(errors):
            reachable(session, spec)
            punctual(session, offset_of(session, Clock())[0])
    yield from errors
