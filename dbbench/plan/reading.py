"""Read a plan file as a `Plan`. Every part is read separately, so that one error does not hide the next."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.errors import FileUnreadable, PlanInvalid, UnknownName
from dbbench.model import Arm, DeviceSpec, EngineSpec, FsSetup, Plan
from dbbench.model.base import PRODUCTION
from dbbench.plan.arms import default_label, label_of, split_fs
from dbbench.plan.catalog import Catalog
from dbbench.plan.checks import check
from dbbench.plan.draft import PlanDraft
from dbbench.plan.tomlfile import Document, Key, convert, read
from dbbench.plan.workloads import check_list, read_workload

_LISTS: Final = ("fs_setups", "engine", "workload")
_MOST_ENTRIES: Final = 200  # entries of each list


def load(path: Path, catalog: Catalog) -> Plan:
    """Return the plan in `path`, checked against `catalog`. Raises FileUnreadable, or PlanInvalid with all errors, each
    with file:line and a suggestion."""
    try:
        document = read(path)
    except FileUnreadable as error:
        if not os.path.lexists(path):
            error.remedy = "Write a plan with:  dbbench init"
        raise
    draft = _draft(document, catalog)
    check(draft)
    document.finish()
    if draft.plan is None:
        raise AssertionError("a plan without flaws can be read")
    return draft.plan


def _draft(document: Document, catalog: Catalog) -> PlanDraft:
    device = _part(document, DeviceSpec, document.data.get("device", {}), ("device",))
    arms: dict[Key, Arm] = {}
    setups: dict[Key, FsSetup] = {}
    for key, item in _items(document, "fs_setups"):
        entry = _short_form(item, catalog) if isinstance(item, str) else item
        if arm := _part(document, Arm, entry, key):
            arms[key] = arm = dataclasses.replace(arm, label=arm.label or default_label(arm, device))
            if setup := _setup(document, key, partial(catalog.setup_of, arm)):
                setups[key] = setup
    log, place = device.wal if device and device.kind != "dir" else None, ("device", "wal", "fs_setup")
    engines = {key: engine for key, item in _items(document, "engine") if (engine := _engine(document, item, key))}
    workloads = {key: workload for key, item in _items(document, "workload")
                 if (workload := read_workload(document, item, key, catalog))}  # fmt: skip
    count = sum(len(document.data.get(name, ())) for name in _LISTS if isinstance(document.data.get(name), list))
    read_parts = {
        "fs_setups": tuple(arms.values()),
        "engine": tuple(engines.values()),
        "workload": tuple(spec for spec, _ in workloads.values()),
        "device": device or DeviceSpec(),
    }
    return PlanDraft(
        document=document,
        plan=_plan(document, read_parts),
        device=device or DeviceSpec(),
        arms=arms,
        setups=setups,
        log_setup=_setup(document, place, partial(catalog.setup, log.fs_setup)) if log else None,
        engines=engines,
        workloads=workloads,
        device_known=device is not None,
        whole=len(arms) + len(engines) + len(workloads) == count,
    )


def _short_form(word: str, catalog: Catalog) -> dict[str, Any]:
    """Return the table for "ext4:commit=60,data=writeback", which is a setup with mount options, or for a name."""
    (name, options), *others = split_fs(word.split(","), catalog.setups.__contains__)
    return {"use": word} if others or not options else {"use": name, "mount": list(options)}


def _setup(document: Document, key: Key, setup: Callable[[], FsSetup]) -> FsSetup | None:
    try:
        return setup()
    except (UnknownName, PlanInvalid) as error:
        document.flaw(key, error.evidence)
        return None


def _plan(document: Document, read_parts: dict[str, Any]) -> Plan | None:
    """Return a plan of the parts that could be read, so that its own keys are checked regardless of the others."""
    plan_values = {name: read_parts.get(name, value) for name, value in document.data.items()}
    if "budget" in plan_values:
        plan_values.setdefault("blocks", LEAST_BLOCKS)
    if isinstance(baseline := plan_values.get("baseline"), str):
        plan_values["baseline"] = label_of(baseline, read_parts["fs_setups"]) or baseline
    return convert(document, Plan, plan_values)


def _items(document: Document, name: str) -> list[tuple[Key, Any]]:
    """Return the elements of a list of the plan; a single table counts as a list of one."""
    given = document.data.get(name)
    if given is None:
        return []
    if isinstance(given, dict):
        document.data[name] = given = [given]
        aliases = {(name, 0, *key[1:]): line for key, line in document.lines.items() if key[0] == name}
        document.lines.update(aliases)
    if not isinstance(given, list):
        document.flaw((name,), f'"{name}" must be a list')
        return []
    if not given:
        document.flaw((name,), f'"{name}" is empty')
    if len(given) > _MOST_ENTRIES:
        document.flaw((name,), f'"{name}" has {len(given)} entries, but the limit is {_MOST_ENTRIES}')
        document.finish()
    return [((name, index), item) for index, item in enumerate(given)]


def _engine(document: Document, item: Any, key: Key) -> EngineSpec | None:
    """Return an entry of `engine`; a list instead of a setting's value is a sweep."""
    if isinstance(item, dict):
        if "sweeps" in item:
            document.flaw((*key, "sweeps"), 'unknown key "sweeps"; to sweep a setting, give it a list in "settings"')
        item = {"profile": PRODUCTION, **item}
    if not isinstance(item, dict) or not isinstance(item.get("settings"), dict):
        return cast("EngineSpec | None", _part(document, EngineSpec, item, key))
    lists = {name: value for name, value in item["settings"].items() if isinstance(value, list)}
    single = {name: value for name, value in item["settings"].items() if name not in lists}
    single |= {name: values[0] for name, values in lists.items() if len(values) == 1}
    for name, values in lists.items():
        check_list(document, (*key, "settings", name), values, values, "setting")
        for index, value in enumerate(values):
            if not isinstance(value, bool | int | float | str):
                text = f'each value of "{name}" must be a single value, not {value!r}'
                document.flaw((*key, "settings", name, index), text)
    engine = cast("EngineSpec | None", _part(document, EngineSpec, {**item, "settings": single}, key))
    sweeps = {name: tuple(values) for name, values in lists.items() if len(values) > 1}
    return dataclasses.replace(engine, sweeps=sweeps) if engine else None


def _part(document: Document, kind: type[Any], item: Any, key: Key) -> Any:
    if not isinstance(item, dict):
        document.flaw(key, f'each entry of "{key[0]}" must be a table, not {item!r}')
        return None
    return convert(document, kind, item, key)
