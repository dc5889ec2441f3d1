"""Disturbances that end within the window of a real trial: none of these trials is marked ok."""

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench import process as programs
from dbbench.machine.limits import cgroup
from dbbench.machine.mounts import mounts_of
from tests.support.leftovers import GONE_S, below, left_of
from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf", "nsenter")

POSTGRES = {"workload": {"name": "pgbench-tpcb", "scale": 1, "clients": 2}, "memory": "256MiB"}
MARIADB = {
    "engine": "mariadb",
    "device": {"size": "1GiB"},
    "workload": {"name": "sysbench-oltp-read-write", "table_size": 10000, "clients": 2},
}
NOTICED_S = 10.0  # the sampler looks once a second, on a busy machine later; then its test fails

Plant = Callable[[int], None]


def within(server: psutil.Process, *argv: str, **env: str) -> None:
    """Run a program in the trial's mount namespace as root, with its root."""
    argv = ("nsenter", "-t", str(server.pid), "-m", "-r", *argv)
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done


def psql(server: psutil.Process, *statements: str) -> None:
    """Statements in a session of another client of the server."""
    words = [word for statement in statements for word in ("-c", statement)]
    within(server, "psql", "-X", "-h", "/run/dbbench/s", "-U", "dbbench", "-d", "dbbench", *words)


def noticed(pid: int, *words: str) -> None:
    """Wait until the sampler has written down all of them, at most NOTICED_S."""
    trials = Path(psutil.Process(pid).cwd(), "results/r/trials")

    def missing() -> list[str]:
        seen = "".join(path.read_text() for path in trials.glob(".partial-*/raw/machine.jsonl"))
        return [word for word in words if word not in seen]

    programs.wait_while(missing, NOTICED_S)


@contextlib.contextmanager
def changed(file: Path, value: str) -> Iterator[None]:
    """A setting that is changed for a while."""
    before = file.read_text().strip()
    if "[" in before:  # the chosen of several
        before = before[before.index("[") + 1 : before.index("]")]
    file.write_text(value)
    try:
        yield
    finally:
        file.write_text(before)


@contextlib.contextmanager
def frozen(version: int, processes: list[psutil.Process]) -> Iterator[None]:
    """They are moved to a group, which is frozen: as `docker pause` does."""
    wanted = ("cgroup", "freezer") if version == 1 else ("cgroup2", "rw")
    point = next(
        m.point
        for m in mounts_of(Path("/proc/self"))
        if m.fstype == wanted[0] and wanted[1] in m.options
    )
    homes = [_home(process, point, version) for process in processes]
    (group := point / f"dbbench-test-{os.getpid()}").mkdir()
    file, on, off = (
        ("freezer.state", "FROZEN", "THAWED") if version == 1 else ("cgroup.freeze", "1", "0")
    )
    try:
        for process in processes:
            (group / "cgroup.procs").write_text(str(process.pid))
        (group / file).write_text(on)
        yield
    finally:
        (group / file).write_text(off)
        for process, home in zip(processes, homes, strict=True):
            with contextlib.suppress(ProcessLookupError):
                (home / "cgroup.procs").write_text(str(process.pid))
        assert not programs.wait_while(lambda: _left(group, homes[0]), 60)


def _left(group: Path, home: Path) -> bool:
    """Remove the group; return whether it is still there: with a process that one of the others has
    just started, which is moved, or with one that has just ended.
    """
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            (home / "cgroup.procs").write_text(pid)
        group.rmdir()
    return group.is_dir()


def _home(process: psutil.Process, point: Path, version: int) -> Path:
    lines = [
        line.split(":", 2) for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
    ]
    path = next(path for _, names, path in lines if names == ("freezer" if version == 1 else ""))
    return point / path.lstrip("/")


def freeze_server(version: int) -> Plant:
    """All processes of the server, for two seconds at least."""

    def plant(pid: int) -> None:
        with frozen(version, below(pid, "postgres")):
            time.sleep(2)
            noticed(pid, "frozen")

    return plant


def freeze_load(pid: int) -> None:
    """The load generator, for two seconds at least."""
    with frozen(1, below(pid, "pgbench")):
        time.sleep(2)
        noticed(pid, "frozen")


# What the sampler writes down of `settings`.
SETTINGS = (
    "nice of pgbench",
    "/run/dbbench/mnt: ",
    "read_ahead_kb",
    "nr_requests",
    "scheduler",
    "memory.",
)


def settings(pid: int) -> None:
    """Scheduling of server and load, the block layer, a mount option and a limit, each changed and
    changed back.
    """
    server = below(pid, "postgres")[0]
    load = below(pid, "pgbench")[0]
    cpus = server.cpu_affinity()
    disk = next(
        m for m in mounts_of(Path(f"/proc/{server.pid}")) if m.point == Path("/run/dbbench/mnt")
    ).source
    queue = Path("/sys/block") / Path(disk).name / "queue"
    (limit,) = [path for path in _groups(server.pid) if path.exists()]
    with contextlib.ExitStack() as stack:
        load.nice(5)
        stack.callback(load.nice, 0)
        expected = list(SETTINGS)
        if cpus is not None and len(cpus) > 1:
            expected.append("CPUs of postgres")
            server.cpu_affinity(cpus[:1])
            stack.callback(server.cpu_affinity, cpus)
        within(server, "mount", "-o", "remount,barrier=0", "/run/dbbench/mnt")
        stack.callback(within, server, "mount", "-o", "remount,barrier=1", "/run/dbbench/mnt")
        stack.enter_context(changed(queue / "read_ahead_kb", "256"))
        stack.enter_context(changed(queue / "nr_requests", "64"))
        stack.enter_context(
            changed(
                queue / "scheduler",
                "none" if "[none]" not in (queue / "scheduler").read_text() else "mq-deadline",
            )
        )
        stack.enter_context(changed(limit, str(250 * 2**20)))
        noticed(pid, *expected)


def _groups(pid: int) -> list[Path]:
    """Where the memory limit of a process can be."""
    where = cgroup.hierarchy()
    assert not isinstance(where, str)
    name = next(
        line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if "/dbbench-" in line
    )
    folder = next(where.point.rglob(Path(name).name))
    return [folder / ("memory.max" if where.version == 2 else "memory.limit_in_bytes")]


def sessions_of_postgres(pid: int) -> None:
    """A lock, a checkpoint, VACUUM FULL and TRUNCATE by another user."""
    server = below(pid, "postgres")[0]
    lock = "BEGIN; LOCK TABLE pgbench_branches IN EXCLUSIVE MODE; SELECT pg_sleep(3); COMMIT"
    psql(server, lock)
    psql(server, "CHECKPOINT", "VACUUM FULL pgbench_tellers", "TRUNCATE pgbench_history")


def sessions_of_mariadb(pid: int) -> None:
    """A lock and TRUNCATE by another user, the second in a session of milliseconds."""
    server = below(pid, "mariadbd")[0]
    sockets = "/run/dbbench/s"
    options = Path(f"/proc/{server.pid}/root{sockets}/sysbench.cnf").read_text()
    password = re.findall('"(.*)"', options)[0]
    client = [
        "mariadb",
        "--no-defaults",
        f"--socket={sockets}/mariadb.sock",
        "-udbbench",
        "dbbench",
        "-e",
    ]
    for statements in (
        "CREATE TABLE theirs (a INT); LOCK TABLES theirs WRITE; DO SLEEP(3)",
        "TRUNCATE theirs; DROP TABLE theirs",
    ):
        within(server, *client, statements, MYSQL_PWD=password)


def disturbed(
    dbbench: Any,
    keys: dict[str, Any],
    *plants: Plant,
    measure: int,
) -> dict[str, str]:
    """The text of each finding of a trial that is disturbed like this; it is suspect, and nothing
    is left.
    """
    dbbench.plan(plan(**keys, measure=f"{measure}s"))
    status, said = dbbench.run_and(
        "plan.toml",
        dbbench.in_window,
        lambda pid: [plant(pid) for plant in plants],
    )
    (trial,) = dbbench.trials().values()
    assert (status, trial["status"]) == (0, "suspect"), (trial["error"], said[-2000:])
    assert left_of(dbbench.folder, within_s=GONE_S) == []
    return {warning["id"]: warning["text"] for warning in trial["warnings"]}


def observed(dbbench: Any) -> list[str]:
    """Everything that the sampler wrote down."""
    (path,) = (dbbench.folder / "results/r/trials").glob("*/raw/machine.jsonl")
    return [json.loads(line)["what"] for line in path.read_text().splitlines()]


@pytest.mark.needs("engine:postgres")
def test_what_is_changed_and_changed_back_makes_the_trial_suspect(dbbench: Any) -> None:
    """Nice value, CPUs, mount options, block layer, limits, and sessions of others: each is named
    with its second.
    """
    told = disturbed(dbbench, POSTGRES, settings, sessions_of_postgres, measure=18)
    assert {"W018", "W132", "W133", "W135"} <= told.keys(), told
    assert "(second " in told["W132"] and "barrier" in told["W132"]
    assert "psql" in told["W135"]
    seen = "\n".join(observed(dbbench))
    for what in SETTINGS:
        assert seen.count(what) >= 2, (what, seen)
    if (os.cpu_count() or 1) > 1:
        assert seen.count("CPUs of postgres") == 2


@pytest.mark.needs("engine:mariadb", "mariadb")
@pytest.mark.soak
def test_a_session_of_another_user_of_mariadb_makes_the_trial_suspect(dbbench: Any) -> None:
    """One that holds a lock, and one that is over at once."""
    told = disturbed(dbbench, MARIADB, sessions_of_mariadb, measure=10)
    assert "W135" in told, told


FREEZERS: dict[str, Plant] = {
    "v1": freeze_server(1),
    "v2": freeze_server(2),
    "load-v1": freeze_load,
}


@pytest.mark.needs("engine:postgres")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("v1", marks=pytest.mark.needs("freezer:1")),
        pytest.param("v2", marks=pytest.mark.needs("freezer:2")),
        pytest.param("load-v1", marks=[pytest.mark.needs("freezer:1"), pytest.mark.soak]),
    ],
)
def test_a_frozen_trial_is_suspect(name: str, dbbench: Any) -> None:
    """A frozen process is in state D or S, as one that waits for a disk or a client."""
    told = disturbed(dbbench, POSTGRES, FREEZERS[name], measure=6)
    assert "frozen" in told["W129"], told
    assert ("pgbench" if name == "load-v1" else "postgres") in told["W129"]
