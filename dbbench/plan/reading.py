"""Read a plan file as a `Plan`, with the overrides of the command line.

Every part is read separately, so that one error does not hide the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.engines import ENGINES, SERVERLESS
from dbbench.engines.settings import respelt_size
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Arm, DeviceSpec, EngineSpec, Plan, Workload, WorkloadSpec
from dbbench.model.base import PRODUCTION
from dbbench.plan.arms import default_label, label_of
from dbbench.plan.catalog import Catalog
from dbbench.plan.checks import MOST_TRIALS, PlanParts, check
from dbbench.plan.tomlfile import Document, Key, did_you_mean, read, typed
from dbbench.plan.workloads import check_length, check_list, read_workload
from dbbench.units import seconds_of

_LISTS: Final = ("fs_setups", "engine", "workload")
_MOST_ENTRIES: Final = 200  # entries of each list


def load(path: Path, catalog: Catalog) -> Plan:
    """Return the plan in `path`, checked against `catalog`.

    Raises FileUnreadable, or PlanInvalid with all errors, each with file:line and a suggestion.
    """
    document = read(path)
    parts = _parts(document, catalog)
    check(document, parts, catalog)
    document.finish()
    if parts.plan is None:
        raise AssertionError("a plan without flaws can be read")
    return parts.plan


def _parts(document: Document, catalog: Catalog) -> PlanParts:
    arms: dict[Key, Arm] = {}
    engines: dict[Key, EngineSpec] = {}
    workloads: dict[Key, tuple[WorkloadSpec, Workload]] = {}
    if device := _part(document, DeviceSpec, document.data.get("device", {}), ("device",)):
        device = _located(document, device)
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
        if workload := read_workload(document, item, key, catalog):
            workloads[key] = workload
    count = sum(len(document.data.get(name, ())) for name in _LISTS if isinstance(document.data.get(name), list))
    return PlanParts(
        plan=_plan(document, arms, engines, workloads, device),
        arms=arms,
        engines=engines,
        workloads=workloads,
        device=device,
        whole=len(arms) + len(engines) + len(workloads) == count,
    )


def _located(document: Document, device: DeviceSpec) -> DeviceSpec:
    """Return the device with absolute paths, because a trial runs in another directory."""

    def located(path: str | None) -> str | None:
        return document.beside(path) if path else path

    paths: dict[str, str] | tuple[str, ...]
    if isinstance(device.paths, dict):
        paths = {label: document.beside(path) for label, path in device.paths.items()}
    else:
        paths = tuple(map(document.beside, device.paths))
    wal = device.wal and dataclasses.replace(device.wal, at=located(device.wal.at), path=located(device.wal.path))
    return dataclasses.replace(device, at=located(device.at), path=located(device.path), paths=paths, wal=wal)


def _plan(
    document: Document,
    arms: dict[Key, Arm],
    engines: dict[Key, EngineSpec],
    workloads: dict[Key, tuple[WorkloadSpec, Workload]],
    device: DeviceSpec | None,
) -> Plan | None:
    """Return a plan of the parts that could be read, so that its own keys are checked regardless of the others."""
    read_parts: dict[str, Any] = {
        "fs_setups": tuple(arms.values()),
        "engine": tuple(engines.values()),
        "workload": tuple(spec for spec, _ in workloads.values()),
        "device": device or DeviceSpec(),
    }
    plan_values = {name: read_parts.get(name, value) for name, value in document.data.items()}
    if "budget" in plan_values:
        plan_values.setdefault("blocks", LEAST_BLOCKS)
    if isinstance(baseline := plan_values.get("baseline"), str):
        plan_values["baseline"] = label_of(baseline, arms.values()) or baseline
    return typed(document, Plan, plan_values)


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
        _check_profile(document, item, key)
        item = {"profile": PRODUCTION, **item}
        if isinstance(bins := item.get("bin"), str | list):
            several = bins if isinstance(bins, list) else [bins]
            item["bin"] = [document.beside(path) if path and isinstance(path, str) else path for path in several]
    if not isinstance(item, dict) or not isinstance(item.get("settings"), dict):
        return cast("EngineSpec | None", _part(document, EngineSpec, item, key))
    lists = {name: value for name, value in item["settings"].items() if isinstance(value, list)}
    single = {name: value for name, value in item["settings"].items() if name not in lists}
    single |= {name: values[0] for name, values in lists.items() if len(values) == 1}
    _check_sizes(document, item, key)
    for name, values in lists.items():
        check_length(document, (*key, "settings", name), values)
        check_list(document, (*key, "settings", name), values, values, "setting")
        for index, value in enumerate(values):
            if not isinstance(value, bool | int | float | str):
                document.flaw(
                    (*key, "settings", name, index), f'each value of "{name}" must be a single value, not {value!r}'
                )
    engine = cast("EngineSpec | None", _part(document, EngineSpec, {**item, "settings": single}, key))
    sweeps = {name: tuple(values) for name, values in lists.items() if len(values) > 1}
    return dataclasses.replace(engine, sweeps=sweeps) if engine else None


def _check_profile(document: Document, item: dict[str, Any], key: Key) -> None:
    """Check that the engine has the profile that is named."""
    name, engine = item.get("profile"), ENGINES.get(str(item.get("name")))
    if engine is None or not isinstance(name, str):
        return
    known = engine.PROFILE.settings_profiles
    if engine.PROFILE.name in SERVERLESS:
        document.flaw((*key, "profile"), f'"profile" has no effect with engine "{engine.PROFILE.name}"; remove it')
    elif name not in known:
        hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
        document.flaw((*key, "profile"), f'{engine.PROFILE.title} has no profile "{name}"{hint}')


def _check_sizes(document: Document, item: dict[str, Any], key: Key) -> None:
    """Check sizes in the server's own unit: the server would refuse another unit in every trial."""
    for name, given in item["settings"].items():
        for value in given if isinstance(given, list) else [given]:
            if respelt := respelt_size(str(item.get("name")), value):
                document.flaw(
                    (*key, "settings", name), f'"{value}" is not a size in the format of this server; write "{respelt}"'
                )


def _part(document: Document, kind: type[Any], item: Any, key: Key) -> Any:
    if not isinstance(item, dict):
        document.flaw(key, f'each entry of "{key[0]}" must be a table, not {item!r}')
        return None
    return typed(document, kind, item, key)


# Long enough for every sampler to record some seconds, and short enough for a person to wait.
QUICK_WARMUP_S: Final = 2.0
QUICK_MEASURE_S: Final = 5.0


@dataclasses.dataclass(frozen=True)
class Narrowing:
    """What the command line changes in a plan."""

    fs: Sequence[str] = ()  # only these arms
    blocks: int | None = None
    budget: str | None = None  # a time such as "8h", from which the number of blocks follows
    seed: int | None = None
    quick: bool = False  # one block of the shortest windows


def narrowed(plan: Plan, to: Narrowing) -> Plan:
    """Return `plan` with these changes. Raises UnknownName, PlanInvalid.

    If `fs` excludes the baseline, the first remaining arm replaces it. The first blocks of a budget are the fewest that
    give an interval.
    """
    blocks, quick = to.blocks, to.quick
    if to.budget is not None and (quick or blocks is not None):
        other = "--quick" if quick else "--blocks"
        raise PlanInvalid(f"--budget and {other} cannot be combined: both decide the number of blocks",
                          effect="Nothing was changed.")  # fmt: skip
    if blocks is not None and blocks < 1:
        raise PlanInvalid(f"invalid --blocks {blocks}: must be 1 or more", effect="Nothing was changed.")
    if blocks is not None and blocks > MOST_TRIALS:
        raise PlanInvalid(f"invalid --blocks {blocks}: must be at most {MOST_TRIALS}", effect="Nothing was changed.")
    if to.fs:
        plan = _only(plan, to.fs)
    if quick:
        short = tuple(
            dataclasses.replace(spec, warmup_s=QUICK_WARMUP_S, measure_s=QUICK_MEASURE_S) for spec in plan.workload
        )
        plan = dataclasses.replace(
            plan, warmup_s=QUICK_WARMUP_S, measure_s=QUICK_MEASURE_S, workload=short, blocks=1, repeat_suspect=False
        )
    if quick or blocks is not None:
        plan = dataclasses.replace(plan, budget_s=None)
    if to.budget is not None:
        plan = dataclasses.replace(plan, budget_s=_budget(to.budget), blocks=LEAST_BLOCKS)
    return dataclasses.replace(
        plan,
        blocks=plan.blocks if blocks is None else blocks,
        seed=plan.seed if to.seed is None else to.seed,
    )


def _budget(written: str) -> float:
    try:
        if (seconds := seconds_of(written)) > 0:
            return seconds
        reason = "must be more than 0 s"
    except ValueError as error:
        reason = str(error)
    raise PlanInvalid(f"invalid --budget {written}: {reason}", effect="Nothing was changed.",
                      remedy="Give a time such as 90min or 8h.")  # fmt: skip


def _only(plan: Plan, labels: Sequence[str]) -> Plan:
    all_labels, kept = [arm.label for arm in plan.fs_setups], set()
    for word in labels:
        if (label := label_of(word, plan.fs_setups)) is None:
            raise UnknownName(
                f'--fs: "{word}" is not listed in fs_setups of the plan{did_you_mean(word, all_labels)}',
                effect="Nothing was changed.",
            )
        kept.add(label)
    arms = tuple(arm for arm in plan.fs_setups if arm.label in kept)
    device = plan.device
    if isinstance(device.paths, dict):
        paths = {label: path for label, path in device.paths.items() if label in kept}
        device = dataclasses.replace(device, paths=paths)
    baseline = plan.baseline if plan.baseline in kept else arms[0].label
    return dataclasses.replace(plan, fs_setups=arms, baseline=baseline, device=device)
