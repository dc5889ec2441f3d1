"""A long power-loss lab works in several processes, which end together."""

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dbbench.errors import DeadlinePassed, LabUnavailable, Terminated
from dbbench.labs.powercut import MEMORY_BYTES, Order, available_bytes
from dbbench.labs.powercut.processes import in_processes
from dbbench.model.events import Event
from tests.support.lab_runs import by_rows, lab, plan, torn, undisturbed
from tests.system.conftest import Dbbench

pytestmark = [pytest.mark.needs("root", "mkfs.ext4"), pytest.mark.usefixtures("nothing_left")]


@pytest.fixture
def three_processes() -> Iterator[None]:
    """Give a long lab two CPUs, so that it has three processes; skip a test where it has not."""
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2 or available_bytes() < 3 * MEMORY_BYTES:
        pytest.skip(f"needs two cores and {3 * MEMORY_BYTES // 2**30} GiB of available memory")
    os.sched_setaffinity(0, sorted(cpus)[:2])
    yield
    os.sched_setaffinity(0, cpus)


@pytest.mark.needs("engine:postgres", "engine:mariadb", "mkfs.xfs", "fs:xfs")
@pytest.mark.usefixtures("three_processes")
@pytest.mark.parametrize(
    ("engine", "setup"),
    [("postgres", "xfs"), pytest.param("mariadb", "ext4", marks=pytest.mark.long)],
)
def test_a_long_lab_works_in_several_processes(
    dbbench: Dbbench,
    engine: str,
    setup: str,
) -> None:
    """The cuts of all are numbered without gaps; nothing is lost in any."""
    order = Order(1, None, 0.4, [])
    found = undisturbed(dbbench, 4, lambda: lab(dbbench, plan(engine, [setup]), order))
    (row,) = found["rows"]
    assert [cut["number"] for cut in row["cuts"]] == list(range(1, len(row["cuts"]) + 1))
    assert row["recordings"] >= 2 and {"-process-2-" in cut["seed"] for cut in row["cuts"]} == {
        False,
        True,
    }
    assert (row["durability_class"], row["contradiction"]) == ("full", "")
    assert len(by_rows(row)) == len(torn(row))


@pytest.mark.needs("engine:postgres")
@pytest.mark.usefixtures("three_processes")
def test_all_processes_of_a_lab_are_stopped(dbbench: Dbbench) -> None:
    """SIGTERM at the first cut of the second or third process: the lab says once that it stops,
    ends, and leaves nothing of any process.
    """
    cuts = list[Event]()
    notes = list[str]()

    def stop(event: Event) -> None:
        if event.kind == "note":
            notes.append(event.data["text"])
        if str(event.data.get("what")).endswith(("cut 6", "cut 8", "cut 9")):
            cuts.append(event)
            if len(cuts) == 1:  # a second signal would kill it
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        lab(dbbench, plan("postgres", ["ext4"]), Order(1, None, 10, []), stop)
    assert cuts and notes == ["stopping cleanly"]


def test_results_of_processes_are_in_their_order(tmp_path: Path) -> None:
    """However long each takes; what they tell is passed on, and none is interrupted at its end."""
    heard: list[str] = []

    class SlowEnd(io.StringIO):
        def flush(self) -> None:
            time.sleep(0.2)
            (tmp_path / str(os.getpid())).touch()

    def work(number: int, tell: Callable[[str], None]) -> int:
        sys.stdout = SlowEnd()
        tell(f"{number} works")
        time.sleep(0.2 * (2 - number))
        return number

    assert in_processes([partial(work, number) for number in range(3)], heard.append, 60) == [
        0,
        1,
        2,
    ]
    assert sorted(heard) == ["0 works", "1 works", "2 works"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_process_that_dies_ends_the_other_one() -> None:
    """At once, whether it is killed or has no result."""
    for end in (lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(0)):
        pids: list[str] = []

        def die(tell: Callable[[str], None], end: Callable[[], object] = end) -> object:
            return end()

        with pytest.raises(LabUnavailable, match="without a result"):
            in_processes([partial(tell_pid, 300.0), die], pids.append, 600)
        assert all(not Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_process_that_hangs_ends_the_other_one() -> None:
    """Although the other one goes on and reports it."""
    pids: list[str] = []
    with pytest.raises(DeadlinePassed, match="reported nothing for 1 s"):
        in_processes([partial(tell_pid, 0.1), partial(tell_pid, 300.0)], pids.append, 1)
    assert len(pids) > 2 and all(not Path(f"/proc/{pid}").exists() for pid in pids)


def tell_pid(every_s: float, tell: Callable[[str], None]) -> int:
    """Report the process's number again and again."""
    while True:
        tell(str(os.getpid()))
        time.sleep(every_s)
