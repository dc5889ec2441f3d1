"""Ageing by the engine (`[age_engine]`): its load continues until several times the size of the
data has been written, with a window at each factor; then the tables are scanned cold, repaired
and scanned again. The server counts the bytes (log and data), so that a filesystem with write
amplification is not aged less.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import model
from dbbench.drivers import DRIVERS
from dbbench.drivers.protocol import Live, LoadTask
from dbbench.engines.port import Server
from dbbench.engines.serving import grown_between
from dbbench.metrics import steadiness
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Clock
from dbbench.operations import StoredDatabase
from dbbench.operations.maintenance import of_engine, of_filesystem
from dbbench.operations.steps import cold
from dbbench.samplers.accounting import DiskClock
from dbbench.storage import filesystems
from dbbench.storage.filesystems import shape
from dbbench.storage.filesystems.common import extents_of

# Smallest number of written bytes per window; a load that writes less does not age the tables.
LEAST_BYTES: Final = 2**16
FIGURES: Final = ("tps", "p99_ms")


@dataclass(frozen=True)
class Loads:
    """The cell's load outside its measured window, and a scan of its tables. `raw` gets output to
    keep; `scratch` differs from that of the trial's load, whose logs are read at the very end.
    """

    cell: model.Cell
    seed: int
    clock: Clock
    raw: Path
    scratch: Path

    def oltp(self, server: Server, window: model.Window, name: str) -> Outcome:
        """Run the load, without `during`, over a window. `name`: the directory for its output,
        which "" removes.
        """
        workload = dataclasses.replace(self.cell.workload, during="")
        return self._outcome(
            server, dataclasses.replace(self.cell, workload=workload, window=window), name
        )

    def scan(self, server: Server, name: str) -> Outcome:
        workload = dataclasses.replace(
            self.cell.workload, driver="scan", during="", window="to-completion"
        )
        window = model.Window("to-completion", 0.0, 0.0)
        nothing = model.Dataset("none")
        cell = dataclasses.replace(
            self.cell, workload=workload, parameters={}, dataset=nothing, window=window
        )
        return self._outcome(server, cell, name)

    def _outcome(self, server: Server, cell: model.Cell, name: str) -> Outcome:
        folder = self.raw / name.replace(" ", "-") if name else self.scratch / "thrown-away"
        folder.mkdir(parents=True, exist_ok=True)
        self.scratch.mkdir(exist_ok=True)
        driver = DRIVERS[cell.workload.driver]
        try:
            with driver.driving(
                LoadTask(server, cell, self.seed, self.clock, folder, self.scratch)
            ) as load:
                load.wait_until(cell.window.warmup_s, _quietly)
                load.wait(_quietly)
            return load.outcome()
        finally:
            if not name:
                shutil.rmtree(folder)


def _quietly(_live: Live) -> None:
    """Report no progress: only the measured window does."""


def age_tables(
    filled: StoredDatabase, asked: model.EngineAgeing, window: model.Window, loads: Loads
) -> model.EngineAgeFacts:
    """Age the tables of the stopped server as the plan requests, scan, repair, scan; the server is
    stopped again.
    """
    ageing = _Ageing(filled, window, loads)
    with filled.serving(filled.datadir) as server:
        server.checkpoint()
        points = tuple(ageing.points(server, asked.write_factors))
    scans = [_scan(filled, loads, "aged")]
    repairs = []
    if asked.repair:
        for by, mend in (("filesystem", of_filesystem), ("engine", of_engine)):
            done: model.OperationFacts = mend(filled)
            repairs.append(done)
            if done.seconds is not None:
                scans.append(_scan(filled, loads, f"repaired by the {by}"))
    return model.EngineAgeFacts(
        dataset_bytes=ageing.dataset_bytes,
        written_bytes=ageing.written_bytes,
        points=points,
        slopes=tuple(slopes(points)),
        scans=tuple(scans),
        repairs=tuple(repairs),
        checked=filled.check(filled.datadir),
        note=ageing.note,
    )


class _Ageing:
    """The load that ages the tables. `note`: why it could not continue."""

    def __init__(self, filled: StoredDatabase, window: model.Window, loads: Loads) -> None:
        self.filled = filled
        self.window = window
        self.loads = loads
        self.dataset_bytes = max(1, sum(path.stat().st_size for path in filled.files))
        self.written_bytes = 0
        self.note = ""

    def points(self, server: Server, factors: Sequence[float]) -> Iterator[model.WrittenPoint]:
        """Yield a point for each window."""
        fs = self.filled.fs
        for factor in sorted(factors):
            while self.written_bytes / self.dataset_bytes < factor:
                before = self.written_bytes
                yield self._drive(server, "")
                if (wrote := self.written_bytes - before) < LEAST_BYTES:
                    length = f"{self.window.measure_s:.0f} s"
                    self.note = (
                        f"the load wrote {wrote} bytes in {length}, which does not age the tables"
                    )
                    return
            filesystems.sync(fs.path)
            logical = sum(path.stat().st_size for path in self.filled.files)
            disk = shape.space(fs, logical).disk_bytes if fs.raw is None else None
            extents = extents_of(self.filled.files)
            point = self._drive(server, f"{factor:g}")
            yield dataclasses.replace(
                point, asked=factor, extents=extents, logical_bytes=logical, disk_bytes=disk
            )

    def _drive(self, server: Server, name: str) -> model.WrittenPoint:
        factor = self.written_bytes / self.dataset_bytes
        before = server.counters()
        outcome = self.loads.oltp(server, self.window, name)
        # Only the first window has a warm-up, because the server keeps running.
        self.window = dataclasses.replace(self.window, warmup_s=0.0)
        # dirty pages are written, and so counted; the next window begins without them
        server.checkpoint()
        self.written_bytes += server.written_bytes(grown_between(before, server.counters())) or 0
        server.purge_log()  # otherwise the log of many windows would fill the device
        p99 = outcome.histogram.percentile_ms(99.0) if outcome.histogram is not None else None
        return model.WrittenPoint(factor, outcome.transactions / outcome.window_s, p99)


def _scan(filled: StoredDatabase, loads: Loads, when: str) -> model.AgedScan:
    cache_text = cold(filled)
    with filled.serving(filled.datadir) as server:
        disk = DiskClock(filled.volume.leaves)
        outcome = loads.scan(server, f"scan {when}")
        read = disk.difference()["read_bytes"]
    rate = read / 1e6 / outcome.window_s if read is not None else None
    duration_s = outcome.figures["duration_s"] or 0.0
    mb_per_s = outcome.figures["mb_per_s"]
    return model.AgedScan(when, duration_s, mb_per_s, rate, cache_text == "from a cold cache")


def slopes(points: Sequence[model.WrittenPoint]) -> Iterator[model.AgedSlope]:
    """Yield each metric's regression line over the bytes written, in sizes of the data, with a 95 %
    interval (t).
    """
    for name in FIGURES:
        measured = [
            (point.factor, value) for point in points if (value := getattr(point, name)) is not None
        ]
        line = steadiness.line(*zip(*measured, strict=True)) if len(measured) > 2 else None
        if line is not None:
            yield model.AgedSlope(name, line.slope, line.low, line.high)
