"""Which runs may share a table: in what they differ, and what a reader must know about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.engines import profile_of
from dbbench.errors import RunsUnlike
from dbbench.model import Json, Run, plain
from dbbench.report.page.trial_facts import flatten
from dbbench.results import LoadedRun
from dbbench.units import group_by

_DRAWING: Final = frozenset(
    ("jinja2", "numpy", "plotly", "psutil", "pydantic", "scipy")
)  # packages that no trial needs
_OF_CELL: Final = (
    "parameters",
    "dataset",
    "window",
    "memory_bytes",
    "limit",
    "checkpoints",
    "client",
)
_OF_ENGINE: Final = ("settings", "profile", "cpus_server", "cpus_client", "numa_node")
_OF_SETUP: Final = ("mkfs", "mount", "layers", "attributes", "volumes", "tuning")


def version_names(
    loaded: LoadedRun,
    by: str,
    runs: Sequence[LoadedRun],
) -> list[str]:
    """Return the name under which each trial of the run is compared: its kernel, its server's
    version or its run.
    """
    if by == "engine_version":
        return [trial.engine_version for trial in loaded.trials]
    if by == "kernel":
        name = str(loaded.run.host.get("kernel"))
    else:
        names = [run.path.name for run in runs]
        alone = names.count(loaded.path.name) == 1
        name = loaded.path.name if alone else str(loaded.path)
    return [name] * len(loaded.trials)


def check_pool(runs: Sequence[LoadedRun], by: str = "fs") -> None:
    """Raise RunsUnlike if trials of runs that differ would have one mean: all, or those with the
    same versions `by`.
    """

    def versions(run: LoadedRun) -> frozenset[str]:
        if by == "fs":
            return frozenset()
        return frozenset(version_names(run, by, runs))

    for pool in group_by(runs, versions).values():
        unlike = differences(pool)
        if not unlike:
            continue
        first, *others = (run.path.name for run in pool)
        together = f"{', '.join(others)} cannot be compared together with {first}"
        command = f"dbbench compare {' '.join(others)} --against {first}"
        raise RunsUnlike(
            f"{together}: the runs differ in {'; '.join(unlike)}",
            remedy=f"Compare them without pairs:  {command}",
        )


def differences(runs: Sequence[LoadedRun]) -> list[str]:
    """Return the parameters, versions and device settings in which the runs differ, each with its
    values. What only some runs have is no difference. Versions may differ between hosts of one
    plan: pairs never cross hosts.
    """
    # Hosts of one plan may differ in their versions.
    plans = {run.run.plan_sha256 for run in runs}
    of_fleet = len(plans) == 1 and len(_hosts(runs)) > 1
    versions: dict[str, list[str]] = {}
    facts: dict[str, list[dict[str, str]]] = {}
    for run in runs:
        host = f" on {run.run.host.get('hostname')}" if of_fleet else ""
        for name in run.versions.keys() - _DRAWING:
            versions.setdefault(name + host, []).append(run.versions[name])
        for what, tree in _conditions(run.run).items():
            facts.setdefault(what, []).append(flatten(tree))

    # Of each fact its values, in the order of the runs.
    values = {}
    for what, of_runs in facts.items():
        keys = dict.fromkeys(key for of_run in of_runs for key in of_run)
        for key in keys:
            values[f"{key} of {what}"] = [of_run.get(key) or "none" for of_run in of_runs]
    values |= dict(sorted(versions.items()))

    # What has one value in all runs is no difference.
    lines = []
    for key, of_runs_values in values.items():
        distinct = dict.fromkeys(of_runs_values)
        if len(distinct) > 1:
            lines.append(f"{key} ({' and '.join(distinct)})")
    return lines


def _hosts(runs: Sequence[LoadedRun]) -> set[str]:
    return {str(run.run.host.get("hostname")) for run in runs}


def _conditions(run: Run) -> dict[str, Json]:
    conditions: dict[str, Json] = {"the device": plain(run.plan.device)}
    for cell in run.cells:
        of_cell = plain(cell)
        setup = plain(cell.setup)
        engine = plain(cell.engine)
        for name in cell.parameters:  # each difference once
            of_cell["dataset"]["parameters"].pop(name, None)
        conditions[f"{cell.engine.name} {cell.title}"] = {
            **{name: of_cell[name] for name in _OF_CELL},
            **{name: engine[name] for name in _OF_ENGINE},
        }
        conditions[cell.arm] = {name: setup[name] for name in _OF_SETUP}
    return conditions


def cautions(runs: Sequence[LoadedRun]) -> Iterator[Remark]:
    """Yield remarks about hosts that differ between runs whose trials share a row."""
    if len(_hosts(runs)) > 1:
        yield remark(RemarkKind.RUNS_DIFFER, what="the host")
    yield from profile_cautions(runs)
    in_second_kernel = [run.path.name for run in runs if run.run.host.get("second_kernel")]
    if in_second_kernel:
        yield remark(RemarkKind.SECOND_KERNEL, runs=", ".join(in_second_kernel))


def profile_cautions(runs: Sequence[LoadedRun]) -> Iterator[Remark]:
    """Yield a remark for each engine that has different settings profiles in the runs."""
    profiles: dict[str, dict[str, None]] = {}
    for run in runs:
        for cell in run.run.cells:
            if profile_of(cell.engine.name).has_server:
                profiles.setdefault(cell.engine.name, {})[cell.engine.profile] = None
    for engine, names in profiles.items():
        if len(names) > 1:
            what = f"the settings profile of {engine} ({' and '.join(names)})"
            yield remark(RemarkKind.RUNS_DIFFER, what=what)
