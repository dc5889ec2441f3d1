"""Which runs may share a table: in what they differ, and what a reader must know about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.engines import profile_of
from dbbench.errors import RunsUnlike
from dbbench.model import Run, plain
from dbbench.report.page.trial_facts import flatten
from dbbench.results import LoadedRun
from dbbench.units import grouped

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


def version_names(loaded: LoadedRun, by: str, runs: Sequence[LoadedRun]) -> list[str]:
    """Return the name under which each trial of the run is compared: its kernel, its server's
    version or its run.
    """
    if by == "engine_version":
        return [trial.engine_version for trial in loaded.trials]
    alone = [run.path.name for run in runs].count(loaded.path.name) == 1
    of_run = (
        str(loaded.run.host.get("kernel"))
        if by == "kernel"
        else loaded.path.name
        if alone
        else str(loaded.path)
    )
    return [of_run] * len(loaded.trials)


def check_pool(runs: Sequence[LoadedRun], by: str = "fs") -> None:
    """Raise RunsUnlike if trials of runs that differ would have one mean: all, or those with the
    same versions `by`.
    """
    pools = grouped(runs, lambda run: frozenset(version_names(run, by, runs) if by != "fs" else ()))
    for pool in pools.values():
        if unlike := differences(pool):
            first, *others = (run.path.name for run in pool)
            raise RunsUnlike(
                f"{', '.join(others)} cannot be compared together with {first}: the runs differ "
                f"in {'; '.join(unlike)}",
                remedy=f"Compare them without pairs:  dbbench compare {' '.join(others)} --against "
                f"{first}",
            )


def differences(runs: Sequence[LoadedRun]) -> list[str]:
    """Return the parameters, versions and device settings in which the runs differ, each with its
    values. What only some runs have is no difference. Versions may differ between hosts of one
    plan: pairs never cross hosts.
    """
    of_fleet = (
        len({run.run.plan_sha256 for run in runs})
        == 1
        < len({run.run.host.get("hostname") for run in runs})
    )
    versions: dict[str, dict[str, None]] = {}
    facts: dict[str, list[dict[str, str]]] = {}
    for run in runs:
        host = f" on {run.run.host.get('hostname')}" if of_fleet else ""
        for name in run.versions.keys() - _DRAWING:
            versions.setdefault(name + host, {})[run.versions[name]] = None
        for what, tree in _conditions(run.run).items():
            facts.setdefault(what, []).append(flatten(tree))
    values = {
        f"{key} of {what}": dict.fromkeys(known.get(key) or "none" for known in each)
        for what, each in facts.items()
        for key in dict.fromkeys(key for known in each for key in known)
    }
    every = {**values, **dict(sorted(versions.items()))}
    return [f"{key} ({' and '.join(each)})" for key, each in every.items() if len(each) > 1]


def _conditions(run: Run) -> dict[str, dict[str, Any]]:
    conditions: dict[str, dict[str, Any]] = {"the device": plain(run.plan.device)}
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
    if len({str(run.run.host.get("hostname")) for run in runs}) > 1:
        yield remark(RemarkKind.RUNS_DIFFER, what="the host")
    yield from profile_cautions(runs)
    if emulated := [run.path.name for run in runs if run.run.host.get("second_kernel")]:
        yield remark(RemarkKind.SECOND_KERNEL, runs=", ".join(emulated))


def profile_cautions(runs: Sequence[LoadedRun]) -> Iterator[Remark]:
    """Yield a remark for each engine that has different settings profiles in the runs."""
    servers = [
        cell.engine
        for run in runs
        for cell in run.run.cells
        if profile_of(cell.engine.name).has_server
    ]
    for engine, of in grouped(servers, lambda server: server.name).items():
        if len(profiles := dict.fromkeys(server.profile for server in of)) > 1:
            yield remark(
                RemarkKind.RUNS_DIFFER,
                what=f"the settings profile of {engine} ({' and '.join(profiles)})",
            )
