"""Long variants of tests, for `make soak`."""

import os
import random
import signal
import time
from typing import Any

import pytest

from tests.support.leftovers import GONE_S, left_of, namespaces_of
from tests.support.plans import plan

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("root", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "engine:postgres"),
]


TPCB = {"name": "pgbench-tpcb", "scale": 1}


def test_killed_at_any_moment_nothing_is_left_and_nothing_finished_is_lost(dbbench: Any) -> None:
    """SIGKILL, SIGTERM and SIGINT at random moments: all gone in time, finished trials as they
    were, then resumed.
    """
    rng = random.Random(int(os.environ.get("DBBENCH_SOAK_SEED", "1")))
    dbbench.plan(plan(["ext4", "xfs", "btrfs"], workload=TPCB, blocks=2, measure="2s"))
    for number in range(int(os.environ.get("DBBENCH_SOAK_ROUNDS", "40"))):
        how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        name = f"r{number // 5}"  # each run is stopped five times on its way
        before = {
            path: path.stat().st_mtime_ns
            for path in dbbench.folder.glob("results/*/trials/[!.]*/trial.json")
        }
        child = dbbench.start("run", "plan.toml", "--name", name, "--progress", "none")
        time.sleep(delay_s := rng.uniform(0.1, 9.0))
        with namespaces_of(child.pid) as namespaces:
            child.send_signal(how)
            child.communicate(timeout=300)
            assert left_of(dbbench.folder, namespaces, within_s=GONE_S) == [], (
                f"round {number}, {how.name}"
            )
        assert all(path.stat().st_mtime_ns == written for path, written in before.items())
        # 1: a trial without a transaction in its short window, or SIGINT while Python starts (see
        # test_moments)
        starting = how is signal.SIGINT and delay_s < 2.0
        assert child.returncode in (
            0,
            -how,
            130,
            143,
            *([1] if dbbench.stalled(name) or starting else []),
        )
    dbbench("run", "plan.toml", "--name", "r0", status=None)
    assert len(dbbench.trials("r0")) == 6


def test_same_filesystem_twice_is_never_called_different(dbbench: Any) -> None:
    """A/A: ext4 against ext4, twenty sets of five blocks; at 95 % one or two intervals may exclude
    1, not four.
    """
    dbbench.plan(
        plan(["ext4", {"use": "ext4", "label": "ext4-b"}], workload=TPCB, blocks=5, measure="2s")
    )
    wrong = 0
    for number in range(20):
        # A trial may fail if the machine stalls during all of its window; its block is then left
        # out.
        dbbench("run", "plan.toml", "--name", f"aa{number}", "--seed", str(number + 1), status=None)
        rows = dbbench.compared(f"aa{number}")
        wrong += next(row["verdict"] for row in rows if row["fs_setup"] == "ext4-b") in (
            "faster",
            "slower",
        )
    assert wrong <= 3
