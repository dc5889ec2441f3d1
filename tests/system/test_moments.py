"""SIGINT, SIGTERM and SIGKILL at random moments of every phase: nothing is left behind, nothing
else is touched.

One moment of each kind with three runs at the same time, half of them in `make test` and the
others in `make test-all`; the soak tests two hundred. DBBENCH_SOAK_SEED chooses other moments.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.results.trials import damage
from tests.support.leftovers import GONE_S, left_of, loops_of, namespaces_of
from tests.support.plans import plan

pytestmark = pytest.mark.needs(
    "root",
    "mkfs.ext4",
    "mkfs.xfs",
    "fs:ext4",
    "fs:xfs",
    "engine:postgres",
    "sadf",
)

SEED = int(os.environ.get("DBBENCH_SOAK_SEED", "1"))
# Where a signal is aimed: an event's kind, or a phase. Between trials and at the end, too.
AIMS = (
    "begin",
    "prepare",
    "canary",
    "mkfs",
    "mount",
    "restore",
    "settle",
    "drop_cache",
    "start",
    "warmup",
    "measure",
    "drain",
    "stop",
    "check",
    "space",
    "operations",
    "trial_end",
    "run_end",
)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
STOPPED_S = 300.0  # a clean stop, which takes a second or two on an idle machine
LANES = 3


@dataclass(frozen=True)
class Moment:
    """When a run gets which signal."""

    aim: str
    delay_s: float
    how: signal.Signals
    trial: int  # in which of the run's trials

    def __str__(self) -> str:
        return (
            f"{self.how.name} {1000 * self.delay_s:.0f} ms after {self.aim} of trial {self.trial}"
        )


def moments(number: int, seed: int) -> list[Moment]:
    """So many, over all aims by turns."""
    draw = random.Random(seed)
    made = [
        Moment(
            AIMS[i % len(AIMS)],
            draw.choice([0.0, draw.uniform(0, 0.05), draw.uniform(0, 1.0)]),
            draw.choice(SIGNALS),
            draw.choice([1, 1, 2]),
        )
        for i in range(number)
    ]
    draw.shuffle(made)
    return made


def reaches(event: dict[str, Any], moment: Moment, trial: int) -> bool:
    """Whether the event is the one that the signal is aimed at."""
    if event["kind"] == "phase_begin":
        return bool(event["data"]["phase"] == moment.aim) and trial >= moment.trial
    return bool(event["kind"] == moment.aim)


def stopped_at(
    dbbench: Any,
    name: str,
    moment: Moment,
) -> tuple[int, list[str]]:
    """Start or resume the run and send the signal; its exit status, and what is left of it when its
    time is over.
    """
    child = dbbench.start("run", "plan.toml", "--name", name, "--progress", "json")
    assert child.stderr is not None
    trial = 0
    if moment.aim != "begin":
        for line in child.stderr:
            event = json.loads(line) if line.startswith("{") else {"kind": "", "data": {}}
            trial = event["data"].get("position", trial)
            if reaches(event, moment, trial):
                break
    time.sleep(moment.delay_s)
    with namespaces_of(child.pid) as namespaces:
        child.send_signal(moment.how)
        child.communicate(timeout=STOPPED_S)
        return child.returncode, left_of(dbbench.folder, namespaces, within_s=GONE_S)


def whole(folder: Path) -> dict[str, int]:
    """Finished trials and when their results were written; each is whole."""
    found = {}
    for trial in folder.glob("results/*/trials/[!.]*"):
        assert damage(trial) == [], trial
        found[str(trial)] = (trial / "trial.json").stat().st_mtime_ns
    return found


def lane(dbbench: Any, todo: list[Moment]) -> None:
    """One run after the other gets its signals, each several; at last all is resumed to its end."""
    server = {"name": "postgres", "settings": {"shared_buffers": "16MB"}}
    dbbench.plan(
        plan(["ext4", "xfs"], server, measure="1s", operations=["fsck"], device={"size": "384MiB"})
    )
    # what follows is reached, too
    todo.sort(key=lambda moment: (moment.aim in ("trial_end", "run_end"), moment.trial))
    for number, moment in enumerate(todo):
        name = f"r{number // 4}"
        before = whole(dbbench.folder)
        status, left = stopped_at(dbbench, name, moment)
        assert left == [], f"{moment}: {left}"
        # If SIGINT arrives while Python starts, it ends with status 1 before it runs any code of
        # dbbench.
        expected = (
            0,
            130,
            143,
            -moment.how,
            *([1] if moment.aim == "begin" or dbbench.stalled(name) else []),
        )
        assert status in expected, f"{moment}: exit {status}"
        assert whole(dbbench.folder).items() >= before.items(), moment
    done = dbbench("run", "plan.toml", "--name", "r0", "--progress", "none", status=None)
    assert done.returncode == dbbench.stalled("r0"), done.stderr
    order = [spec["id"] for spec in dbbench.spec("r0")["order"]]
    assert set(dbbench.trials("r0")) == set(order), done.stderr
    dbbench("clean")
    assert list(dbbench.folder.rglob("*.img")) == []


@pytest.fixture
def bystanders(tmp_path: Path) -> Iterator[None]:
    """Yield another user's server, filesystem, loop device and shared memory; they must be
    unchanged at the end.
    """
    (tmp_path / "theirs").mkdir()
    image = tmp_path / "theirs/disk"
    at = tmp_path / "theirs/mnt"
    image.touch()
    os.truncate(image, 64 * 2**20)
    at.mkdir()
    loop = subprocess.run(
        ["losetup", "--find", "--show", image],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    subprocess.run(["mkfs.ext4", "-q", loop], check=True)
    subprocess.run(["mount", loop, at], check=True)
    (at / "data").write_text("theirs")
    shared = Path(f"/dev/shm/PostgreSQL.{os.getpid()}")
    shared.write_text("theirs")
    server = subprocess.Popen(
        ["bash", "-c", f"exec -a postgres sleep infinity < {at}/data"], start_new_session=True
    )
    try:
        yield
        assert server.poll() is None
        assert (at / "data").read_text() == shared.read_text() == "theirs"
    finally:
        server.kill()
        server.wait()
        shared.unlink()
        subprocess.run(["umount", at], check=True)  # nobody holds it up
        subprocess.run(["losetup", "-d", loop], check=True)
    # The kernel detaches it later if something, for example udev, has it open.
    assert process.wait_while(lambda: loops_of(tmp_path / "theirs"), GONE_S) == []


def all_lanes(
    folder: Path,
    dbbench_in: Any,
    todo: list[Moment],
    lanes: int,
) -> None:
    """The moments dealt to so many runs beside each other."""
    folders = [folder / f"lane{number}" for number in range(lanes)]
    for each in folders:
        each.mkdir()
    with ThreadPoolExecutor(lanes) as pool:
        ends = [
            pool.submit(lane, dbbench_in(each), todo[number::lanes])
            for number, each in enumerate(folders)
        ]
        for end in ends:
            end.result()


@pytest.mark.parametrize(
    "first",
    [0, pytest.param(1, marks=pytest.mark.long)],
    ids=["half", "rest"],
)
def test_stopped_at_any_moment_nothing_is_left(
    first: int,
    tmp_path: Path,
    dbbench_in: Any,
    bystanders: None,
) -> None:
    """Every other moment, of one for each aim; others' server, mount and shared memory stay as they
    are.
    """
    all_lanes(tmp_path, dbbench_in, moments(len(AIMS), SEED)[first::2], LANES)


@pytest.mark.soak
def test_stopped_at_two_hundred_moments_nothing_is_left(
    tmp_path: Path,
    dbbench_in: Any,
    bystanders: None,
) -> None:
    """DBBENCH_SOAK_MOMENTS of them, one run at a time, so that each has the machine's own timing."""
    all_lanes(
        tmp_path,
        dbbench_in,
        moments(int(os.environ.get("DBBENCH_SOAK_MOMENTS", "200")), SEED + 1),
        1,
    )
