"""Faults that only the evaluation can detect, with their marks; and the list of all faults in
docs/dev/faults.md.
"""

import ast
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from dbbench.errors import error_kinds, warning_kinds
from dbbench.machine.host import host_load
from dbbench.machine.host.proc import MovedBytes
from dbbench.model import IoFacts, Status
from dbbench.run.evaluate import compare_settings
from dbbench.run.meter import DiskFigures, Readings, foreign_io
from tests.support.judged import LOOP, FakeKernel, Judged, readings

IO: Final = "rchar: 5\nread_bytes: {}\nwrite_bytes: {}\nwchar: {}\ncancelled_write_bytes: 0\n"
ROOT: Final = Path(__file__).parents[2]


SHRUNK: Final = replace(LOOP, image="i", image_blocks_before=900, image_blocks_after=800)


@pytest.mark.parametrize(
    ("judged", "told"),
    [
        (
            Judged(kernel=FakeKernel(machine=("Out of memory: Killed process 9 (postgres)",))),
            "W020",
        ),
        (Judged(kernel=FakeKernel(was_lost=True)), "W013"),
        (
            Judged(kernel=FakeKernel(about=("I/O error, dev loop9, sector 8 op 0x1:(WRITE)",))),
            "W020",
        ),
        # later writes must allocate the discarded blocks again
        (Judged(facts={"device": SHRUNK}), "W017"),
    ],
)
def test_what_the_kernel_told_makes_the_trial_suspect(
    judged: Judged,
    told: str,
    tmp_path: Path,
) -> None:
    """Trouble of the machine, lost lines, errors of the trial's own device, an image that
    shrank.
    """
    trial = judged.trial(tmp_path)
    assert trial.status is Status.SUSPECT
    assert told in {warning.id for warning in trial.warnings}


def test_settings_that_somebody_changed_are_named() -> None:
    """Those of the plan, and those that decide when a commit is safe; no others: servers count in
    variables, too.
    """
    before = {
        "shared_buffers": "16MB",
        "fsync": "on",
        "gtid_executed": "1",
        "innodb_flush_log_at_trx_commit": "1",
    }
    after = {
        "shared_buffers": "8MB",
        "fsync": "off",
        "gtid_executed": "2",
        "innodb_flush_log_at_trx_commit": "2",
    }
    (warning,) = compare_settings({"shared_buffers": "16MB"}, before, after)
    assert (warning.id, warning.suspect) == ("W128", True)
    assert warning.text == (
        "shared_buffers: 16MB -> 8MB; fsync: on -> off; innodb_flush_log_at_trx_commit: 1 -> 2"
    )
    assert list(compare_settings({}, before, before)) == []


def test_foreign_io_is_what_the_disk_below_did_beyond_ours() -> None:
    """A quarter of all and 8 MB a second; unknown is not reported, and is not zero."""
    ours = 30_000_000
    assert foreign_io(80_000_000, ours, 5.0) == (50.0, 0.625)
    assert foreign_io(80_000_000, ours, 50.0) is None
    assert foreign_io(32_000_000, ours, 0.1) is None
    assert foreign_io(None, ours, 5.0) is None
    assert foreign_io(80_000_000, None, 5.0) is None


def process(proc: Path, pid: int, parent: int, io: str) -> None:
    """A process with its account of I/O."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (x) S {parent} " + " ".join(["0"] * 48))
    (proc / str(pid) / "io").write_text(io)


def test_bytes_of_the_trials_processes_and_of_others_are_apart(tmp_path: Path) -> None:
    """Bytes of this process and its descendants, including ended ones; kernel threads are
    neither.
    """
    for pid, parent, moved in (
        (os.getpid(), 1, 1000),
        (11, os.getpid(), 50),
        (12, 11, 7),
        (13, 1, 900_000),
    ):
        process(tmp_path, pid, parent, IO.format(moved, moved, 7))
    before = host_load.reading(proc=tmp_path)
    (tmp_path / "12/io").unlink()  # it ended, and was waited for
    (tmp_path / "11/io").write_text(IO.format(57, 30_000_057, 9))
    (tmp_path / "13/io").write_text(IO.format(900_000, 99_000_000, 50_000_007))
    found = host_load.foreign_load(before, host_load.reading(proc=tmp_path))
    # a child that was waited for counts with its whole life
    assert found.ours_moved == (7, 30_000_007, 2)
    assert found.foreign_moved == (0, 98_100_000, 50_000_000)
    nothing = host_load.reading(proc=tmp_path / "none")
    assert host_load.foreign_load(nothing, nothing).foreign_moved is None


def test_accounts_that_are_lost_hide_no_other_process(tmp_path: Path) -> None:
    """A process that ends without being waited for takes its account with it; others are counted
    all the same.
    """
    for pid, moved in ((os.getpid(), 0), (13, 900_000_000), (14, 5_000_000)):
        process(tmp_path, pid, 1, IO.format(0, moved, 0))
    before = host_load.reading(proc=tmp_path)
    shutil.rmtree(tmp_path / "13")
    (tmp_path / "14/io").write_text(IO.format(0, 105_000_000, 0))
    moved = host_load.foreign_load(before, host_load.reading(proc=tmp_path)).foreign_moved
    assert moved is not None and moved.written == 100_000_000


def window(
    disks: DiskFigures,
    ours: int | None,
    others: int | None,
    elsewhere: bool = False,
) -> Readings:
    """Return the readings of 5 s in which the trial's processes and others wrote these bytes. Pages
    that are written as a whole folio make the former look like more.
    """
    by_trial = None if ours is None else MovedBytes(0, 100 * ours, ours)
    by_others = None if others is None else MovedBytes(0, others, others)
    host = host_load.HostLoad(
        5.0, 2, 0.0, 0.0, 0.0, (), ours_moved=by_trial, foreign_moved=by_others
    )
    bench = replace(readings().bench, elsewhere=elsewhere)
    return Readings(bench, host, disks)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_io_elsewhere_is_foreign_unless_the_plan_has_files_elsewhere(elsewhere: bool) -> None:
    """If only one tablespace is under test, the log of the same server is not foreign I/O
    (W127).
    """
    disks = DiskFigures(IoFacts(40_000_000, 60_000_000), below_bytes=500_000_000)
    foreign = window(disks, 4_000_000, None, elsewhere).foreign_below()
    assert foreign == (None if elsewhere else (400.0, 0.8))


@pytest.mark.parametrize(
    ("device", "ours", "others", "other_disks", "shared", "foreign"),
    [
        # another process in the same directory's filesystem
        (400, 85, 315, 0, (), (315.0, 315 / 400)),
        # the same inside a loop device, whose bytes pass the disk
        (400, 85, 315, 400, ("vda",), (315.0, 315 / 400)),
        (400, 85, 315, 315, (), None),  # the other process uses another disk
        (400, 85, 0, 0, (), None),  # the filesystem itself writes more than the server
        (400, 390, 315, 0, (), None),
        (400, None, None, 0, (), None),  # without root the kernel reports neither
    ],
)
def test_others_on_the_filesystem_under_test_are_noticed(
    device: int,
    ours: int | None,
    others: int | None,
    other_disks: int,
    shared: tuple[str, ...],
    foreign: object,
) -> None:
    """Foreign is what the device moved and the trial's processes did not, at most what other
    processes moved. The numbers are in MB.
    """
    million = 10**6
    written = None if ours is None else ours * million
    io = IoFacts(write_bytes=device * million, engine_write_bytes=written)
    disks = DiskFigures(io, shared, others_bytes=other_disks * million)
    by_others = None if others is None else others * million
    assert window(disks, written, by_others).foreign_on_device() == foreign


ITEM: Final = re.compile(r"^- .*(?:\n  .*)*", re.M)
ROW: Final = re.compile(
    r"- \*\*(?P<fault>[^*]+)\*\*(?:: [^*|]+)?\n  \*(?P<mark>[^*]+)\*(?P<ids>(?: [EW]\d{3})*)\n  `(?P<test>[^`]+)`"
)


def items() -> list[str]:
    """The entries of docs/dev/faults.md: the list items below its headings that name groups of
    faults.
    """
    page = (ROOT / "docs/dev/faults.md").read_text(encoding="utf-8")
    return ITEM.findall(page[page.index("\n## Server\n") :])


def rows() -> list[re.Match[str]]:
    """The entries that can be read."""
    return [row for row in map(ROW.fullmatch, items()) if row]


def names_of_tests(path: Path) -> set[str]:
    """The names of a file's tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_the_page_has_forty_faults() -> None:
    """Each once; no entry, and no other line of the groups, is of another form."""
    faults = [row["fault"] for row in rows()]
    assert len(faults) == len(set(faults)) >= 40
    assert [item for item in items() if not ROW.fullmatch(item)] == []
    page = (ROOT / "docs/dev/faults.md").read_text(encoding="utf-8").partition("\n## Server\n")[2]
    assert [
        line for line in ITEM.sub("", page).splitlines() if line and not line.startswith("## ")
    ] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["fault"])
def test_every_fault_has_a_test_and_a_mark(row: re.Match[str]) -> None:
    """The test exists; the mark is one that no figure survives as good; the IDs exist."""
    file, _, name = row["test"].partition("::")
    assert name.partition("[")[0] in names_of_tests(ROOT / "tests" / file)
    assert set(row["mark"].split(" or ")) <= {"failed", "suspect", "error", "ok"}
    ids = set(row["ids"].split())
    assert (
        bool(ids) == (row["mark"] != "ok") and ids <= error_kinds().keys() | warning_kinds().keys()
    )
    assert row["mark"] != "suspect" or any(word.startswith("W") for word in ids)


@pytest.mark.parametrize(
    ("source", "file", "test"),
    [
        (
            "support/window_faults",
            "test_faults",
            "test_a_fault_in_mid_window_is_not_a_good_trial",
        ),
        (
            "system/test_sick_disk",
            "test_sick_disk",
            "test_a_sick_disk_in_mid_window_is_not_a_good_trial",
        ),
    ],
)
def test_every_planted_fault_has_its_row(source: str, file: str, test: str) -> None:
    """What is planted in mid-window is on the page by its name."""
    text = (ROOT / f"tests/{source}.py").read_text(encoding="utf-8")
    planted = re.findall(r'^    "([a-z-]+)": \(', text[text.index("FAULTS") :], re.M)
    assert planted
    assert {f"system/{file}.py::{test}[{name}]" for name in planted} <= {
        row["test"] for row in rows()
    }
