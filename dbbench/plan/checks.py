"""What types alone do not say of a plan: names that exist, parts that fit each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from dbbench import studies
from dbbench.catalog import NAME, Catalog, dataset_of, defaults
from dbbench.datasets import generated
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.filesystems.families import FAMILIES
from dbbench.model import Arm, DeviceSpec, EngineSpec, FsSetup, Plan, Workload, WorkloadSpec
from dbbench.plan.client import check_client
from dbbench.plan.extras import check_age_engine, check_extras
from dbbench.plan.fair import check_fair
from dbbench.plan.labels import label_of
from dbbench.plan.logs import LEAST_BYTES, check_logs, value_at
from dbbench.plan.workloads import check_list
from dbbench.tomlfile import Document, Key, did_you_mean
from dbbench.units import bytes_of, seconds_of

Workloads = Mapping[Key, tuple[WorkloadSpec, Workload]]


def check(
    document: Document,
    plan: Plan | None,
    arms: Mapping[Key, Arm],
    engines: Mapping[Key, EngineSpec],
    workloads: Workloads,
    device: DeviceSpec | None,
    whole: bool,
    catalog: Catalog,
) -> None:
    """Note all flaws. `whole`: nothing was left out of the lists, so what is missing there is missing."""
    _check_arms(document, arms, device, catalog)
    _check_names(document, "engine", {key: engine.name for key, engine in engines.items()})
    _check_names(document, "workload", {key: spec.name for key, (spec, _) in workloads.items()})
    for key, (spec, workload) in workloads.items():
        _check_engines_of(document, key, spec, workload, engines)
        _check_dataset(document, key, spec, workload, engines)
    if whole:
        _check_idle_engines(document, engines, workloads)
        if device is not None:
            _check_device(document, device, [arm.label for arm in arms.values()])
    _check_baseline(document, arms)
    _check_study(document, plan)
    check_logs(document, arms, engines, device, catalog)
    _check_figures(document)
    check_fair(document, engines, workloads)
    check_client(document, plan, engines, [(key, workload) for key, (_, workload) in workloads.items()])
    check_extras(document, plan, device, _known_setups(arms, catalog), engines.values(),
                 [workload for _, workload in workloads.values()])  # fmt: skip
    loads = [(spec.name, workload.window) for spec, workload in workloads.values()]
    check_age_engine(document, plan, loads, [engine.name for engine in engines.values()])
    for key, engine in engines.items():
        check_list(document, (*key, "bin"), value_at(document, key, "bin"), engine.bins, "path")
    for phase, seconds in (plan.deadlines if plan else {}).items():
        if seconds <= 0:
            document.flaw(("deadlines", phase.value), f'deadline "{phase.value}" should be more than 0 s')
    for key, (spec, _) in workloads.items():
        _check_window(document, key, spec.warmup_s, spec.measure_s)


def _known_setups(arms: Mapping[Key, Arm], catalog: Catalog) -> list[FsSetup]:
    found = []
    for arm in arms.values():
        with contextlib.suppress(UnknownName, PlanInvalid):  # told with its arm
            found.append(catalog.setup(arm.use))
    return found


def _check_arms(document: Document, arms: Mapping[Key, Arm], device: DeviceSpec | None, catalog: Catalog) -> None:
    seen: dict[str, Key] = {}
    for key, arm in arms.items():
        if arm.label in seen:
            document.flaw(key, f'"{arm.label}" stands twice; a label makes them distinct: '
                               f'{{ use = "{arm.use}", label = "{arm.label}-b" }}')  # fmt: skip
        elif not NAME.fullmatch(arm.label):
            document.flaw(key, f'"{arm.label}" is no label: letters, digits and . _ + : = - are')
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
        document.flaw(key, f'fs setup "{setup.name}" is of the unknown family "{setup.mkfs.family}"{hint}')
    if device is None or device.kind == "dir":
        return
    if device.given < setup.devices.min:
        document.flaw(
            key, f'fs setup "{setup.name}" wants {setup.devices.min} devices or more; the plan has {device.given}'
        )


def _check_names(document: Document, what: str, names: Mapping[Key, str]) -> None:
    seen: set[str] = set()
    for key, name in names.items():
        if name in seen:
            document.flaw((*key, "name"), f'{what} "{name}" stands twice')
        seen.add(name)


def engines_of(spec: WorkloadSpec, workload: Workload, engines: Iterable[EngineSpec]) -> list[EngineSpec]:
    """The plan's engines that a workload of it runs on, in the plan's order."""
    wanted = spec.engines or workload.engines
    return [engine for engine in engines if engine.name in wanted and engine.name in workload.engines]


def _check_engines_of(
    document: Document, key: Key, spec: WorkloadSpec, workload: Workload, engines: Mapping[Key, EngineSpec]
) -> None:
    named = {engine.name for engine in engines.values()}
    for index, name in enumerate(spec.engines):
        if name not in workload.engines:
            runs_on = ", ".join(workload.engines)
            document.flaw(
                (*key, "engines", index), f'workload "{spec.name}" does not run on {name}; it runs on {runs_on}'
            )
        elif name not in named:
            document.flaw((*key, "engines", index), f'"{name}" is no [[engine]] of this plan')
    if engines and not spec.engines and not engines_of(spec, workload, engines.values()):
        runs_on = ", ".join(workload.engines)
        document.flaw(key, f'workload "{spec.name}" runs on none of the plan\'s engines; it runs on {runs_on}')


def _check_dataset(
    document: Document, key: Key, spec: WorkloadSpec, workload: Workload, engines: Mapping[Key, EngineSpec]
) -> None:
    """Whether the dataset can be loaded, with each of the plan's own sizes, into each engine."""
    if spec.source:  # looked at when the plan is expanded
        return
    values = {**defaults(workload), **spec.parameters}
    each = [{**values, name: value} for name, several in spec.sweeps.items() for value in several] or [values]
    for engine in engines_of(spec, workload, engines.values()):
        for own in each:
            try:
                generated.completed(dataset_of(workload, own), engine.name)
            except PlanInvalid as error:
                document.flaw(key, error.evidence)


def _check_idle_engines(document: Document, engines: Mapping[Key, EngineSpec], workloads: Workloads) -> None:
    busy = {
        engine.name for spec, workload in workloads.values() for engine in engines_of(spec, workload, engines.values())
    }
    for key, engine in engines.items():
        if engine.name not in busy and workloads:
            document.flaw((*key, "name"), f'no workload of this plan runs on engine "{engine.name}"')


def _check_baseline(document: Document, arms: Mapping[Key, Arm]) -> None:
    baseline, labels = document.data.get("baseline"), [arm.label for arm in arms.values()]
    if isinstance(baseline, str) and labels and label_of(baseline, arms.values()) is None:
        hint = did_you_mean(baseline, labels)
        document.flaw(("baseline",), f'baseline "{baseline}" is none of the fs_setups{hint}')


def _check_study(document: Document, plan: Plan | None) -> None:
    if plan is None or plan.study is None:
        return
    known = studies.names()
    if plan.study.name not in known:
        hint = did_you_mean(plan.study.name, known)
        document.flaw(("study", "name"), f'no study "{plan.study.name}"{hint}')


def _check_figures(document: Document) -> None:
    """The plan's own values, as written: a wrong one does not hide the next."""
    name, blocks = document.data.get("name"), document.data.get("blocks")
    if isinstance(name, str) and not NAME.fullmatch(name):
        document.flaw(("name",), f'"{name}" is no name for a run: letters, digits and . _ + : = - are')
    if isinstance(blocks, int) and blocks < 1:
        document.flaw(("blocks",), f'"blocks" should be 1 or more, not {blocks}')
    if isinstance(memory := document.data.get("memory"), list):
        with contextlib.suppress(ValueError):  # told already, by its type
            check_list(document, ("memory",), memory, [bytes_of(value) for value in memory], "size")
    times: dict[str, float | None] = {}
    for key in ("warmup", "measure"):
        with contextlib.suppress(ValueError):  # told already, by its type
            times[key] = seconds_of(document.data[key]) if key in document.data else None
    _check_window(document, (), times.get("warmup"), times.get("measure"))


def _check_window(document: Document, key: Key, warmup_s: float | None, measure_s: float | None) -> None:
    # A driver reports whole seconds; warm-up may be 0.
    if measure_s is not None and measure_s < 1:
        document.flaw((*key, "measure"), f'"measure" should be 1 s or more, not {measure_s:g} s')
    for name, value in (("warmup", warmup_s), ("measure", measure_s)):
        if value is not None and value != int(value):
            document.flaw((*key, name), f'"{name}" should be whole seconds, not {value:g} s')


def _check_device(document: Document, device: DeviceSpec, labels: list[str]) -> None:
    given = document.data.get("device", {})
    {"loop": _check_loop, "block": _check_block, "dir": _check_dir}[device.kind](document, device, labels)
    own = {"loop": {"size", "at", "count"}, "block": {"path", "paths", "identity", "condition"}, "dir": {"paths"}}
    for name in given:
        if name != "kind" and name not in own[device.kind] and any(name in keys for keys in own.values()):
            document.flaw(("device", name), f'"{name}" says nothing for kind = "{device.kind}"')


def _check_loop(document: Document, device: DeviceSpec, _labels: list[str]) -> None:
    if device.size_bytes < LEAST_BYTES:
        document.flaw(("device", "size"), '"size" should be 320MiB or more')
    if device.count < 1:
        document.flaw(("device", "count"), '"count" should be 1 or more')


def _check_block(document: Document, device: DeviceSpec, _labels: list[str]) -> None:
    if isinstance(device.paths, dict):
        document.flaw(("device", "paths"), '"paths" of block devices should be a list')
    elif not device.path and not device.paths:
        document.flaw(("device",), 'kind = "block" needs path = "/dev/disk/by-id/..."')


def _check_dir(document: Document, device: DeviceSpec, labels: list[str]) -> None:
    if not isinstance(device.paths, dict) or not device.paths:
        document.flaw(("device",), 'kind = "dir" needs a directory for each fs setup: '
                                   f'paths = {{ {labels[0] if labels else "ext4"} = "/mnt/a" }}')  # fmt: skip
        return
    for label in labels:
        if label not in device.paths:
            document.flaw(("device", "paths"), f'"paths" has no directory for "{label}"')
    for label in device.paths:
        if label not in labels:
            hint = did_you_mean(label, labels)
            document.flaw(("device", "paths", label), f'"{label}" is none of the fs_setups{hint}')
