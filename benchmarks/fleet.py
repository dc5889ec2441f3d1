"""What a fleet costs: the coordinator with 200 made-up hosts, 16 real workers with trials of 1 s, a
worker in a window.

The trials of the workers are simulated: their shares sleep and publish. Prints each figure next
to its target; exits with 1 if a target is missed.

    python benchmarks/fleet.py [many|real|quiet ..]       # default all: about five minutes
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from dbbench import __version__
from dbbench.fleet import fleet_files, security
from dbbench.fleet.connection import Connection
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.dealing import first_blocks
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.host_folder import HostFolder
from dbbench.fleet.launch import free_address
from dbbench.fleet.messages import Assignment
from dbbench.model import (
    Arm,
    Cell,
    Dataset,
    EngineSpec,
    FsSetup,
    Mkfs,
    Plan,
    Run,
    TrialSpec,
    Window,
    Workload,
    WorkloadSpec,
)
from dbbench.model.events import ignore

CPU_MS: Final = 5.0  # CPU time of the coordinator per trial
IDEAL: Final = 1.1  # wall time ÷ time of the trials alone
# the same for trials of a second: the end of a trial is noticed after up to 0.2 s
IDEAL_OF_A_SECOND: Final = 1.3
# growth of the coordinator's memory, from a tenth of the trials to the last
GROWTH_KB: Final = 60_000
CORE: Final = 0.005  # share of a core that a worker uses in a window
WINDOW_S: Final = 60.0
ASSIGNMENT: Final = Assignment(
    "",
    b"",
    "# plan\n",
    {},
    (),
    __version__,
)


def plan_run(blocks: int, trial_s: float) -> Run:
    """Return a run with two arms; a trial lasts `trial_s`."""
    workload = Workload(
        "TPC-B",
        "pgbench",
        ("postgres",),
        {"kind": "pgbench"},
        name="w",
    )
    cells = tuple(
        Cell(
            f"{arm}.postgres.w",
            arm,
            FsSetup(arm, Mkfs(arm), name=arm),
            EngineSpec("postgres"),
            workload,
            {},
            Dataset("pgbench", {}),
            Window("fixed", 0, trial_s),
        )
        for arm in ("ext4", "xfs")
    )
    order = tuple(
        TrialSpec(
            f"{cell.id}-b{block}-a1",
            cell.id,
            block,
            1,
            2 * block + i - 1,
        )
        for block in range(1, blocks + 1)
        for i, cell in enumerate(cells)
    )
    plan = Plan(
        "p",
        (Arm("ext4", "ext4"), Arm("xfs", "xfs")),
        (EngineSpec("postgres"),),
        (WorkloadSpec("w"),),
        blocks=blocks,
        repeat_suspect=False,
    )
    return Run(
        "f",
        "2026-01-01T00:00:00Z",
        plan,
        "cafe",
        cells,
        order,
    )


def made(results: Path, run: Run, hosts: list[str]) -> Fleet:
    """Create a fleet of those hosts."""
    fleet = Fleet(
        "f", "spread", run.created, run.plan_sha256, first_blocks(run.order, hosts, "spread")
    )
    fleet_files.save(results, fleet)
    fleet_files.create_runs(results, fleet, run, "# plan\n", {})
    return fleet


def held(
    text: str,
    value: float,
    limit: float,
    unit: str = "",
) -> bool:
    """Print a figure next to its target; return whether the target is met."""
    print(
        f"  {text:<58} {value:10.3f}{unit}  ≤ {limit:g}{'' if value <= limit else '  MISSED'}",
        flush=True,
    )
    return value <= limit


# --- 200 hosts
#   -------------------------------------------------------------------------------------


def many(folder: Path) -> bool:
    """Run 200 simulated hosts x 100 trials of 10 s, on a simulated clock."""
    from tests.support.fleet_hosts import TRIAL_S, Hosts

    print("200 hosts x 100 trials, made up")
    names = [f"h{number:03d}" for number in range(200)]
    hosts = Hosts(names, folder / "hosts")
    coordinator = Coordinator(
        folder,
        made(folder, plan_run(10_000, TRIAL_S), names),
        hosts,
        ASSIGNMENT,
        ignore,
        clock=hosts.clock,
    )
    began = hosts.clock()
    before = hosts.own_s
    early = 0
    while any(host.open for host in coordinator.hosts.values()):
        coordinator.step()
        if not early and sum(len(host.taken) for host in coordinator.hosts.values()) >= 2000:
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early
    return all(
        [
            held(
                "coordinator's CPU a trial", 1000 * (hosts.own_s - before) / 20_000, CPU_MS, " ms"
            ),
            held(
                "its memory's growth after 2000 trials (hosts' own included)",
                grown,
                GROWTH_KB,
                " kB",
            ),
            held("time ÷ ideal", (hosts.clock() - began) / (100 * TRIAL_S), IDEAL),
        ]
    )


# --- real workers
#   ----------------------------------------------------------------------------------


@contextlib.contextmanager
def workers(folder: Path, count: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and workers with simulated trials; yield (address, worker processes)."""
    address = free_address()
    certs = str(security.make(folder / "certs"))
    me = [sys.executable, __file__]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    scheduler = [
        sys.executable,
        "-m",
        "dbbench",
        "fleet",
        "scheduler",
        "--listen",
        address,
        "--certs",
        certs,
    ]
    started = [subprocess.Popen(scheduler, env=env)]
    started += [
        subprocess.Popen([*me, "worker", address, certs, str(folder / f"w{number:02d}")], env=env)
        for number in range(count)
    ]
    try:
        yield address, started[1:]
    finally:
        for popen in reversed(started):
            popen.terminate()
        for popen in started:
            popen.wait(30)


def real(folder: Path) -> bool:
    """Run 16 workers x 100 trials of 1 s, all on this machine."""
    print("16 real workers x 100 trials of 1 s")
    with workers(folder / "hosts", 16) as (address, _):
        connection = Connection(address, folder / "hosts/certs")
        names = sorted(connection.wait_for_hosts(lambda found: len(found) == 16, 120))
        fleet = made(folder, plan_run(800, 1.0), names)
        coordinator = Coordinator(
            folder,
            fleet,
            connection,
            ASSIGNMENT,
            ignore,
        )
        began = time.monotonic()
        cpu = time.process_time()
        coordinator.work()
        took = time.monotonic() - began
        own = time.process_time() - cpu
        connection.close()
    home = len(list((folder / "f/trials").glob("[!.]*")))
    return all(
        [
            held("trials that were not collected", 1600 - home, 0),
            held(
                "coordinator's CPU a trial, engine included",
                1000 * own / 1600,
                CPU_MS,
                " ms",
            ),
            held("time ÷ ideal", took / 100, IDEAL_OF_A_SECOND),
        ]
    )


def quiet(folder: Path) -> bool:
    """Measure the CPU time of a worker in a window of its host, including questions, and of an idle
    dask worker.
    """
    print(f"a worker in a window of {WINDOW_S:.0f} s")
    with workers(folder / "hosts", 1) as (address, popen):
        connection = Connection(address, folder / "hosts/certs")
        names = sorted(connection.wait_for_hosts(lambda found: len(found) == 1, 60))
        run = dataclasses.replace(
            plan_run(1, WINDOW_S + 20), order=plan_run(1, WINDOW_S + 20).order[:1]
        )
        coordinator = Coordinator(
            folder,
            made(folder, run, names),
            connection,
            ASSIGNMENT,
            ignore,
        )
        state = HostFolder(folder / "hosts" / names[0] / "f")
        while not state.path.is_dir() or state.state().phase != "measure":
            coordinator.step()
        until = time.monotonic() + 5
        while time.monotonic() < until:
            coordinator.step()
        began = time.monotonic()
        before = _cpu_s(popen[0].pid)
        while time.monotonic() - began < WINDOW_S:
            coordinator.step()
        share = (_cpu_s(popen[0].pid) - before) / (time.monotonic() - began)
        ours = folder / "hosts/certs"
        tls = [
            "--tls-ca-file",
            ours / security.CA,
            "--tls-cert",
            ours / security.CERT,
            "--tls-key",
            ours / security.KEY,
        ]
        other = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                address,
                "--no-dashboard",
                "--nthreads",
                "1",
                "--no-nanny",
                *tls,
            ],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(8)
        began = time.monotonic()
        before = _cpu_s(other.pid)
        time.sleep(20)
        default = (_cpu_s(other.pid) - before) / (time.monotonic() - began)
        other.terminate()
        other.wait(30)
        coordinator.work()
        connection.close()
    print(f"  {'of a core, dask worker as it comes, idle':<58} {100 * default:10.3f} %")
    return held("of a core, dbbench fleet worker", 100 * share, 100 * CORE, " %")


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def worker(address: str, certs: str, results: str) -> None:
    """Run a worker whose share simulates trials."""
    from dbbench.fleet import daemons
    from dbbench.fleet.host import HERE

    HERE.share = (sys.executable, str(Path(__file__).with_name("fleet_share.py").resolve()))
    daemons.work(address, Path(results).name, Path(results), Path(certs), None)


PARTS: Final = {"many": many, "real": real, "quiet": quiet}


def main() -> int:
    """Run the benchmarks; return 1 if a target is missed."""
    match sys.argv[1:]:
        case ["worker", address, certs, results]:
            worker(address, certs, results)
            return 0
    kept = []
    memory = Path("/dev/shm")  # fsync is free there, so that only the fleet is measured
    for name in sys.argv[1:] or list(PARTS):
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            kept.append(PARTS[name](Path(folder)))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
