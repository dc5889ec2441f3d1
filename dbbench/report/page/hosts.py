"""Arms about which hosts disagree, of runs that come from several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dbbench.compare import by_host
from dbbench.report.page.groups import Group
from dbbench.report.sentences import Parts, disagreement


def disagreements(groups: Sequence[Group]) -> Iterator[Parts]:
    """A sentence for each arm whose ratio to the baseline differs between hosts."""
    same: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        same.setdefault((group.engine, group.workload, group.baseline), []).append(group)
    for (_, _, baseline), mine in same.items():
        trials = [trial for group in mine for trial in group.trials]
        metric = mine[0].metric
        for arm in by_host(trials, baseline, metric.name):
            if parts := disagreement(arm, metric, baseline):
                yield (*parts, (f" {mine[0].title}.", False))
