"""A run's rows by any metric, each computed once: what `compare` prints and what the page shows are the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dbbench.compare.pairs import Group
from dbbench.compare.verdict import Row, rows
from dbbench.model import Trial

_OWN = ""  # each workload by its own metric


class Comparison:
    """The trials of a run against one baseline. `primary` is each workload's own metric.

    The pairs of all workloads, each judged by its own metric, share their variance; so do the pairs of all workloads
    judged by any other metric.
    """

    def __init__(self, trials: Sequence[Trial], baseline: str, primary: Mapping[str, str]) -> None:
        self._trials = trials
        self._baseline = baseline
        self._primary = primary
        self._tables: dict[str, dict[Group, list[Row]]] = {}

    def rows(self, group: Group, metric: str | None = None) -> list[Row]:
        """The rows of one engine, workload and variant, by default by the workload's own metric; [] where no trial
        of it has the metric."""
        own = metric is None or metric == self._primary.get(group[1], "tps")
        return self._table(_OWN if own or metric is None else metric).get(group, [])

    def _table(self, metric: str) -> dict[Group, list[Row]]:
        if metric not in self._tables:
            table = self._tables[metric] = {}
            for row in rows(self._trials, self._baseline, metric or self._primary):
                table.setdefault((row.engine, row.workload, row.variant), []).append(row)
        return self._tables[metric]
