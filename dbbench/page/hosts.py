"""What is not the same on all hosts, of runs that come from several."""

from __future__ import annotations

from collections.abc import Sequence

from dbbench.compare import by_host
from dbbench.page.groups import Group
from dbbench.page.numbers import change, listed


def disagreements(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """(arm, the rest of the sentence) of each arm whose ratio to the baseline differs between hosts."""
    same: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        same.setdefault((group.engine, group.workload, group.baseline), []).append(group)
    found = []
    for (_, _, baseline), mine in same.items():
        trials = [trial for group in mine for trial in group.trials]
        for one in by_host(trials, baseline, mine[0].metric.name):
            if one.spread is not None and one.spread.disagree:
                told = listed([f"{change(host.ratio)} on {host.host}" for host in one.hosts])
                rest = f" beside {baseline}: {told}. A ratio over all of them is that of no host. {mine[0].title}."
                found.append((one.fs_setup, rest))
    return found
