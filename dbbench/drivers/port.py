"""What drives an engine: one module a tool."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dbbench.clock import Clock
from dbbench.drivers.counts import Measured
from dbbench.engines.port import Server
from dbbench.histogram import Histogram
from dbbench.model import Cell, TrialWarning
from dbbench.remote import Client
from dbbench.series import Series


@dataclass(frozen=True)
class Live:
    """The last second as the tool printed it, for progress only. None: nothing known yet."""

    second: int
    tps: float | None
    p95_ms: float | None


@dataclass(frozen=True)
class Outcome:
    """What the load did.

    `series` runs over warm-up + window (columns tps, p50_ms, p95_ms, p99_ms, errors; one value a second from
    `begin_utc`; a second of the load without a finished transaction: tps 0 and no latencies); `histogram`
    and `transactions` are of the measured window alone. `window_s` is the length that transactions are
    divided by. `figures` are further keys of the trial's summary (duration_s, mb_per_s, ...).
    """

    begin_utc: float
    window_s: float
    transactions: int
    errors: int
    series: Series
    histogram: Histogram | None
    figures: dict[str, float | None] = field(default_factory=dict)
    warnings: tuple[TrialWarning, ...] = ()
    between: Callable[[int, int], Measured] | None = None  # a stretch of seconds, where every transaction was counted


class Load(Protocol):
    """A load generator that runs."""

    @property
    def pids(self) -> tuple[int, ...]: ...  # of the tool's own processes, for CPU accounting

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Block until `second` of the load's clock (0 = start of warm-up), calling `watch` once a second.
        Raises DriverFailed or EngineDied as soon as tool or server is gone."""
        ...

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Block until the tool has ended by itself. Exit status 0 proves nothing; `outcome` judges."""
        ...

    def outcome(self) -> Outcome:
        """Parse what was written, after the server has stopped. DriverFailed, ClientErrors, LoadEndedEarly,
        NoProgress where what was measured is not what was asked."""
        ...


class Driver(Protocol):
    """A kind of load generator. Satisfied by a module."""

    def programs(self) -> tuple[str, ...]:
        """What `doctor` must find."""
        ...

    def driving(
        self, server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path
    ) -> AbstractContextManager[Load]:
        """Start the load; at the end of the block the tool is gone. `raw` keeps what the tool printed,
        `scratch` (memory-backed, off the device under test) is for large logs. `cell.window` says how long,
        `cell.parameters` how (clients, threads, rate ...), `cell.workload.script` which script."""
        ...


class Away(Protocol):
    """A load generator that can run on another host too. Satisfied by a module."""

    def driving_from(
        self, client: Client, server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path
    ) -> AbstractContextManager[Load]:
        """As `Driver.driving`, from the client's host. The tool ends with the client; its logs are in `scratch` when
        the client has come home, which is after the server has stopped."""
        ...
