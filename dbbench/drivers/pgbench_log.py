"""The transaction logs of pgbench: one file per worker."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from dbbench.drivers import tool
from dbbench.errors import DriverFailed
from dbbench.metrics.counts import Counts, Ints, buckets_of

_NUMERIC: Final = b"0123456789- \n"
_WORDS: Final = re.compile(rb" (failed|serialization|deadlock|skipped) ")
_FAILED = -1
_SKIPPED = -2
# columns of a log line; later ones depend on the options
_TIME = 2
_SCRIPT = 3
_EPOCH_S = 4
_EPOCH_US = 5


def log_files(folder: Path, prefix: str) -> list[Path]:
    """Return the logs that pgbench wrote with `--log-prefix`: PREFIX.PID and PREFIX.PID.N, one per
    worker.
    """
    name = re.compile(rf"{re.escape(prefix)}\.\d+(\.\d+)?")
    logs = [
        path for path in folder.iterdir() if name.fullmatch(path.name) and not path.is_symlink()
    ]
    return sorted(logs)


def parse(
    paths: Iterable[Path],
    begin_utc: float,
    seconds: int,
    scripts: int = 1,
) -> tuple[Counts, int]:
    """Return all workers' transactions by the second in which they ended from `begin_utc` on, and
    how many were skipped; of several scripts, latencies by script too. A failed transaction counts
    as an error only. Raises DriverFailed for
    a line that is not pgbench's.
    """
    counts = Counts(seconds)
    skipped = 0
    for path in paths:
        with tool.open_output(path) as log:
            while lines := log.readlines(tool.PIECE_BYTES):
                try:
                    rows = _columns(b"".join(lines))
                    skipped += _count(
                        rows,
                        counts,
                        round(begin_utc * 1e6),
                        scripts,
                    )
                except ValueError as error:
                    raise DriverFailed(f"{path.name} is not a pgbench log: {error}") from None
    return counts, skipped


def _columns(chunk: bytes) -> Ints:
    """Return rows of time, script, epoch_s, epoch_us; a word in the time column is a negative number.
    Raises ValueError.
    """
    try:
        return _numbers(chunk)
    # the chunk contains a word; this is rare, and searching every chunk for words would cost more
    except ValueError:
        return _numbers(_WORDS.sub(_number_of, chunk))


def _number_of(word: re.Match[bytes]) -> bytes:
    return b" %d " % (_SKIPPED if word[1] == b"skipped" else _FAILED)


def _numbers(chunk: bytes) -> Ints:
    # damaged files have made numpy's reader crash the interpreter
    if chunk.translate(None, _NUMERIC):
        raise ValueError("a line contains something other than numbers")
    if not chunk.strip():
        return np.empty((0, 4), np.int64)
    return np.loadtxt(
        io.BytesIO(chunk),
        dtype=np.int64,
        ndmin=2,
        comments=None,
        usecols=(_TIME, _SCRIPT, _EPOCH_S, _EPOCH_US),
    )


def _count(rows: Ints, counts: Counts, begin_us: int, scripts: int) -> int:
    time_us, script, epoch_s, epoch_us = rows.T
    second = (epoch_s * 1_000_000 + epoch_us - begin_us) // 1_000_000
    inside = (second >= 0) & (second < counts.seconds)
    done = time_us >= 0
    failed = time_us == _FAILED
    counts.outside += int((done & ~inside).sum())
    counts.errors_outside += int((failed & ~inside).sum())

    took_us = time_us[done & inside]
    seconds = second[done & inside]
    buckets = buckets_of(took_us.astype(np.float64))
    np.add.at(counts.latencies, (seconds, buckets), 1)
    np.maximum.at(counts.longest_us, seconds, took_us)
    counts.transactions += np.bincount(seconds, minlength=counts.seconds)
    counts.errors += np.bincount(second[failed & inside], minlength=counts.seconds)
    if scripts > 1:
        kinds = script[done & inside]
        for kind in np.unique(kinds).tolist():
            of_kind = counts.kind_latencies.setdefault(kind, np.zeros_like(counts.latencies))
            np.add.at(of_kind, (seconds[kinds == kind], buckets[kinds == kind]), 1)
    return int((time_us == _SKIPPED).sum())
