"""Series: named, unit-carrying sequences on a trial's clock, one value a second from the start of warm-up.

`None` is a gap (no data), 0 is a zero (no progress); the two are never confused. On disk: series.csv.gz.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

Column = list[float | None]
FIRST: Final = ("tps", "p50_ms", "p95_ms", "p99_ms", "errors")  # after `second,phase`; contract


class Series:
    """Columns of equal length; `columns[name][second]`."""

    def __init__(self, seconds: int, columns: dict[str, Column] | None = None) -> None:
        self.seconds = seconds
        self.columns: dict[str, Column] = {}
        for name, values in (columns or {}).items():
            self.set(name, values)

    def set(self, name: str, values: Sequence[float | None]) -> None:
        """Take a column; it is cut or padded with gaps to the length of the series."""
        kept = list(values[: self.seconds])
        self.columns[name] = kept + [None] * (self.seconds - len(kept))

    def update(self, other: Series) -> None:
        """Take all columns of another series."""
        for name, values in other.columns.items():
            self.set(name, values)

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


def on_the_second(points: Iterable[tuple[float, float | None]], begin_utc: float, seconds: int) -> Column:
    """A column from (UTC epoch seconds at the END of an interval of one second, value) points.

    A value belongs to the second that holds the middle of its interval. A second without a point is a gap;
    of two points in one second the later stays.
    """
    column: Column = [None] * seconds
    for utc, value in points:
        second = math.floor(utc - 0.5 - begin_utc)
        if 0 <= second < seconds and value is not None and math.isfinite(value):
            column[second] = value
    return column


def write_csv_gz(path: Path, series: Series, phases: Sequence[str]) -> None:
    """Write `second,phase,tps,...`; the bytes depend on the content alone (no time stamp inside)."""
    names = [name for name in FIRST if name in series] + [name for name in series if name not in FIRST]
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        text: IO[str] = io.TextIOWrapper(packed, "utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["second", "phase", *names])
        for second in range(series.seconds):
            cells = (series[name][second] for name in names)
            writer.writerow([second, phases[second], *("" if v is None else f"{v:.6g}" for v in cells)])
        text.flush()


def read_csv_gz(path: Path | IO[bytes]) -> tuple[Series, list[str]]:
    """The series and the phase of each second. OSError, EOFError, ValueError or zlib.error where it is damaged."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as text:
        rows = csv.reader(text)
        header = next(rows, [])
        if header[:2] != ["second", "phase"]:
            raise ValueError(f"{path}: not a series file")
        table = list(rows)
    columns = zip(*table, strict=True) if table else iter([()] * len(header))
    _seconds, phases, *values = columns
    found = {name: [float(cell) if cell else None for cell in column]
             for name, column in zip(header[2:], values, strict=True)}  # fmt: skip
    return Series(len(phases), found), list(phases)
