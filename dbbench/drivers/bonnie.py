"""bonnie++: its tests of one large file and of many small ones, in sequence, as an unprivileged
account.
"""

from __future__ import annotations

import math
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.drivers import tool
from dbbench.drivers.protocol import Load, LoadTask
from dbbench.drivers.tool import FAILED, ToolLoad, whole_outcome
from dbbench.engines import files
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.table import BONNIE
from dbbench.model import Cell, Figures

MIB: Final = 2**20
_KIB: Final = 1024 / 1e6  # 1 KiB in MB
DATA: Final = BONNIE[:6]  # tests of the large file; rates in KiB per second, except for seeks
_FORMAT: Final = "1.98"  # of bonnie++ 2.00
_FIRST: Final = 9  # index of the first rate
# fields between the tests of DATA and the others: number of files, their sizes and directories
_BETWEEN: Final = 5
_LATENCY: Final = re.compile(r"(\d+)(us|ms|s)")
_MS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}
BEYOND: Final = 2  # × the memory; smaller files would be read from the page cache


def driving(task: LoadTask) -> AbstractContextManager[Load]:
    """Run all tests to completion. See `protocol.Driver`."""
    memory = tool.could_hold(task.cell)
    folder = files.folder_of(task.server)
    argv = command(folder, task.cell, task.seed, memory)
    load = ToolLoad(
        task,
        "bonnie",
        argv,
        lambda load: _outcome(load, task.cell, memory),
    )
    load.printed = (task.raw / "bonnie.csv", task.raw / "bonnie.out")
    return load.running("server", as_user=files.account())


def file_bytes(cell: Cell, memory: int) -> int:
    """Return the size of its file, in whole MiB."""
    least = int(cell.parameters.get("file_size", 0)) or BEYOND * memory
    return math.ceil(least / MIB) * MIB


def command(
    folder: Path,
    cell: Cell,
    seed: int,
    memory: int,
) -> list[str]:
    """Return the argv. Its memory size (-r) is half of the file's; W116 reports if the real memory
    is larger.
    """
    size = file_bytes(cell, memory) // MIB
    files = cell.parameters.get("files", 16)
    argv = ["bonnie++", "-d", str(folder), "-s", str(size)]
    argv += ["-r", str(size // BEYOND)]
    argv += ["-m", "dbbench", "-q"]
    argv += ["-n", str(files), "-z", str(seed)]
    if not cell.parameters.get("chars", True):
        argv.append("-f")
    return argv


def _outcome(load: ToolLoad, cell: Cell, memory: int) -> Outcome:
    figures = parse(load.text())
    if all(value is None for value in figures.values()):
        raise DriverFailed(
            "bonnie++ reported no result: all tests finished too quickly to be timed", effect=FAILED
        )
    lived = load.lived_s or 0.0
    size = file_bytes(cell, memory)
    return whole_outcome(
        load.begin_utc,
        lived,
        {"duration_s": lived, **figures},
        transactions=1,
        # A lower limit: the block test and the rewrite transfer the whole file; tests by single
        # characters do so again.
        claims=(Claim("write_bytes", total=2 * size), Claim("read_bytes", total=2 * size)),
        warnings=tool.cached_warnings(size, memory, BEYOND),
    )


@process.understood("bonnie++")
def parse(text: str) -> Figures:
    """Return RATE, STEM_cpu_pct, STEM_max_ms of the last result line. Raises DriverFailed: none, or
    unknown format.
    """
    results = [line for line in text.splitlines() if re.match(r"\d\.\d+,", line)]
    if not results:
        raise DriverFailed("bonnie++ printed no results")
    # Another format would have the figures in another order.
    fields = results[-1].split(",")
    tests = len(BONNIE)
    if fields[0] != _FORMAT or len(fields) != _FIRST + 3 * tests + _BETWEEN:
        raise DriverFailed(
            f"bonnie++ printed {len(fields)} fields of format {fields[0]}; known: {_FORMAT}"
        )
    # Rate and CPU of each test come first, then the latencies of all.
    latencies = iter(fields[-tests:])
    rest = iter(fields[_FIRST:])
    figures: Figures = {}
    # The tests of files follow those of data, behind some fields of parameters.
    for index, stem in enumerate(BONNIE):
        if index == len(DATA):
            for _ in range(_BETWEEN):
                next(rest)
        rate = _number(next(rest))
        if stem in DATA[:-1]:
            figures[f"{stem}_mb_per_s"] = rate * _KIB if rate is not None else None
        else:
            figures[f"{stem}s_per_s"] = rate
        figures[f"{stem}_cpu_pct"] = _number(next(rest))
        longest = _LATENCY.fullmatch(next(latencies))
        figures[f"{stem}_max_ms"] = float(longest[1]) * _MS[longest[2]] if longest else None
    return figures


def _number(field: str) -> float | None:
    if field.replace(".", "", 1).isdigit():
        return float(field)
    return None
