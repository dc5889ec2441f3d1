"""What sysbench prints: a line a second, its complaints, the histogram and the final report (all on stdout)."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from dbbench.drivers.port import Live

# [ 1s ] thds: 4 tps: 1273.01 qps: ... lat (ms,95%): 4.82 err/s: 0.00 reconn/s: 0.00
_SECOND: Final = re.compile(r"\[ (\d+)s \] thds: \d+ tps: (\d+(?:\.\d+)?) .*lat \(ms,95%\): (\d+(?:\.\d+)?)")
_COUNTS: Final = {
    "transactions": re.compile(r"^ +transactions: +(\d+) ", re.MULTILINE),
    "errors": re.compile(r"^ +ignored errors: +(\d+) ", re.MULTILINE),
    "reconnects": re.compile(r"^ +reconnects: +(\d+) ", re.MULTILINE),
}
_BAR: Final = re.compile(r"^ *(\d+(?:\.\d+)?) \|[* ]* (\d+)$", re.MULTILINE)
# sysbench.c, OPER_LOG_*: 1024 buckets from 0.001 ms to 100 s, counted from the middle of the first to that of the last
_LEAST_MS: Final = 1e-3
_STEP: Final = math.log(1e8) / 1023


@dataclass(frozen=True)
class Summary:
    """sysbench's own totals over its whole life. None: it did not come that far."""

    transactions: int | None
    errors: int | None  # ignored ones: the event was begun again
    reconnects: int | None


def summary(stdout: str) -> Summary:
    """The totals of the final report."""
    found = {name: pattern.search(stdout) for name, pattern in _COUNTS.items()}
    return Summary(**{name: int(match[1]) if match else None for name, match in found.items()})


def live(line: str) -> Live | None:
    """A line of `--report-interval=1`; None for other lines."""
    match = _SECOND.match(line)
    return Live(int(match[1]), float(match[2]), float(match[3])) if match else None


def histogram(stdout: str) -> Counter[str]:
    """`--histogram`: counts of the whole run by the latency in ms as it is printed ("0.797")."""
    begin, end = stdout.find("Latency histogram"), stdout.find("SQL statistics")
    return Counter({ms: int(count) for ms, count in _BAR.findall(stdout[begin:end])} if 0 <= begin < end else {})


def printed_ms(bucket: int) -> str:
    """How sysbench prints the latency that its bucket stands for."""
    return f"{math.exp(bucket * _STEP + math.log(_LEAST_MS)):.3f}"
