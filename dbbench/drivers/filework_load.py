"""copy (one large file) and smallfiles (many small ones): run `filework` and parse its output,
lines of JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.drivers import tool
from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.drivers.tool import ToolLoad, rates_of, whole_outcome
from dbbench.engines import files
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import Column
from dbbench.model import Figures, Json, Scalars, TrialWarning
from dbbench.results import fileio

# not imported: its modules would delay every command
_PROGRAM: Final = Path(__file__).with_name("filework.py")
_KEPT: Final = ("PYTHONPATH",)  # without it, Python would not find a checkout that is not installed


@dataclass(frozen=True)
class CopyResult:
    """A written file: seconds without and with its fsync, and the bytes written over time."""

    bytes: int
    seconds: float
    synced_s: float
    points: tuple[tuple[float, int], ...]  # (second, bytes so far)

    def by_second(self) -> Column:
        """Return MB per second; 0 during the fsync, when the writer itself writes nothing."""
        points = [(0.0, 0), *self.points]
        return [rate / 1e6 for rate in rates_of(points, max(1, math.ceil(self.synced_s)))]


@process.understood("filework")
def parse_copy(text: str, clients: int = 1) -> CopyResult:
    """Return the result of a copy. Raises DriverFailed if it did not finish."""
    lines = [line for line in _lines(text) if "bytes" in line]
    lines.sort(key=lambda line: line["t"])
    written: dict[int, float] = {}
    synced: dict[int, float] = {}
    done: dict[int, int] = {}
    points: dict[float, int] = {}  # two clients may print at the same moment
    for line in lines:
        client = line.get("client", 0)
        done[client] = line["bytes"]
        points[line["t"]] = sum(done.values())
        if line.get("written"):
            written[client] = line["t"]
        if line.get("synced"):
            synced[client] = line["t"]
    finished = min(len(written), len(synced))
    if finished < clients:
        raise DriverFailed(f"{finished} of {clients} clients finished the copy")
    return CopyResult(
        sum(done.values()),
        max(written.values()),
        max(synced.values()),
        tuple(points.items()),
    )


@process.understood("filework")
def steps(text: str) -> dict[str, Json]:
    """Return `files`, `seconds` and `why` of the steps by name. Raises DriverFailed if one is
    missing.
    """
    lines = {line["step"]: line for line in _lines(text) if "step" in line}
    missing = {"create", "read", "delete"} - lines.keys()
    if missing:
        names = ", ".join(sorted(missing))
        raise DriverFailed(f"not all small files were processed; missing: {names}")
    return lines


def live(line: str) -> Live | None:
    """Return progress for one second; it has no transactions."""
    try:
        return Live(int(json.loads(line)["t"]), None, None)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _lines(text: str) -> list[Json]:
    return [
        json.loads(line)
        for line in text.splitlines()
        if line.startswith("{") and line.endswith("}")
    ]


@dataclass(frozen=True)
class FileWork:
    """A driver that runs one kind of work of `filework` to its end."""

    work: str
    parameters: tuple[str, ...]  # those that the program takes
    judge: Callable[[ToolLoad], Outcome]

    def driving(self, task: LoadTask) -> AbstractContextManager[Load]:
        """Runs as this process's user: other accounts could not reach an interpreter in a closed
        home directory. When it has closed its files, it waits for the trial to empty their
        caches.
        """
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        folder = files.folder_of(task.server)
        answer = task.scratch / f"{self.work}.cold"
        facts: Scalars = {
            "seed": task.seed,
            "answer": str(answer),
        }
        # The program gets its task as one JSON argument.
        for name in self.parameters:
            facts[name] = task.cell.parameters[name]
        argv = [sys.executable, "-P", str(_PROGRAM)]
        argv += [self.work, str(folder), json.dumps(facts)]

        # Its files are closed: only now can the trial empty their caches.
        def respond(line: str) -> Live | None:
            if any(row.get("closed") for row in _lines(line)):
                cache = task.cold(files.data_files(folder))
                fileio.write_text(answer, cache.reason)
            return live(line)

        load = ToolLoad(
            task,
            self.work,
            argv,
            self.judge,
            env,
            live=respond,
        )
        return load.running("server")


def copy_outcome(load: ToolLoad, memory: int) -> Outcome:
    """Return both times, both rates, and the rate per second; MB are 10^6 bytes. W116 for a file
    that memory holds.
    """
    done = parse_copy(load.text(), int(load.task.cell.parameters["clients"]))
    megabytes = done.bytes / 1e6
    outcome = whole_outcome(
        load.begin_utc,
        done.synced_s,
        {
            "duration_s": done.synced_s,
            "copy_s": done.seconds,
            "copy_mb_per_s": megabytes / done.seconds,
            "copy_synced_mb_per_s": megabytes / done.synced_s,
        },
        transactions=1,
        warnings=tool.cached_warnings(done.bytes, memory),
        claims=(Claim("write_bytes", done.bytes),),
    )
    outcome.series.set("file_write_mb_per_s", done.by_second())
    return outcome


def smallfiles_outcome(load: ToolLoad) -> Outcome:
    """Return the files per second of each step."""
    lines = steps(load.text())
    why = lines["read"]["why"]
    files = lines["create"]["files"]
    size = files * int(load.task.cell.parameters["file_bytes"])
    figures: Figures = {"duration_s": sum(line["seconds"] for line in lines.values())}
    for name, line in lines.items():
        seconds = line["seconds"]
        figures[f"{name}s_per_s"] = line["files"] / seconds if seconds else None
    return whole_outcome(
        load.begin_utc,
        load.lived_s or 0.0,
        figures,
        transactions=files,
        warnings=(TrialWarning("W010", why, suspect=False),) if why else (),
        claims=(Claim("write_bytes", size), Claim("read_bytes", size)),
    )


COPY: Final = FileWork(
    "copy",
    ("file_size", "zeros", "clients"),
    lambda load: copy_outcome(load, tool.could_hold(load.task.cell)),
)
SMALLFILES: Final = FileWork(
    "smallfiles",
    ("files", "file_bytes", "zeros", "clients"),
    smallfiles_outcome,
)
