"""Load a plan, with checks beyond types and bounds: names exist and are not repeated, lists fit,
rules are kept.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from dbbench.datasets import generated
from dbbench.engines import ENGINES, SERVERS, profile_of
from dbbench.engines.port import Profile
from dbbench.engines.settings import LOOSE, reservation, respelt_size
from dbbench.errors import FileUnreadable, PlanInvalid
from dbbench.errors.similar_names import did_you_mean, nearest
from dbbench.machine import cores, ownership
from dbbench.model import DROPPED, EngineSpec, Plan, Scalar, Workload, WorkloadSpec, spelt
from dbbench.model.base import NAME, NAME_RULE
from dbbench.model.plan import MOST_TRIALS
from dbbench.operations import OPERATIONS
from dbbench.plan import studies
from dbbench.plan.catalog import Catalog, dataset_of, defaults
from dbbench.plan.draft import PlanDraft, engines_of
from dbbench.plan.labels import label_of
from dbbench.plan.rules import check_rules
from dbbench.plan.server_settings import defaults as default_settings
from dbbench.plan.tomlfile import Document, Key, read
from dbbench.plan.variants import PROFILE, factor_names, factors_of, number
from dbbench.plan.workloads import check_list, place_tables
from dbbench.storage.filesystems import FAMILIES
from dbbench.units import bytes_of

MOST_CELLS: Final = 2000
_OFFSET: Final = re.compile(r"SYSTEM|[+-]\d\d?:\d\d", re.IGNORECASE)  # of a time zone


def load(path: Path, catalog: Catalog) -> Plan:
    """Return the plan in `path`, checked against `catalog`. Raises FileUnreadable, or PlanInvalid
    with all errors, each with file:line and a suggestion.
    """
    try:
        document = read(path)
    except FileUnreadable as error:
        if error.remedy is None and not os.path.lexists(path):
            error.remedy = "Write a plan with:  dbbench init"
            # Only the names: what two paths have in common makes them no more alike.
            plans = {other.stem: other for other in path.parent.glob("*.toml")}
            if meant := nearest(path.stem, list(plans)):
                error.remedy = f'Did you mean "{plans[meant]}"?'
        raise
    draft = PlanDraft(document, catalog)
    _check(draft)
    document.finish()
    assert draft.plan is not None  # a plan without flaws can be read
    return draft.plan


def _check(draft: PlanDraft) -> None:
    document = draft.document
    _check_names(draft)
    _check_twice(draft)
    for key in draft.workloads:
        _check_workload(draft, key)
    for key, engine in draft.engines.items():
        _check_engine(draft, key, engine)
    # Keys of the plan itself.
    memory = document.data.get("memory")
    if isinstance(memory, list):
        # an invalid size is reported when the plan is converted to its types
        with contextlib.suppress(ValueError):
            check_list(document, ("memory",), memory, list(map(bytes_of, memory)), "size")
    if draft.plan is not None:
        if reason := too_many(draft.plan, draft.workloads.values()):
            document.flaw(("blocks",), reason)
        for name, levels in draft.plan.factors.items():
            _check_factor(document, name, levels, list(draft.engines.values()))
    check_rules(draft)


def _check_names(draft: PlanDraft) -> None:
    document = draft.document
    labels = draft.labels
    for key, arm in draft.arms.items():
        if not NAME.fullmatch(arm.label):
            document.flaw(key, f'invalid label "{arm.label}": {NAME_RULE}')
    # Names of other parts of dbbench.
    for key, setup in draft.setups.items():
        what = f'fs setup "{setup.name}" has the unknown family'
        _check_name(document, key, what, setup.mkfs.family, FAMILIES)
    for key, operation in draft.operations.items():
        _check_name(document, key, "unknown operation", operation, OPERATIONS)
    if draft.plan is not None and draft.plan.study is not None:
        study = draft.plan.study.name
        _check_name(document, ("study", "name"), "unknown study", study, studies.names())
    # Names of arms.
    baseline = document.data.get("baseline")
    if isinstance(baseline, str) and labels and label_of(baseline, draft.arms.values()) is None:
        _check_name(document, ("baseline",), "fs_setups has no baseline", baseline, labels)
    if draft.whole:
        _check_labels(draft)


def _check_labels(draft: PlanDraft) -> None:
    document = draft.document
    labels = draft.labels
    if draft.plan is not None:
        for label in draft.plan.expect:
            _check_name(document, ("expect", label), "fs_setups has no", label, labels)
    if draft.device.existing:
        for label in draft.device.directories:
            _check_name(document, ("device", "paths", label), "fs_setups has no", label, labels)


def _check_name(
    document: Document,
    key: Key,
    what: str,
    name: str,
    names: Collection[str],
) -> None:
    if name not in names:
        document.flaw(key, f'{what} "{name}"{did_you_mean(name, names)}')


def _check_twice(draft: PlanDraft) -> None:
    for kind, subjects in draft.subjects.items():
        remedy = '; give one of them another "label"' if kind == "fs_setups" else ""
        names = list(subjects.values())
        for index, (key, name) in enumerate(subjects.items()):
            if name in names[:index]:
                draft.document.flaw((*key, "name"), f"{name} is listed twice{remedy}")


def _check_workload(draft: PlanDraft, key: Key) -> None:
    document = draft.document
    engines = draft.engines.values()
    spec, workload = draft.workloads[key]
    # The workload must run on some engine of the plan.
    runs_on = f"(supported: {', '.join(workload.engines)})"
    for index, name in enumerate(spec.engines):
        place = (*key, "engines", index)
        if name not in workload.engines:
            document.flaw(place, f'workload "{spec.name}" does not support {name} {runs_on}')
        elif name not in {engine.name for engine in engines}:
            document.flaw(place, f'"{name}" is not an [[engine]] of this plan')
    # Without `engines` the workload runs on all that it supports.
    if engines and not spec.engines and not engines_of(spec, workload, engines):
        text = f'workload "{spec.name}" supports none of the engines of this plan {runs_on}'
        document.flaw(key, text)
    for name in spec.source:
        if name:
            _check_name(document, (*key, "source", name), "unknown engine", name, SERVERS)
    if not spec.source:  # a source is inspected when the plan is expanded
        _check_dataset(draft, key)


def _check_dataset(draft: PlanDraft, key: Key) -> None:
    spec, workload = draft.workloads[key]
    values = {**defaults(workload), **spec.parameters}
    choices = []  # each value of a list; the other lists have their defaults
    for name, several in spec.sweeps.items():
        for value in several:
            choices.append({**values, name: value})
    if not choices:
        choices.append(values)
    for engine in engines_of(spec, workload, draft.engines.values()):
        for choice in choices:
            dataset = place_tables(dataset_of(workload, choice), spec)
            try:
                generated.fill_in(dataset, engine.name)
            except PlanInvalid as error:
                draft.document.flaw(key, error.evidence)


def _check_engine(draft: PlanDraft, key: Key, engine: EngineSpec) -> None:
    document = draft.document
    profile = profile_of(engine.name)
    loads = draft.workloads.values()
    if draft.whole and loads and not any(engines_of(spec, load, [engine]) for spec, load in loads):
        document.flaw((*key, "name"), f'no workload of this plan supports engine "{engine.name}"')
    # Its programs, its CPUs, and then its settings.
    if profile.has_server:
        _check_profile(document, (*key, "profile"), profile, engine.profile)
    check_list(document, (*key, "bin"), draft.value((*key, "bin")), engine.bins, "path")
    # Root runs these programs: whoever can change them would be root at the next run.
    for folder in map(Path, engine.bins):
        if writer := ownership.other_writer(ownership.programs_in(folder)):
            document.flaw((*key, "bin"), f"{writer}, and root would run it")
    for name, words in (("cpus_server", engine.cpus_server), ("cpus_client", engine.cpus_client)):
        try:
            cores.parsed_cores(words if words is not None else "0")
        except ValueError:
            text = f'"{name}" must be a list of CPUs such as "0-3,8", not "{words}"'
            document.flaw((*key, name), text)
    settings = {name: (value,) for name, value in engine.settings.items()} | engine.sweeps
    with_default = _names_with_default(draft, engine)
    for name, values in settings.items():
        place = (*key, "settings", name)
        _check_setting(document, place, profile, name, values)
        if DROPPED in values and spelt(name) not in with_default:
            text = "has no effect: dbbench sets no default for it; remove it"
            document.flaw(place, f'"{name}" = "{DROPPED}" {text}')
        for value in values:
            _check_size(document, place, engine.name, value)


def _check_setting(
    document: Document,
    key: Key,
    profile: Profile,
    name: str,
    values: Sequence[Scalar],
) -> None:
    """Note a setting with which every trial would fail."""
    plain = spelt(name).removeprefix(LOOSE)
    if reason := reservation(profile.reserved, name):
        document.flaw(key, f'"{name}" is reserved: {reason}; remove it')
    elif spelt(name) != plain:
        document.flaw(key, f'"{name}" may have no effect; write "{plain}", or remove it')
    zone = plain in ("default_time_zone", "time_zone") and profile.dialect == "mysql"
    for value in values:
        if zone and not _OFFSET.fullmatch(str(value)):
            text = f'{name} = "{value}" needs tables of time zones, which a private server lacks'
            document.flaw(key, f'{text}; write an offset such as "+01:00"')


def _check_profile(
    document: Document,
    key: Key,
    engine: Profile,
    name: str,
) -> None:
    _check_name(document, key, f"{engine.title} has no profile", name, engine.settings_profiles)


def _names_with_default(draft: PlanDraft, engine: EngineSpec) -> set[str]:
    """Return the settings that dbbench, a workload or a setup of the plan sets. Another one that is
    dropped is probably misspelled.
    """
    names = set(default_settings(engine, None))
    names.update(ENGINES[engine.name].window_settings(1, 1))
    for _, workload in draft.workloads.values():
        names.update(workload.settings.get(engine.name, {}))
    for setup in draft.setups.values():
        names.update(setup.tuning.get(engine.name, {}))
    return set(map(spelt, names))


def _check_size(
    document: Document,
    key: Key,
    engine: str,
    value: Scalar,
) -> None:
    """Note a size in the unit of another server: the server would refuse it in every trial."""
    if respelt := respelt_size(engine, value):
        text = f'"{value}" is not a size in the format of this server; write "{respelt}"'
        document.flaw(key, text)


def _check_factor(
    document: Document,
    name: str,
    levels: Sequence[Scalar],
    engines: Sequence[EngineSpec],
) -> None:
    key = ("factors", name)
    check_list(document, key, list(levels), levels, "setting")
    if len(levels) == 1:
        remedy = 'use "settings" of the [[engine]] for it, or add a level'
        document.flaw(key, f'factor "{name}" has one level; {remedy}')
    # A factor need not exist in every engine, but in one.
    able = [engine for engine in engines if name in factors_of({name: tuple(levels)}, engine)]
    if engines and not able:
        names = list(chain.from_iterable(map(factor_names, engines)))
        advice = '; if a server has such a setting, list it in its "settings" too'
        either = " or ".join(f'engine "{engine.name}"' for engine in engines)
        hint = did_you_mean(name, names) or advice
        document.flaw(key, f'factor "{name}" is not supported by {either}{hint}')
    for engine in able:
        _check_setting(document, key, profile_of(engine.name), name, levels)
        _check_levels(document, name, levels, engine)


def _check_levels(
    document: Document,
    name: str,
    levels: Sequence[Scalar],
    engine: EngineSpec,
) -> None:
    key = ("factors", name)
    profile = profile_of(engine.name)
    if spelt(name) in map(spelt, engine.sweeps):
        text = f'"{name}" is also a list in "settings" of engine "{engine.name}"'
        document.flaw(key, f"{text}; remove one of them")
    for index, level in enumerate(levels):
        place = (*key, index)
        if name == PROFILE:
            _check_profile(document, place, profile, str(level))
        elif name in profile.switches and not isinstance(level, bool):
            text = f'the levels of "{name}" are true and false, not {level!r}'
            document.flaw(place, text)
        else:
            _check_size(document, place, engine.name, level)


def too_many(plan: Plan, workloads: Iterable[tuple[WorkloadSpec, Workload]]) -> str:
    """Return an error message if a plan has more cells or trials than a run can have, otherwise ""."""
    cells = 0
    for spec, workload in workloads:
        for engine in engines_of(spec, workload, plan.engine):
            cells += number(plan, spec, engine) * len(plan.fs_setups)
    # A typing error in a list may ask for millions.
    if cells > MOST_CELLS:
        return (
            f"the plan has {cells:.7g} combinations of setup, engine and workload; at most "
            f"{MOST_CELLS} are possible"
        )
    if cells * plan.blocks > MOST_TRIALS:
        return f"the plan has {cells * plan.blocks:.7g} trials; at most {MOST_TRIALS} are possible"
    return ""
