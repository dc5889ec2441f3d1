"""One `[[workload]]` of a plan: which workload, where, how long, and its own parameters by its schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from dbbench.catalog import Catalog, checked, parameters
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Parameter, Scalar, Workload, WorkloadSpec
from dbbench.plan.sources import check_source
from dbbench.plan.variants import twins
from dbbench.tomlfile import Document, Key, did_you_mean, typed
from dbbench.units import seconds_of

_TYPED: Final = ("name", "engines", "source", "tablespace", "database")
_COMMON: Final = (*_TYPED, "warmup", "measure")  # every workload has these; the rest are its own


def read_workload(document: Document, item: Any, key: Key, catalog: Catalog) -> tuple[WorkloadSpec, Workload] | None:
    """The entry and the workload that it names; None where it has flaws, which are noted."""
    if not isinstance(item, dict):
        document.flaw(key, f'an entry of "workload" should be a table, not {item!r}')
        return None
    spec = typed(document, WorkloadSpec, {name: item[name] for name in _TYPED if name in item}, key)
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
    check_source(document, key, spec, own)
    lists = {name: values for name, values in own.items() if len(values) > 1}
    single = {name: values[0] for name, values in own.items() if len(values) == 1}
    spec = dataclasses.replace(spec, warmup_s=warmup_s, measure_s=measure_s, parameters=single, sweeps=lists)
    return spec, workload


def _own(document: Document, item: dict[str, Any], key: Key, workload: Workload) -> dict[str, tuple[Scalar, ...]]:
    """The workload's own parameters as given, each value of its type; flaws are noted."""
    known = parameters(workload)
    taken: dict[str, tuple[Scalar, ...]] = {}
    for name, value in item.items():
        if name in _COMMON:
            continue
        if name not in known:
            hint = did_you_mean(name, {*known, *_COMMON})
            document.flaw((*key, name), f'workload "{workload.name}" has no parameter "{name}"{hint}')
            continue
        taken[name] = _values(document, known[name], value, (*key, name))
    return taken


def _values(document: Document, parameter: Parameter, given: Any, key: Key) -> tuple[Scalar, ...]:
    """The value of a parameter, or those of a list."""
    found: list[Scalar] = []
    for index, value in enumerate(given if isinstance(given, list) else [given]):
        try:
            found.append(checked(parameter, value))
        except ValueError as error:
            place = (*key, index) if isinstance(given, list) else key
            document.flaw(place, f'"{key[-1]}" {str(error).replace("expected", "should be", 1)}')
    check_list(document, key, given, found, parameter.type)
    return tuple(found)


def check_list(document: Document, key: Key, given: Any, values: Sequence[Any], kind: str) -> None:
    """Note a list that is empty, or that has a value twice. `kind`: "size", "path" or another."""
    if given == []:
        document.flaw(key, f'"{key[-1]}" is an empty list')
    for value in twins(values, kind):
        document.flaw(key, f'"{key[-1]}" has {value!r} twice')


def _seconds(document: Document, item: dict[str, Any], name: str, key: Key) -> float | None:
    if name not in item:
        return None
    try:
        return seconds_of(item[name])
    except ValueError as error:
        document.flaw((*key, name), f'"{name}" {str(error).replace("expected", "should be", 1)}')
        return None
