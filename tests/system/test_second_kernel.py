"""The second kernel runs the tests that this kernel cannot run.

`inside` boots the second kernel once and runs system tests of this checkout in it; each required
one is a separate test here. The build is kept in the XDG cache, so the first session takes some
minutes longer.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil
import pytest

from dbbench.errors import DeadlinePassed
from dbbench.process import wait_while
from tests.support import second_kernel
from tests.support.leftovers import below
from tests.support.second_kernel import KernelFailed
from tests.support.second_kernel.boot import import_path

ROOT: Final = Path(__file__).parents[2]
SYSTEM: Final = ROOT / "tests/system"
pytestmark = [pytest.mark.needs("root"), pytest.mark.long]

# Made, filled, measured, removed inside; a snapshot, a clone, a rollback; servers under load.
INSIDE: Final = (
    *(
        f"test_zfs.py::test_every_setup_is_what_it_says[{name}]"
        for name in ("zfs-8k", "zfs-8k-lz4", "zfs-zstd", "zfs-stripe", "zfs-mirror", "zfs-slog")
    ),
    "test_zfs.py::test_snapshot_clone_and_rollback",
    "test_zfs.py::test_the_journal_alone_ends_a_pool",
    "test_zfs.py::test_every_fsync_is_a_flush",
    "test_zfs.py::test_short_trials_of_two_engines",
    "test_powercut.py::test_a_pool_is_examined_too",
    "layers/test_layers.py::test_an_array_is_what_was_asked_for[0-3-4096-3.0]",
    "layers/test_layers.py::test_an_array_is_what_was_asked_for[1-2-None-1.0]",
    "layers/test_layers.py::test_an_array_is_what_was_asked_for[10-4-65536-2.0]",
    "layers/test_layers.py::test_a_snapshot_is_held_from_when_it_is_taken[classic]",
    "layers/test_layers.py::test_a_snapshot_is_held_from_when_it_is_taken[thin]",
    "layers/test_layers_grow.py::test_a_snapshot_is_copied_merged_and_dropped[classic]",
    "layers/test_layers.py::test_an_encrypted_volume_hides_what_is_written",
    "layers/test_layers.py::test_a_delay_adds_to_one_kind_of_io[flush]",
    "layers/test_layers.py::test_layers_lie_on_layers",
    "layers/test_layers_grow.py::test_a_volume_on_mirrors_grows_by_a_mirror",
    "test_killed_layers.py::test_a_killed_run_with_layers_is_resumed[ext4-md1]",
    "test_killed_layers.py::test_a_killed_run_with_layers_is_resumed[ext4-lvm]",
    "test_killed_layers.py::test_a_killed_run_with_layers_is_resumed[ext4-crypt]",
    "test_killed_layers.py::test_a_killed_run_with_layers_is_resumed[delay]",
    *(
        f"test_layers_setups.py::test_every_setup_is_what_it_says[{name}]"
        for name in (
            "f2fs",
            "xfs-md0-4k",
            "ext4-md1",
            "xfs-md10",
            "ext4-on-lvm-snapshot",
            "xfs-on-lvm-thin-snapshot",
            "ext4-crypt",
            "ext4-lvm-striped-md1",
        )
    ),
    "test_layers_setups.py::test_each_kind_carries_a_database[some]",
    "test_layers_setups.py::test_short_trials_of_two_engines[f2fs]",
    "test_layers_setups.py::test_a_server_that_waits_for_space_is_reported_at_once[f2fs]",
)
# Every setup that needs what this kernel may lack, under two databases: in the soak.
CATALOGUE: Final = tuple(
    f"test_whole_catalogue.py::test_every_setup_carries_two_databases[{kind}]"
    for kind in ("crypt", "f2fs", "lvm", "md", "zfs")
)
CATALOGUE_S: Final = 5400.0
MEMORY_BYTES: Final = 4 * 2**30  # disks and logs of the power-loss lab are in memory
# 250 s of CPU time; next to two other lanes and a load of 12 it took 600 s
INSIDE_S: Final = 4800.0


@pytest.fixture(scope="module", autouse=True)
def kernel() -> Path:
    """The kept build, made now where there is none; skipped by name where there can be none."""
    if reason := second_kernel.unavailable():
        pytest.skip(f"needs a second kernel: {reason}")
    try:
        return second_kernel.small_root(lambda what: print(what, file=sys.stderr))
    except KernelFailed as failure:
        pytest.skip(f"needs a second kernel: {failure}")


@pytest.fixture(scope="module")
def inside(kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each test of INSIDE: "passed", else why not. One boot."""
    return outcomes(tmp_path_factory.mktemp("inside"), INSIDE, "not soak", INSIDE_S)


def outcomes(
    folder: Path,
    names: Sequence[str],
    marked: str,
    within_s: float,
) -> dict[str, str]:
    """Of these tests, in one boot."""
    report = folder / "report.xml"
    log = folder / "log"
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "tox.ini",
        f"--rootdir={ROOT}",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-m",
        marked,
        f"--junitxml={report}",
        *(SYSTEM / name for name in names),
    ]
    with log.open("wb") as out:
        done = second_kernel.run_inside(
            argv,
            shared=[folder],
            cwd=Path.cwd(),
            timeout_s=within_s,
            memory_bytes=MEMORY_BYTES,
            stdout=out.fileno(),
            stderr=out.fileno(),
        )
    found = (
        dict(_outcome(case) for case in ElementTree.parse(report).iter("testcase"))
        if report.exists()
        else {}
    )
    assert found, log.read_text(errors="replace")[-3000:]
    return {**found, "faults of the kernel": "\n".join(done.faults) or "passed"}


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    module = case.get("classname", "").removeprefix("tests.system.").replace(".", "/")
    name = f"{module}.py::{case.get('name')}"
    bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
    return name, "passed" if bad is None else f"{bad.tag}: {bad.get('message')}\n{bad.text}"


@pytest.mark.needs(
    "mdadm",
    "lvm",
    "cryptsetup",
    "mkfs.f2fs",
    "engine:postgres",
    "engine:mariadb",
    "sadf",
)
@pytest.mark.parametrize("name", INSIDE)
def test_the_same_test_passes_in_the_second_kernel(name: str, inside: dict[str, str]) -> None:
    """What this kernel lacks is made, filled, measured and removed there, by the same code."""
    assert inside.get(name) == "passed"


@pytest.mark.needs(
    "mdadm",
    "lvm",
    "cryptsetup",
    "mkfs.f2fs",
    "engine:postgres",
    "engine:mariadb",
    "sadf",
)
def test_the_second_kernel_reported_no_fault(inside: dict[str, str]) -> None:
    """Its module was built with generated headers: BUG, Oops or a failed VERIFY would show that
    they are wrong.
    """
    assert inside["faults of the kernel"] == "passed"


@pytest.mark.soak
def test_every_setup_carries_two_databases_in_the_second_kernel(
    kernel: Path, tmp_path: Path
) -> None:
    """Pools, arrays, volumes and f2fs: each setup of the catalogue that this kernel may lack."""
    found = outcomes(tmp_path, CATALOGUE, "soak", CATALOGUE_S)
    assert found == {**dict.fromkeys(CATALOGUE, "passed"), "faults of the kernel": "passed"}


def test_a_command_has_its_output_its_status_and_its_disks(tmp_path: Path) -> None:
    """stdout and stderr come out apart and whole, the status is the command's; what is not shared
    is lost.
    """
    shared = tmp_path / "shared"
    lost = tmp_path / "lost"
    out = tmp_path / "out"
    err = tmp_path / "err"
    shared.mkdir()
    script = (
        f"seq 20000; echo this >&2; echo kept > {shared}/file; echo gone > {lost}; cat "
        "/sys/block/ubd[bc]/size >&2; zpool create -f tank mirror /dev/ubdb /dev/ubdc && zfs "
        "version -j > /dev/null; exit 7"
    )
    done = second_kernel.run_inside(
        ["sh", "-c", script],
        shared=[shared],
        disks=[2**28, 2**27],
        stdout=out,
        stderr=err,
    )
    assert done.status == 7
    assert out.read_text() == "".join(f"{number}\n" for number in range(1, 20001))
    assert err.read_text().splitlines()[:3] == ["this", str(2**28 // 512), str(2**27 // 512)]
    assert (shared / "file").read_text() == "kept\n"
    assert not lost.exists()
    assert done.faults == ()


def test_a_fault_of_the_kernel_is_reported() -> None:
    """A line of the kernel's log that tells of a fault comes out, whatever the command's status."""
    done = second_kernel.run_inside(["sh", "-c", "echo 'WARNING: planted' > /dev/kmsg"])
    assert done.status == 0
    assert [line for line in done.faults if line.endswith("WARNING: planted")]


def test_a_kernel_that_dies_is_an_error() -> None:
    """A panic in mid-command is no result of the command."""
    with pytest.raises(KernelFailed, match="before the command did"):
        second_kernel.run_inside(
            ["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 60"], timeout_s=600
        )


def test_what_takes_too_long_is_killed() -> None:
    """At the time limit the second kernel is gone, with its processes and mounts."""
    before = set(psutil.Process().children(recursive=True))  # servers of other tests
    with pytest.raises(DeadlinePassed):
        second_kernel.run_inside(["sleep", "600"], timeout_s=8)
    mine = [child for child in psutil.Process().children(recursive=True) if child not in before]
    assert wait_while(lambda: _alive(mine), 60) == []
    assert _mounts() == []


def test_nothing_is_left_when_its_parent_is_killed() -> None:
    """SIGKILL of the command: no process and no mount of the second kernel outlives it."""
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.support.second_kernel",
            "--",
            "sh",
            "-c",
            "echo up; sleep 600",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(import_path())},
    ) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == "up\n"
        children = psutil.Process(outer.pid).children(recursive=True)
        assert below(outer.pid, "linux.uml")
        outer.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while _alive(children) and time.monotonic() < until:
        time.sleep(0.1)
    assert _alive(children) == []
    assert _mounts() == []


def _alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends between two questions
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def _mounts() -> list[str]:
    return [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if "/dbbench/second-kernel/" in line
    ]
