"""What pgbench prints: its summary (stdout), its progress and its complaints (stderr)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dbbench.drivers.port import Live

_PROGRESS: Final = re.compile(r"progress: (\d+(?:\.\d+)?) s, (\d+(?:\.\d+)?) tps")
# "client 3 script 0 aborted in command 2 query 0: ERROR: ..." (15), "client 3 aborted in command 2 (SQL) of ..." (12)
_ABORTED: Final = re.compile(r"client \d+ (?:script \d+ )?aborted|Run was aborted")
_COUNTS: Final = {
    "processed": re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE),
    "failed": re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE),
    "skipped": re.compile(r"^number of transactions skipped: (\d+)", re.MULTILINE),
}


@dataclass(frozen=True)
class Summary:
    """pgbench's own totals over its whole life. None: not printed (not every version and option prints each)."""

    processed: int | None
    failed: int | None
    skipped: int | None


def summary(stdout: str) -> Summary:
    """The totals at the end of its output; all None where it did not come that far."""
    found = {name: pattern.search(stdout) for name, pattern in _COUNTS.items()}
    return Summary(**{name: int(match[1]) if match else None for name, match in found.items()})


def live(line: str) -> Live | None:
    """A line of `--progress=1`: the second that ended and its tps; None for other lines."""
    match = _PROGRESS.match(line)
    return Live(round(float(match[1])), float(match[2]), None) if match else None


def aborted(line: str) -> bool:
    """Whether a client gave up: pgbench goes on without it, with a smaller load than was asked for."""
    return _ABORTED.search(line) is not None
