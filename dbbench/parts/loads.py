"""A cell's load outside its measured window, and a scan of its tables: what ageing by the engine drives."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path

from dbbench import drivers
from dbbench.clock import Clock
from dbbench.drivers.port import Live, Outcome
from dbbench.engines.port import Server
from dbbench.model import Cell, Dataset, Window


@dataclass(frozen=True)
class Loads:
    """See `wearing.Loads`. What is to be kept goes into folders of `raw`, the rest through `scratch`, which is not that
    of the trial's own load: its logs are read at the very end."""

    cell: Cell
    seed: int
    clock: Clock
    raw: Path
    scratch: Path

    def oltp(self, server: Server, window: Window, name: str) -> Outcome:
        """The cell's own load, without what its workload wants beside it."""
        workload = dataclasses.replace(self.cell.workload, during="")
        return self._driven(server, dataclasses.replace(self.cell, workload=workload, window=window), name)

    def scan(self, server: Server, name: str) -> Outcome:
        """Of every table that there is."""
        workload = dataclasses.replace(self.cell.workload, driver="scan", during="", window="to-completion")
        window, nothing = Window("to-completion", 0.0, 0.0), Dataset("none")
        cell = dataclasses.replace(self.cell, workload=workload, parameters={}, dataset=nothing, window=window)
        return self._driven(server, cell, name)

    def _driven(self, server: Server, cell: Cell, name: str) -> Outcome:
        folder = self.raw / name.replace(" ", "-") if name else self.scratch / "thrown-away"
        folder.mkdir(parents=True, exist_ok=True)
        self.scratch.mkdir(exist_ok=True)
        try:
            with drivers.driving(server, cell, self.seed, self.clock, folder, self.scratch) as load:
                load.wait_until(cell.window.warmup_s, _quietly)
                load.wait(_quietly)
            return load.outcome()
        finally:
            if not name:
                shutil.rmtree(folder)


def _quietly(_live: Live) -> None:
    """Progress is told of the measured window alone."""
