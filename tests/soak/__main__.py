"""Trials back to back, each with a fault of chance or with none, until the time is over.

    sudo .venv/bin/python -m tests.soak --hours 24
    sudo .venv/bin/python -m tests.soak --minutes 10 --seed 7

Each round prints a line. A round fails if something of dbbench is left behind, a finished trial
is incomplete or changes later, a trial with a fault is marked ok, or a trial without a fault
fails. The exit status is then 1, and the seed repeats the round.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dbbench.labs.powercut import unavailable
from tests.support.leftovers import GONE_S, left_of
from tests.support.plans import plan
from tests.support.planted_faults import failing_step
from tests.support.window_faults import FAULTS, images
from tests.system import test_sick_disk
from tests.system.conftest import Dbbench
from tests.system.test_moments import AIMS, SIGNALS, Moment, stopped_at, whole
from tests.system.test_steps import driven, finished

LOADS = (  # engine, workload, size of the device
    ("postgres", {"name": "pgbench-tpcb", "scale": 1, "threads": 2, "clients": 2}, "512MiB"),
    (
        "mariadb",
        {"name": "sysbench-oltp-read-write", "tables": 1, "table_size": 2000, "clients": 2},
        "1GiB",
    ),
)
SETUPS = ("ext4", "xfs", "btrfs")
STEPS = 250  # a run has some two hundred process starts and some sixty writes


class Wrong(Exception):
    """What was not as it must be."""


class Soak:
    """One folder of results after the other; `before` is what was finished."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder = folder
        self.draw = draw
        self.number = 0
        env = {**os.environ, "DBBENCH_CACHE": str(folder / "cache"), "NO_COLOR": "1"}
        (folder / "cache").mkdir()
        self.env = env
        self.dbbench = Dbbench(folder, env)

    def round(self) -> str:
        """One run with its fault; what it was and what came of it. Wrong."""
        self.number += 1
        place = self.folder / f"round{self.number}"
        place.mkdir()
        self.dbbench = Dbbench(place, self.env)
        kinds = [
            self.quiet,
            self.fault,
            self.fault,
            self.disk,
            self.list_idle,
            self.list_idle,
            self.step,
        ]
        kind = self.draw.choice(
            [kind for kind in kinds if kind != self.disk or unavailable() is None]
        )
        said = kind()
        if left := left_of(place, within_s=GONE_S):
            raise Wrong(f"{said}: left {left}")
        whole(place)
        shutil.rmtree(place)
        return said

    def without_measurements(self, setup: str = "", engine: str = "") -> str:
        """A plan of chance; what it is."""
        name, workload, size = self.draw.choice([each for each in LOADS if engine in ("", each[0])])
        setup = setup or self.draw.choice(SETUPS)
        self.dbbench.plan(plan(setup, name, workload, measure="2s", device={"size": size}))
        return f"{setup} {name}"

    def quiet(self) -> str:
        """No fault: the trial does not fail."""
        said = self.without_measurements()
        done = driven(self.dbbench, {})
        found = finished(self.dbbench)
        if done.returncode != 0 or set(found.values()) - {"ok", "suspect"}:
            raise Wrong(f"{said}: exit {done.returncode}, {found}\n{done.stderr[-2000:]}")
        return f"{said}: no fault, {', '.join(found.values())}"

    def fault(self) -> str:
        """A fault in mid-window: no good trial."""
        name = self.draw.choice(sorted(FAULTS))
        setup, plant, marks, _ = FAULTS[name]
        said = self.without_measurements(setup, "postgres") + f": {name}"

        def do(pid: int) -> None:
            images[:] = list((self.dbbench.folder / "results/r").glob(".dbbench-*.img"))
            plant(pid)

        self.dbbench.run_and("plan.toml", self.dbbench.in_window, do)
        (status,) = finished(self.dbbench).values()
        if status not in marks.split():
            raise Wrong(f"{said}: {status}")
        return f"{said}, {status}"

    def disk(self) -> str:
        """A disk that fails or falls silent in mid-window: no good trial."""
        name = self.draw.choice(sorted(test_sick_disk.FAULTS))
        _, trial, told = test_sick_disk.on_a_sick_disk(self.dbbench, name)
        mark, ids = test_sick_disk.FAULTS[name][2:]
        if trial["status"] != mark or not told & ids:
            raise Wrong(f"ext4 postgres: {name}: {trial['status']}, {told}")
        return f"ext4 postgres: {name}, {mark}"

    def list_idle(self) -> str:
        """A signal at a moment of chance, then resumed."""
        moment = Moment(
            self.draw.choice(AIMS),
            self.draw.uniform(0, 1),
            self.draw.choice(SIGNALS),
            1,
        )
        said = f"{self.without_measurements()}: {moment}"
        status, left = stopped_at(self.dbbench, "r", moment)
        if left or status not in (0, 130, 143, -moment.how):
            raise Wrong(f"{said}: exit {status}, left {left}")
        before = whole(self.dbbench.folder)
        done = driven(self.dbbench, {})
        if done.returncode != 0 or not whole(self.dbbench.folder).items() >= before.items():
            raise Wrong(f"{said}: resumed with exit {done.returncode}\n{done.stderr[-2000:]}")
        return f"{said}, exit {status}, resumed"

    def step(self) -> str:
        """A process start or a write that fails."""
        kind = self.draw.choice(["start", "write"])
        at = self.draw.randint(1, STEPS)
        forever = self.draw.random() < 0.5
        said = f"{self.without_measurements()}: {kind} {at} fails{' for ever' if forever else ''}"
        env = failing_step(
            self.dbbench.folder / "plant",
            {"write": self.dbbench.folder / "results"},
            kind,
            at,
            forever,
        )
        done = driven(self.dbbench, env)
        if done.returncode not in (0, 1, 2, 5) or "Traceback" in done.stderr:
            raise Wrong(f"{said}: exit {done.returncode}\n{done.stderr[-2000:]}")
        return f"{said}, exit {done.returncode}"


def main() -> int:
    """Rounds until the time is over."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    until = (
        time.monotonic() + 3600 * given.hours + 60 * (given.minutes or (0 if given.hours else 10))
    )
    folder = Path(tempfile.mkdtemp(prefix="dbbench-soak-", dir="/var/tmp"))
    soak = Soak(folder, random.Random(given.seed))
    wrong = 0
    print(f"seed {given.seed}, in {folder}", flush=True)
    try:
        while time.monotonic() < until:
            began = time.monotonic()
            said, mark = attempt(soak.round)
            wrong += mark != "ok"
            print(f"{soak.number:5} {mark} {time.monotonic() - began:5.1f} s  {said}", flush=True)
    except KeyboardInterrupt:
        pass
    print(f"{soak.number} rounds, {wrong} wrong; seed {given.seed}")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


def attempt(work: Callable[[], str]) -> tuple[str, str]:
    """What a round printed, and "ok" or "WRONG"."""
    try:
        return work(), "ok"
    except (Wrong, AssertionError) as error:
        return str(error), "WRONG"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
