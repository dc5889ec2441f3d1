"""A plan as far as its file could be read: what the checks look at. Every part is read separately,
so that one error does not hide the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, cast

from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Arm, DeviceSpec, EngineSpec, FsSetup, Plan, Workload, WorkloadSpec
from dbbench.model.base import PRODUCTION
from dbbench.plan.arms import default_label, label_of, split_fs
from dbbench.plan.catalog import Catalog
from dbbench.plan.tomlfile import Document, Key, convert
from dbbench.plan.workloads import check_list, read_workload

_LISTS: Final = ("fs_setups", "engine", "workload")
_MOST_ENTRIES: Final = 200  # entries of each list


class PlanDraft:
    """The parts without an error, by their place in the file; the errors of the others are noted."""

    def __init__(self, document: Document, catalog: Catalog) -> None:
        self.document = document
        device: DeviceSpec | None = _part(
            document, DeviceSpec, document.data.get("device", {}), ("device",)
        )
        self.device = device or DeviceSpec()
        self.device_known = device is not None
        self.arms: dict[Key, Arm] = {}
        self.setups: dict[Key, FsSetup] = {}  # those of the arms
        for key, item in _items(document, "fs_setups"):
            entry = _short_form(item, catalog) if isinstance(item, str) else item
            if arm := _part(document, Arm, entry, key):
                self.arms[key] = arm = dataclasses.replace(
                    arm, label=arm.label or default_label(arm, device)
                )
                if setup := _setup(document, key, partial(catalog.setup_of, arm)):
                    self.setups[key] = setup
        self.log_setup: FsSetup | None = None  # that of the log's own volume
        if self.device.wal and not self.device.existing:
            log = partial(catalog.setup, self.device.wal.fs_setup)
            self.log_setup = _setup(document, ("device", "wal", "fs_setup"), log)
        engines = ((key, _engine(document, item, key)) for key, item in _items(document, "engine"))
        self.engines: dict[Key, EngineSpec] = {key: engine for key, engine in engines if engine}
        loads = (
            (key, read_workload(document, item, key, catalog))
            for key, item in _items(document, "workload")
        )
        self.workloads: dict[Key, tuple[WorkloadSpec, Workload]] = {
            key: load for key, load in loads if load
        }
        entries = [given for name in _LISTS if isinstance(given := document.data.get(name), list)]
        # Whether these are complete, so a name that is missing there does not exist.
        self.whole = len(self.arms) + len(self.engines) + len(self.workloads) == sum(
            map(len, entries)
        )
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
        values: dict[str, Any] = {
            name: parts.get(name, value) for name, value in self.document.data.items()
        }
        if "budget" in values:
            values.setdefault("blocks", LEAST_BLOCKS)
        if isinstance(baseline := values.get("baseline"), str):
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
    spec: WorkloadSpec, workload: Workload, engines: Iterable[EngineSpec]
) -> list[EngineSpec]:
    """Return the plan's engines on which one of its workloads runs, in the order of the plan."""
    engine_names = spec.engines or workload.engines
    return [
        engine
        for engine in engines
        if engine.name in engine_names and engine.name in workload.engines
    ]


def _short_form(word: str, catalog: Catalog) -> dict[str, Any]:
    """Return the table for "ext4:commit=60,data=writeback", which is a setup with mount options, or
    for a name.
    """
    (name, options), *others = split_fs(word.split(","), catalog.setups.__contains__)
    return {"use": word} if others or not options else {"use": name, "mount": list(options)}


def _setup(document: Document, key: Key, setup: Callable[[], FsSetup]) -> FsSetup | None:
    try:
        return setup()
    except (UnknownName, PlanInvalid) as error:
        document.flaw(key, error.evidence)
        return None


def _items(document: Document, name: str) -> list[tuple[Key, Any]]:
    """Return the elements of a list of the plan; a single table counts as a list of one."""
    given = document.data.get(name)
    if given is None:
        return []
    if isinstance(given, dict):
        document.data[name] = given = [given]
        aliases = {
            (name, 0, *key[1:]): line for key, line in document.lines.items() if key[0] == name
        }
        document.lines.update(aliases)
    if not isinstance(given, list):
        document.flaw((name,), f'"{name}" must be a list')
        return []
    if not given:
        document.flaw((name,), f'"{name}" is empty')
    if len(given) > _MOST_ENTRIES:
        document.flaw(
            (name,), f'"{name}" has {len(given)} entries, but the limit is {_MOST_ENTRIES}'
        )
        document.finish()
    return [((name, index), item) for index, item in enumerate(given)]


def _engine(document: Document, item: Any, key: Key) -> EngineSpec | None:
    """Return an entry of `engine`; a list instead of a setting's value is a sweep."""
    if isinstance(item, dict):
        if "sweeps" in item:
            document.flaw(
                (*key, "sweeps"),
                'unknown key "sweeps"; to sweep a setting, give it a list in "settings"',
            )
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
    engine = cast(
        "EngineSpec | None", _part(document, EngineSpec, {**item, "settings": single}, key)
    )
    sweeps = {name: tuple(values) for name, values in lists.items() if len(values) > 1}
    return dataclasses.replace(engine, sweeps=sweeps) if engine else None


def _part(document: Document, kind: type[Any], item: Any, key: Key) -> Any:
    if not isinstance(item, dict):
        document.flaw(key, f'each entry of "{key[0]}" must be a table, not {item!r}')
        return None
    return convert(document, kind, item, key)
