"""The seconds of a group's trials: read once, with stalls and gaps found on the full data. A column
is an array of floats in which NaN is a gap: a run of an hour has millions of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbbench.metrics.series import Series
from dbbench.metrics.summary import stalls
from dbbench.model import Phase, Trial
from dbbench.report.page.groups import Group

# rate per second that means one event, even if the counter was read a little late
BEGUN: Final = 0.5
LEAST_TRIALS: Final = 3  # trials with data in a second; a median of fewer is a gap


Values = NDArray[np.float64]


@dataclass(frozen=True)
class Telemetry:
    """Series of the trials that have one. `warmup` is the second at which the measured window
    begins.
    """

    group: Group
    series: dict[str, Series]
    phases: dict[str, list[str]]

    @property
    def seconds(self) -> int:
        return max((series.seconds for series in self.series.values()), default=0)

    @cached_property
    def warmup(self) -> int:
        starts = [
            names.index(Phase.MEASURE) for names in self.phases.values() if Phase.MEASURE in names
        ]
        return min(starts, default=0)

    @property
    def trials(self) -> list[Trial]:
        place = {arm: index for index, arm in enumerate(self.group.arms)}
        with_series = [trial for trial in self.group.trials if trial.id in self.series]
        return sorted(
            with_series,
            key=lambda trial: (place.get(trial.fs_setup, 0), trial.block, trial.attempt),
        )

    def trials_of(self, arm: str) -> list[Trial]:
        return [trial for trial in self.group.used_of(arm) if trial.id in self.series]

    @cached_property
    def _columns(self) -> dict[str, dict[str, Values]]:
        columns = {}
        for ident, series in self.series.items():
            columns[ident] = {name: np.array(series[name], np.float64) for name in series}
        return columns

    @cached_property
    def windows(self) -> dict[str, NDArray[np.bool_]]:
        """Return for each trial which of its seconds are in the measured window."""
        windows = {}
        for ident, names in self.phases.items():
            windows[ident] = np.array([name == Phase.MEASURE for name in names], bool)
        return windows

    def has(self, name: str) -> bool:
        columns = [columns[name] for columns in self._columns.values() if name in columns]
        return any(np.isfinite(column).any() for column in columns)

    def values(self, trial_id: str, name: str) -> Values:
        """Return a trial's column with gaps where there is no value; only gaps if it has no such
        column.
        """
        values = self._columns[trial_id].get(name)
        if values is None:
            return np.full(self.series[trial_id].seconds, np.nan)
        return values

    def window_values(self, trial_id: str, values: Values) -> Values:
        inside = values[self.windows[trial_id]]
        return inside[np.isfinite(inside)]

    def stalls(self, trial: Trial) -> list[int]:
        """Return the stalls of the window, as `metrics.summary` counts them: seconds from the start
        of the warm-up.
        """
        tps = self.values(trial.id, "tps")
        window = self.window_values(trial.id, tps)
        if not window.size:
            return []
        stalled = np.array(stalls(tps.tolist(), float(np.median(window))))
        return _seconds(stalled & self.windows[trial.id])

    def checkpoints(self, trial: Trial) -> list[int]:
        begun = self.values(trial.id, "checkpoints_begun_per_s")
        return _seconds(begun >= BEGUN)


def _seconds(marked: NDArray[np.bool_]) -> list[int]:
    return [int(second) for second in np.flatnonzero(marked)]


def telemetry(group: Group) -> Telemetry:
    """Read the group's series. Raises ResultDamaged."""
    series: dict[str, Series] = {}
    phases: dict[str, list[str]] = {}
    for trial in group.trials:
        trial_series = group.loaded.series(trial)
        if trial_series is not None and trial_series[0].seconds:
            series[trial.id], phases[trial.id] = trial_series
    return Telemetry(group, series, phases)
