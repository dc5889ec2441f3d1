"""Who reaches the processes of a fleet: no other account, and no machine without its certificates."""

import contextlib
import re
import socket
import ssl
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("distributed")

import dask

from dbbench.errors import FleetInsecure, FleetUnreachable
from dbbench.fleet import security
from dbbench.fleet.scheduler import Scheduler
from tests.support.fleet_system import (
    Daemon,
    ending,
    free_address,
    matching,
    measuring,
)
from tests.support.others import NOBODY, as_user
from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "openssl")


def listening(daemon: Daemon) -> set[str]:
    """Return the addresses that a process listens on."""
    connections = psutil.Process(daemon.child.pid).net_connections()
    return {found.laddr.ip for found in connections if found.status == psutil.CONN_LISTEN}


def test_both_sides_ask_for_certificates_also_on_loopback(dbbench: Any) -> None:
    """Neither worker nor scheduler listens elsewhere. With certificates of one authority a host is
    found; with those of another, the scheduler does not answer. An address without TLS is refused
    with exit 5 before anything is started.
    """
    own, others = (security.make(dbbench.folder / folder) for folder in ("own", "others"))
    address = free_address()
    named = address.replace("127.0.0.1", "localhost")
    certs = ("--certs", str(own))
    with ending(dbbench.folder):
        scheduler = Daemon(dbbench, "scheduler", "fleet", "scheduler", "--listen", address, *certs)
        worker = Daemon(dbbench, "worker", "fleet", "worker", named, "--name", "w", *certs)
        scheduler.until(lambda: listening(scheduler))
        with contextlib.closing(Scheduler(named, own, "r")) as connection:
            worker.until(connection.hosts)
        assert [listening(scheduler), listening(worker)] == [{"127.0.0.1"}, {"127.0.0.1"}]
        with dask.config.set({"distributed.comm.timeouts.connect": "3s"}):
            with pytest.raises(FleetUnreachable):
                Scheduler(named, others, "r")
            with pytest.raises(FleetInsecure):
                Scheduler(named.replace("tls", "tcp"), own, "r")
    for refused in (
        ("fleet", "worker", "tcp://127.0.0.1:8786"),
        ("fleet", "scheduler", "--listen", "tcp://0.0.0.0:1"),
    ):
        assert "E833" in dbbench(*refused, status=5).stderr


def test_worker_of_dask_without_tls_ends(dbbench: Any) -> None:
    """Everyone who can connect to it could run commands."""
    address = free_address().replace("tls", "tcp")
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    scheduler = psutil.Popen([*command, "--host", address], cwd=dbbench.folder, env=dbbench.env)
    words = "-m distributed.cli.dask_worker --nthreads 1 --no-dashboard --no-nanny"
    preload = ["--preload", "dbbench.fleet.preload", "--local-directory", str(dbbench.folder)]
    worker = psutil.Popen(
        [sys.executable, *words.split(), address, *preload],
        cwd=dbbench.folder,
        env=dbbench.env,
        stderr=-1,
    )
    try:
        assert "E833" in worker.communicate(timeout=120)[1].decode()
        assert worker.returncode
    finally:
        scheduler.terminate()
        scheduler.wait(120)


def answer(host: str, port: int, certs: ssl.SSLContext | None) -> bytes:
    """Return what a listener sends first; b"" if it ends the connection. None: without TLS."""
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
    """Return a client that accepts every server, and shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certs is not None:
        context.load_cert_chain(certs / security.CERT, certs / security.KEY)
    return context


def connect(path: Path) -> None:
    """Connect to a socket of this machine."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def opened(processes: list[psutil.Process]) -> tuple[set[Any], set[tuple[int, str]]]:
    """Return the ports that processes listen on, and their sockets with the pid."""
    ports = set[Any]()
    sockets = set[tuple[int, str]]()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for found in process.net_connections("inet"):
                if found.status == psutil.CONN_LISTEN:
                    ports.add(found.laddr)
            for found in process.net_connections("unix"):
                if found.laddr:
                    sockets.add((process.pid, str(found.laddr)))
    return ports, sockets


@pytest.mark.needs("fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")
def test_another_account_reaches_no_port_and_no_socket(dbbench: Any) -> None:
    """In the window of a trial, `nobody` tries all that the processes of a fleet and of its trial
    have opened: without TLS, without a certificate, and with one of its own. Only root has a
    certificate that is accepted.
    """
    dbbench.plan(plan(measure="20s", device={"size": "320MiB"}))
    results = dbbench.folder / "results"
    others = security.make(dbbench.folder / "certs")
    words = ("fleet", "run", "plan.toml", "--local", "2", "--spread", "--name", "r")
    with ending(dbbench.folder):
        fleet = Daemon(dbbench, "fleet", *words, "--progress", "plain")
        fleet.until(lambda: measuring(results))
        own = security.folder_of_fleet(results / ".fleet/r")
        processes = [psutil.Process(fleet.child.pid)]
        processes += processes[0].children(recursive=True)
        ports, sockets = opened(processes)
        assert len(ports) == 3, ports  # the scheduler and two workers
        for host, port in ports:
            assert answer(host, port, unverified(own)), "root is answered"
            for context in (None, unverified(), unverified(others)):
                sent = as_user(NOBODY, partial(answer, host, port, context))
                # at most an alert of TLS
                assert sent == "b''" or sent.startswith(r"b'\x15\x03"), sent
        assert "PermissionError" in as_user(NOBODY, (own / security.KEY).read_bytes)
        assert any("PGSQL" in path for _pid, path in sockets)
        # Abstract names have no permissions.
        assert not any(path.startswith(("@", "\0")) for _pid, path in sockets), sockets
        for pid, path in sockets:
            for place in (Path(path), Path(f"/proc/{pid}/root", path.lstrip("/"))):
                refused = as_user(NOBODY, partial(connect, place))
                assert re.search("PermissionError|FileNotFoundError", refused)
        assert not [path for path in results.rglob("*") if path.is_fifo()]
        # Other accounts read command lines.
        command_lines = [str(process.cmdline()) for process in matching(str(results))]
        assert not any("PRIVATE" in line for line in command_lines)
        fleet.child.terminate()
        assert fleet.wait() == 143
