"""The client's host in one trial: what is asked of it before the server starts, the load generator there, and what is
brought home when the server has stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.clock import Clock
from dbbench.errors import AddressUnusable, ClientLacks
from dbbench.model import ClientFacts, ClientSpec
from dbbench.remote.network import CA, CERT, KEY, Network, answering, certified, password
from dbbench.remote.session import Session, opened

ROUNDS: Final = 21  # connections, and readings of the clock: the median of the ones, the quickest of the others
SKEW_S: Final = 5.0  # a client's clock may be behind by so much: until then the certificate is waited for
_TOOLS: Final = {
    "pgbench": ("/usr/lib/postgresql/*/bin/pgbench", "/usr/pgsql-*/bin/pgbench"),
    "sysbench": (),
}
_SYSBENCH: Final = "1.0."  # others have other options for TLS, and another histogram
_RUN_S: Final = 10.0


@dataclass
class Program:
    """A load generator that runs there; what `process.Running` is to one that runs here."""

    session: Session
    argv: tuple[str, ...]
    begin_utc: float  # when it was started, by our clock
    there_utc: float  # the same moment by the clock of its host
    pids: tuple[int, ...] = ()  # none is of this machine

    def poll(self) -> int | None:
        """Its exit status, or None while it runs. ClientLost where that cannot be known."""
        if (ended := self.session.ended) is not None:
            return int(ended["ended"])
        if self.session.gone:
            raise self.session.lost("the connection ended while the load generator ran")
        return None


@dataclass
class Client:
    """The load generator's host. `folder`: private, for keys; gone with the trial."""

    spec: ClientSpec
    driver: str
    version: str  # of the server
    folder: Path
    facts: ClientFacts | None = None
    tool: str = ""  # its path there
    env: dict[str, str] = field(default_factory=dict)  # what libpq reads
    _session: Session | None = None
    _cpu: dict[str, Any] = field(default_factory=dict)

    # --- around the server's life ----------------------------------------------------------------------

    @contextlib.contextmanager
    def reached(self, clock: Clock, raw: Path, scratch: Path) -> Iterator[Network]:
        """Connect, look at all that is needed there, make the certificates; at the end of a block that ends well bring
        what the load generator has written into `scratch`. Afterwards nothing is left there."""
        secret = password(self.spec)
        with opened(self.spec.host, raw / "client_ssh.err") as session:
            self._session = session
            self.tool, version = tool_of(session, self.driver, self.version)
            peer, took = reachable(session, self.spec)
            offset, error = offset_of(session, clock)
            punctual(session, offset)
            server, files = certified(self.folder, self.spec)
            for name, content in files.items():
                session.put(name, content)
            self.env = _libpq(session.facts["folder"], secret)
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
            yield Network(self.spec.address, self.spec.port, peer, secret, server.cert.with_name("ca.pem"), *server)
            later, _ = offset_of(session, clock)
            self.facts = dataclasses.replace(self.facts, clock_drift_s=later - offset)
            self._bring(scratch)

    @property
    def session(self) -> Session:
        if self._session is None:
            raise AssertionError("the client's host was not reached")
        return self._session

    @property
    def at(self) -> str:
        """The private folder there."""
        return str(self.session.facts["folder"])

    @property
    def secret(self) -> str:
        return self.env["PGPASSWORD"]

    def placed(self, path: Path) -> str:
        """Send a script; its path there."""
        return self.session.put(path.name, path.read_bytes())

    def start(self, argv: Sequence[str], env: Mapping[str, str], stdin: str, out: Path, err: Path) -> Program:
        """Start the load generator; what it prints comes into these files, line by line as it does here."""
        for path in (out, err):
            path.touch()
        self.session.prints = {"out": out, "err": err}
        began = self.session.ask("start", argv=list(argv), env=dict(env), stdin=stdin)
        assert self.facts is not None and self.facts.clock_offset_s is not None
        return Program(self.session, tuple(argv), began["utc"] - self.facts.clock_offset_s, began["utc"])

    def _bring(self, scratch: Path) -> None:
        """All files there but those that were sent."""
        sent = {CA, CERT, KEY}
        for name in self.session.ask("files"):
            if name not in sent and re.fullmatch(r"(events|pgbench_log|queue)[.\d]*", name):
                self.session.get(name, scratch / name)

    # --- CPU of its host -----------------------------------------------------------------------------

    def read_cpu(self) -> None:
        """At the begin of the window."""
        self._cpu = self.session.ask("cpu")

    def cpu(self) -> dict[str, float | None]:
        """At the end of the window: `seconds`, `client_cpu_s` of the load generator, `others_share` of the time of all
        processors of its host that others used."""
        before, after = self._cpu, self.session.ask("cpu")
        seconds, ended = after["monotonic"] - before["monotonic"], self.session.ended
        now = ended["cpu_s"] if ended is not None else after["tool_s"]
        own = None if now is None or before["tool_s"] is None else now - before["tool_s"]
        cpus = self.facts.cpus if self.facts else 0
        others = None
        if own is not None and seconds > 0 and cpus:
            others = max(0.0, after["busy_s"] - before["busy_s"] - own) / (seconds * cpus)
        if self.facts is not None:
            self.facts = dataclasses.replace(self.facts, others_share=others)
        return {"seconds": seconds, "client_cpu_s": own}

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores there that the load generator may use."""
        return tuple(self.session.facts["cores"])


def tool_of(session: Session, driver: str, version: str) -> tuple[str, str]:
    """Path and version of the load generator there: of several pgbench that of the server's own major version, else the
    newest. ClientLacks."""
    if not session.ask("find", names=["setpriv"], patterns=[]):
        raise _lacks(session, "setpriv", "util-linux")
    found = session.ask("find", names=[driver], patterns=list(_TOOLS[driver]))
    told = {path: text.strip() for path in found for status, text in [_run(session, path)] if status == 0}
    if not told:
        raise _lacks(session, driver, "postgresql-contrib or postgresql" if driver == "pgbench" else driver)
    same = [path for path, text in told.items() if major(text) == major(version)]
    path = same[0] if same and driver == "pgbench" else max(told, key=lambda one: major(told[one]))
    if driver == "sysbench" and f" {_SYSBENCH}" not in told[path]:
        raise ClientLacks(f"{session.host} has {told[path]}; sysbench 1.0 is needed", effect="No load was started.")
    return path, told[path]


def reachable(session: Session, spec: ClientSpec) -> tuple[str, list[float]]:
    """The client's address as it is seen here, and what each connection to the server's address took, in seconds.
    AddressUnusable."""
    with answering(spec) as peers:
        try:
            took = session.ask("reach", host=spec.address, port=spec.port, times=ROUNDS, within_s=5.0)["took_s"]
        except ClientLacks as error:
            raise AddressUnusable(
                f"{spec.host} cannot connect to {spec.address} port {spec.port}: {error}",
                effect="No load was started.",
                remedy="`address` is one by which that host reaches this one; a firewall must let the port through.",
            ) from None
    if len(peers) != 1:
        raise AddressUnusable(f"{spec.host} came from {', '.join(sorted(peers)) or 'nowhere'}: one address is needed",
                              effect="No load was started.")  # fmt: skip
    return peers.pop(), took


def offset_of(session: Session, clock: Clock) -> tuple[float, float]:
    """By how much the clock there is ahead of ours, and how wrong that may be at most: half of the quickest of
    ROUNDS questions (Cristian's method, 1989). Seconds."""
    found = []
    for _ in range(ROUNDS):
        asked = clock.now_utc()
        there = session.ask("clock")["utc"]
        answered = clock.now_utc()
        found.append(((answered - asked) / 2, there - (asked + answered) / 2))
    error, offset = min(found)
    return offset, error


def punctual(session: Session, offset: float, wait: Callable[[float], None] = time.sleep) -> None:
    """Return when certificates that are made now hold there too. ClientLacks where that clock is far behind."""
    if offset < -SKEW_S:
        raise ClientLacks(
            f"the clock of {session.host} is {-offset:.0f} s behind: a certificate of now would not hold there yet",
            effect="No load was started.",
            remedy="Set both clocks by the same time server (timedatectl set-ntp true).",
        )
    if offset < 0:
        wait(-offset)


def tool_here(driver: str, version: str) -> str:
    """What the same program is on this machine; "" where there is none."""
    if driver == "pgbench":
        return f"pgbench (PostgreSQL) {version}"
    path = process.find(driver)
    return process.run([path, "--version"], note=False).stdout.strip() if path else ""


def major(version: str) -> int:
    """15 of "pgbench (PostgreSQL) 15.18 (Debian ...)"; 0 where there is no number."""
    found = re.search(r"\d+", version)
    return int(found[0]) if found else 0


def _run(session: Session, path: str) -> tuple[int, str]:
    try:
        status, text = session.ask("run", argv=[path, "--version"], within_s=_RUN_S)
    except ClientLacks as error:
        return 1, str(error)
    return int(status), str(text)


def _libpq(folder: str, secret: str) -> dict[str, str]:
    """The environment of a client of PostgreSQL: it speaks to a server of our authority and of that address alone."""
    return {
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": f"{folder}/{CA}",
        "PGSSLCERT": f"{folder}/{CERT}",
        "PGSSLKEY": f"{folder}/{KEY}",
        "PGGSSENCMODE": "disable",
        "PGPASSWORD": secret,
    }


def _lacks(session: Session, program: str, package: str) -> ClientLacks:
    return ClientLacks(f"{session.host} has no {program}", effect="No load was started.",
                       remedy=f"There:  apt-get install --no-install-recommends {package}")  # fmt: skip
