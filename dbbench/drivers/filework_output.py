"""What `filework` prints: lines of JSON, one a step or a quarter of a second."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any, Final

from dbbench import process
from dbbench.drivers.port import Live
from dbbench.errors import DriverFailed
from dbbench.series import Column

_MB: Final = 1e6


@dataclass(frozen=True)
class Copied:
    """A file that was written: seconds without and with its fsync, and how much was written by when."""

    bytes: int
    seconds: float
    synced_s: float
    points: tuple[tuple[float, int], ...]  # (second, bytes so far)

    def by_second(self) -> Column:
        """MB a second; 0 while the fsync lasts, in which the writer itself writes nothing."""
        column: Column = [0.0] * max(1, math.ceil(self.synced_s))
        for (before_s, before), (after_s, after) in itertools.pairwise([(0.0, 0), *self.points]):
            _spread(column, before_s, after_s, (after - before) / _MB)
        return column


@dataclass(frozen=True)
class Step:
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
def copied(text: str) -> Copied:
    """The whole of a copy; DriverFailed where it did not come to its end."""
    lines = _lines(text)
    written = next((line for line in lines if line.get("written")), None)
    synced = next((line for line in lines if line.get("synced")), None)
    if written is None or synced is None:
        raise DriverFailed("the copy did not come to its end")
    points = tuple((line["t"], line["bytes"]) for line in lines if not line.get("synced"))
    return Copied(synced["bytes"], written["t"], synced["t"], points)


@process.understood("filework")
def steps(text: str) -> dict[str, Step]:
    """The steps by name; DriverFailed where one is missing."""
    found = {line["step"]: Step(line["step"], line["files"], line["seconds"], line.get("cold", True),
                                line.get("why", "")) for line in _lines(text) if "step" in line}  # fmt: skip
    if missing := {"create", "read", "delete"} - found.keys():
        raise DriverFailed(f"the small files were not all worked on: no {', '.join(sorted(missing))}")
    return found


def live(line: str) -> Live | None:
    """A second of the work; it has no transactions."""
    try:
        return Live(int(json.loads(line)["t"]), None, None)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def _spread(column: Column, begin_s: float, end_s: float, amount: float) -> None:
    """Add `amount` to the seconds between two moments, each its share."""
    length = end_s - begin_s
    for second in range(int(begin_s), min(len(column), math.ceil(end_s))):
        share = (min(end_s, second + 1) - max(begin_s, second)) / length if length else 0.0
        column[second] = (column[second] or 0.0) + amount * max(0.0, share)
