"""pgbench's per-transaction logs (`--log`): one file a worker thread, parsed in chunks.

A line is "client transaction time script epoch_s epoch_us [schedule_lag] [retries]". `time` is in microseconds, or
a word where the transaction failed or was skipped. Under `--rate` it counts from the time at which the schedule
wanted the transaction to start, so the wait is already in it: pgbench takes latency = now - txn_scheduled and gives
schedule_lag only to be subtracted (PostgreSQL manual, pgbench, "--rate" and "Per-Transaction Logging").
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np

from dbbench.drivers.counts import Counts, Ints, buckets_of
from dbbench.errors import DriverFailed

CHUNK_BYTES: Final = 4 << 20  # some 120 000 lines: large enough for numpy, small enough for any machine
_NUMERIC: Final = b"0123456789- \n"
_WORDS: Final = re.compile(rb" (failed|serialization|deadlock|skipped) ")
_FAILED, _SKIPPED = -1, -2
_TIME, _EPOCH_S, _EPOCH_US = 2, 4, 5  # columns; those after them depend on the options


def log_files(folder: Path, prefix: str) -> list[Path]:
    """The logs that pgbench wrote below `--log-prefix`: PREFIX.PID and PREFIX.PID.N, one a worker."""
    return sorted(
        path for path in folder.glob(f"{prefix}.*") if re.fullmatch(r"\d+(\.\d+)?", path.name[len(prefix) + 1 :])
    )


def parse(paths: Iterable[Path], begin_utc: float, seconds: int) -> tuple[Counts, int]:
    """All workers' transactions by the second of their end, and how many were skipped.

    `begin_utc` is second 0. A failed transaction is an error and no transaction. DriverFailed for a line that is
    none of pgbench's.
    """
    counts, skipped = Counts(seconds), 0
    for path in paths:
        with path.open("rb") as log:
            for chunk in whole_lines(log):
                try:
                    skipped += _count(_columns(chunk), counts, round(begin_utc * 1e6))
                except ValueError as error:
                    raise DriverFailed(f"{path.name} is not a pgbench log: {error}") from None
    return counts, skipped


def whole_lines(log: IO[bytes]) -> Iterator[bytes]:
    """The file in chunks that end with a line; a last line without an end is given as it is."""
    rest = b""
    while block := log.read(CHUNK_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest


def keep(paths: Iterable[Path], raw: Path) -> None:
    """Move the logs into `raw`, compressed (gzip -1 takes three quarters away at little cost)."""
    for path in paths:
        with path.open("rb") as log, gzip.GzipFile(raw / f"{path.name}.gz", "wb", 1) as packed:
            shutil.copyfileobj(log, packed, CHUNK_BYTES)
        path.unlink()


def _columns(chunk: bytes) -> Ints:
    """Rows of time, epoch_s, epoch_us; a word in the time column is a negative number. ValueError for a bad line."""
    try:
        return _numbers(chunk)
    except ValueError:  # a word: rare, and looking for one in every chunk would cost more than reading it twice
        return _numbers(_WORDS.sub(lambda word: b" %d " % (_SKIPPED if word[1] == b"skipped" else _FAILED), chunk))


def _numbers(chunk: bytes) -> Ints:
    if chunk.translate(None, _NUMERIC):  # damaged files have brought numpy's reader down with all of Python
        raise ValueError("a line holds something else than numbers")
    if not chunk.strip():
        return np.empty((0, 3), np.int64)
    return np.loadtxt(io.BytesIO(chunk), dtype=np.int64, ndmin=2, comments=None, usecols=(_TIME, _EPOCH_S, _EPOCH_US))


def _count(rows: Ints, counts: Counts, begin_us: int) -> int:
    """Add the rows to `counts`; how many were skipped."""
    time_us = rows[:, 0]
    second = (rows[:, 1] * 1_000_000 + rows[:, 2] - begin_us) // 1_000_000
    inside = (second >= 0) & (second < counts.seconds)
    done, failed = time_us >= 0, time_us == _FAILED

    took, at = time_us[done & inside], second[done & inside]
    np.add.at(counts.latencies, (at, buckets_of(took.astype(np.float64))), 1)
    np.maximum.at(counts.longest_us, at, took)
    counts.transactions += np.bincount(at, minlength=counts.seconds)
    counts.errors += np.bincount(second[failed & inside], minlength=counts.seconds)
    counts.outside += int((done & ~inside).sum())
    counts.errors_outside += int((failed & ~inside).sum())
    return int((time_us == _SKIPPED).sum())
