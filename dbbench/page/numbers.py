"""Numbers as a person reads them on the page: few digits, grouped, with real minus signs; `–` is "not measured"."""

from __future__ import annotations

import math
from typing import Final

from dbbench.metrics import Metric
from dbbench.units import size_text

GROUP: Final = "\u202f"  # narrow no-break space: groups digits, and keeps a unit on the line of its number
MISSING: Final = "–"


def number(value: float | None) -> str:
    """Three digits or so: 1 926, 63.4, 7.21, 0.143. `–` where there is no value."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    decimals = 0 if size >= 99.95 or value == int(value) else _decimals(size)
    text = f"{value:,.{decimals}f}"
    return text.replace(",", GROUP).replace("-", "−")


def _decimals(size: float) -> int:
    if size >= 9.995:
        return 1
    return 2 if size >= 0.9995 else min(6, 2 - math.floor(math.log10(size)))


def of_metric(value: float | None, metric: Metric) -> str:
    """A metric's value without its unit; bytes as GiB, MiB with it."""
    if value is not None and metric.unit == "bytes":
        return size_text(value).replace(" ", GROUP)
    return number(value)


def with_unit(value: float | None, metric: Metric) -> str:
    """A metric's value and its unit."""
    text = of_metric(value, metric)
    return text if value is None or metric.unit in ("", "bytes") else f"{text}{GROUP}{metric.unit}"


def change(ratio: float | None) -> str:
    """A ratio as the change that it is: 0.786 is −21.4 %."""
    return MISSING if ratio is None else f"{_signed(ratio)}{GROUP}%"


def round_change(ratio: float) -> str:
    """A change for the tick of an axis: −50 %, +2.5 %."""
    percent = (ratio - 1) * 100
    text = f"{percent:+,.0f}" if abs(percent) >= 99.95 else f"{percent:+.3g}"
    return f"{text}{GROUP}%".replace(",", GROUP).replace("-", "−")


def interval(low: float | None, high: float | None) -> str:
    """Two ratios as an interval of changes: −22.9..−19.9 %."""
    return MISSING if low is None or high is None else f"{_signed(low)}..{_signed(high)}{GROUP}%"


def _signed(ratio: float) -> str:
    percent = (ratio - 1) * 100
    text = f"{percent:+,.0f}" if abs(percent) >= 99.95 else f"{percent:+.1f}"
    return ("0.0" if text in ("+0.0", "-0.0") else text).replace("-", "−").replace(",", GROUP)


def seconds(value: float | None) -> str:
    """Seconds in words of a second: 0.84 s, 12 s, 3 min 20 s."""
    if value is None:
        return MISSING
    if value < 120:
        return f"{number(value)}{GROUP}s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes}{GROUP}min" + (f" {rest}{GROUP}s" if rest else "")


def count(n: int, one: str, many: str | None = None) -> str:
    """`1 trial`, `3 trials`."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + (f" and {words[-1]}" if words else "")
