"""The result of a load in the form that every load generator returns: counts per second and
latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast

from dbbench.metrics.histogram import Histogram
from dbbench.metrics.series import Series
from dbbench.model import Figures, TrialWarning

LEAST_PAGES: Final = 500  # a server that starts reads up to 300 pages of its catalogue


@dataclass(frozen=True)
class Claim:
    """Work reported by the load generator, in a unit that the server or the kernel counts too."""

    count: Literal[
        "transactions",
        "statements",
        "rows",
        "updated",
        "deleted",
        "read",
        "pages",
        "table_bytes",
        "read_bytes",
        "write_bytes",
    ]
    total: float  # from the start of the load generator to its end, warm-up included
    custom: bool = False  # a script that may do nothing, or more, in some of its transactions
    counted: bool = True  # False: done in a way that nothing else counts
    changes: bool = False  # every transaction changes a row, and so writes log


def kinds(events: int, **each: float) -> Iterator[Claim]:
    """Yield the rows of each kind that this many events of a script work on; a kind with 0 is not
    compared.
    """
    for name, number in each.items():
        if number:
            yield Claim(cast(Any, name), events * number)


def pages_of(draws: float, pages: float) -> Iterator[Claim]:
    """Yield the number of the `pages` that `draws` uniformly chosen rows lie on; all must be read,
    because the server starts with an empty cache. Below LEAST_PAGES the pages of the catalogue
    would hide a difference.
    """
    distinct = pages * -math.expm1(-draws / pages) if pages else 0.0
    if distinct >= LEAST_PAGES:
        yield Claim("pages", distinct)


@dataclass(frozen=True)
class Outcome:
    """The result of a load. `series` covers warm-up and window (tps, p50_ms, p95_ms, p99_ms,
    errors; one value per second from `begin_utc`; a second without a finished transaction has
    tps 0 and no latencies), `histogram` and `transactions` only the window of `window_s`.
    `figures`: further keys of the summary (duration_s, mb_per_s, ...).
    """

    begin_utc: float
    window_s: float
    transactions: int
    errors: int
    series: Series
    histogram: Histogram | None
    figures: Figures = field(default_factory=dict)
    warnings: tuple[TrialWarning, ...] = ()
    # a stretch of seconds, where every transaction was counted
    between: Callable[[int, int], Measured] | None = None
    types: Mapping[str, Histogram] = field(default_factory=dict)  # by type of transaction
    claims: tuple[Claim, ...] = ()  # to compare with what the server or the kernel counted
    commits: int | None = None  # of the window, or syncs of files, if not the transactions
    scanned_bytes: int | None = None  # of the tables that a scan read: its costs are per GiB


class Measured(NamedTuple):
    """A range of whole seconds, merged. `longest_ms` is None if nothing finished."""

    transactions: int
    errors: int
    histogram: Histogram
    longest_ms: float | None
    kinds: dict[int, int]  # transactions by the kind that the script gave them
    kind_histograms: dict[int, Histogram]
