"""Parse and format sizes, durations and times ("4GiB", "90s"), make foreign text safe to print, and
group items.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

# narrow no-break space: between groups of digits, and between a number and its unit
GROUP: Final = "\u202f"
MISSING: Final = "–"  # not measured

_K = TypeVar("_K")
_V = TypeVar("_V")

_SIZES: Final = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}
_TIMES: Final = {
    "": 1.0,
    "s": 1.0,
    "ms": 0.001,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
}
_MOST_BYTES: Final = 2**63  # no kernel supports larger files
_MOST_S: Final = 366 * 86400.0
_LONGEST: Final = 200  # characters of the message about an invalid value
_WRITTEN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")

# Names, logs and results may contain these: C0 without tab and newline, DEL, C1, and changes of the
# text direction (U+061C, U+200E and U+200F do it without a visible sign).
_ACTIVE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def inert(text: str) -> str:
    """Return the text for a terminal: control characters are shown as JSON escapes."""
    return _ACTIVE.sub(lambda hit: f"\\u{ord(hit[0]):04x}", text)


def on_terminal(text: str) -> str:
    """Return the text without control characters, and with plain spaces, because many fonts lack
    the narrow ones.
    """
    return inert(text).replace(GROUP, " ")


def one_line(text: str, most: int = 100) -> str:
    """Return foreign text as one line of at most so many printable characters."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    if len(line) <= most:
        return line
    return line[: most - 1] + "…"


def bytes_of(written: object) -> int:
    """Return the bytes of "4GiB", "500MB" or a number. Raises ValueError."""
    parsed = _parse(
        written,
        _SIZES,
        'a size such as "4GiB" (KiB, MiB, GiB, TiB; kB, MB, GB, TB) or a number of bytes',
    )
    if parsed >= _MOST_BYTES:
        raise ValueError(f"expected less than 8 EiB, not {written!r}"[:_LONGEST])
    return int(parsed)


def seconds_of(written: object) -> float:
    """Return the seconds of "90s", "5min", "2h" or a number. Raises ValueError."""
    parsed = _parse(written, _TIMES, 'a time such as "90s" (ms, s, min, h)')
    if parsed > _MOST_S:
        raise ValueError(f"expected at most a year, not {written!r}"[:_LONGEST])
    return parsed


def share_of(written: object) -> float:
    """Return the share of "3%" or 0.03, which is more than 0 and less than 1. Raises ValueError."""
    text = str(written).strip()  # "True" is no number
    try:
        share = float(text.removesuffix("%"))
    except ValueError:
        share = math.nan
    if text.endswith("%"):
        share /= 100
    if not 0 < share < 1:
        expected = 'a percentage such as "3%", more than 0 and less than 100 %'
        raise ValueError(f"expected {expected}, not {written!r}"[:_LONGEST])
    return share


def _parse(
    written: object,
    units: dict[str, float] | dict[str, int],
    expected: str,
) -> float:
    # True would count as 1.
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise ValueError(f"expected {expected}")
    if not isinstance(written, str):
        if not 0 <= written < float("inf"):
            raise ValueError(f"expected {expected}, not {written}")
        return written
    match = _WRITTEN.fullmatch(written)
    # Gb and Mb are gigabits and megabits; nobody measures a disk in them.
    if match is None or match[2].lower() not in units or match[2] in ("kb", "Kb", "Mb", "Gb", "Tb"):
        raise ValueError(f"expected {expected}, not {written!r}")
    return float(match[1]) * units[match[2].lower()]


def size_text(size_bytes: float) -> str:
    """Return "1.5 GiB" for 1610612736."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        amount = size_bytes / _SIZES[unit.lower()]
        if abs(amount) >= 1:
            if amount < 1000:
                return f"{amount:.3g} {unit}"
            return f"{amount:.0f} {unit}"
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """Return "1:12" for 72, "3:12:05" for 11525."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, second = divmod(rest, 60)
    if hours:
        return f"{hours}:{minutes:02}:{second:02}"
    return f"{minutes}:{second:02}"


def duration_text(seconds: float | None) -> str:
    """Format a duration from microseconds to hours: "0.065 ms", "28 ms", "3.37 s", "1:12"."""
    if seconds is None:
        return MISSING
    if seconds >= 100:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        # The two largest units, of which the second may be 0.
        parts = [f"{hours} h", f"{minutes} min"] if hours else [f"{minutes} min", f"{rest} s"]
        return " ".join(part for part in parts if not part.startswith("0 "))
    if seconds >= 1 or seconds == 0:
        return f"{seconds:.3g} s"
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def number(value: float | None) -> str:
    """Return a number with about three digits: 1 926, 63.4, 7.21, 0.143; "–" for None and what is
    not finite.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    if size >= 99.95 or value == int(value):
        decimals = 0
    elif size >= 0.9995:
        decimals = 1 if size >= 9.995 else 2
    else:
        decimals = min(6, 2 - math.floor(math.log10(size)))
    return _typeset(f"{value:,.{decimals}f}")


def _typeset(text: str) -> str:
    return text.replace(",", GROUP).replace("-", "−")


def change(ratio: float | None) -> str:
    """Return a ratio as a change: "−21.4 %" for 0.786."""
    if ratio is None:
        return MISSING
    return f"{_change_text(ratio)}{GROUP}%"


def round_change(ratio: float) -> str:
    """Return the change at the tick of an axis: "−50 %", "0 %", "+2.5 %"."""
    percent = (ratio - 1) * 100
    if not percent:
        return f"0{GROUP}%"
    text = f"{percent:+,.0f}" if abs(percent) >= 99.95 else f"{percent:+.3g}"
    return f"{_typeset(text)}{GROUP}%"


def interval(low: float | None, high: float | None) -> str:
    """Return two ratios as an interval of changes: "−22.9..−19.9 %"."""
    if low is None or high is None:
        return MISSING
    return f"{_change_text(low)}..{_change_text(high)}{GROUP}%"


def _change_text(ratio: float) -> str:
    percent = (ratio - 1) * 100
    text = f"{percent:+,.0f}" if abs(percent) >= 99.95 else f"{percent:+.1f}"
    if text in ("+0.0", "-0.0"):
        return "0.0"
    return _typeset(text)


def percent(share: float, decimals: int = 0) -> str:
    """Return a share as a percentage: "76 %" for 0.76."""
    return f"{100 * share:.{decimals}f} %"


def percents(low: float, high: float) -> str:
    """Return two shares as percentages: "1.6–20 %"."""
    return f"{100 * low:.3g}–{100 * high:.3g} %"


def times(ratio: float | None) -> str:
    """Return a ratio as a factor: "0.48 ×"."""
    return MISSING if ratio is None else f"{ratio:.3g}{GROUP}×"


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Return "1 trial" or "3 trials"."""
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def ranges(numbers: Iterable[int]) -> list[str]:
    """Return ["3-5", "9"] for 3, 4, 5 and 9, in any order."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return [f"{first}-{last}" if last > first else f"{first}" for first, last in spans]


def join_words(words: list[str], last: str = "and") -> str:
    """Return "a", "a and b" or "a, b and c", or with another word before the last one."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def level_text(value: object) -> str:
    """Return a value as it is written in a plan: true and false in lower case."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def iso(utc: float, digits: str = "milliseconds") -> str:
    """Format epoch seconds as UTC in ISO 8601 with milliseconds (or `digits`):
    2026-11-21T10:15:30.123Z.
    """
    return datetime.fromtimestamp(utc, UTC).isoformat(timespec=digits).replace("+00:00", "Z")


def epoch(text: str) -> float:
    """Parse a time written by `iso`; return epoch seconds."""
    return datetime.fromisoformat(text).timestamp()


def finite(value: Any) -> Any:
    """Return the content of a JSON document with null for each number that is not finite, which
    JSON does not have.
    """
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def group_by(items: Iterable[_V], key: Callable[[_V], _K]) -> dict[_K, list[_V]]:
    """Return the items by their key; both keep their order."""
    groups: dict[_K, list[_V]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
