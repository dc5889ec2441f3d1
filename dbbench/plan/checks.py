"""Checks of a plan beyond types: names that exist, parts that fit together.

Checks of the place of the write-ahead log in a plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dbbench.datasets import generated
from dbbench.engines import SERVERLESS, SERVERS, profile_of
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Arm, DeviceSpec, EngineSpec, FsSetup, Plan, WalDevice, Workload, WorkloadSpec
from dbbench.model.base import NAME
from dbbench.plan import studies
from dbbench.plan.arms import label_of, number
from dbbench.plan.catalog import Catalog, dataset_of, defaults
from dbbench.plan.extras import (
    check_age_engine,
    check_client,
    check_extras,
    check_factors,
    check_fair,
    check_operations,
)
from dbbench.plan.server_settings import check_dropped
from dbbench.plan.tomlfile import Document, Key, did_you_mean
from dbbench.plan.workloads import check_list, placed
from dbbench.storage.filesystems import FAMILIES
from dbbench.units import bytes_of, seconds_of

MOST_CELLS: Final = 2000
MOST_TRIALS: Final = 20_000  # 10 s each take more than two days; each trial is a line of run.json and of many tables
_MOST_DEVICES: Final = 256  # loop devices of a run
Workloads = Mapping[Key, tuple[WorkloadSpec, Workload]]
LEAST_BYTES: Final = 320 * 2**20  # mkfs.xfs refuses less than 300 MiB


@dataclass
class PlanParts:
    """The parts of a plan that could be read, by their place in the file, without the parts that have an error."""

    plan: Plan | None
    arms: dict[Key, Arm]
    engines: dict[Key, EngineSpec]
    workloads: dict[Key, tuple[WorkloadSpec, Workload]]
    device: DeviceSpec | None
    whole: bool  # the parts above are complete, so a name that is missing there does not exist


def check(document: Document, parts: PlanParts, catalog: Catalog) -> None:
    """Note all errors."""
    _check_arms(document, parts.arms, parts.device, catalog)
    _check_names(document, "engine", {key: engine.name for key, engine in parts.engines.items()})
    _check_names(document, "workload", {key: spec.name for key, (spec, _) in parts.workloads.items()})
    for key, (spec, workload) in parts.workloads.items():
        _check_engines_of(document, key, spec, workload, parts.engines)
        _check_dataset(document, key, spec, workload, parts.engines)
    if parts.whole:
        _check_idle_engines(document, parts.engines, parts.workloads)
        if parts.device is not None:
            _check_device(document, parts.device, [arm.label for arm in parts.arms.values()])
    _check_baseline(document, parts.arms)
    _check_study(document, parts.plan)
    check_logs(document, parts.arms, parts.engines, parts.device, catalog)
    _check_figures(document)
    if parts.plan is not None and (many := too_many(parts.plan, parts.workloads.values())):
        document.flaw(("blocks",), many)
    check_factors(document, parts.plan, parts.engines)
    check_fair(document, parts.engines, parts.workloads)
    loads = {key: workload for key, (_, workload) in parts.workloads.items()}
    check_client(document, parts.plan, parts.engines, list(loads.items()))
    setups = _known_setups(parts.arms, catalog)
    check_dropped(document, parts.engines, [*loads.values()], setups)
    check_extras(document, parts.plan, parts.device, loads.values())
    check_operations(document, parts.device, setups, parts.engines.values(), loads.values())
    windows = [(spec.name, workload.window) for spec, workload in parts.workloads.values()]
    check_age_engine(document, parts.plan, windows, [engine.name for engine in parts.engines.values()])
    for key, engine in parts.engines.items():
        check_list(document, (*key, "bin"), value_at(document, key, "bin"), engine.bins, "path")
    for phase, seconds in (parts.plan.deadlines if parts.plan else {}).items():
        if seconds <= 0:
            document.flaw(("deadlines", phase.value), f'the deadline of "{phase.value}" must be more than 0 s')
    for key, (spec, _) in parts.workloads.items():
        _check_window(document, key, spec.warmup_s, spec.measure_s)


def _known_setups(arms: Mapping[Key, Arm], catalog: Catalog) -> list[FsSetup]:
    setups = []
    for arm in arms.values():
        with contextlib.suppress(UnknownName, PlanInvalid):  # `_check_arms` reports it
            setups.append(catalog.setup(arm.use))
    return setups


def _check_arms(document: Document, arms: Mapping[Key, Arm], device: DeviceSpec | None, catalog: Catalog) -> None:
    seen: dict[str, Key] = {}
    for key, arm in arms.items():
        if arm.label in seen:
            document.flaw(
                key,
                (
                    f'"{arm.label}" is listed twice; give one of them a label: {{ use = "{arm.use}", label = '
                    f'"{arm.label}-b" }}'
                ),
            )
        elif not NAME.fullmatch(arm.label):
            document.flaw(key, f'invalid label "{arm.label}": use letters, digits and . _ + : = -')
        seen[arm.label] = key
        try:
            setup = catalog.setup(arm.use)
        except (UnknownName, PlanInvalid) as error:
            document.flaw(key, error.evidence)
            continue
        _check_setup(document, key, setup, device)


def _check_setup(document: Document, key: Key, setup: FsSetup, device: DeviceSpec | None) -> None:
    if setup.mkfs.family not in FAMILIES:
        hint = did_you_mean(setup.mkfs.family, FAMILIES)
        document.flaw(key, f'fs setup "{setup.name}" has the unknown family "{setup.mkfs.family}"{hint}')
    if device is None or device.existing:
        return
    if device.given < setup.devices.min:
        document.flaw(
            key,
            (f'fs setup "{setup.name}" requires {setup.devices.min} devices or more, but the plan has {device.given}'),
        )


def too_many(plan: Plan, workloads: Iterable[tuple[WorkloadSpec, Workload]]) -> str:
    """Return an error message if a plan has more cells or trials than a run can have, otherwise ""."""
    variants = sum(number(plan, spec, engine) for spec, workload in workloads
                   for engine in engines_of(spec, workload, plan.engine))  # fmt: skip
    cells = variants * len(plan.fs_setups)
    if cells > MOST_CELLS:
        return f"the plan has {cells:.7g} combinations of setup, engine and workload; at most {MOST_CELLS} are possible"
    if cells * plan.blocks > MOST_TRIALS:
        return f"the plan has {cells * plan.blocks:.7g} trials; at most {MOST_TRIALS} are possible"
    return ""


def _check_names(document: Document, what: str, names: Mapping[Key, str]) -> None:
    seen: set[str] = set()
    for key, name in names.items():
        if name in seen:
            document.flaw((*key, "name"), f'{what} "{name}" is listed twice')
        seen.add(name)


def engines_of(spec: WorkloadSpec, workload: Workload, engines: Iterable[EngineSpec]) -> list[EngineSpec]:
    """Return the plan's engines on which one of its workloads runs, in the order of the plan."""
    engine_names = spec.engines or workload.engines
    return [engine for engine in engines if engine.name in engine_names and engine.name in workload.engines]


def _check_engines_of(
    document: Document, key: Key, spec: WorkloadSpec, workload: Workload, engines: Mapping[Key, EngineSpec]
) -> None:
    named = {engine.name for engine in engines.values()}
    for index, name in enumerate(spec.engines):
        if name not in workload.engines:
            runs_on = ", ".join(workload.engines)
            document.flaw(
                (*key, "engines", index), f'workload "{spec.name}" does not support {name} (supported: {runs_on})'
            )
        elif name not in named:
            document.flaw((*key, "engines", index), f'"{name}" is not an [[engine]] of this plan')
    if engines and not spec.engines and not engines_of(spec, workload, engines.values()):
        runs_on = ", ".join(workload.engines)
        document.flaw(key, f'workload "{spec.name}" supports none of the engines of this plan (supported: {runs_on})')


def _check_dataset(
    document: Document, key: Key, spec: WorkloadSpec, workload: Workload, engines: Mapping[Key, EngineSpec]
) -> None:
    """Note whether the dataset, with each of the plan's sizes, can be loaded into each engine."""
    if spec.source:  # inspected when the plan is expanded
        return
    values = {**defaults(workload), **spec.parameters}
    each = [{**values, name: value} for name, several in spec.sweeps.items() for value in several] or [values]
    for engine in engines_of(spec, workload, engines.values()):
        for dataset_parameters in each:
            try:
                generated.completed(placed(dataset_of(workload, dataset_parameters), spec), engine.name)
            except PlanInvalid as error:
                document.flaw(key, error.evidence)


def _check_idle_engines(document: Document, engines: Mapping[Key, EngineSpec], workloads: Workloads) -> None:
    busy = {
        engine.name for spec, workload in workloads.values() for engine in engines_of(spec, workload, engines.values())
    }
    for key, engine in engines.items():
        if engine.name not in busy and workloads:
            document.flaw((*key, "name"), f'no workload of this plan supports engine "{engine.name}"')


def _check_baseline(document: Document, arms: Mapping[Key, Arm]) -> None:
    baseline, labels = document.data.get("baseline"), [arm.label for arm in arms.values()]
    if isinstance(baseline, str) and labels and label_of(baseline, arms.values()) is None:
        hint = did_you_mean(baseline, labels)
        document.flaw(("baseline",), f'baseline "{baseline}" is not listed in fs_setups{hint}')


def _check_study(document: Document, plan: Plan | None) -> None:
    if plan is None or plan.study is None:
        return
    study_names = studies.names()
    if plan.study.name not in study_names:
        hint = did_you_mean(plan.study.name, study_names)
        document.flaw(("study", "name"), f'unknown study "{plan.study.name}"{hint}')


def _check_figures(document: Document) -> None:
    """Check the plan's own values as written, so that one wrong value does not hide the next."""
    name, blocks = document.data.get("name"), document.data.get("blocks")
    if isinstance(name, str) and not NAME.fullmatch(name):
        document.flaw(("name",), f'invalid name of a run "{name}": use letters, digits and . _ + : = -')
    if isinstance(blocks, int) and blocks < 1:
        document.flaw(("blocks",), f'"blocks" must be 1 or more, not {blocks}')
    if isinstance(blocks, int) and blocks > MOST_TRIALS:
        document.flaw(("blocks",), f'"blocks" must be at most {MOST_TRIALS}, not {blocks}')
    if "budget" in document.data:
        _check_budget(document)
    if isinstance(memory := document.data.get("memory"), list):
        with contextlib.suppress(ValueError):  # an invalid size is reported when the plan is converted to its types
            check_list(document, ("memory",), memory, [bytes_of(value) for value in memory], "size")
    times: dict[str, float | None] = {}
    for key in ("warmup", "measure"):
        with contextlib.suppress(ValueError):  # an invalid duration is reported when the plan is converted to its types
            times[key] = seconds_of(document.data[key]) if key in document.data else None
    _check_window(document, (), times.get("warmup"), times.get("measure"))


def _check_budget(document: Document) -> None:
    if "blocks" in document.data:
        document.flaw(("budget",), '"budget" and "blocks" cannot be combined: both decide the number of blocks')
    with contextlib.suppress(ValueError):  # an invalid duration is reported when the plan is converted to its types
        if seconds_of(document.data["budget"]) <= 0:
            document.flaw(("budget",), '"budget" must be more than 0 s')


def _check_window(document: Document, key: Key, warmup_s: float | None, measure_s: float | None) -> None:
    # Drivers report whole seconds. The warm-up may be 0.
    if measure_s is not None and measure_s < 1:
        document.flaw((*key, "measure"), f'"measure" must be 1 s or more, not {measure_s:g} s')
    for name, value in (("warmup", warmup_s), ("measure", measure_s)):
        if value is not None and value != int(value):
            document.flaw((*key, name), f'"{name}" must be a whole number of seconds, not {value:g} s')


def _check_device(document: Document, device: DeviceSpec, labels: list[str]) -> None:
    given = document.data.get("device", {})
    {"loop": _check_loop, "block": _check_block, "dir": _check_dir}[device.kind](document, device, labels)
    keys_of_kind = {
        "loop": {"size", "at", "count"},
        "block": {"path", "paths", "identity", "condition"},
        "dir": {"paths"},
    }
    for name in given:
        if (
            name != "kind"
            and name not in keys_of_kind[device.kind]
            and any(name in keys for keys in keys_of_kind.values())
        ):
            document.flaw(("device", name), f'"{name}" has no effect with kind = "{device.kind}"; remove it')


def _check_loop(document: Document, device: DeviceSpec, _labels: list[str]) -> None:
    if device.size_bytes < LEAST_BYTES:
        document.flaw(("device", "size"), '"size" must be 320MiB or more')
    if device.count < 1:
        document.flaw(("device", "count"), '"count" must be 1 or more')
    if device.count > _MOST_DEVICES:
        document.flaw(("device", "count"), f'"count" must be at most {_MOST_DEVICES}')


def _check_block(document: Document, device: DeviceSpec, _labels: list[str]) -> None:
    if isinstance(device.paths, dict):
        document.flaw(("device", "paths"), '"paths" of block devices must be a list')
    elif not device.path and not device.paths:
        document.flaw(("device",), 'kind = "block" requires path = "/dev/disk/by-id/..."')


def _check_dir(document: Document, device: DeviceSpec, labels: list[str]) -> None:
    if not isinstance(device.paths, dict) or not device.paths:
        document.flaw(
            ("device",),
            (
                f'kind = "dir" requires a directory for each fs setup: paths = {{ {labels[0] if labels else "ext4"} '
                '= "/mnt/a" }'
            ),
        )
        return
    for label in labels:
        if label not in device.paths:
            document.flaw(("device", "paths"), f'"paths" has no directory for "{label}"')
    for label in device.paths:
        if label not in labels:
            hint = did_you_mean(label, labels)
            document.flaw(("device", "paths", label), f'"{label}" is not listed in fs_setups{hint}')


def check_logs(
    document: Document,
    arms: Mapping[Key, Arm],
    engines: Mapping[Key, EngineSpec],
    device: DeviceSpec | None,
    catalog: Catalog,
) -> None:
    """Note what does not fit: the log's own setup, arms whose log is elsewhere, arms without a filesystem."""
    if device is not None and device.wal is not None:
        _check_wal(document, device, device.wal, catalog)
        for key, engine in engines.items():
            if engine.name in SERVERLESS:
                document.flaw((*key, "name"), f'engine "{engine.name}" has no write-ahead log to put on [device.wal]')
    for key, arm in arms.items():
        if device is not None and device.wal is None and value_at(document, key, "wal") is not None:
            document.flaw((*key, "wal"), '"wal" has no effect without [device.wal]; remove it')
        with contextlib.suppress(UnknownName, PlanInvalid):  # `_check_arms` reports it
            setup = catalog.setup(arm.use)
            _check_arm(document, key, arm, setup, device)
            if setup.mkfs.family == "raw":
                _check_raw(document, key, arm, engines, device)


def _check_raw(
    document: Document, key: Key, arm: Arm, engines: Mapping[Key, EngineSpec], device: DeviceSpec | None
) -> None:
    """Note why an arm on a bare device is not possible: only InnoDB supports it, and its other files need another
    device."""
    if device is not None and (device.wal is None or not arm.wal):
        document.flaw(key, f'"{arm.use}" has no filesystem, so it requires [device.wal] for the remaining files')
    able = " and ".join(name for name in SERVERS if profile_of(name).one_tablespace)
    for served in sorted({engine.name for engine in engines.values() if not profile_of(engine.name).one_tablespace}):
        who = f'engine "{served}"' if served in SERVERLESS else profile_of(served).title
        document.flaw(key, f'"{arm.use}" supports only {able}; {who} requires a filesystem')
    for name in ("age", "operations"):
        if document.data.get(name) not in (None, []):
            document.flaw((name,), f'"{name}" requires a filesystem, but "{arm.use}" has none')


def value_at(document: Document, key: Key, name: str) -> Any:
    """Return the value of `name` in the table at `key` of the file, or None if it is missing."""
    value: Any = document.data
    for part in (*key, name):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _check_arm(document: Document, key: Key, arm: Arm, setup: FsSetup, device: DeviceSpec | None) -> None:
    elsewhere, volume = bool(device and device.wal and arm.wal), "wal" in setup.volumes
    if elsewhere and volume:
        document.flaw(key, (f'fs setup "{setup.name}" already has a volume for the log; with [device.wal] use {{ use = '
            f'"{arm.use}", wal = false }}'))  # fmt: skip
    # A copy of the data without its log cannot be started, and the log is still used by the running server.
    asked = document.data.get("operations")
    copies = [name for name in ("snapshot", "clone") if isinstance(asked, list) and name in asked]
    if copies and (elsewhere or volume):
        text = f'"{" and ".join(copies)}" cannot copy "{arm.label}", because its log is on another device'
        document.flaw(key, text)


def _check_wal(document: Document, device: DeviceSpec, wal: WalDevice, catalog: Catalog) -> None:
    """Note whether the log's setup can be made on the single device that it gets."""
    key = ("device", "wal")
    if device.existing:
        document.flaw(key, '"wal" has no effect with kind = "dir"; remove it')
        return
    try:
        setup = catalog.setup(wal.fs_setup)
    except (UnknownName, PlanInvalid) as error:
        document.flaw((*key, "fs_setup"), error.evidence)
        return
    if setup.devices.min > 1:
        document.flaw(
            (*key, "fs_setup"),
            f'fs setup "{setup.name}" requires {setup.devices.min} devices or more, but the log has one',
        )
    family = FAMILIES.get(setup.mkfs.family)
    if family is not None and not family.by_mkfs:
        document.flaw(
            (*key, "fs_setup"),
            (f'a pool ("{setup.name}") cannot be used for [device.wal]; use a setup with a volume for the log instead'),
        )
    if setup.volumes:
        document.flaw((*key, "fs_setup"), f'fs setup "{setup.name}" has volumes and cannot be used for the log')
    if device.real and not wal.path:
        document.flaw(key, 'kind = "block" requires path = "/dev/disk/by-id/..." for the log too')
    if device.imaged and wal.size_bytes < LEAST_BYTES:
        document.flaw((*key, "size"), '"size" must be 320MiB or more')
    for name in {"loop": ("path", "identity"), "block": ("size", "at")}[device.kind]:
        if value_at(document, key, name) is not None:
            document.flaw((*key, name), f'"{name}" has no effect with kind = "{device.kind}"; remove it')
