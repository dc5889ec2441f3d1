"""Memory and CPU limits of a server are enforced by the kernel, read back and removed; violations
are reported.
"""

import contextlib
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dbbench.machine.limits import throttle
from dbbench.model import DeviceLimit
from dbbench.results.fileio import open_fd
from dbbench.results.journal import Journal
from dbbench.storage.devices.port import Device
from tests.support.leftovers import groups_of
from tests.support.plans import plan
from tests.system.conftest import HANGS_S

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")


def limited(
    memory: str = "64MiB",
    cpus: dict[str, str] | None = None,
    measure: str = "3s",
    limit: dict[str, Any] | None = None,
    **workload: Any,
) -> str:
    """A plan of one trial whose server has that much memory; `limit`: of its device; `workload`:
    keys of its table.
    """
    load = {"name": "pgbench-tpcb", "clients": 2, **(workload or {"scale": 8})}
    engine = {"name": "postgres", **(cpus or {})}
    return plan(
        "ext4",
        engine,
        load,
        memory=memory,
        measure=measure,
        device={"size": "1GiB", "limit": limit},
    )


def test_memory_is_the_kernels_limit_and_page_cache_counts(dbbench: Any) -> None:
    """A dataset of twice the memory is io-bound on a machine with any: hardly half of it stays
    resident.
    """
    cpus = {"cpus_server": "0", "cpus_client": "1"} if (os.cpu_count() or 1) > 1 else {}
    # 6 s: enough for a tick of CPU time of pgbench where the disk is slow
    trial = dbbench.trial(limited(cpus=cpus, size="io-bound", threads=2, measure="6s"))
    memory = trial["memory"]
    cores = trial["cores"]
    assert memory["enforced"] in ("cgroup v1", "cgroup v2")
    assert memory["effective_bytes"] == memory["limit_bytes"] == 64 * 2**20
    assert memory["label"] == "io-bound"
    assert 2.0 < memory["dataset_ratio"] < 4.0
    assert memory["resident_bytes"] < 64 * 2**20 < memory["dataset_bytes"]
    assert memory["direct"] == "buffered"
    assert [*groups_of(dbbench.folder)] == []
    if cpus:  # and the cores are as asked
        assert (cores["server"], cores["client"], cores["shared"]) == ("0", "1", 0)
        assert 0 < cores["client_share"] < 1
    assert "W039" not in {w["id"] for w in trial["warnings"]}


def test_size_of_the_dataset_follows_the_memory(dbbench: Any) -> None:
    """The words are what the trial finds, by the bytes of the data files."""
    dbbench("run", dbbench.plan(limited(memory="128MiB", size=["cached", "edge"])), "--name", "r")
    assert {t["variant"]: t["memory"]["label"] for t in dbbench.trials().values()} == {
        "size=cached": "cached",
        "size=edge": "edge",
    }


def test_kill_by_the_limit_fails_the_trial_by_name(dbbench: Any) -> None:
    """A server in 12 MiB: the kernel kills it, and the trial says why it did not start. In less, it
    may kill the trial's process, which is in the group while it starts the server.
    """
    trial = dbbench.trial(limited(memory="12MiB", scale=1), status=1)
    assert (trial["status"], trial["error"]["id"]) == ("failed", "E402")
    assert "12 MiB" in trial["error"]["text"]
    assert [*groups_of(dbbench.folder)] == []


def throttled() -> str:
    """The limits of disks in all control groups."""
    files = [
        *Path("/sys/fs/cgroup").rglob("io.max"),
        *Path("/sys/fs/cgroup").rglob("blkio.throttle.*_device"),
    ]
    found = ""
    for path in files:
        with contextlib.suppress(OSError):  # of a group that has just been removed
            found += path.read_text()
    return found


@pytest.mark.alone
@pytest.mark.needs("fio")
def test_limits_of_the_device_are_enforced_measured_and_removed(dbbench: Any) -> None:
    """fio measures each level on the bare device, and no write of the filesystem's threads exceeds
    it.
    """
    dbbench.plan(
        limited(
            "256MiB",
            measure="6s",
            clients=8,
            scale=1,
            limit={"iops": [200, 2000], "price": [1, 4]},
        )
    )
    dbbench("run", "plan.toml", "--name", "r")
    trials = {trial["limit"]["asked"]["iops"]: trial for trial in dbbench.trials().values()}
    assert sorted(trials) == [200, 2000]
    assert {trial["limit"]["enforced"] for trial in trials.values()} <= {"cgroup v1", "cgroup v2"}
    slow = trials[200]
    rows = {row["name"]: row["iops"] for row in slow["limit"]["rows"]}
    assert rows.keys() == {"read_8k", "write_8k"} and all(
        180 < iops < 220 for iops in rows.values()
    )
    writes = next(
        rate
        for rate in slow["ceiling"]["rates"]
        if (rate["side"], rate["unit"]) == ("writes", "IOPS")
    )
    assert writes["median"] < 220
    assert slow["summary"]["tps_per_price"] == pytest.approx(slow["summary"]["tps"])
    assert slow["summary"]["tps"] < trials[2000]["summary"]["tps"]
    page = (dbbench.folder / "results/r/report.html").read_text()
    assert (
        "a model: 200 IOPS, reads and writes each, by cgroup" in page and "tx/s per price" in page
    )
    assert not {"200", "2000"} & set(throttled().split())


@pytest.mark.alone
def test_the_smallest_volume_for_a_rate(dbbench: Any) -> None:
    """60 requests per second cannot be 100 commits, 2000 can: the answer is known. The same command
    measures nothing again.
    """
    levels = [{"name": f"v{iops}", "iops": iops} for iops in (20, 60, 2000)]
    dbbench.plan(limited("256MiB", clients=4, scale=2, limit={"levels": levels}))
    words = ("size", "plan.toml", "--rate", "100", "--json")
    found = json.loads(dbbench(*words).stdout)
    (setup,) = found["setups"]
    assert setup["smallest"] == "model-v2000"
    held = {level["limit"]["label"]: level["held"] for level in setup["levels"]}
    assert held == {"v60": 0, "v2000": 1}
    page = Path(found["report"]).read_text()
    assert "The model of the v2000 volume holds 100 tx/s on ext4" in page
    assert json.loads(dbbench(*words).stdout) == found


def two_levels(first: int, second: int) -> str:
    """A plan whose volumes have that many IOPS."""
    levels = [{"name": f"v{iops}", "iops": iops} for iops in (first, second)]
    return limited("256MiB", clients=4, scale=1, limit={"levels": levels})


def test_no_volume_keeps_the_rate(dbbench: Any) -> None:
    """Four sessions commit at most 240 times in 60 requests; the exit status is 4."""
    dbbench.plan(two_levels(20, 60))
    found = dbbench("size", "plan.toml", "--rate", "1000", status=4).stdout
    assert "No level of the plan is enough for ext4." in found


def test_the_smallest_volume_keeps_the_rate(dbbench: Any) -> None:
    """One trial is enough."""
    dbbench.plan(two_levels(2000, 4000))
    found = dbbench("size", "plan.toml", "--rate", "5").stdout
    assert "holds 5 tx/s on ext4, and is the smallest of the plan" in " ".join(found.split())
    assert "ext4   v2000  1 of 1" in found and "v4000" not in found


def test_a_search_needs_the_space_of_few_trials(dbbench: Any) -> None:
    """300 levels in 20 blocks are 6000 trials, of which a bisection runs 49."""
    device = {"size": "900TiB", "limit": {"iops": [*range(100, 400)]}}
    dbbench.plan(plan(blocks=20, device=device))
    refused = dbbench("size", "plan.toml", "--rate", "100", status=2).stderr
    assert "error E203" in refused and re.search(r"results [0-9.]+ MiB", refused)


def test_a_burst_is_spent(loop_device: Device, tmp_path: Path) -> None:
    """The kernel grants its rate first, and the lasting one after it, to direct writes one by one."""
    limit = DeviceLimit(iops=40, burst_iops=400, burst_s=1)
    buffer = mmap.mmap(-1, 4096)
    seconds = list[float]()
    journal = Journal(tmp_path / "journal")
    with (
        throttle.limit_disks([loop_device.number], limit, journal, tmp_path),
        open_fd(loop_device.path, os.O_WRONLY | os.O_DIRECT) as fd,
    ):
        began = time.monotonic()
        while not seconds or seconds[-1] < 3:
            os.pwritev(fd, [buffer], 2**20)
            seconds.append(time.monotonic() - began)
    first = sum(second < 0.9 for second in seconds)
    last = sum(second > 1.6 for second in seconds)
    assert first > 3 * last and 40 <= last <= 75, (first, last)
    assert journal.outstanding("throttle") == []


def test_limits_of_a_killed_run_are_removed(dbbench: Any) -> None:
    """After a SIGKILL, `clean` removes the control group, and the rule for the loop device, which
    would slow down its next owner.
    """
    # It is killed after the first second, however late that is read.
    dbbench.plan(limited(measure="10s", scale=1, limit={"iops": 1234}))
    during: list[tuple[int, str]] = []

    def kill(pid: int) -> None:
        during.append((len([*groups_of(dbbench.folder)]), throttled()))
        os.kill(pid, signal.SIGKILL)

    dbbench.run_and("plan.toml", dbbench.in_window, kill)
    ((groups, limits),) = during
    assert groups == 1
    assert " 1234\n" in limits or "riops=1234" in limits
    dbbench("clean", "r")
    assert [*groups_of(dbbench.folder)] == []
    assert "1234" not in throttled()


def test_client_on_the_servers_core_is_named(dbbench: Any) -> None:
    """It is done as asked, and the trial carries W039."""
    trial = dbbench.trial(limited("256MiB", cpus={"cpus_server": "0", "cpus_client": "0"}))
    assert any(w["id"] == "W039" and "load generator on 0" in w["text"] for w in trial["warnings"])


def test_load_generator_at_its_limit_makes_the_trial_suspect(dbbench: Any) -> None:
    """Cached single-row reads of eight sessions by one thread of pgbench: it is what is
    measured.
    """
    text = limited(memory="256MiB", name="pgbench-select-only", scale=8, clients=8, threads=1)
    trial = dbbench.trial(text)
    told = [w for w in trial["warnings"] if w["id"] == "W016"]
    # on a busy machine it may not get that far
    assert bool(told) == (trial["cores"]["client_share"] > 0.8)
    assert all(w["suspect"] and "%" in w["text"] for w in told)


def test_cores_that_the_machine_lacks_are_reported_before_anything_is_done(dbbench: Any) -> None:
    """E213, exit 2, and no run folder."""
    dbbench.plan(limited(cpus={"cpus_server": "4096"}))
    done = dbbench("run", "plan.toml", "--name", "r", status=2)
    assert "E213" in done.stderr and "4096" in done.stderr
    assert not (dbbench.folder / "results").exists()


@pytest.mark.needs("engine:mariadb")
def test_a_low_limit_of_open_files(dbbench: Any) -> None:
    """Refused with the command that raises it, and no run folder; with smaller settings, which the
    server that builds the dataset has too, it runs.
    """
    load = {"name": "sysbench-oltp-insert", "tables": 1, "table_size": 100, "clients": 1}

    def run(engine: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        dbbench.plan(plan("ext4", engine, load, device={"size": "1GiB"}))
        limited = [
            "sh",
            "-c",
            'ulimit -Sn 512; ulimit -Hn 1024; exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "dbbench",
        ]
        words = [*limited, "run", "plan.toml", "--name", "r"]
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            cwd=dbbench.folder,
            env=dbbench.env,
            check=False,
            timeout=HANGS_S,
        )

    refused = run({"name": "mariadb"})
    assert (
        refused.returncode == 2 and "E213" in refused.stderr and "ulimit -Hn 4332" in refused.stderr
    )
    assert not (dbbench.folder / "results").exists()
    assert (
        run(
            {"name": "mariadb", "settings": {"table_open_cache": 300, "max_connections": 100}}
        ).returncode
        == 0
    )
    (trial,) = dbbench.trials().values()
    assert trial["effective_settings"]["table_open_cache"] == "300"
