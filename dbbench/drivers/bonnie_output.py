"""What bonnie++ prints: its line of comma-separated values, with rates, CPU shares and longest latencies.

A field of plus signs is a test that ended too soon to be timed, an empty one a test that was not asked for: neither
has a figure. Rates of data are KiB a second in its line, MB a second here.
"""

from __future__ import annotations

import re
from typing import Final

from dbbench import process
from dbbench.errors import DriverFailed

_KIB: Final = 1024 / 1e6  # MB
# (metric of the rate, stem of its CPU share and latency, in MB/s), in the order of the line; the files' tests follow.
DATA: Final = (
    ("char_write_mb_per_s", "char_write", _KIB),
    ("block_write_mb_per_s", "block_write", _KIB),
    ("rewrite_mb_per_s", "rewrite", _KIB),
    ("char_read_mb_per_s", "char_read", _KIB),
    ("block_read_mb_per_s", "block_read", _KIB),
    ("seeks_per_s", "seek", 1.0),
)
FILES: Final = (
    ("creates_per_s", "create", 1.0),
    ("stats_per_s", "stat", 1.0),
    ("deletes_per_s", "delete", 1.0),
    ("random_creates_per_s", "random_create", 1.0),
    ("random_stats_per_s", "random_stat", 1.0),
    ("random_deletes_per_s", "random_delete", 1.0),
)
# Where the first rate stands, by the format's version. 1.98 has the size of a chunk and the number of seekers too.
_FIRST: Final = {"1.96": 7, "1.97": 7, "1.98": 9}
_BETWEEN: Final = 5  # fields between the data's tests and the files': their number, sizes and folders
_LATENCY: Final = re.compile(r"(\d+)(us|ms|s)")
_MS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@process.understood("bonnie++")
def parse(text: str) -> dict[str, float | None]:
    """The figures of the last such line: RATE, STEM_cpu_pct, STEM_max_ms. DriverFailed where there is none, or one of
    a format that is not known."""
    lines = [line.split(",") for line in text.splitlines() if re.match(r"\d\.\d+,", line)]
    if not lines:
        raise DriverFailed("bonnie++ printed no line of figures")
    fields = lines[-1]
    first = _FIRST.get(fields[0])
    tests = (*DATA, *FILES)
    if first is None or len(fields) != first + 3 * len(tests) + _BETWEEN:
        raise DriverFailed(f"bonnie++ printed {len(fields)} fields of format {fields[0]}; known: {', '.join(_FIRST)}")
    places = [first + 2 * index + (_BETWEEN if index >= len(DATA) else 0) for index in range(len(tests))]
    latencies = fields[-len(tests) :]
    found: dict[str, float | None] = {}
    for (rate, stem, factor), place, latency in zip(tests, places, latencies, strict=True):
        value = _number(fields[place])
        found[rate] = None if value is None else value * factor
        found[f"{stem}_cpu_pct"] = _number(fields[place + 1])
        found[f"{stem}_max_ms"] = _milliseconds(latency)
    return found


def _number(field: str) -> float | None:
    return float(field) if field.replace(".", "", 1).isdigit() else None


def _milliseconds(field: str) -> float | None:
    match = _LATENCY.fullmatch(field)
    return float(match[1]) * _MS[match[2]] if match else None
