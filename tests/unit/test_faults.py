"""What only the judging sees: a fault in what was read, held against its mark; and the table of all faults."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.errors import WARNINGS, all_errors
from dbbench.judging import settings_changed
from dbbench.meter import foreign_io
from dbbench.model import DeviceFacts, Run, Status

from .test_trial import NoOps, driven

ROOT: Final = Path(__file__).parents[2]
MakeRun = Callable[..., Run]


class Kernel:
    """The kernel's log with these lines."""

    def __init__(self, machine: tuple[str, ...] = (), about: tuple[str, ...] = (), lost: bool = False) -> None:
        self.machine, self.about, self.was_lost = machine, about, lost

    def lines_about_machine(self) -> tuple[str, ...]:
        return self.machine

    def lines_about(self, _disk: str) -> tuple[str, ...]:
        return self.about

    def lost(self) -> bool:
        return self.was_lost


def with_part(parts: NoOps, **other: Any) -> NoOps:
    """The same parts, some of them replaced."""
    real = parts.parts
    parts.parts = lambda: dataclasses.replace(real(), **other)  # type: ignore[method-assign]
    return parts


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (Kernel(machine=("Out of memory: Killed process 9 (postgres)",)), "W125"),
        (Kernel(lost=True), "W124"),
        (Kernel(about=("I/O error, dev loop9, sector 8 op 0x1:(WRITE)",)), "W020"),
    ],
)
def test_what_the_kernel_told_makes_the_trial_suspect(
    kernel: Kernel, told: str, make_run: MakeRun, tmp_path: Path
) -> None:
    """Trouble of the machine, lost lines, errors of the trial's own device."""
    parts = NoOps(tmp_path)
    with_part(parts, kernel_messages=lambda: parts.around("kernel", kernel))
    trial, _ = driven(make_run, tmp_path, parts)
    assert trial.status is Status.SUSPECT
    assert told in {warning.id for warning in trial.warnings}


def test_an_image_that_shrank_makes_the_trial_suspect(make_run: MakeRun, tmp_path: Path) -> None:
    """Blocks that somebody gave back in mid-trial are paid for by the next writes."""
    facts = DeviceFacts(
        "loop", "/dev/loop9", "loop9", 2**40, image="i", image_blocks_before=900, image_blocks_after=800
    )
    trial, _ = driven(make_run, tmp_path, with_part(NoOps(tmp_path), device_facts=lambda _: facts))
    assert trial.status is Status.SUSPECT
    assert "W017" in {warning.id for warning in trial.warnings}


def test_settings_that_somebody_changed_are_named() -> None:
    """Those of the plan, and those that decide when a commit is safe; no others: servers count in variables, too."""
    before = {"shared_buffers": "16MB", "fsync": "on", "gtid_executed": "1", "innodb_flush_log_at_trx_commit": "1"}
    after = {"shared_buffers": "8MB", "fsync": "off", "gtid_executed": "2", "innodb_flush_log_at_trx_commit": "2"}
    (warning,) = settings_changed({"shared_buffers": "16MB"}, before, after)
    assert (warning.id, warning.suspect) == ("W128", True)
    assert warning.text == ("shared_buffers: 16MB -> 8MB; fsync: on -> off; innodb_flush_log_at_trx_commit: 1 -> 2")
    assert list(settings_changed({}, before, before)) == []


def test_foreign_io_is_what_the_disk_below_did_beyond_ours() -> None:
    """A quarter of all and 8 MB a second; unknown is nothing said, not zero."""
    ours = {"read_bytes": 0, "write_bytes": 30_000_000, "flushes": 1}
    assert foreign_io({"read_bytes": 50_000_000, "write_bytes": 30_000_000}, ours, 5.0) == (50.0, 0.625)
    assert foreign_io({"read_bytes": 50_000_000, "write_bytes": 30_000_000}, ours, 50.0) is None
    assert foreign_io({"read_bytes": 0, "write_bytes": 32_000_000}, ours, 0.1) is None
    assert foreign_io({"read_bytes": None, "write_bytes": None}, ours, 5.0) is None
    assert foreign_io({}, {}, 5.0) is None


# --- the table -------------------------------------------------------------------------------------

ROW: Final = re.compile(
    r"^\| (?P<fault>[^|]+) \| (?P<how>[^|]+) \| (?P<mark>[^|]+) \| (?P<ids>[^|]+) \| `(?P<test>[^`]+)` \|$", re.M
)


def rows() -> list[re.Match[str]]:
    """The rows of docs/faults.md."""
    return list(ROW.finditer((ROOT / "docs/faults.md").read_text(encoding="utf-8")))


def names_of_tests(path: Path) -> set[str]:
    """The names of a file's tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_table_has_forty_faults() -> None:
    """Each once."""
    faults = [row["fault"] for row in rows()]
    assert len(faults) == len(set(faults)) >= 40


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["fault"])
def test_every_fault_has_a_test_and_a_mark(row: re.Match[str]) -> None:
    """The test exists; the mark is one that no figure survives as good; the IDs exist."""
    file, _, name = row["test"].partition("::")
    assert name.partition("[")[0] in names_of_tests(ROOT / "tests" / file)
    assert set(row["mark"].split(" or ")) <= {"failed", "suspect", "error"}
    ids = set(row["ids"].split())
    assert ids and ids <= {*all_errors(), *WARNINGS}
    assert row["mark"] != "suspect" or any(word.startswith("W") for word in ids)


@pytest.mark.parametrize(
    ("file", "test"),
    [("test_faults", "test_a_fault_in_mid_window_is_no_good_trial"),
     ("test_sick_disk", "test_a_sick_disk_in_mid_window_is_no_good_trial")],
)  # fmt: skip
def test_every_planted_fault_has_its_row(file: str, test: str) -> None:
    """What is planted in mid-window is in the table by its name."""
    text = (ROOT / f"tests/system/{file}.py").read_text(encoding="utf-8")
    planted = re.findall(r'^    "([a-z-]+)": \(', text[text.index("FAULTS") :], re.M)
    assert planted
    assert {f"system/{file}.py::{test}[{name}]" for name in planted} <= {row["test"] for row in rows()}
