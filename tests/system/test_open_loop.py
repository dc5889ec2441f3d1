"""A load with a rate during a stall: latency is measured from the schedule, not from a free
session.
"""

import contextlib
import gzip
import json
import math
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from dbbench.drivers.sysbench import histogram
from tests.support.leftovers import below
from tests.support.plans import plan
from tests.system.conftest import Dbbench

STALL_S: Final = 5.0
# the stall must end within the window, also on a machine that is itself stopped meanwhile
MEASURE_S: Final = 14


def stall(run: int) -> None:
    """Stop the PostgreSQL processes below the run for STALL_S."""
    servers = below(run, "postgres")
    assert servers
    for how in (signal.SIGSTOP, signal.SIGCONT):
        for process in servers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(how)
        time.sleep(STALL_S if how is signal.SIGSTOP else 0)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> Dbbench:
    """A run of two trials, whose server stands still for five of fourteen seconds in each."""
    dbbench: Dbbench = dbbench_in(tmp_path_factory.mktemp("stalled"))
    loads = [
        {"name": "pgbench-select-only", "scale": 1, "clients": 2, "rate": 50},
        {
            "name": "sysbench-oltp-point-select",
            "tables": 1,
            "table_size": 2000,
            "clients": 2,
            "rate": 50,
        },
    ]
    text = plan("ext4", "postgres", loads, warmup=0, measure=MEASURE_S)
    child = dbbench.start("run", dbbench.plan(text), "--name", "r", "--progress", "json")
    assert child.stderr is not None
    due = True
    stalls = 0
    for line in child.stderr:
        event = json.loads(line) if line.startswith("{") else {"kind": ""}
        if event["kind"] == "trial_end":
            due = True
        elif due and event["kind"] == "second" and event["data"]["phase"] == "measure":
            due = False
            stalls = stalls + 1
            stall(child.pid)
    child.communicate(timeout=300)
    assert stalls == 2
    return dbbench


@pytest.mark.needs("root", "engine:postgres", "sysbench")
@pytest.mark.parametrize("workload", ["pgbench-select-only", "sysbench-oltp-point-select"])
def test_p95_counts_from_the_schedule(stalled: Dbbench, workload: str) -> None:
    """Five of fourteen seconds' transactions waited, evenly up to 5 s: p95 is about 4.3 s. A closed
    load's would be of milliseconds, for two transactions alone met the stall.
    """
    trial = next(trial for trial in stalled.trials().values() if trial["workload"] == workload)
    assert trial["error"] is None
    assert 1000 * (STALL_S - 2) < trial["summary"]["p95_ms"] < 1000 * MEASURE_S
    # A closed load would have those of nine seconds. On a busy machine some of the schedule end
    # after the window.
    assert 50 * (MEASURE_S - STALL_S + 1) < trial["summary"]["transactions"] < 50 * MEASURE_S * 1.4
    assert trial["summary"]["longest_stall_s"] >= STALL_S - 2


@pytest.mark.needs("root", "engine:postgres", "sysbench")
def test_p95_is_that_of_every_transaction(stalled: Dbbench) -> None:
    """Within 1 % of the nearest rank of the raw logs' latencies; those that ended within
    milliseconds of one end of the window may be counted or not, because the logs are written
    with the system clock. Of sysbench, which gives the wait in its queue only in buckets of 1.8
    % and of the whole run, between the values that it has if the events outside of the window
    were the slowest ones and if they were the fastest.
    """
    trials = {trial["workload"]: trial for trial in stalled.trials().values()}
    for workload, trial in trials.items():
        raw = Path(stalled.folder, "results/r/trials", trial["id"], "raw")
        if workload.startswith("pgbench"):
            begin = datetime.fromisoformat(trial["anchor_utc"]).timestamp()
            rows = [
                list(map(int, line.split()[2:6]))
                for log in raw.glob("pgbench_log.*.gz")
                for line in gzip.decompress(log.read_bytes()).decode().splitlines()
            ]
            ended = [(s + part / 1e6 - begin, us / 1000) for us, _, s, part in rows]
            doubtful = sum(min(abs(second), abs(second - MEASURE_S)) < 0.01 for second, _ in ended)
            took = sorted(ms for second, ms in ended if 0 <= second < MEASURE_S)
            rank = math.ceil(0.95 * len(took)) - 1
            low = took[rank - doubtful]
            high = took[min(rank + doubtful, len(took) - 1)]
            assert 0.99 * low <= trial["summary"]["p95_ms"] <= 1.01 * high
        else:
            counts = histogram((raw / "sysbench.out").read_text())
            waited = sorted(float(ms) for ms in counts.elements())
            inside = min(len(waited), int(trial["summary"]["transactions"]))
            rank = math.ceil(0.95 * inside) - 1
            outside = len(waited) - inside
            twice = 2 + math.ceil(0.005 * len(waited))
            slowest_outside = waited[rank - twice]
            fastest_outside = waited[min(rank + outside + twice, len(waited) - 1)]
            assert 0.97 * slowest_outside < trial["summary"]["p95_ms"] < 1.03 * fastest_outside
