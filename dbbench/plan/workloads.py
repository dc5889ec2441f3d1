"""One `[[workload]]` of a plan: which workload, where, how long, and its own parameters by its schema."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from dbbench.catalog import Catalog, checked, parameters
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Scalar, Workload, WorkloadSpec
from dbbench.tomlfile import Document, Key, did_you_mean, typed
from dbbench.units import seconds_of

_COMMON: Final = ("name", "engines", "warmup", "measure")  # every workload has these; the rest are its own


def read_workload(document: Document, item: Any, key: Key, catalog: Catalog) -> tuple[WorkloadSpec, Workload] | None:
    """The entry and the workload that it names; None where it has flaws, which are noted."""
    if not isinstance(item, dict):
        document.flaw(key, f'an entry of "workload" should be a table, not {item!r}')
        return None
    spec = typed(document, WorkloadSpec, {name: item[name] for name in ("name", "engines") if name in item}, key)
    warmup_s, measure_s = (_seconds(document, item, name, key) for name in ("warmup", "measure"))
    try:
        workload = catalog.workload(str(item["name"])) if "name" in item else None
    except UnknownName as error:
        document.flaw((*key, "name"), error.evidence)
        return None
    except PlanInvalid as error:
        document.flaw((*key, "name"), error.evidence)
        return None
    if spec is None or workload is None:
        return None
    own = _own(document, item, key, workload)
    return dataclasses.replace(spec, warmup_s=warmup_s, measure_s=measure_s, parameters=own), workload


def _own(document: Document, item: dict[str, Any], key: Key, workload: Workload) -> dict[str, Scalar]:
    """The workload's own parameters as given, each of its type; flaws are noted."""
    known, taken = parameters(workload), {}
    for name, value in item.items():
        if name in _COMMON:
            continue
        if name not in known:
            hint = did_you_mean(name, {*known, *_COMMON})
            document.flaw((*key, name), f'workload "{workload.name}" has no parameter "{name}"{hint}')
            continue
        try:
            taken[name] = checked(known[name], value)
        except ValueError as error:
            document.flaw((*key, name), f'"{name}" {str(error).replace("expected", "should be", 1)}')
    return taken


def _seconds(document: Document, item: dict[str, Any], name: str, key: Key) -> float | None:
    if name not in item:
        return None
    try:
        return seconds_of(item[name])
    except ValueError as error:
        document.flaw((*key, name), f'"{name}" {str(error).replace("expected", "should be", 1)}')
        return None
