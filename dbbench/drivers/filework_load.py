"""Run the program `filework` and parse its output, lines of JSON."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dbbench import process
from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.drivers.tool import ToolLoad, write_command
from dbbench.engines import files
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Column

_MB: Final = 1e6


@dataclass(frozen=True)
class Copied:
    """A written file: seconds without and with its fsync, and the bytes written over time."""

    bytes: int
    seconds: float
    synced_s: float
    points: tuple[tuple[float, int], ...]  # (second, bytes so far)

    def by_second(self) -> Column:
        """Return MB per second; 0 during the fsync, when the writer itself writes nothing."""
        column: Column = [0.0] * max(1, math.ceil(self.synced_s))
        for (before_s, before), (after_s, after) in itertools.pairwise([(0.0, 0), *self.points]):
            _spread(column, before_s, after_s, (after - before) / _MB)
        return column


@dataclass(frozen=True)
class FileStep:
    """One step of many small files."""

    name: str
    files: int
    seconds: float
    cold: bool = True
    why: str = ""

    @property
    def per_s(self) -> float | None:
        return self.files / self.seconds if self.seconds else None


@process.understood("filework")
def copied(text: str, clients: int = 1) -> Copied:
    """Return the result of a copy. Raises DriverFailed if it did not finish."""
    lines = [line for line in _lines(text) if "bytes" in line]
    lines.sort(key=lambda line: line["t"])
    written = {line.get("client", 0): line["t"] for line in lines if line.get("written")}
    synced = {line.get("client", 0): line["t"] for line in lines if line.get("synced")}
    if len(written) < clients or len(synced) < clients:
        raise DriverFailed(f"{min(len(written), len(synced))} of {clients} clients finished the copy")
    done: dict[int, int] = {}
    points: dict[float, int] = {}  # two clients may print at the same moment
    for line in lines:
        done[line.get("client", 0)] = line["bytes"]
        points[line["t"]] = sum(done.values())
    return Copied(sum(done.values()), max(written.values()), max(synced.values()), tuple(points.items()))


@process.understood("filework")
def steps(text: str) -> dict[str, FileStep]:
    """Return the steps by name. Raises DriverFailed if one is missing."""
    steps_by_name = {line["step"]: FileStep(line["step"], line["files"], line["seconds"], line.get("cold", True),
                                line.get("why", "")) for line in _lines(text) if "step" in line}  # fmt: skip
    if missing := {"create", "read", "delete"} - steps_by_name.keys():
        raise DriverFailed(f"not all small files were processed; missing: {', '.join(sorted(missing))}")
    return steps_by_name


def live(line: str) -> Live | None:
    """Return progress for one second; it has no transactions."""
    try:
        return Live(int(json.loads(line)["t"]), None, None)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def _spread(column: Column, begin_s: float, end_s: float, amount: float) -> None:
    """Distribute `amount` over the seconds between two moments."""
    length = end_s - begin_s
    for second in range(int(begin_s), min(len(column), math.ceil(end_s))):
        share = (min(end_s, second + 1) - max(begin_s, second)) / length if length else 0.0
        column[second] = (column[second] or 0.0) + amount * max(0.0, share)


_KEPT: Final = ("PYTHONPATH",)  # without it, Python would not find a checkout that is not installed


@contextlib.contextmanager
def working(work: str, task: LoadTask, asked: dict[str, Any], judged: Callable[[ToolLoad], Outcome]) -> Iterator[Load]:
    """Run `filework` to its end.

    It runs as this process's user: other accounts could not reach an interpreter in a closed home directory, and only
    root can drop caches.
    """
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    folder = str(files.folder_of(task.server))
    argv = [sys.executable, "-m", "dbbench.drivers.filework", work, folder, json.dumps(asked)]
    write_command(task.raw / f"{work}.command", argv, env)
    stdout, stderr = task.raw / f"{work}.out", task.raw / f"{work}.err"
    begin_utc = task.clock.now_utc()
    with process.running(argv, stdout=stdout, stderr=stderr, env=env, role="server") as program:
        yield ToolLoad(task, program, begin_utc, (stdout, stderr), judged, live=live)
