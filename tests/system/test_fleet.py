"""A fleet of real workers; workers, scheduler and coordinator are killed during the window.

The file is long because all its tests read one run of six trials, in which four processes are
killed. The three hosts are on this machine and share its disk, so their trials take turns.
"""

import contextlib
import itertools
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench.errors import FleetInsecure, FleetUnreachable
from dbbench.fleet import security
from dbbench.fleet.connection import Connection
from dbbench.fleet.launch import free_address
from tests.support.others import NOBODY, as_user
from tests.support.plans import plan

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")
pytestmark = pytest.mark.needs(
    "root", "fs:ext4", "mkfs.ext4", "fs:xfs", "mkfs.xfs", "engine:postgres", "sadf"
)

# The windows are longer than a machine stands still: what is killed in one must still be in it.
PLAN = plan(["ext4", "xfs"], blocks=3, measure="6s", device={"size": "320MiB"})
FLEET = (
    "fleet",
    "run",
    "plan.toml",
    "--local",
    "3",
    "--spread",
    "--name",
    "r",
    "--progress",
    "plain",
)
DEADLINE_S = 400


def matching(*words: str) -> list[psutil.Process]:
    """Processes whose command line has all of the words."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if all(word in line for word in words):
            found.append(process)
    return found


def trials_on(host: Path) -> list[psutil.Process]:
    """Processes of the trial on a host: what its fork server has made."""
    return [
        child
        for server in matching("dbbench.run.worker", f"{host}/")
        for child in server.children()
    ]


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to each; one may have ended with another."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def ended(find: Callable[[], list[psutil.Process]]) -> bool:
    """Whether all that `find` finds have ended within a minute."""
    end = time.monotonic() + 60
    while (left := find()) and time.monotonic() < end:
        time.sleep(0.1)
    return left == []


class Killing:
    """A fleet of which something is killed in each of its first windows."""

    def __init__(self, dbbench: Any) -> None:
        self.dbbench = dbbench
        self.results = dbbench.folder / "results"
        self.hosts = self.results / ".fleet/r/hosts"
        self.struck: dict[str, str] = {}  # what was killed -> the trial that was in its window
        self.said = ""

    def start(self) -> None:
        """Start the coordinator, or another one."""
        self.log = (self.dbbench.folder / f"coordinator-{len(self.struck)}.log").open("w")
        words = [sys.executable, "-m", "dbbench", *FLEET]
        self.child = subprocess.Popen(
            words, stdout=self.log, stderr=self.log, cwd=self.dbbench.folder, env=self.dbbench.env
        )

    def window(self) -> tuple[str, str]:
        """(host, trial) of the next trial that is in its window and was not struck yet."""
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            for path in self.hosts.glob("*/r/fleet/state.json"):
                with contextlib.suppress(ValueError, FileNotFoundError):
                    state = json.loads(path.read_text())
                    if state["phase"] == "measure" and state["trial"] not in self.struck.values():
                        return path.parts[-4], state["trial"]
            assert self.child.poll() is None, self.logs()
            time.sleep(0.1)
        raise AssertionError(self.logs())

    def strike(self, what: str, find: Callable[[str, str], list[psutil.Process]]) -> None:
        """In the middle of a window, kill -9 what `find(host, trial)` finds."""
        host, trial = self.window()
        time.sleep(0.5)  # the window's rest must be longer than what delays the search
        victims = find(host, trial)
        assert victims, f"no {what}"
        self.struck[what] = trial
        kill(victims)

    def finish(self) -> int:
        """Wait for the coordinator; its exit status."""
        self.child.wait(DEADLINE_S)
        self.log.close()
        return self.child.returncode

    def logs(self) -> str:
        """What coordinators, workers and the scheduler printed."""
        paths = [
            *self.dbbench.folder.glob("*.log"),
            *self.results.glob(".fleet/r/*.log"),
            *self.hosts.glob("*/r/fleet/share.log"),
        ]
        return "\n".join(f"== {path}\n{path.read_text()}" for path in paths)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> Iterator[Killing]:
    """A finished fleet that lost a worker, the scheduler, the coordinator and a trial, each in
    mid-window.
    """
    dbbench = dbbench_in(tmp_path_factory.mktemp("fleet"))
    dbbench.plan(PLAN)
    fleet = Killing(dbbench)
    fleet.start()
    try:
        fleet.strike(
            "worker", lambda host, _: matching("fleet worker", f"--name {host} ", str(fleet.hosts))
        )
        address = json.loads((fleet.results / ".fleet/r/fleet.json").read_text())["scheduler"]
        fleet.strike("scheduler", lambda *_: matching("fleet scheduler", address))
        fleet.strike("coordinator", lambda *_: [psutil.Process(fleet.child.pid)])
        fleet.child.wait(DEADLINE_S)
        fleet.start()
        fleet.strike("trial", lambda host, _: trials_on(fleet.hosts / host))
        fleet.status = fleet.finish()  # type: ignore[attr-defined]
        yield fleet
    finally:
        kill(matching(str(dbbench.folder)))


def trials_of(folder: Path) -> dict[str, dict[str, Any]]:
    """trial.json of each finished trial of a run's folder."""
    return {
        path.parent.name: json.loads(path.read_text())
        for path in folder.glob("trials/[!.]*/trial.json")
    }


def test_no_trial_is_lost_doubled_or_moved(killed: Killing) -> None:
    """The results are those of one machine: the plan's ids, each driven once, on the host that had
    its block.
    """
    assert killed.status == 1, killed.logs()  # type: ignore[attr-defined]  # the trial that was killed is a failed one
    planned = json.loads(killed.dbbench("plan", "plan.toml", "--json").stdout)["trials"]
    run = json.loads((killed.results / "r/run.json").read_text())
    assert [spec["id"] for spec in run["order"]] == [trial["id"] for trial in planned]
    home = trials_of(killed.results / "r")
    assert sorted(home) == sorted(trial["id"] for trial in planned)
    driven = [
        (path.name, name) for path in killed.hosts.iterdir() for name in trials_of(path / "r")
    ]
    assert sorted((trial["host"], name) for name, trial in home.items()) == sorted(driven)
    assert not (killed.results / "r/set-aside").exists()


def test_no_block_is_split(killed: Killing) -> None:
    """Each block on one host, its trials in the plan's order, and never two trials on the disk at
    once.
    """
    home = trials_of(killed.results / "r").values()
    for block in range(1, 4):
        mine = sorted((t for t in home if t["block"] == block), key=lambda t: str(t["phases"][:1]))
        assert len({trial["host"] for trial in mine}) == 1
        begun = [t for t in mine if t["phases"]]
        assert [t["position"] for t in begun] == sorted(t["position"] for t in begun)
    spans = sorted((t["phases"][0]["start"], t["phases"][-1]["end"]) for t in home if t["phases"])
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_only_the_killed_trial_failed(killed: Killing) -> None:
    """Worker, scheduler and coordinator may be killed in a window: the trial continues and is ok."""
    failed = [
        name
        for name, trial in trials_of(killed.results / "r").items()
        if trial["status"] == "failed"
    ]
    assert failed == [killed.struck["trial"]]
    assert len(set(killed.struck.values())) == 4


def test_hosts_are_kept(killed: Killing) -> None:
    """run.json has the facts of each host; a plain `run` never resumes the run of a fleet."""
    hosts = json.loads((killed.results / "r/run.json").read_text())["hosts"]
    assert sorted(hosts) == ["local-1", "local-2", "local-3"]
    assert {facts["kernel"] for facts in hosts.values()} == {os.uname().release}
    assert "E004" in killed.dbbench("run", "plan.toml", "--name", "r", status=2).stderr


def test_same_command_again_drives_nothing(killed: Killing) -> None:
    """A finished fleet is reported as such, with exit status 0 or 1 according to its trials; status
    shows it.
    """
    again = killed.dbbench(*FLEET, status=1)
    assert "already finished" in again.stderr
    shown = json.loads(killed.dbbench("fleet", "status", "--json").stdout)
    assert (shown["finished"], {row["phase"] for row in shown["hosts"]}) == (True, {"done"})


def test_nothing_is_left_running(killed: Killing) -> None:
    """Workers, the scheduler and shares have ended; no image lies about."""
    assert ended(lambda: matching(str(killed.results))), matching(str(killed.results))
    assert list(killed.hosts.glob("*/r/.dbbench*.img")) == []
    assert not security.folder_of_fleet(killed.results / ".fleet/r").exists()


class Started:
    """A fleet of two hosts of this machine in a folder of its own."""

    def __init__(self, dbbench: Any, *more: str) -> None:
        self.dbbench = dbbench
        self.results = dbbench.folder / "results"
        dbbench.plan(PLAN)
        words = (
            "fleet",
            "run",
            "plan.toml",
            "--local",
            "2",
            "--spread",
            "--name",
            "r",
            "--progress",
            "plain",
            *more,
        )
        with (dbbench.folder / "coordinator.log").open("w") as self.log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "dbbench", *words],
                stdout=self.log,
                stderr=self.log,
                cwd=dbbench.folder,
                env=dbbench.env,
            )

    def said(self) -> str:
        """What its coordinator printed."""
        return (self.dbbench.folder / "coordinator.log").read_text()

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < end, self.said()
            time.sleep(0.2)

    def states(self) -> list[dict[str, Any]]:
        """Where its shares stand."""
        found = []
        for path in self.results.glob(".fleet/r/hosts/*/r/fleet/state.json"):
            with contextlib.suppress(ValueError, FileNotFoundError):
                found.append(json.loads(path.read_text()))
        return found

    def in_window(self) -> set[str]:
        """The trials that are in their window."""
        return {state["trial"] for state in self.states() if state["phase"] == "measure"}

    def at_work(self) -> list[psutil.Process]:
        """Its shares, and the processes of its trials."""
        return [
            p
            for word in ("fleet.share", "dbbench.run.worker")
            for p in matching(word, str(self.results))
        ]

    def daemons(self) -> list[psutil.Process]:
        """Its scheduler and its workers."""
        path = self.results / ".fleet/r/fleet.json"
        address = json.loads(path.read_text())["scheduler"] if path.exists() else str(self.results)
        return [*matching("fleet scheduler", address), *matching("fleet worker", str(self.results))]

    def orphan(self) -> None:
        """Kill the coordinator, the scheduler and the workers."""
        self.child.kill()
        self.child.wait()
        kill(self.daemons())


Starting = Callable[..., Started]


@contextlib.contextmanager
def starting(dbbench_in: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starting]:
    """A maker of fleets; afterwards all of their processes have ended."""
    made: list[Started] = []

    def start(*more: str) -> Started:
        made.append(Started(dbbench_in(tmp_path_factory.mktemp("fleet")), *more))
        return made[-1]

    yield start
    for fleet in made:
        fleet.child.kill()
        fleet.child.wait()
        kill([*fleet.daemons(), *matching(str(fleet.results))])


@pytest.fixture
def fleets(dbbench_in: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starting]:
    """The same for a test."""
    with starting(dbbench_in, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def attended(dbbench_in: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A fleet with its coordinator, which one test attacks and the next one kills."""
    with starting(dbbench_in, tmp_path_factory) as start:
        yield start()


def test_hosts_without_a_coordinator_are_told_and_stopped(fleets: Starting) -> None:
    """Detached hosts go on without coordinator, scheduler and workers: `status` and `show` have
    them, another fleet of the disk says that it waits for them, and `stop` ends them.
    """
    ours = fleets("--detach")
    ours.until(ours.in_window)
    ours.orphan()
    assert ours.at_work()
    for words in (("fleet", "status"), ("show",), ("show", "r")):
        assert "is running without a coordinator" in ours.dbbench(*words).stdout
    theirs = fleets()
    theirs.until(lambda: "waits for the disk, which is used by" in theirs.said())
    assert str(ours.results) in theirs.said()
    told = ours.dbbench("fleet", "stop").stdout
    assert "local-1: stopped" in told or "local-2: stopped" in told
    assert ended(ours.at_work), ours.at_work()
    assert "without a coordinator" not in ours.dbbench("fleet", "status").stdout


@contextlib.contextmanager
def daemons(dbbench: Any, *commands: tuple[str, ...]) -> Iterator[list[subprocess.Popen[str]]]:
    """Those commands of dbbench beside the block."""
    started = [dbbench.start(*words) for words in commands]
    try:
        yield started
    finally:
        for child in reversed(started):
            child.terminate()
        for child in started:
            child.communicate(timeout=120)


def registered(address: str, certs: Path | None, name: str) -> bool:
    """Whether a host of that name comes to the scheduler within two minutes. FleetUnreachable."""
    with contextlib.closing(Connection(address, certs)) as connection:
        return name in connection.wait_for_hosts(lambda hosts: name in hosts, 120)


def listening(pid: int) -> set[str]:
    """The addresses that a process listens on."""
    return {
        found.laddr.ip
        for found in psutil.Process(pid).net_connections()
        if found.status == psutil.CONN_LISTEN
    }


@pytest.mark.needs("openssl")
def test_only_loopback_is_listened_on_and_both_sides_ask_for_certificates(dbbench: Any) -> None:
    """Neither worker nor scheduler listen elsewhere. With certificates of one authority a host is
    found; with those of another, or none, the scheduler does not answer. An address without TLS
    is refused with exit 5 before anything is started.
    """
    ours, theirs = (security.make(dbbench.folder / folder) for folder in ("ours", "theirs"))
    address = free_address()
    named = address.replace("127.0.0.1", "localhost")
    scheduler = ("fleet", "scheduler", "--listen", address, "--certs", "ours")
    with daemons(
        dbbench, scheduler, ("fleet", "worker", named, "--name", "w", "--certs", str(ours))
    ) as children:
        assert registered(named, ours, "w")
        assert [listening(child.pid) for child in children] == [{"127.0.0.1"}, {"127.0.0.1"}]
        with dask.config.set({"distributed.comm.timeouts.connect": "3s"}):
            with pytest.raises(FleetUnreachable):
                Connection(named, theirs).connect()
            with pytest.raises(FleetInsecure):
                Connection(named.replace("tls", "tcp"))
    for refused in (
        ("fleet", "worker", "tcp://127.0.0.1:8786"),
        ("fleet", "scheduler", "--listen", "tcp://0.0.0.0:1"),
    ):
        assert "E833" in dbbench(*refused, status=5).stderr


def answer(host: str, port: int, certs: ssl.SSLContext | None) -> bytes:
    """What a listener sends first; b"" where it ends the connection. None: without TLS."""
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection((host, port), 60) as plain,
    ):
        if certs is None:
            plain.sendall(bytes(64))
            return plain.recv(64)
        with certs.wrap_socket(plain) as secured:
            return secured.recv(64)
    return b""


def unverified(certs: Path | None = None) -> ssl.SSLContext:
    """A client that accepts every server, and shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certs is not None:
        context.load_cert_chain(certs / security.CERT, certs / security.KEY)
    return context


def reached(path: Path) -> None:
    """Connect to a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


@pytest.mark.needs("openssl")
def test_another_account_reaches_no_port_and_no_socket(attended: Started, tmp_path: Path) -> None:
    """In the window of a trial, `nobody` tries all that the processes of a fleet and of its trial
    have opened: without TLS, without a certificate, and with one of its own. Only root has a
    certificate that is accepted.
    """
    theirs = security.make(tmp_path / "certs")
    fleet = attended
    ours = security.folder_of_fleet(fleet.results / ".fleet/r")
    fleet.until(fleet.in_window)
    mine = [process for process in [*fleet.at_work(), *fleet.daemons()] if process.is_running()]
    mine += [child for process in mine for child in process.children(recursive=True)]
    ports = set[tuple[str, int]]()
    sockets = set[tuple[int, str]]()
    for process in mine:
        with contextlib.suppress(psutil.NoSuchProcess):
            ports |= {
                c.laddr for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN
            }
            sockets |= {
                (process.pid, str(c.laddr)) for c in process.net_connections("unix") if c.laddr
            }
    assert len(ports) == 3, ports  # the scheduler and two workers
    contexts = [None, unverified(), unverified(theirs)]
    for host, port in ports:
        assert answer(host, port, unverified(ours)), "root is answered"
        for context in contexts:
            sent = as_user(NOBODY, partial(answer, host, port, context))
            assert sent == "b''" or sent.startswith(r"b'\x15\x03"), sent  # at most an alert of TLS
    assert "PermissionError" in as_user(NOBODY, (ours / security.KEY).read_bytes)
    assert any("PGSQL" in path for _, path in sockets)
    # abstract names have no permissions
    assert not any(path.startswith(("@", "\0")) for _, path in sockets), sockets
    for pid, path in sockets:
        for place in (Path(path), Path(f"/proc/{pid}/root", path.lstrip("/"))):
            assert re.search(
                "PermissionError|FileNotFoundError", as_user(NOBODY, partial(reached, place))
            )
    assert not [path for path in fleet.results.rglob("*") if path.is_fifo()]


def test_hosts_end_after_their_trial_where_the_coordinator_is_gone(attended: Started) -> None:
    """Without --detach, the current trial is finished, and no other one begins (E835)."""
    fleet = attended

    def trials() -> set[str]:
        return {path.name for path in fleet.results.glob(".fleet/r/hosts/*/r/trials/[!.]*")}

    attacked = fleet.in_window()  # by the test before; little of its window may be left
    fleet.until(lambda: fleet.in_window() - attacked)
    (current,) = fleet.in_window() - attacked
    before = trials()
    fleet.child.kill()
    fleet.child.wait()
    fleet.until(lambda: not fleet.at_work())
    assert trials() == {*before, current}
    assert {state["error"]["id"] for state in fleet.states() if state["error"]} == {"E835"}
    assert ended(fleet.daemons), fleet.daemons()


@pytest.mark.needs("openssl")
def test_workers_of_others_are_hosts_too(dbbench: Any) -> None:
    """`dask worker --preload dbbench.fleet.preload` has its place and its name from the
    environment. It ends where the connections have no TLS.
    """
    address = free_address()
    env = {
        **dbbench.env,
        "DBBENCH_FLEET_NAME": "theirs",
        "DBBENCH_FLEET_RESULTS": str(dbbench.folder / "there"),
    }
    words = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        address,
        "--nthreads",
        "1",
        "--no-dashboard",
        "--no-nanny",
        "--preload",
        "dbbench.fleet.preload",
    ]
    ours = security.make(dbbench.folder / "certs")
    tls = [
        "--tls-ca-file",
        ours / security.CA,
        "--tls-cert",
        ours / security.CERT,
        "--tls-key",
        ours / security.KEY,
    ]
    with daemons(dbbench, ("fleet", "scheduler", "--listen", address, "--certs", "certs")):
        child = subprocess.Popen(
            [*words, *tls], env=env, cwd=dbbench.folder, stderr=subprocess.DEVNULL
        )
        try:
            assert registered(address, ours, "theirs")
        finally:
            child.terminate()
            child.wait(120)
    words[3] = free_address().replace("tls", "tcp")
    scheduler = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        words[3],
        "--no-dashboard",
    ]
    insecure = subprocess.Popen(scheduler, stderr=subprocess.DEVNULL)
    try:
        ended = subprocess.run(
            words, env=env, cwd=dbbench.folder, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode and "E833" in ended.stderr
    finally:
        insecure.terminate()
        insecure.wait(120)
