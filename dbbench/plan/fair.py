"""What a plan says of equal conditions, checked: sizes by memory, cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbbench.catalog import GROWING
from dbbench.limits import cores
from dbbench.model import EngineSpec, Workload, WorkloadSpec
from dbbench.tomlfile import Document, Key


def check_fair(
    document: Document,
    engines: Mapping[Key, EngineSpec],
    workloads: Mapping[Key, tuple[WorkloadSpec, Workload]],
) -> None:
    """Note all flaws."""
    for key, engine in engines.items():
        for name in ("cpus_server", "cpus_client"):
            _check_cores(document, (*key, name), getattr(engine, name))
        if engine.numa_node is not None and engine.numa_node < 0:
            document.flaw((*key, "numa_node"), '"numa_node" should be 0 or more')
    device = document.data.get("device")
    if "equal_readahead" in document.data and isinstance(device, dict) and device.get("kind") == "dir":
        document.flaw(("equal_readahead",), '"equal_readahead" says nothing for kind = "dir"')
    for key, (spec, workload) in workloads.items():
        _check_size(document, key, spec, workload)


def _check_cores(document: Document, key: Key, words: str | None) -> None:
    if words is None:
        return
    try:
        cores.parsed(words)
    except ValueError:
        document.flaw(key, f'"{key[-1]}" should be cores as "0-3,8", not "{words}"')


def _check_size(document: Document, key: Key, spec: WorkloadSpec, workload: Workload) -> None:
    asked: list[Any] = [*spec.sweeps.get("size", ()), spec.parameters.get("size", "")]
    if not any(asked):
        return
    if not document.data.get("memory"):
        document.flaw((*key, "size"), '"size" is a share of the memory: give the plan  memory = "2GiB"')
    grows = GROWING.get(str(workload.dataset["kind"]), "")
    if grows in spec.parameters or grows in spec.sweeps:
        document.flaw((*key, "size"), f'"size" sets "{grows}": only one of them can be given')
