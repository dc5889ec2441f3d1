"""bonnie++: its tests of one large file and of many small ones, one after the other, as an account without rights.

Parameters: file_size (0: twice the memory), files (in thousands of 1024; 0: none of those tests), chars (the tests
by single characters, which measure the C library as much as the filesystem).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import host, process
from dbbench.clock import Clock
from dbbench.drivers import bonnie_output
from dbbench.drivers.port import Load, Outcome
from dbbench.drivers.tool import FAILED, ToolLoad, write_command
from dbbench.engines import files
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed
from dbbench.limits import cgroup
from dbbench.model import Cell, TrialWarning
from dbbench.series import FIRST, Series
from dbbench.units import size_text

MIB: Final = 2**20
BEYOND: Final = 2  # × the memory: smaller files are read again from the page cache


def programs() -> tuple[str, ...]:
    """What `doctor` must find."""
    return ("bonnie++",)


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Run all tests to their end. See the port."""
    del scratch  # it logs nothing
    memory = could_hold(cell)
    argv = command(files.folder_of(server), cell, seed, memory)
    write_command(raw / "bonnie.command", argv, {})
    stdout, stderr = raw / "bonnie.csv", raw / "bonnie.out"
    begin_utc = clock.now_utc()
    with process.running(argv, stdout=stdout, stderr=stderr, as_user=files.account(), role="server") as program:
        yield ToolLoad(
            program=program,
            server=server,
            clock=clock,
            begin_utc=begin_utc,
            seconds=0,  # it ends when it is done
            printed=(stdout, stderr),
            live=lambda line: None,
            aborted=lambda line: False,
            judged=lambda load: _outcome(load, cell, memory),
        )


def could_hold(cell: Cell) -> int:
    """Bytes of memory that could hold the file: the plan's where the kernel enforces it, else the machine's."""
    if cell.memory_bytes is not None and not isinstance(cgroup.hierarchy(), str):
        return cell.memory_bytes
    return host.memory_bytes() or 0


def file_bytes(cell: Cell, memory: int) -> int:
    """The size of its one file, in whole MiB."""
    asked = int(cell.parameters.get("file_size", 0)) or BEYOND * memory
    return math.ceil(asked / MIB) * MIB


def command(folder: Path, cell: Cell, seed: int, memory: int) -> list[str]:
    """The argv. It is told of a memory that its file is twice of: whether that is so is told by W116."""
    size = file_bytes(cell, memory) // MIB
    return [
        "bonnie++", "-d", str(folder), "-s", str(size), "-r", str(size // BEYOND), "-m", "dbbench", "-q",
        "-n", str(cell.parameters.get("files", 16)), "-z", str(seed),
        *([] if cell.parameters.get("chars", True) else ["-f"]),
    ]  # fmt: skip


def _outcome(load: ToolLoad, cell: Cell, memory: int) -> Outcome:
    figures = bonnie_output.parse(load.text())
    if all(value is None for value in figures.values()):
        raise DriverFailed("bonnie++ timed none of its tests: all ended too soon", effect=FAILED)
    lived, size = load.lived_s or 0.0, file_bytes(cell, memory)
    text = f"the file has {size_text(size)}, {size / memory:.2g} times the memory that could hold it" if memory else ""
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=lived,
        transactions=1,
        errors=0,
        series=Series(math.ceil(lived), {name: [] for name in FIRST}),
        histogram=None,
        figures={"duration_s": lived, **figures},
        warnings=(TrialWarning("W116", text),) if size < BEYOND * memory else (),
    )
