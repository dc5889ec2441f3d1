"""The N-th process start, or the N-th write of the results, fails: the trial is marked, and
completed trials stay.
"""

import contextlib
import dataclasses
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench.results.trials import damage
from tests.support.leftovers import GONE_S, left_of
from tests.support.plans import plan
from tests.support.planted_faults import clock_an_hour_back, counted, failing_step

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")

POSTGRES: dict[str, Any] = {
    "fs": "ext4",
    "engine": {"name": "postgres", "settings": {"shared_buffers": "16MB"}},
    "workload": {"name": "pgbench-tpcb", "scale": 1, "clients": 1, "threads": 1},
}
MARIADB: dict[str, Any] = {
    "fs": "xfs",
    "engine": {
        "name": "mariadb",
        "settings": {"innodb_buffer_pool_size": 134217728, "innodb_log_file_size": 16777216},
    },
    "workload": {
        "name": "sysbench-oltp-update-index",
        "tables": 1,
        "table_size": 100,
        "clients": 1,
    },
}
SEED = int(os.environ.get("DBBENCH_SOAK_SEED", "1"))
# of each kind, beside the soak: one that fails once and one for ever, the rest in `make test-all`
SAMPLES = range(5)


def planned(
    dbbench: Any,
    at: str | None = None,
    pair: dict[str, Any] = POSTGRES,
) -> None:
    """A plan of one short trial of that pair of filesystem and engine."""
    # A window without any transaction fails (E604), so it is longer than a machine stands still.
    dbbench.plan(plan(**pair, measure="3s", device={"size": "384MiB", "at": at}))


def folders(dbbench: Any) -> dict[str, Path]:
    """Where writes are counted, by their kind: results, and the golden copies where they are its
    own.
    """
    return {"write": dbbench.folder / "results", "copy": dbbench.folder / "cache"}


def with_copies_of_its_own(dbbench: Any) -> Any:
    """The same command line, which has to build its golden copy."""
    return dataclasses.replace(
        dbbench, env={**dbbench.env, "DBBENCH_CACHE": str(dbbench.folder / "cache")}
    )


def driven(dbbench: Any, env: dict[str, str], *words: str) -> Any:
    """`run` with that environment beside its own."""
    planted = dataclasses.replace(dbbench, env={**dbbench.env, **env})
    return planted(
        "run", "plan.toml", "--name", "r", "--progress", "none", *words, status=None, timeout_s=600
    )


def finished(dbbench: Any) -> dict[str, str]:
    """Status of each finished trial; each is whole."""
    trials = dbbench.folder / "results/r/trials"
    for folder in trials.glob("[!.]*") if trials.is_dir() else ():
        assert damage(folder) == []
    return {name: trial["status"] for name, trial in dbbench.trials().items()}


def step_fails(
    dbbench: Any,
    tmp_path: Path,
    kind: str,
    at: int,
    forever: bool,
    resumed: bool = True,
    pair: dict[str, Any] = POSTGRES,
) -> None:
    """Let one of the steps fail: the end is clean, and the same command resumes."""
    planned(dbbench, pair=pair)
    env = failing_step(tmp_path / "plant", folders(dbbench), kind, at, forever)
    done = driven(dbbench, env)
    said = (
        f"{kind} {at}{' for ever' if forever else ''}: exit {done.returncode}\n"
        f"{done.stderr[-2000:]}"
    )
    assert done.returncode in (0, 1, 2, 5), said
    assert "Traceback" not in done.stderr and "E999" not in done.stderr, said
    assert left_of(dbbench.folder, within_s=GONE_S) == [], said
    before = finished(dbbench)
    assert done.returncode == 0 or done.stderr or "failed" in before.values(), said
    if done.returncode == 0:
        assert set(before.values()) <= {"ok", "suspect"} and len(before) == 1, said
        assert all(trial["summary"]["tps"] for trial in dbbench.trials().values()), said
    if resumed:
        again = driven(dbbench, {})
        assert again.returncode in (0, 1), said + again.stderr
        after = finished(dbbench)
        assert {name: after.get(name) for name in before} == before and len(after) == 1, said


def steps_of(dbbench: Any, pair: dict[str, Any] = POSTGRES) -> dict[str, int]:
    """How many steps of each kind a run has where none fails."""
    planned(dbbench, pair=pair)
    done = driven(dbbench, failing_step(dbbench.folder / "plant", folders(dbbench)))
    assert done.returncode == 0, done.stderr
    return counted(dbbench.folder / "plant")


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> dict[str, int]:
    """The steps of a run whose golden copy is there."""
    dbbench = dbbench_in(tmp_path_factory.mktemp("counted"))
    planned(dbbench)
    driven(dbbench, {})  # a golden copy is built once
    shutil.rmtree(dbbench.folder / "results")
    found = steps_of(dbbench)
    assert found["start"] > 25 and found["write"] > 15
    return found


@pytest.mark.parametrize(
    "number", [n if n < 2 else pytest.param(n, marks=pytest.mark.long) for n in SAMPLES]
)
@pytest.mark.parametrize("kind", ["start", "write"])
def test_a_step_that_fails_marks_the_trial_and_leaves_nothing(
    kind: str,
    number: int,
    counts: dict[str, int],
    dbbench: Any,
    tmp_path: Path,
) -> None:
    """At random numbers of a seed, every other one for ever."""
    at = random.Random(f"{SEED}:{kind}:{number}").randint(1, counts[kind])
    step_fails(dbbench, tmp_path, kind, at, forever=number % 2 == 1, resumed=number == 0)


@pytest.mark.soak
@pytest.mark.needs("mkfs.xfs", "fs:xfs", "engine:mariadb", "sysbench")
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("kind", ["start", "write", "copy"])
@pytest.mark.parametrize("pair", [POSTGRES, MARIADB], ids=["postgres", "mariadb"])
def test_every_step_that_fails(
    pair: dict[str, Any],
    kind: str,
    forever: bool,
    dbbench_in: Any,
    tmp_path: Path,
) -> None:
    """All numbers, one after the other, to the last one, those of the golden copy too; some minutes
    a kind.
    """
    (folder := tmp_path / "counted").mkdir()
    steps = steps_of(with_copies_of_its_own(dbbench_in(folder)), pair)
    wrong = []
    for at in range(1, steps[kind] + 1):
        (folder := tmp_path / str(at)).mkdir()
        try:
            step_fails(
                with_copies_of_its_own(dbbench_in(folder)),
                folder,
                kind,
                at,
                forever,
                pair=pair,
            )
        except AssertionError as error:
            wrong.append(str(error))
            print(error)
        else:
            shutil.rmtree(folder)
    assert wrong == []


@pytest.fixture
def small(dbbench: Any) -> Iterator[Any]:
    """A maker of a results folder of so many KiB (a tmpfs); what the run is made on lies
    elsewhere.
    """
    results = dbbench.folder / "results"
    results.mkdir()
    mounted = []

    def make(kib: int) -> None:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "results", str(results)], check=True
        )
        mounted.append(kib)

    yield make
    for _ in mounted:
        subprocess.run(["umount", str(results)], check=True)


def full(dbbench: Any, kib: int, small: Any) -> None:
    """While a trial is driven all but so much of the room is taken: nothing half is a result, more
    room resumes.
    """
    small(4096)
    planned(dbbench, at=str(dbbench.folder))
    results = dbbench.folder / "results"

    def fill(_pid: int) -> None:
        with contextlib.suppress(OSError), (results / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        os.truncate(results / "filler", max(0, (results / "filler").stat().st_size - 1024 * kib))

    status, said = dbbench.run_and(
        "plan.toml",
        lambda event: bool(event["kind"] == "trial_begin"),
        fill,
    )
    trials = dbbench.trials().values()
    assert status in (1, 2) or [trial["error"] for trial in trials] == [None], said[-2000:]
    assert "Traceback" not in said and "E999" not in said, said[-2000:]
    assert (
        status == 0
        or "no space"
        in (said + "".join((trial["error"] or {"text": ""})["text"] for trial in trials)).lower()
    )
    if status and "error E305" in said:
        assert "then resume with:  dbbench run plan.toml --name r" in said
    before = finished(dbbench)
    (results / "filler").unlink()
    again = driven(dbbench, {})
    assert again.returncode in (0, 1), again.stderr
    assert finished(dbbench).items() >= before.items() and len(finished(dbbench)) == 1


def test_too_small_a_results_disk_is_reported_before(dbbench: Any, small: Any) -> None:
    """E203, with what is needed; nothing is made."""
    small(64)
    planned(dbbench, at=str(dbbench.folder))
    done = driven(dbbench, {})
    assert done.returncode == 2 and "E203" in done.stderr, done.stderr


def test_a_full_results_disk_is_reported(dbbench: Any, small: Any) -> None:
    """Full within a trial."""
    full(dbbench, 40, small)


@pytest.mark.soak
@pytest.mark.parametrize(
    "kib", [0, 4, 8, 12, 16, 20, 24, 32, 48, 64, 80, 100, 120, 140, 160, 180, 220, 260]
)
def test_a_results_disk_that_is_full_at_any_step(
    kib: int,
    dbbench: Any,
    small: Any,
) -> None:
    """The same with other room; with the most of it the trial is done."""
    full(dbbench, kib, small)


def test_a_results_folder_that_is_read_only_is_reported_at_once(dbbench: Any, small: Any) -> None:
    """E804 and exit 2, before anything is made."""
    small(64)
    subprocess.run(["mount", "-o", "remount,ro", str(dbbench.folder / "results")], check=True)
    planned(dbbench)
    done = driven(dbbench, {})
    assert done.returncode == 2 and "E804" in done.stderr, done.stderr


def test_a_clock_that_is_set_back_moves_no_duration(dbbench: Any, tmp_path: Path) -> None:
    """An hour, in mid-window: the trial is suspect and says so; its seconds are those of the
    monotonic clock.
    """
    planned(dbbench)
    flag, env = clock_an_hour_back(tmp_path / "plant")
    planted = dataclasses.replace(dbbench, env={**dbbench.env, **env})
    status, said = planted.run_and("plan.toml", planted.in_window, lambda _: flag.touch())
    assert status == 0, said
    (trial,) = dbbench.trials().values()
    assert trial["status"] == "suspect" and "W023" in {
        warning["id"] for warning in trial["warnings"]
    }
    assert all(0 <= phase["seconds"] < 1800 for phase in trial["phases"])
    assert trial["summary"]["tps"] > 0 and [p["start"] for p in trial["phases"]] == sorted(
        p["start"] for p in trial["phases"]
    )
