"""What a fleet costs: 16 real workers with simulated trials, and an idle worker.

The parts sleep and publish. Prints each figure next to its target; exits with 1 if a
target is missed.

    python benchmarks/fleet.py [real|quiet ..]       # default both: about four minutes
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from dbbench.errors import FleetUnreachable
from dbbench.fleet import security
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.parts import Given, blocks_of
from dbbench.fleet.scheduler import Scheduler
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

CPU_MS: Final = 50.0  # CPU time of the coordinator and its client per trial
# wall time ÷ time of the trials alone: a host gets its next part within a second
IDEAL: Final = 1.5
CORE: Final = 0.005  # share of a core that an idle worker uses
HOSTS: Final = 16
BLOCKS: Final = 80
TRIAL_S: Final = 10.0
WINDOW_S: Final = 60.0


def plan_run(blocks: int, trial_s: float) -> Run:
    """Return a run with two arms; a trial lasts `trial_s`."""
    workload = Workload("TPC-B", "pgbench", ("postgres",), {"kind": "pgbench"}, name="w")
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
        TrialSpec(f"{cell.id}-b{block}-a1", cell.id, block, 1, 2 * block + i - 1)
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
    return Run("f", "2026-01-01T00:00:00Z", plan, "cafe", cells, order)


def held(text: str, value: float, limit: float, unit: str = "") -> bool:
    """Print a figure next to its target; return whether the target is met."""
    missed = "" if value <= limit else "  MISSED"
    print(f"  {text:<58} {value:10.3f}{unit}  ≤ {limit:g}{missed}", flush=True)
    return value <= limit


@contextlib.contextmanager
def workers(folder: Path, count: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and workers with simulated trials; yield (address, worker processes)."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tls://127.0.0.1:{probe.getsockname()[1]}"
    certs = str(security.make(folder / "certs"))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    words = ["-m", "dbbench", "fleet", "scheduler", "--listen", address, "--certs", certs]
    started = [subprocess.Popen([sys.executable, *words], env=env)]
    for number in range(count):
        own = [__file__, "worker", address, certs, str(folder / f"w{number:02d}")]
        started.append(subprocess.Popen([sys.executable, *own], env=env))
    try:
        yield address, started[1:]
    finally:
        for popen in reversed(started):
            popen.terminate()
        for popen in started:
            popen.wait(120)


def connected(address: str, certs: Path, count: int) -> tuple[Scheduler, list[str]]:
    """Return a connection and the names of the hosts, as soon as all are there."""
    while True:
        # It starts beside its workers, on a busy machine for longer than a client waits.
        with contextlib.suppress(FleetUnreachable):
            scheduler = Scheduler(address, certs, "f")
            break
    while len(hosts := scheduler.hosts()) < count:
        time.sleep(0.5)
    return scheduler, sorted(hosts)


def real(folder: Path) -> bool:
    """Run blocks of two trials on 16 workers, all on this machine."""
    print(f"{HOSTS} real workers, {BLOCKS} blocks of two trials of {TRIAL_S:.0f} s")
    run = plan_run(BLOCKS, TRIAL_S)
    with workers(folder / "hosts", HOSTS) as (address, _):
        scheduler, names = connected(address, folder / "hosts/certs", HOSTS)
        fleet = Fleet("f", "spread", run.created, run.plan_sha256, tuple(names))
        given = Given("# plan\n", {})
        coordinator = Coordinator(folder, fleet, blocks_of(run), run, given, ignore)
        began = time.monotonic()
        cpu = time.process_time()
        coordinator.work(scheduler)
        took = time.monotonic() - began
        own = time.process_time() - cpu
        scheduler.close()
    collected = len(list((folder / "f/trials").glob("[!.]*")))
    trials = 2 * BLOCKS
    figures = [
        held("trials that were not collected", trials - collected, 0),
        held("coordinator's CPU a trial, client included", 1000 * own / trials, CPU_MS, " ms"),
        held("time ÷ ideal", took / (trials * TRIAL_S / HOSTS), IDEAL),
    ]
    return all(figures)


def quiet(folder: Path) -> bool:
    """Measure the CPU time of an idle worker of dbbench."""
    print(f"an idle worker for {WINDOW_S:.0f} s")
    with workers(folder / "hosts", 1) as (address, popen):
        scheduler, _names = connected(address, folder / "hosts/certs", 1)
        time.sleep(5)
        before = _cpu_s(popen[0].pid)
        time.sleep(WINDOW_S)
        share = (_cpu_s(popen[0].pid) - before) / WINDOW_S
        scheduler.close()
    return held("of a core, dbbench fleet worker", 100 * share, 100 * CORE, " %")


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def worker(address: str, certs: str, results_folder: str) -> None:
    """Run a worker whose parts are simulated."""
    from fleet_share import simulate

    from dbbench.fleet import daemons, task

    task.run_share = simulate
    folder = Path(results_folder)
    daemons.work(address, folder.name, folder, Path(certs), None)


PARTS: Final = {"real": real, "quiet": quiet}


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
