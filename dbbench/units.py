"""Sizes and times as people write them: "4GiB", "90s"; and back. And text of others, made safe to print."""

from __future__ import annotations

import re
from typing import Final

_SIZES: Final = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
                 "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "k": 2**10, "m": 2**20, "g": 2**30}  # fmt: skip
_TIMES: Final = {"": 1.0, "s": 1.0, "ms": 0.001, "min": 60.0, "m": 60.0, "h": 3600.0}
_WRITTEN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")

# C0 without tab and newline, DEL, C1, and what turns the direction of writing: names, logs and results may hold them.
_ACTIVE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def inert(text: str) -> str:
    """The text as a terminal may have it: what would be a command to it is shown as a JSON escape."""
    return _ACTIVE.sub(lambda hit: f"\\u{ord(hit[0]):04x}", text)


def bytes_of(written: object) -> int:
    """Bytes of "4GiB", "500MB" or a bare number. ValueError says what was expected."""
    return int(_parsed(written, _SIZES, 'a size such as "4GiB" or a number of bytes'))


def seconds_of(written: object) -> float:
    """Seconds of "90s", "5min", "2h" or a bare number. ValueError says what was expected."""
    return _parsed(written, _TIMES, 'a time such as "90s" or a number of seconds')


def _parsed(written: object, units: dict[str, float] | dict[str, int], expected: str) -> float:
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise ValueError(f"expected {expected}")
    if not isinstance(written, str):
        if not 0 <= written < float("inf"):
            raise ValueError(f"expected {expected}, not {written}")
        return written
    match = _WRITTEN.fullmatch(written)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"expected {expected}, not {written!r}")
    return float(match[1]) * units[match[2].lower()]


def size_text(size_bytes: float) -> str:
    """ "1.5 GiB" of 1610612736."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= factor:
            return (
                f"{size_bytes / factor:.3g} {unit}"
                if size_bytes / factor < 1000
                else f"{size_bytes / factor:.0f} {unit}"
            )
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """ "1:12" of 72, "3:12:05" of 11525."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, second = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def duration_text(seconds: float) -> str:
    """ "0.065 ms", "28 ms", "3.37 s", "1:12": what takes from microseconds to hours."""
    if seconds >= 60:
        return time_text(seconds)
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"
