"""Fleets on machines that are reached by ssh: `fleet run --ssh`, and dask's SSHCluster as in the
example.
"""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.fleet import security
from tests.support.plans import plan
from tests.support.ssh_hosts import NEEDS, Lan, lan, processes_on

pytest.importorskip("distributed")
pytestmark = pytest.mark.needs(
    *NEEDS, "fs:ext4", "mkfs.ext4", "fs:xfs", "mkfs.xfs", "engine:postgres", "sadf"
)

ROOT = Path(__file__).parents[2]
# Another version of dbbench may be installed where this one is tested.
REMOTE = f"env PYTHONPATH={ROOT} {sys.executable} -m dbbench"
TPCB = {"name": "pgbench-tpcb", "scale": 1, "clients": 1, "rate": 200}
# E604: 2 s without a transaction
PLAN = plan(workload=TPCB, warmup="0s", measure="4s", device={"size": "320MiB"})
TWO_BLOCKS = plan(
    ["ext4", "xfs"],
    workload=TPCB,
    blocks=2,
    warmup="0s",
    measure="6s",
    device={"size": "320MiB"},
)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lan]:
    """A coordinator and two hosts."""
    with lan(
        tmp_path_factory.mktemp("lan"),
        ["coordinator", "db1", "db2"],
        private_tmp=True,
    ) as found:
        yield found


def coordinate(machines: Lan, dbbench: Any, *words: str) -> subprocess.CompletedProcess[str]:
    """dbbench on the coordinator."""
    command = machines.inside([sys.executable, "-m", "dbbench", *words])
    env = {**dbbench.env, **machines.env("coordinator")}
    return subprocess.run(
        command,
        cwd=dbbench.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )


def homes(dbbench: Any, run: str) -> dict[str, str]:
    """Host of each trial of that run, all of them good or suspect."""
    trials = dbbench.trials(run)
    assert {trial["error"] and trial["error"]["id"] for trial in trials.values()} == {None}
    return {name: trial["host"] for name, trial in trials.items()}


def fleet_command(machines: Lan, dbbench: Any, *words: str) -> list[str]:
    """Return the words of a fleet on both hosts."""
    remote = f"env DBBENCH_CACHE={dbbench.env['DBBENCH_CACHE']} {REMOTE}"
    listen = f"tls://{machines.addresses['coordinator']}"
    ways = ["--ssh", "root@db1,db2", "--listen", listen, "--dbbench", remote]
    return ["fleet", "run", "plan.toml", *ways, "--progress", "plain", *words]


def commands_on(machines: Lan) -> dict[int, bytes]:
    """Return the command lines of the processes on the network, but not of its ssh servers."""
    commands = {}
    for pid in processes_on(machines.holder):
        with contextlib.suppress(OSError):  # it has ended
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"dropbear" not in line:
                commands[pid] = line
    return commands


def keys_on(machines: Lan, name: str) -> list[Path]:
    """Return the files of a machine that contain a private key."""
    files = [*machines.tmp(name).rglob("*"), *machines.homes[name].rglob("*")]
    return [path for path in files if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]


def test_each_host_is_reached_by_ssh(machines: Lan, dbbench: Any) -> None:
    """The scheduler is here, a worker on each host, TLS between them; each runs the plan, and its
    results are imported.
    """
    dbbench.plan(PLAN)
    done = coordinate(machines, dbbench, *fleet_command(machines, dbbench, "--each", "--name", "r"))
    logs = "\n".join(path.read_text() for path in dbbench.folder.glob("results/.fleet/r/*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    for name in ("db1", "db2"):
        assert list(homes(dbbench, f"r-{name}").values()) == [name]
    assert (machines.homes["db1"] / "dbbench-fleet/r-db1").is_dir()  # there, too, results are kept
    assert not security.folder_of_fleet(dbbench.folder / "results/.fleet/r").exists()
    assert keys_on(machines, "db1") == []
    assert not process.wait_while(lambda: commands_on(machines), 60)


def start_fleet(machines: Lan, dbbench: Any, *words: str) -> subprocess.Popen[bytes]:
    """Start a fleet of both hosts, and wait until a trial is under load."""
    command = [sys.executable, "-m", "dbbench", *fleet_command(machines, dbbench, *words)]
    with (dbbench.folder / "fleet.log").open("a") as log:
        child = subprocess.Popen(
            machines.inside(command),
            cwd=dbbench.folder,
            env={**dbbench.env, **machines.env("coordinator")},
            stdout=log,
            stderr=log,
        )
    until_loaded(machines, child, dbbench.folder / "fleet.log")
    return child


def until_loaded(
    machines: Lan,
    child: subprocess.Popen[bytes],
    log: Path,
) -> None:
    """Wait until a load generator runs on one of the hosts."""

    def is_idle() -> bool:
        assert child.poll() is None, log.read_text()
        return not any(b"pgbench\0" in line for line in commands_on(machines).values())

    assert not process.wait_while(is_idle, 240), log.read_text()


def test_killed_coordinator_leaves_nothing_running(machines: Lan, dbbench: Any) -> None:
    """Its scheduler ends with it; workers and trials on the hosts end within a minute. `clean`
    names the keys that it left here and removes them, and the same command resumes.
    """
    dbbench.plan(TWO_BLOCKS)
    words = ("--spread", "--name", "k")
    child = start_fleet(machines, dbbench, *words)
    child.kill()
    child.wait()
    assert not process.wait_while(lambda: commands_on(machines), 60), commands_on(machines)
    keys = security.folder_of_fleet(dbbench.folder / "results/.fleet/k")
    assert (keys / security.KEY).exists()
    cleaned = coordinate(machines, dbbench, "clean")
    assert f"removed keys of a fleet {keys}" in cleaned.stdout and not keys.exists()
    done = coordinate(machines, dbbench, *fleet_command(machines, dbbench, *words))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert len(homes(dbbench, "k")) == 4


def test_vanished_host_loses_no_block(machines: Lan, dbbench: Any) -> None:
    """The network of a host is gone while its trial is under load: its worker and its trial end,
    and the other host runs all blocks as a whole.
    """
    dbbench.plan(TWO_BLOCKS)
    child = start_fleet(machines, dbbench, "--spread", "--name", "v")
    address = machines.addresses["db1"]
    change = ["ip", "addr", "del", f"{address}/32", "dev", "lo"]
    subprocess.run(machines.inside(change), check=True)
    try:
        status = child.wait(400)
        printed = (dbbench.folder / "fleet.log").read_text()
        assert status == 0, printed
    finally:
        change[2] = "add"
        subprocess.run(machines.inside(change), check=True)
    trials = homes(dbbench, "v")
    blocks = {name.rpartition("-b")[2]: set[str]() for name in trials}
    for name, host in trials.items():
        blocks[name.rpartition("-b")[2]].add(host)
    assert len(trials) == 4 and all(len(hosts) == 1 for hosts in blocks.values())
    assert {"db2"} in blocks.values()
    assert not process.wait_while(lambda: commands_on(machines), 60), commands_on(machines)


def test_worker_ends_with_its_ssh(machines: Lan, tmp_path: Path) -> None:
    """Its certificates are not stored on the host, so it does not outlive the connection that
    brought them.
    """
    bundle = b"".join(
        path.read_bytes() for path in security.files_of(security.make(tmp_path / "certs"))
    )
    words = "fleet worker tls://198.18.77.1:1 --name e --give-up 600 --results ends --certs -"
    ssh = subprocess.Popen(
        machines.inside(["ssh", "db1", f"{REMOTE} {words}"]),
        stdin=subprocess.PIPE,
        env=machines.env("coordinator"),
    )
    assert ssh.stdin is not None
    ssh.stdin.write(bundle)
    ssh.stdin.close()

    def workers() -> list[int]:
        found = []
        for pid in processes_on(machines.holder):
            with contextlib.suppress(OSError):  # it has ended
                found += (
                    [pid] if b"--results\0ends" in Path(f"/proc/{pid}/cmdline").read_bytes() else []
                )
        return found

    lock = machines.homes["db1"] / "ends"
    assert not process.wait_while(lambda: not lock.exists(), 60)
    time.sleep(1)  # the lock is taken after the certificates were read
    assert workers() and ssh.poll() is None
    ssh.terminate()
    ssh.wait(30)
    assert process.wait_while(workers, 60, 0.5) == []


def test_scheduler_says_how_a_worker_gets_its_certificates(machines: Lan, dbbench: Any) -> None:
    """The scheduler makes them and prints a command. After it, a worker that is started by hand is
    a host.
    """
    dbbench.plan(PLAN)
    address = f"tls://{machines.addresses['coordinator']}:8787"
    running = list[subprocess.Popen[str]]()

    def start(*words: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                machines.inside(words),
                cwd=dbbench.folder,
                stdout=subprocess.PIPE,
                text=True,
                env={**dbbench.env, **machines.env("coordinator")},
            )
        )
        return running[-1]

    try:
        scheduler = start(
            sys.executable,
            "-m",
            "dbbench",
            "fleet",
            "scheduler",
            "--listen",
            address,
        )
        assert scheduler.stdout is not None
        copy = scheduler.stdout.readline().partition(":  ")[2].replace("HOST", "db2")
        assert start("sh", "-c", copy).wait(60) == 0
        there = machines.homes["db2"] / ".config/dbbench/fleet"
        assert {path.stat().st_mode & 0o777 for path in security.files_of(there)} == {0o600}
        assert there.stat().st_mode & 0o777 == 0o700
        start(
            "ssh",
            "db2",
            f"{REMOTE} fleet worker {address} --name db2 --give-up 20",
        )
        done = coordinate(
            machines,
            dbbench,
            "fleet",
            "run",
            "plan.toml",
            "--scheduler",
            address,
            "--spread",
            "--name",
            "h",
            "--progress",
            "plain",
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert set(homes(dbbench, "h").values()) == {"db2"}
    finally:
        for child in running:
            child.terminate()
            child.communicate(timeout=60)


def test_ssh_cluster_of_dask_is_a_scheduler(machines: Lan, dbbench: Any) -> None:
    """The example in the documents, with these machines' names."""
    pytest.importorskip("asyncssh")
    text = (ROOT / "docs/fleet/ssh_cluster.py").read_text()
    key = str(machines.folder / "key")
    certs = str(security.make(machines.homes["coordinator"] / ".config/dbbench/fleet"))
    for name, value in (
        ("HOSTS", [machines.addresses["db1"]]),
        ("SCHEDULER", machines.addresses["coordinator"]),
        ("CERTS", certs),
        ("CONNECT", {"username": "root", "client_keys": [key], "known_hosts": None}),
    ):
        text, found = re.subn(
            rf"^{name} = .*$",
            lambda _, new=f"{name} = {value!r}": new,
            text,
            flags=re.MULTILINE,
        )
        assert found == 1
    (dbbench.folder / "cluster.py").write_text(text)
    env = {**dbbench.env, **machines.env("coordinator"), "PYTHONUNBUFFERED": "1"}
    log = dbbench.folder / "cluster.log"
    with log.open("w") as out:
        cluster = subprocess.Popen(
            machines.inside([sys.executable, "cluster.py"]),
            cwd=dbbench.folder,
            env=env,
            stdout=out,
            stderr=out,
        )
    try:
        until = time.monotonic() + 120
        while (
            "1 hosts" not in log.read_text() and time.monotonic() < until and cluster.poll() is None
        ):
            time.sleep(0.2)
        dbbench.plan(PLAN)
        address = f"tls://{machines.addresses['coordinator']}:8786"
        done = coordinate(
            machines,
            dbbench,
            "fleet",
            "run",
            "plan.toml",
            "--spread",
            "--name",
            "c",
            "--hosts",
            "1",
            "--scheduler",
            address,
            "--progress",
            "plain",
        )
    finally:
        cluster.terminate()
        cluster.wait(120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text()}"
    assert set(homes(dbbench, "c").values()) == {"db1"}
