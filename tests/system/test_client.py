"""The load generator on another host: a trial of each kind of server over ssh and TLS."""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench.process import wait_while
from tests.support.leftovers import below
from tests.support.plans import plan
from tests.support.ssh_hosts import NEEDS, NETWORK, Lan, lan, processes_on

pytestmark = [
    pytest.mark.needs(*NEEDS, "setpriv", "mkfs.ext4", "fs:ext4", "sadf"),
    pytest.mark.usefixtures("nothing_left"),
]
SECRET = "p4ss-of-no-other-text"
PORT = 15432
# An intruder with all that the client has: the right files, from the right address.
POSTGRES = """
import psycopg2, sys
for more in ({}, dict(sslmode="disable"), dict(sslcert="/no", sslkey="/no"), dict(password="another-word"),
             dict(user="dbbench")):
    try:
        given = dict(host=%(host)r, port=%(port)d, user="dbbench_client", dbname="dbbench", password=%(secret)r,
                     sslmode="verify-full", sslrootcert=%(at)r + "/cacert.pem", sslcert=%(at)r + "/client-cert.pem",
                     sslkey=%(at)r + "/client-key.pem", gssencmode="disable")
        with psycopg2.connect(**{**given, **more}) as session, session.cursor() as cursor:
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            print("let in, superuser" if cursor.fetchone()[0] else "let in")
    except psycopg2.Error as error:
        print(" ".join(str(error).split()))
"""
MARIADB = """
import mysql.connector
for more in ({}, dict(ssl_disabled=True), dict(ssl_cert="", ssl_key=""), dict(password="another-word"),
             dict(user="dbbench")):
    try:
        given = dict(host=%(host)r, port=%(port)d, user="dbbench_client", database="dbbench", password=%(secret)r,
                     ssl_ca=%(at)r + "/cacert.pem", ssl_cert=%(at)r + "/client-cert.pem", use_pure=True,
                     ssl_key=%(at)r + "/client-key.pem", ssl_verify_cert=True, ssl_verify_identity=True,
                     charset="utf8mb4", collation="utf8mb4_general_ci")
        session = mysql.connector.connect(**{**given, **more})
        cursor = session.cursor()
        cursor.execute("SHOW GRANTS")
        print("let in, superuser" if any("ON *.*" in row[0] and "ALL" in row[0] for row in cursor) else "let in")
    except mysql.connector.Error as error:
        print(error)
"""


AGENTS = "dbbench-client-*"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lan]:
    """The server's machine and the client's."""
    folder = tmp_path_factory.mktemp("lan")
    (folder / "secret").write_text(f"{SECRET}\n")
    (folder / "secret").chmod(0o600)
    with lan(folder, ["server", "client"], private_tmp=True) as found:
        yield found


LOADS: dict[str, tuple[dict[str, Any], str]] = {  # and the size of the device
    "postgres": ({"name": "pgbench-tpcb", "scale": 1, "clients": 2}, "384MiB"),
    "mariadb": (
        {"name": "sysbench-oltp-read-write", "tables": 1, "table_size": 2000, "clients": 2},
        "1GiB",
    ),
}


def away(machines: Lan, engine: str, client: dict[str, str] | None = None, **keys: Any) -> str:
    """A small plan whose load comes from `client`; `client`: other keys of that table."""
    load, size = LOADS[engine]
    there = {
        "host": "client",
        "address": machines.addresses["server"],
        "password_file": str(machines.folder / "secret"),
    }
    keys = {"measure": "10s", **keys}  # an intruder tries five times meanwhile
    return plan("ext4", engine, load, device={"size": size}, client=there | (client or {}), **keys)


def start(machines: Lan, dbbench: Any, *words: str) -> subprocess.Popen[str]:
    """dbbench on the server's machine."""
    return subprocess.Popen(
        machines.inside([sys.executable, "-m", "dbbench", *words]),
        cwd=dbbench.folder,
        text=True,
        env={**dbbench.env, **machines.env("server")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def until(
    found: Callable[[], Any],
    child: subprocess.Popen[str],
    seconds: float = 600,
) -> Any:
    """What `found` gives as soon as it gives something, while the child runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.poll() is None:
        if hit := found():
            return hit
        time.sleep(0.02)
    raise AssertionError(child.communicate(timeout=300)[0])


def tools(machines: Lan) -> list[psutil.Process]:
    """Load generators on these machines that reach their server over the network."""
    found = []
    for pid in processes_on(machines.holder):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            process = psutil.Process(pid)
            if process.name() in ("pgbench", "sysbench") and f"host={NETWORK}." in " ".join(
                process.cmdline()
            ):
                found.append(process)
    return found


def folders(machines: Lan) -> list[Path]:
    """The agents' folders on the client's machine."""
    return sorted(machines.tmp("client").glob(AGENTS))


def kill_ssh(child: subprocess.Popen[str]) -> None:
    """The ssh processes that a run has started."""
    for ssh in below(child.pid, "ssh"):
        with contextlib.suppress(psutil.NoSuchProcess):  # killed together with the one before
            ssh.kill()


def arguments() -> str:
    """Those of all processes of the machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(path.read_text(errors="replace"))
    return "\n".join(found)


def everything_in(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files of a folder, unpacked."""
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            yield path, gzip.decompress(content) if path.suffix == ".gz" else content


@pytest.mark.parametrize(
    ("engine", "tool", "intruder", "refusals"),
    [
        pytest.param(
            "postgres",
            "pgbench",
            POSTGRES,
            [
                "no encryption",
                "valid client certificate",
                "password authentication",
                "no pg_hba.conf entry",
            ],
            marks=pytest.mark.needs("engine:postgres", "pgbench"),
        ),
        pytest.param(
            "mariadb",
            "sysbench",
            MARIADB,
            # MariaDB 10.11, 11.8
            ["denied|insecure transport", "denied", "denied", "denied"],
            marks=pytest.mark.needs("engine:mariadb", "sysbench"),
        ),
    ],
)
def test_load_comes_from_the_other_host(
    machines: Lan,
    dbbench: Any,
    engine: str,
    tool: str,
    intruder: str,
    refusals: list[str],
) -> None:
    """A trial with figures and a series. Meanwhile the client's own way in is open, and no other:
    not without TLS, not without the certificate, not with another password, not for the
    superuser. The password is nowhere.
    """
    dbbench.plan(away(machines, engine))
    child = start(machines, dbbench, "run", "plan.toml", "--name", "r", "--progress", "plain")
    (loading, *_) = until(lambda: tools(machines), child)
    assert SECRET not in arguments()
    (at,) = folders(machines)
    assert at.stat().st_mode & 0o777 == 0o700
    assert at.name in loading.cwd()
    script = intruder % {
        "host": machines.addresses["server"],
        "port": PORT,
        "secret": SECRET,
        "at": str(at),
    }
    tried = subprocess.run(
        machines.inside([sys.executable, "-c", script]),
        capture_output=True,
        text=True,
        check=False,
    )
    said = child.communicate(timeout=600)[0]
    assert child.returncode == 0, said

    answers = tried.stdout.splitlines()
    assert answers[0] == "let in" and len(answers) == 5, tried.stdout + tried.stderr
    assert all(
        re.search(word, answer) for word, answer in zip(refusals, answers[1:], strict=True)
    ), answers
    assert folders(machines) == []
    assert not [
        path
        for path, content in everything_in(dbbench.folder / "results")
        if SECRET.encode() in content
    ]

    (trial,) = dbbench.trials().values()
    client = trial["client"]
    figures = trial["summary"]
    assert trial["error"] is None and figures["tps"] > 0
    assert (client["host"], client["hostname"], client["address"]) == (
        "client",
        "client",
        machines.addresses["server"],
    )
    assert tool in client["tool"] and 0 < client["round_trip_ms"] < 1000
    # It is the same clock: what is measured of it is known to half of a round trip, which a busy
    # machine makes longer.
    assert abs(client["clock_offset_s"]) < 1 and abs(client["clock_drift_s"]) < 1
    assert figures["client_cpu_s"] > 0 and 0 < trial["cores"]["client_share"] <= 1.1
    assert trial["cores"]["server"] and trial["cores"]["shared"] == 0
    listens = "listen_addresses" if engine == "postgres" else "bind_address"
    assert trial["effective_settings"][listens] == machines.addresses["server"]
    assert len(dbbench.series(trial)) >= 3


def test_nothing_stays_there_when_ssh_or_the_trial_is_killed(machines: Lan, dbbench: Any) -> None:
    """A killed ssh fails the trial, which says so; a killed run leaves the next start to it. The
    load generator and its folder are gone both times.
    """
    dbbench.plan(away(machines, "postgres", measure="40s", blocks=2))
    child = start(machines, dbbench, "run", "plan.toml", "--name", "r", "--progress", "plain")
    (loading, *_) = until(lambda: tools(machines), child)
    kill_ssh(child)
    psutil.wait_procs([loading], timeout=60)
    assert not loading.is_running()

    # of the second trial
    (loading, *_) = until(lambda: dbbench.trials() and tools(machines), child)
    (failed,) = dbbench.trials().values()
    assert failed["status"] == "failed" and failed["error"]["id"] == "E601", failed["error"]
    # that of the first trial is removed
    assert not wait_while(lambda: len(folders(machines)) != 1, 60)
    os.kill(child.pid, signal.SIGKILL)  # nsenter has become dbbench
    end = time.monotonic() + 60
    while (folders(machines) or loading.is_running()) and time.monotonic() < end:
        time.sleep(0.05)
    assert folders(machines) == [] and not loading.is_running()
    child.communicate(timeout=60)


@pytest.mark.parametrize(
    ("changed", "error"),
    [({"address": "192.0.2.99"}, "E329"), ({"password_file": "/etc/passwd"}, "E329")],
)
def test_what_is_lacking_is_reported_before_anything_is_changed(
    machines: Lan,
    dbbench: Any,
    changed: dict[str, str],
    error: str,
) -> None:
    """By doctor and by run, with an exit code of the environment; no run is made."""
    dbbench.plan(away(machines, "postgres", changed))
    child = start(machines, dbbench, "run", "plan.toml", "--progress", "plain")
    said = child.communicate(timeout=300)[0]
    assert child.returncode == 2 and error in said, said
    assert not (dbbench.folder / "results").exists() and folders(machines) == []


def test_host_that_ssh_does_not_know_is_reported(machines: Lan, dbbench: Any) -> None:
    """With what ssh printed, and the command to try."""
    dbbench.plan(away(machines, "postgres", {"host": "nowhere.invalid"}))
    child = start(machines, dbbench, "--json", "doctor", "--plan", "plan.toml")
    found = json.loads(child.communicate(timeout=300)[0])
    assert child.returncode == 2
    (told,) = [one for one in found["checks"] if "nowhere.invalid" in str(one["found"])]
    assert "BatchMode=yes nowhere.invalid true" in told["fix"]
