"""A trial's clock, and series: one value per second from the start of the warm-up; None is a gap, 0
is no progress.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

Column = list[float | None]
# A series that is larger is refused before any value of it is read.
MOST_ROWS: Final = 100_000  # a day has 86 400 seconds
MOST_CELLS: Final = 5_000_000  # fourteen hours of 99 columns, which a trial has; 240 MiB of memory
_LONGEST: Final = 65_536  # bytes of a line: more than a thousand columns
FIRST: Final = ("tps", "p50_ms", "p95_ms", "p99_ms", "errors")  # after `second,phase`; contract


def both_clocks(system: Callable[[], float] = time.time) -> tuple[float, float]:
    """Return system clock (epoch seconds) and monotonic clock, read as close together as three
    attempts allow.
    """
    readings = []
    for _ in range(3):
        before = time.monotonic()
        utc = system()
        after = time.monotonic()
        readings.append((after - before, utc, after))
    _, utc, after = min(readings)
    return utc, after


class Clock:
    """A clock that is started once, at the beginning of a trial: all times are its UTC anchor plus
    monotonic time.
    """

    def __init__(self, utc: float | None = None) -> None:
        system, self.monotonic = both_clocks()
        self.utc = system if utc is None else utc  # epoch seconds

    def now_utc(self) -> float:
        """Return epoch seconds as anchor + monotonic time, so that setting the system clock has no
        effect.
        """
        return self.utc + time.monotonic() - self.monotonic

    def slip_s(self) -> float:
        """Return how far the system clock has been set since the anchor was taken, in seconds."""
        utc, monotonic = both_clocks()
        return utc - (self.utc + monotonic - self.monotonic)


class Series:
    """Columns of equal length; `columns[name][second]`."""

    def __init__(self, seconds: int, columns: dict[str, Column] | None = None) -> None:
        self.seconds = seconds
        self.columns: dict[str, Column] = {}
        for name, values in (columns or {}).items():
            self.set(name, values)

    def set(self, name: str, values: Sequence[float | None]) -> None:
        """Add a column, cut or padded with gaps to the length of the series."""
        kept = list(values[: self.seconds])
        self.columns[name] = kept + [None] * (self.seconds - len(kept))

    def update(self, other: Series) -> None:
        for name, values in other.columns.items():
            self.set(name, values)

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


def on_the_second(
    points: Iterable[tuple[float, float | None]],
    begin_utc: float,
    seconds: int,
) -> Column:
    """Return a column from points (UTC epoch seconds at the END of an interval of one second,
    value). A value belongs to the second with the middle of its interval: none is a gap, of two
    the later one is used.
    """
    column: Column = [None] * seconds
    for utc, value in points:
        second = math.floor(utc - 0.5 - begin_utc)
        if 0 <= second < seconds and value is not None and math.isfinite(value):
            column[second] = value
    return column


def write_csv_gz(path: Path, series: Series, phases: Sequence[str]) -> None:
    """Write `second,phase,tps,...`; the bytes depend only on the content (no time stamp inside)."""
    names = [name for name in FIRST if name in series]
    names += [name for name in series if name not in FIRST]
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        text: IO[str] = io.TextIOWrapper(packed, "utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["second", "phase", *names])
        for second in range(series.seconds):
            row = [str(second), phases[second]]
            for name in names:
                value = series[name][second]
                row.append("" if value is None else f"{value:.6g}")
            writer.writerow(row)
        text.flush()


def read_csv_gz(path: Path | IO[bytes]) -> tuple[Series, list[str]]:
    """Return the series and the phase of each second. Raises OSError, EOFError, ValueError or
    zlib.error if the file is damaged or has more values than a trial can have.
    """
    with gzip.open(path, "rb") as packed:
        _must_not_be_too_long(packed)
        packed.seek(0)
        rows = csv.reader(_lines(packed))
        header = next(rows, [])
        names = header[2:]
        if header[:2] != ["second", "phase"] or len(set(header)) != len(header):
            raise ValueError("not a series file")
        phases: list[str] = []
        columns: list[Column] = [[] for _ in names]
        for row in rows:
            _second, phase, *cells = row
            phases.append(sys.intern(phase))
            for column, value in zip(columns, _values(cells), strict=True):
                column.append(value)
    by_name = dict(zip(names, columns, strict=True))
    return Series(len(phases), by_name), phases


def _must_not_be_too_long(packed: gzip.GzipFile) -> None:
    """Raise ValueError if there are too many lines; counting lines is much faster than reading the
    values.
    """
    lines = _lines(packed)
    columns = next(lines, "").count(",") + 1
    for seconds, _ in enumerate(lines, 1):
        if seconds > MOST_ROWS:
            raise ValueError(f"it has more than {MOST_ROWS} seconds")
        if seconds * columns > MOST_CELLS:
            raise ValueError(f"it has more than {MOST_CELLS} values")


def _lines(packed: gzip.GzipFile) -> Iterator[str]:
    while line := packed.readline(_LONGEST + 1):
        if len(line) > _LONGEST:
            raise ValueError(f"a line of it is longer than {_LONGEST} bytes")
        yield line.decode("utf-8")


def _values(cells: Sequence[str]) -> Column:
    values = [float(cell) if cell else None for cell in cells]
    if not math.isfinite(sum(filter(None, values))):
        raise ValueError("a value of it is not a number")
    return values
