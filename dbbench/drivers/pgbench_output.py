"""What pgbench prints, and its transaction logs: one file per thread."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np

from dbbench.drivers.protocol import Live
from dbbench.drivers.tool import PIECE_BYTES
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Counts, Ints, buckets_of

_PROGRESS: Final = re.compile(r"progress: (\d+(?:\.\d+)?) s, (\d+(?:\.\d+)?) tps")
# pgbench 15: "client 3 script 0 aborted in command 2 query 0: ERROR: ..."
# pgbench 12: "client 3 aborted in command 2 (SQL) of ..."
_ABORTED: Final = re.compile(r"client \d+ (?:script \d+ )?aborted|Run was aborted")
COUNTS: Final = {
    "processed": re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE),
    "failed": re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE),
    "skipped": re.compile(r"^number of transactions skipped: (\d+)", re.MULTILINE),
}
_NUMERIC: Final = b"0123456789- \n"
_WORDS: Final = re.compile(rb" (failed|serialization|deadlock|skipped) ")
_FAILED, _SKIPPED = -1, -2
_TIME, _EPOCH_S, _EPOCH_US = 2, 4, 5  # columns of a log line; later ones depend on the options


def live(line: str) -> Live | None:
    """Parse a line of `--progress=1`: the second that ended and its tps; None for other lines."""
    match = _PROGRESS.match(line)
    return Live(round(float(match[1])), float(match[2]), None) if match else None


def is_abort(line: str) -> bool:
    """Whether a client gave up: pgbench continues without it, with a smaller load than requested."""
    return _ABORTED.search(line) is not None


def log_files(folder: Path, prefix: str) -> list[Path]:
    """Return the logs that pgbench wrote with `--log-prefix`: PREFIX.PID and PREFIX.PID.N, one per worker."""
    return sorted(
        path
        for path in folder.glob(f"{prefix}.*")
        if re.fullmatch(r"\d+(\.\d+)?", path.name[len(prefix) + 1 :]) and not path.is_symlink()
    )


def parse(paths: Iterable[Path], begin_utc: float, seconds: int) -> tuple[Counts, int]:
    """Return all workers' transactions by the second in which they ended from `begin_utc` on, and how many were
    skipped. A failed transaction counts as an error only. Raises DriverFailed for a line that is not pgbench's."""
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
    """Yield the file in chunks that end with a line; a last line without an end is returned as it is."""
    rest = b""
    while block := log.read(PIECE_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest


def _columns(chunk: bytes) -> Ints:
    """Return rows of time, epoch_s, epoch_us; a word in the time column is a negative number. Raises ValueError."""
    try:
        return _numbers(chunk)
    except ValueError:  # the chunk contains a word; this is rare, and searching every chunk for words would cost more
        return _numbers(_WORDS.sub(lambda word: b" %d " % (_SKIPPED if word[1] == b"skipped" else _FAILED), chunk))


def _numbers(chunk: bytes) -> Ints:
    if chunk.translate(None, _NUMERIC):  # damaged files have made numpy's reader crash the interpreter
        raise ValueError("a line contains something other than numbers")
    if not chunk.strip():
        return np.empty((0, 3), np.int64)
    return np.loadtxt(io.BytesIO(chunk), dtype=np.int64, ndmin=2, comments=None, usecols=(_TIME, _EPOCH_S, _EPOCH_US))


def _count(rows: Ints, counts: Counts, begin_us: int) -> int:
    time_us = rows[:, 0]
    second = (rows[:, 1] * 1_000_000 + rows[:, 2] - begin_us) // 1_000_000
    inside = (second >= 0) & (second < counts.seconds)
    done, failed = time_us >= 0, time_us == _FAILED

    took, seconds = time_us[done & inside], second[done & inside]
    np.add.at(counts.latencies, (seconds, buckets_of(took.astype(np.float64))), 1)
    np.maximum.at(counts.longest_us, seconds, took)
    counts.transactions += np.bincount(seconds, minlength=counts.seconds)
    counts.errors += np.bincount(second[failed & inside], minlength=counts.seconds)
    counts.outside += int((done & ~inside).sum())
    counts.errors_outside += int((failed & ~inside).sum())
    return int((time_us == _SKIPPED).sum())
