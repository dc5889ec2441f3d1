"""A plan as far as its file could be read: what the checks look at. Every part is read separately,
so that one error does not hide the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Arm, DeviceSpec, EngineSpec, FsSetup, Plan, Scalar, Workload, WorkloadSpec
from dbbench.model.base import PRODUCTION
from dbbench.plan.catalog import Catalog
from dbbench.plan.labels import default_label, label_of, split_fs
from dbbench.plan.tomlfile import Document, Key, convert
from dbbench.plan.workloads import check_list, read_workload

_MOST_ENTRIES: Final = 200  # entries of each list


class PlanDraft:
    """The parts without an error, by their place in the file; the errors of the others are noted."""

    def __init__(self, document: Document, catalog: Catalog) -> None:
        self.document = document
        # The device first, because the labels of arms depend on it.
        device: DeviceSpec | None = _part(
            document,
            DeviceSpec,
            document.data.get("device", {}),
            ("device",),
        )
        self.device = device or DeviceSpec()
        self.device_known = device is not None
        # The arms and their setups.
        self.arms: dict[Key, Arm] = {}
        self.setups: dict[Key, FsSetup] = {}
        for key, item in _items(document, "fs_setups"):
            entry = _short_form(item, catalog) if isinstance(item, str) else item
            arm: Arm | None = _part(document, Arm, entry, key)
            if arm is None:
                continue
            arm = dataclasses.replace(arm, label=arm.label or default_label(arm, device))
            self.arms[key] = arm
            setup = _setup(document, key, partial(catalog.setup_of, arm))
            if setup is not None:
                self.setups[key] = setup
        self.log_setup: FsSetup | None = None  # that of the log's own volume
        if self.device.wal and not self.device.existing:
            log = partial(catalog.setup, self.device.wal.fs_setup)
            self.log_setup = _setup(document, ("device", "wal", "fs_setup"), log)

        # What runs on them.
        self.engines: dict[Key, EngineSpec] = {}
        for key, item in _items(document, "engine"):
            engine = _engine(document, item, key)
            if engine is not None:
                self.engines[key] = engine
        self.workloads: dict[Key, tuple[WorkloadSpec, Workload]] = {}
        for key, item in _items(document, "workload"):
            load = read_workload(document, item, key, catalog)
            if load is not None:
                self.workloads[key] = load

        # Whether these are complete, so a name that is missing there does not exist.
        lists = [document.data.get(name) for name in ("fs_setups", "engine", "workload")]
        entries = sum(len(entry) for entry in lists if isinstance(entry, list))
        self.whole = len(self.arms) + len(self.engines) + len(self.workloads) == entries
        self.plan = self._read_plan()

    def _read_plan(self) -> Plan | None:
        """Return a plan of the parts that could be read, so that its own keys are checked
        regardless of the others.
        """
        parts = {
            "fs_setups": tuple(self.arms.values()),
            "engine": tuple(self.engines.values()),
            "workload": tuple(spec for spec, _ in self.workloads.values()),
            "device": self.device,
        }
        data = self.document.data
        values: dict[str, Any] = {name: parts.get(name, value) for name, value in data.items()}
        if "budget" in values:
            values.setdefault("blocks", LEAST_BLOCKS)
        baseline = values.get("baseline")
        if isinstance(baseline, str):
            values["baseline"] = label_of(baseline, self.arms.values()) or baseline
        return convert(self.document, Plan, values)

    @property
    def labels(self) -> list[str]:
        return [arm.label for arm in self.arms.values()]

    @property
    def operations(self) -> dict[Key, str]:
        """Return the names of operations, also of those that do not exist."""
        names = self.document.data.get("operations")
        listed = enumerate(names) if isinstance(names, list) else ()
        return {("operations", index): name for index, name in listed if isinstance(name, str)}

    @property
    def subjects(self) -> dict[str, dict[Key, str]]:
        """Return the names of the entries of each list in messages."""
        return {
            "fs_setups": {key: f'"{arm.label}"' for key, arm in self.arms.items()},
            "engine": {key: f'engine "{engine.name}"' for key, engine in self.engines.items()},
            "workload": {
                key: f'workload "{spec.name}"' for key, (spec, _) in self.workloads.items()
            },
            "operation": {key: f'operation "{name}"' for key, name in self.operations.items()},
        }

    def value(self, key: Key) -> Any:
        value: Any = self.document.data
        for part in key:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value


def engines_of(
    spec: WorkloadSpec,
    workload: Workload,
    engines: Iterable[EngineSpec],
) -> list[EngineSpec]:
    """Return the plan's engines on which one of its workloads runs, in the order of the plan."""
    names = set(spec.engines or workload.engines) & set(workload.engines)
    return [engine for engine in engines if engine.name in names]


def _short_form(word: str, catalog: Catalog) -> dict[str, Any]:
    """Return the table for "ext4:commit=60,data=writeback", which is a setup with mount options, or
    for a name.
    """
    entries = split_fs(word.split(","), catalog.setups.__contains__)
    name, options = entries[0]
    if len(entries) > 1 or not options:
        return {"use": word}
    return {"use": name, "mount": list(options)}


def _setup(
    document: Document,
    key: Key,
    setup: Callable[[], FsSetup],
) -> FsSetup | None:
    try:
        return setup()
    except (UnknownName, PlanInvalid) as error:
        document.flaw_elsewhere(key, error)
        return None


def _items(document: Document, name: str) -> list[tuple[Key, Any]]:
    """Return the elements of a list of the plan; a single table counts as a list of one."""
    given = document.data.get(name)
    if given is None:
        return []
    # Lines of the single table become those of the first element.
    if isinstance(given, dict):
        document.data[name] = given = [given]
        for key, line in list(document.lines.items()):
            if key[0] == name:
                document.lines[(name, 0, *key[1:])] = line
    # What is not a list has no elements to check.
    if not isinstance(given, list):
        document.flaw((name,), f'"{name}" must be a list in [ ]')
        return []
    if not given:
        document.flaw((name,), f'"{name}" is empty')
    if len(given) > _MOST_ENTRIES:
        text = f'"{name}" has {len(given)} entries, but the limit is {_MOST_ENTRIES}'
        document.flaw((name,), text)
        document.finish()
    return [((name, index), item) for index, item in enumerate(given)]


def _engine(document: Document, item: Any, key: Key) -> EngineSpec | None:
    """Return an entry of `engine`; a list instead of a setting's value is a sweep."""
    sweeps: dict[str, tuple[Scalar, ...]] = {}
    if isinstance(item, dict):
        item = dict(item)
        if item.pop("sweeps", None) is not None:
            document.flaw(
                (*key, "sweeps"),
                'unknown key "sweeps"; to sweep a setting, give it a list in "settings"',
            )
        item = {"profile": PRODUCTION, **item}
        if isinstance(item.get("settings"), dict):
            item["settings"], sweeps = _split_lists(document, item["settings"], key)
    engine: EngineSpec | None = _part(document, EngineSpec, item, key)
    if engine and sweeps:
        return dataclasses.replace(engine, sweeps=sweeps)
    return engine


def _split_lists(
    document: Document,
    settings: dict[str, Any],
    key: Key,
) -> tuple[dict[str, Any], dict[str, tuple[Scalar, ...]]]:
    """Return the settings with a single value, and those with several."""
    single: dict[str, Any] = {}
    sweeps: dict[str, tuple[Scalar, ...]] = {}
    for name, value in settings.items():
        # A list is a sweep, and a list of one value that value.
        if not isinstance(value, list):
            single[name] = value
            continue
        place = (*key, "settings", name)
        check_list(document, place, value, value, "setting")
        for index, inner in enumerate(value):
            if not isinstance(inner, bool | int | float | str):
                text = f'each value of "{name}" must be a single value, not {inner!r}'
                document.flaw((*place, index), text)
        if len(value) > 1:
            sweeps[name] = tuple(value)
        elif value:
            single[name] = value[0]
    return single, sweeps


def _part(
    document: Document,
    kind: type[Any],
    item: Any,
    key: Key,
) -> Any:
    if not isinstance(item, dict):
        document.flaw(key, f'each entry of "{key[0]}" must be a table, not {item!r}')
        return None
    return convert(document, kind, item, key)
