"""A plan's file as a `Plan`. Every part is read by itself, so that one error does not hide the next."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final, cast

from dbbench.catalog import Catalog
from dbbench.engines.settings import respelt_size
from dbbench.model import Arm, DeviceSpec, EngineSpec, Plan, Workload, WorkloadSpec
from dbbench.plan.checks import check
from dbbench.plan.labels import default_label, label_of
from dbbench.plan.workloads import check_list, read_workload
from dbbench.tomlfile import Document, Key, read, typed

_LISTS: Final = ("fs_setups", "engine", "workload")


@dataclasses.dataclass
class Parts:
    """What of a plan could be read, by its place in the file. A part with an error is not among them."""

    plan: Plan | None
    arms: dict[Key, Arm]
    engines: dict[Key, EngineSpec]
    workloads: dict[Key, tuple[WorkloadSpec, Workload]]
    device: DeviceSpec | None
    whole: bool  # no part of the lists above is missing


def load(path: Path, catalog: Catalog) -> Plan:
    """The plan in `path`, checked against `catalog`.

    FileMissing, or PlanInvalid with all errors, each with file:line and what may have been meant.
    """
    document = read(path)
    parts = _parts(document, catalog)
    check(document, parts.plan, parts.arms, parts.engines, parts.workloads, parts.device, parts.whole, catalog)
    document.finish()
    if parts.plan is None:
        raise AssertionError("a plan without flaws can be read")
    return parts.plan


def _parts(document: Document, catalog: Catalog) -> Parts:
    arms: dict[Key, Arm] = {}
    engines: dict[Key, EngineSpec] = {}
    workloads: dict[Key, tuple[WorkloadSpec, Workload]] = {}
    device = _part(document, DeviceSpec, document.data.get("device", {}), ("device",))
    for key, item in _items(document, "fs_setups"):
        entry = {"use": item} if isinstance(item, str) else item
        if isinstance(entry, dict):
            entry = {"label": default_label(str(entry.get("use", "")), entry.get("wal"), device), **entry}
        if arm := _part(document, Arm, entry, key):
            arms[key] = arm
    for key, item in _items(document, "engine"):
        if engine := _engine(document, item, key):
            engines[key] = engine
    for key, item in _items(document, "workload"):
        if found := read_workload(document, item, key, catalog):
            workloads[key] = found
    count = sum(len(document.data.get(name, ())) for name in _LISTS if isinstance(document.data.get(name), list))
    return Parts(
        plan=_plan(document, arms, engines, workloads, device),
        arms=arms,
        engines=engines,
        workloads=workloads,
        device=device,
        whole=len(arms) + len(engines) + len(workloads) == count,
    )


def _plan(
    document: Document,
    arms: dict[Key, Arm],
    engines: dict[Key, EngineSpec],
    workloads: dict[Key, tuple[WorkloadSpec, Workload]],
    device: DeviceSpec | None,
) -> Plan | None:
    """The plan of the parts that could be read, so that its own keys are checked whatever they are worth."""
    read_parts: dict[str, Any] = {
        "fs_setups": tuple(arms.values()),
        "engine": tuple(engines.values()),
        "workload": tuple(spec for spec, _ in workloads.values()),
        "device": device or DeviceSpec(),
    }
    own = {name: read_parts.get(name, value) for name, value in document.data.items()}
    if isinstance(baseline := own.get("baseline"), str):
        own["baseline"] = label_of(baseline, arms.values()) or baseline
    return typed(document, Plan, own)


def _items(document: Document, name: str) -> list[tuple[Key, Any]]:
    """The elements of a list of the plan; a single table counts as a list of one."""
    given = document.data.get(name)
    if given is None:
        return []
    if isinstance(given, dict):
        document.data[name] = given = [given]
        aliases = {(name, 0, *key[1:]): line for key, line in document.lines.items() if key[0] == name}
        document.lines.update(aliases)
    if not isinstance(given, list):
        document.flaw((name,), f'"{name}" should be a list')
        return []
    if not given:
        document.flaw((name,), f'"{name}" is empty')
    return [((name, index), item) for index, item in enumerate(given)]


def _engine(document: Document, item: Any, key: Key) -> EngineSpec | None:
    """An entry of `engine`; a list in the place of one of its settings' values is a sweep."""
    if isinstance(item, dict) and "sweeps" in item:
        document.flaw((*key, "sweeps"), 'unknown key "sweeps"; a list in "settings" is one')
    if not isinstance(item, dict) or not isinstance(item.get("settings"), dict):
        return cast("EngineSpec | None", _part(document, EngineSpec, item, key))
    lists = {name: value for name, value in item["settings"].items() if isinstance(value, list)}
    single = {name: value for name, value in item["settings"].items() if name not in lists}
    single |= {name: values[0] for name, values in lists.items() if len(values) == 1}
    _check_sizes(document, item, key)
    for name, values in lists.items():
        check_list(document, (*key, "settings", name), values, values, "setting")
        for index, value in enumerate(values):
            if not isinstance(value, bool | int | float | str):
                document.flaw(
                    (*key, "settings", name, index), f'a value of "{name}" should be one value, not {value!r}'
                )
    engine = cast("EngineSpec | None", _part(document, EngineSpec, {**item, "settings": single}, key))
    sweeps = {name: tuple(values) for name, values in lists.items() if len(values) > 1}
    return dataclasses.replace(engine, sweeps=sweeps) if engine else None


def _check_sizes(document: Document, item: dict[str, Any], key: Key) -> None:
    """Sizes in the server's own unit: it would refuse another one, in every trial."""
    for name, given in item["settings"].items():
        for value in given if isinstance(given, list) else [given]:
            if own := respelt_size(str(item.get("name")), value):
                document.flaw((*key, "settings", name), f'"{value}" is no size for this server; it writes "{own}"')


def _part(document: Document, kind: type[Any], item: Any, key: Key) -> Any:
    if not isinstance(item, dict):
        document.flaw(key, f'an entry of "{key[0]}" should be a table, not {item!r}')
        return None
    return typed(document, kind, item, key)
