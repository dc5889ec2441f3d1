"""The seconds of a group's trials: read once, with stalls and gaps found on the full data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dbbench.model import Phase, Trial
from dbbench.page.groups import Group
from dbbench.series import Column, Series
from dbbench.summary import STALL

BEGUN: Final = 0.5  # of a counter's rate: one event in a second, with a reading that came a little late
LEAST_TRIALS: Final = 3  # a median over trials needs three with data in that second, else it is a gap


@dataclass(frozen=True)
class Telemetry:
    """Series of the trials that have one. `warmup` is where the measured window begins, in seconds."""

    group: Group
    series: dict[str, Series]
    phases: dict[str, list[str]]

    @property
    def seconds(self) -> int:
        return max((series.seconds for series in self.series.values()), default=0)

    @cached_property
    def warmup(self) -> int:
        starts = [names.index(Phase.MEASURE) for names in self.phases.values() if Phase.MEASURE in names]
        return min(starts, default=0)

    @property
    def trials(self) -> list[Trial]:
        """The trials that have a series, by arm and block."""
        place = {arm: index for index, arm in enumerate(self.group.arms)}
        mine = [trial for trial in self.group.trials if trial.id in self.series]
        return sorted(mine, key=lambda trial: (place.get(trial.fs_setup, 0), trial.block, trial.attempt))

    def used(self, arm: str) -> list[Trial]:
        return [t for t in self.trials if t.fs_setup == arm and t.id in self.group.used]

    def has(self, name: str) -> bool:
        """Whether any trial has one value of the column."""
        return any(name in s and any(v is not None for v in s[name]) for s in self.series.values())

    def window(self, trial: Trial, name: str) -> Column:
        """The column within the measured window."""
        series, phases = self.series[trial.id], self.phases[trial.id]
        if name not in series:
            return []
        return [v for v, phase in zip(series[name], phases, strict=True) if phase == Phase.MEASURE]

    def typical(self, arm: str, name: str) -> float | None:
        """The median second of the window over all used trials of the arm."""
        values = [v for trial in self.used(arm) for v in self.window(trial, name) if v is not None]
        return statistics.median(values) if values else None

    def stalls(self, trial: Trial) -> list[int]:
        """Seconds of the window below a tenth of the trial's median throughput, counted from warm-up's start."""
        series = self.series[trial.id]
        known = [v for v in self.window(trial, "tps") if v is not None]
        if "tps" not in series or not known:
            return []
        floor = STALL * statistics.median(known)
        inside = self.phases[trial.id]
        return [
            second
            for second, (value, phase) in enumerate(zip(series["tps"], inside, strict=True))
            if phase == Phase.MEASURE and value is not None and (value < floor or not floor)
        ]

    def checkpoints(self, trial: Trial) -> list[int]:
        """Seconds in which the server began a checkpoint."""
        series = self.series[trial.id]
        column = series.columns.get("checkpoints_begun_per_s", [])
        return [second for second, value in enumerate(column) if value is not None and value >= BEGUN]

    def median(self, arm: str, name: str) -> Column:
        """Second by second, the median over the arm's used trials; a gap where too few have data."""
        rows = [self.series[t.id][name] for t in self.used(arm) if name in self.series[t.id]]
        return [median_of(rows, second) for second in range(self.seconds)]


def median_of(rows: Sequence[Column], second: int) -> float | None:
    """The median of one second; None where fewer than three trials (or than there are) have data."""
    values = [v for row in rows if second < len(row) and (v := row[second]) is not None]
    return statistics.median(values) if values and len(values) >= min(LEAST_TRIALS, len(rows)) else None


def telemetry(group: Group) -> Telemetry:
    """Read the group's series. ResultDamaged where one cannot be read."""
    series: dict[str, Series] = {}
    phases: dict[str, list[str]] = {}
    for trial in group.trials:
        found = group.loaded.series(trial)
        if found is not None and found[0].seconds:
            series[trial.id], phases[trial.id] = found
    return Telemetry(group, series, phases)
