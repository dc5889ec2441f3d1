"""`iostat -x -t -o JSON` -> entries: by key, never by the number of a column."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from dbbench import process
from dbbench.samplers.sysstat import Entry, statistics

_RATES: Final = {
    "r/s": "r_per_s", "w/s": "w_per_s", "f/s": "f_per_s", "d/s": "d_per_s",
    "rkB/s": "r_kb_per_s", "wkB/s": "w_kb_per_s", "aqu-sz": "aqu_sz", "util": "util_pct",
}  # fmt: skip
# A time per request exists only where there were requests: key of the time -> (key of the rate, column).
_AWAITS: Final = {
    "r_await": ("r/s", "r_await_ms"),
    "w_await": ("w/s", "w_await_ms"),
    "f_await": ("f/s", "f_await_ms"),
}


@process.understood("iostat")
def parse(text: str, disk: str) -> tuple[list[Entry], bool]:
    """Entries of `disk` in order, and whether the document was whole. Intervals without it are left out."""
    found, whole = statistics(text)
    entries: list[Entry] = []
    for raw in found:
        stamp = _stamp(raw)
        row = next((row for row in raw.get("disk", []) if row.get("disk_device") == disk), None)
        if stamp is not None and row is not None:
            interval = stamp - entries[-1].stamp if entries else 1
            entries.append(Entry(stamp, interval, dict(_values(row))))
    return entries, whole


def _stamp(raw: dict[str, Any]) -> int | None:
    """Epoch seconds of an ISO time with its zone; None for the local formats, which do not say their zone."""
    try:
        end = datetime.fromisoformat(raw["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None
    return int(end.timestamp()) if end.tzinfo is not None else None


def _values(row: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    for key, column in _RATES.items():
        yield column, _number(row.get(key))
    for key, (rate, column) in _AWAITS.items():
        yield column, _number(row.get(key)) if row.get(rate) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
