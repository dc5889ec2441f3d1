"""Sections "Environment" and "Conditions".

Environment: what differs between the compared cells first, then what is the same for all of them. Conditions: a
sentence for each condition of the measured cells, and the setups for which it differed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dbbench.compare.conditions import CONDITIONS
from dbbench.compare.remarks import texts
from dbbench.compare.unequal import unequal
from dbbench.engines import profile_of
from dbbench.model import DatasetFacts, DeviceFacts, FilesystemFacts, Run, Setting, Status, Trial
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.units import MISSING, listed, size_text

MOST_VALUES: Final = 3  # different values of an arm that a cell shows
_TARGET: Final = re.compile(r"^(/proc/self/fd/\d+|/dev/loop\d+)$")  # device names that change with every trial
# Settings whose value is a path, port or name of a trial and not a property of the arm.
_PLACES: Final = re.compile(r"(^|_)(dir|directory|directories|file|path|socket|pid|port|hostname|basedir|home)($|_)")


@dataclass(frozen=True)
class Fact:
    """One line: a name and a value for each arm (or one for all)."""

    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class SettingRow:
    """A server setting and who set it."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True)
class EngineSettings:
    """The settings of one engine as they were requested."""

    title: str
    rows: tuple[SettingRow, ...]
    effective: int  # how many settings the server itself reported


@dataclass(frozen=True)
class Environment:
    """The section on the environment."""

    marks: tuple[Mark, ...]
    differs: tuple[Fact, ...]  # one value per arm
    hosts: tuple[str, ...]  # names of the hosts, or of the run if it used a single host
    several_hosts: bool
    host_differs: tuple[Fact, ...]  # one value per entry of `hosts`; shown first if there are several
    host: tuple[Fact, ...]
    versions: tuple[Fact, ...]
    same: tuple[Fact, ...]
    engines: tuple[EngineSettings, ...]


def environment(groups: Sequence[Group]) -> Environment:
    """Return the facts of all trials: first those that differ between arms, then the others."""
    arms = list(dict.fromkeys(arm for group in groups for arm in group.arms))
    trials = [trial for group in groups for trial in group.trials]
    differs, same = _compared(arms, {arm: [facts(t) for t in trials if t.fs_setup == arm] for arm in arms})
    engines = []
    for engine in dict.fromkeys(group.engine for group in groups):
        of_engine = [trial for trial in trials if trial.engine == engine]
        title = profile_of(engine).title
        unlike, _ = _compared(arms, {arm: [_server(t) for t in of_engine if t.fs_setup == arm] for arm in arms})
        differs += [Fact(f"{title}: {fact.name}", fact.cells) for fact in unlike]
        engines.append(_settings(title, of_engine, {fact.name for fact in unlike}))
        same += _versions(title, of_engine)
    runs = {group.loaded.path: group.loaded.run for group in groups}.values()
    machines = _machines(list(runs))
    host_differs, host = _across([flat(facts) for _, facts, _ in machines])
    version_differs, versions = _across([dict(versions) for _, _, versions in machines])
    return Environment(
        marks=tuple(groups[0].marks[arm] for arm in arms) if groups else (),
        differs=tuple(differs),
        hosts=tuple(name for name, _, _ in machines),
        several_hosts=any(run.hosts for run in runs),
        host_differs=tuple(host_differs + version_differs),
        host=tuple(host),
        versions=tuple(versions),
        same=tuple(same),
        engines=tuple(engines),
    )


def _machines(runs: Sequence[Run]) -> list[tuple[str, Mapping[str, Any], Mapping[str, str]]]:
    """Return (name, facts, versions) for the machine of each run, or for each host of a run with several."""
    machines: list[tuple[str, Mapping[str, Any], Mapping[str, str]]] = []
    for run in runs:
        for name, facts in run.hosts.items():
            host_facts = {key: value for key, value in facts.items() if key not in ("versions", "hostname")}
            machines.append((name, host_facts, facts.get("versions", {})))
        if not run.hosts:
            machines.append((run.name, run.host, {**run.versions, "dbbench": run.dbbench_version}))
    return machines


def facts(trial: Trial) -> dict[str, str]:
    """Return what a trial recorded about its filesystem, device and cold start, as flat text."""
    facts_of = {**_conditions(trial), "fs setup": trial.setup}
    if (fs := trial.filesystem) is not None:
        facts_of |= _made(fs) | ({f"log: {key}": value for key, value in _made(fs.wal).items()} if fs.wal else {})
    if (device := trial.device) is not None:
        facts_of |= _device(device)
        facts_of |= {f"log: {key}": value for key, value in _device(device.wal).items()} if device.wal else {}
    if trial.dataset is not None:
        facts_of |= _dataset(trial.dataset)
    if trial.cache is not None:
        proof = "verified" if trial.cache.proved else f"not verified: {trial.cache.reason}".rstrip(": ")
        facts_of["cold cache"] = f"{trial.cache.method}, {proof}" if trial.cache.method else proof
    return {key: value for key, value in facts_of.items() if value}


def _made(fs: FilesystemFacts) -> dict[str, str]:
    geometry = {key: value for key, value in fs.geometry.items() if "uuid" not in key}
    return {
        "filesystem": fs.family,
        "durability class": fs.durability_class,
        "mkfs": " ; ".join(" ".join(_word(word) for word in argv) for argv in fs.mkfs),
        "mount options requested": ",".join(fs.mount_options_asked),
        "mount options effective": ",".join(fs.mount_options_effective),
        "read-ahead": "" if fs.read_ahead_kb is None else f"{fs.read_ahead_kb} kB",
        "geometry": ", ".join(f"{key} {shown(value, key)}" for key, value in geometry.items()),
        "atomic writes": fs.atomic_writes or "",
        **{f"queue: {key}": value for key, value in fs.queue.items()},
    }


def _dataset(dataset: DatasetFacts) -> dict[str, str]:
    packed = "" if dataset.compressibility is None else f"{dataset.compressibility:.2f} by zlib"
    return {
        "dataset": dataset.source or dataset.kind,
        "compressibility of the data": packed,
        "only this tablespace is on the filesystem": dataset.tablespace,
        "changed in the copy of the source": "; ".join(dataset.told),
    }


def _device(device: DeviceFacts) -> dict[str, str]:
    return {
        "device": " ".join(filter(None, (device.kind, device.model, device.serial))),
        "device size": size_text(device.size_bytes),
        "direct I/O of the loop device": "" if device.direct_io is None else ("on" if device.direct_io else "off"),
    }


def _conditions(trial: Trial) -> dict[str, str]:
    """Return the conditions that must be equal between arms. They are the first facts, because a difference affects the
    ratio."""
    shown_facts = {name: shown(value) for name, value in trial.host_state.items() if value is not None}
    shown_facts |= {row.name: value for row in CONDITIONS if (value := row.value(trial)) is not None}
    if trial.memory is not None and trial.memory.label:
        shown_facts["dataset ÷ memory"] = trial.memory.label
    if trial.client is not None:
        shown_facts["load generator"] = f"{trial.client.tool} on {trial.client.hostname}, over TLS"
    return shown_facts


def _versions(title: str, trials: Sequence[Trial]) -> list[Fact]:
    """Return each version of an engine, with its features that affect how it reads and writes."""
    features_of = {trial.engine_version: trial.engine_features for trial in trials if trial.engine_features}
    return [
        Fact(f"{title} {version}", (", ".join(f"{name} {value}" for name, value in features.items()),))
        for version, features in sorted(features_of.items())
    ]


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested facts as `a.b: value`, without those that are not known."""
    flattened: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flattened |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            flattened[f"{prefix}{key}"] = shown(value, str(key))
    return flattened


def _server(trial: Trial) -> dict[str, str]:
    """Return the settings that may differ between arms: those requested, and the others that the server reported."""
    asked = {name: shown(setting.value) for name, setting in trial.settings.items() if not _PLACES.search(name)}
    effective = {name: value for name, value in trial.effective_settings.items()
                 if name not in asked and not _PLACES.search(name)}  # fmt: skip
    settings = {"version": trial.engine_version} | asked | effective
    return settings if trial.effective_settings else {}


def _settings(title: str, trials: list[Trial], unlike: set[str]) -> EngineSettings:
    """Return the settings with their origin. Values that differ between arms are in the table of differences."""
    seen: dict[str, Setting] = {}
    for trial in trials:
        seen |= trial.settings
    rows = [
        SettingRow(name, "differs, see above" if name in unlike else shown(setting.value), setting.origin)
        for name, setting in sorted(seen.items())
    ]
    return EngineSettings(title, tuple(rows), max((len(t.effective_settings) for t in trials), default=0))


def _compared(arms: list[str], found: Mapping[str, list[dict[str, str]]]) -> tuple[list[Fact], list[Fact]]:
    """Return (facts that differ between arms, other facts). Trials and arms without any facts are left out."""
    counted = {arm: [trial for trial in trials if trial] for arm, trials in found.items()}
    counted = {arm: trials for arm, trials in counted.items() if trials}
    names = dict.fromkeys(name for trials in counted.values() for facts in trials for name in facts)
    differs, same = [], []
    for name in names:
        values = {arm: dict.fromkeys(f[name] for f in trials if name in f) for arm, trials in counted.items()}
        if len({tuple(sorted(v)) for v in values.values()}) > 1:
            differs.append(Fact(name, tuple(_joined(list(values.get(arm, {}))) for arm in arms)))
        else:
            same.append(Fact(name, (_joined(list(next(iter(values.values())))),)))
    return differs, same


def _across(runs: list[dict[str, str]]) -> tuple[list[Fact], list[Fact]]:
    """Return (facts that differ between runs, with a value for each run; other facts)."""
    differs, same = [], []
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run.get(name, MISSING) for run in runs]
        if len(set(values)) > 1:
            differs.append(Fact(name, tuple(values)))
        else:
            same.append(Fact(name, (values[0],)))
    return differs, same


def _joined(values: list[str]) -> str:
    shown = values[:MOST_VALUES]
    rest = f" … {len(values)} values" if len(values) > MOST_VALUES else ""
    return " | ".join(shown) + rest if values else MISSING


def _word(word: str) -> str:
    return "DEVICE" if _TARGET.match(word) else word


def shown(value: Any, name: str = "") -> str:
    """Return a fact as text: flags as on and off, sizes (names that end in `bytes`) with their unit."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if name.endswith("bytes") and isinstance(value, int):
        return size_text(value)
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)


def conditions(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the conditions of all groups, differences first; one that applies to several groups appears once."""
    return tuple(dict.fromkeys((*_unequal(groups), *(line for group in groups for line in _of(group)))))


def differences(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """Return (arm, conditions in which it differs from the baseline), from the trials that were used."""
    used = {arm: group.used_of(arm) for arm in group.arms}
    sentences = [(arm, texts(unequal(used.get(group.baseline, []), trials))) for arm, trials in used.items()]
    return [(arm, lines) for arm, lines in sentences if lines and arm != group.baseline]


def _unequal(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        for arm, lines in differences(group):
            pair = f"{arm} and {group.baseline} ({group.title})"
            yield f"{pair} were not measured under equal conditions: {'; '.join(lines)}."


def _of(group: Group) -> Iterator[str]:
    trials = [trial for trial in group.trials if trial.status is not Status.FAILED]
    for condition in CONDITIONS:
        yield from _each(group, trials, condition.sentence)


def _each(group: Group, trials: Sequence[Trial], condition: Callable[[Trial], str | None]) -> Iterator[str]:
    """Yield one sentence if the condition is the same for all arms, else one for each set of arms."""
    arms: dict[str, dict[str, None]] = {}
    for trial in trials:
        if (text := condition(trial)) is not None:
            arms.setdefault(text, {})[trial.fs_setup] = None
    for text, of in arms.items():
        yield f"{group.title}: {text}." if len(arms) == 1 else f"{group.title}, {listed(list(of))}: {text}."
