"""Sections "Environment" and "Conditions": what differs between the compared cells first, then what
is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.compare.conditions import CONDITIONS, unequal
from dbbench.compare.remarks import texts
from dbbench.engines import profile_of
from dbbench.engines.settings import word
from dbbench.machine import known_faults
from dbbench.machine.known_faults import KnownFault
from dbbench.model import FilesystemFacts, Run, Status, Trial
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.theme import Mark
from dbbench.report.page.trial_facts import fact_text, facts, flatten, server_settings
from dbbench.report.sentences import no_limit
from dbbench.units import MISSING, join_words

MOST_VALUES: Final = 3  # different values of an arm that a cell shows

Facts = dict[str, str]


class Fact(NamedTuple):
    """One line: a name and a value for each arm (or one for all)."""

    name: str
    cells: tuple[str, ...]


class EngineSettings(NamedTuple):
    """The settings of an engine as they were requested, (name, value, origin), and how many the
    server itself reported.
    """

    title: str
    rows: list[tuple[str, str, str]]
    effective: int


class MachineFacts(NamedTuple):
    """A host, or the whole run if it used a single one."""

    name: str
    facts: Facts
    versions: Facts


class Environment(NamedTuple):
    """The section. `differs` has a value for each of `marks`, `host_differs` for each of `hosts`;
    the others have one value.
    """

    marks: list[Mark]
    differs: list[Fact]
    hosts: list[str]
    several_hosts: bool
    host_differs: list[Fact]
    host: list[Fact]
    versions: list[Fact]
    same: list[Fact]
    engines: list[EngineSettings]


def environment(groups: Sequence[Group]) -> Environment:
    """Return the facts of all trials: first those that differ between arms, then the others."""
    arms = all_arms(groups)
    trials = [trial for group in groups for trial in group.trials]

    # What was recorded of filesystem, device and dataset.
    by_arm = [[trial for trial in trials if trial.fs_setup == arm] for arm in arms]
    differs, same = _compare([[facts(trial) for trial in of_arm] for of_arm in by_arm])

    # The settings of each server.
    engines = []
    for engine in dict.fromkeys(group.engine for group in groups):
        title = profile_of(engine).title
        columns = []
        for of_arm in by_arm:
            columns.append([server_settings(t) for t in of_arm if t.engine == engine])
        unlike, _ = _compare(columns)
        unlike_names = set()
        for fact in unlike:
            unlike_names.add(fact.name)
            differs.append(Fact(f"{title}: {fact.name}", fact.cells))
        of_engine = [trial for trial in trials if trial.engine == engine]
        engines.append(_settings(title, of_engine, unlike_names))
        same += _versions(title, of_engine)

    # The machines.
    runs = loaded_runs(groups)
    machines = [machine for loaded in runs for machine in _machines(loaded.run)]
    host_differs, host = _compare([[machine.facts] for machine in machines])
    version_differs, versions = _compare([[machine.versions] for machine in machines])
    return Environment(
        marks=[groups[0].marks[arm] for arm in arms],
        differs=differs,
        hosts=[machine.name for machine in machines],
        several_hosts=any(loaded.run.hosts for loaded in runs),
        host_differs=host_differs + version_differs,
        host=host,
        versions=versions,
        same=same,
        engines=engines,
    )


def _machines(run: Run) -> Iterator[MachineFacts]:
    if not run.hosts:
        versions = {**run.versions, "dbbench": run.dbbench_version}
        yield MachineFacts(run.name, flatten(run.host), versions)
    for name, host in run.hosts.items():
        others = {key: host[key] for key in host if key not in ("versions", "hostname")}
        yield MachineFacts(name, flatten(others), dict(host.get("versions", {})))


def _versions(title: str, trials: Sequence[Trial]) -> list[Fact]:
    features_of = {}
    for trial in trials:
        if trial.engine_features:
            features_of[trial.engine_version] = trial.engine_features
    facts = []
    for version, features in sorted(features_of.items()):
        text = ", ".join(f"{name} {value}" for name, value in features.items())
        facts.append(Fact(f"{title} {version}", (text,)))
    return facts


def _settings(
    title: str,
    trials: Sequence[Trial],
    unlike: set[str],
) -> EngineSettings:
    settings = {name: setting for trial in trials for name, setting in trial.settings.items()}
    rows = []
    for name, setting in sorted(settings.items()):
        value = "differs, see above" if name in unlike else fact_text(setting.value)
        rows.append((name, value, setting.origin))
    effective = max((len(trial.effective_settings) for trial in trials), default=0)
    return EngineSettings(title, rows, effective)


def _compare(columns: Sequence[Sequence[Facts]]) -> tuple[list[Fact], list[Fact]]:
    """Return (facts that differ between columns, other facts). Columns without any facts are left
    out.
    """
    differs = []
    same = []
    measured = [any(column) for column in columns]
    names = dict.fromkeys(name for column in columns for entry in column for name in entry)
    for name in names:
        # The different values in each column, and the columns' different sets of values.
        values = []
        for column in columns:
            of_column = dict.fromkeys(entry[name] for entry in column if name in entry)
            values.append(list(of_column))
        distinct = set()
        for of_column_sorted in map(sorted, itertools.compress(values, measured)):
            distinct.add(tuple(of_column_sorted))
        if len(distinct) > 1:
            differs.append(Fact(name, tuple(map(_text, values))))
        else:
            anywhere = next(filter(None, values))
            same.append(Fact(name, (_text(anywhere),)))
    return differs, same


def _text(values: Sequence[str]) -> str:
    if not values:
        return MISSING
    text = " | ".join(values[:MOST_VALUES])
    if len(values) > MOST_VALUES:
        text += f" … {len(values)} values"
    return text


def conditions(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the conditions of all groups, differences first; one that applies to several groups
    appears once.
    """
    sentences = []
    for group in groups:
        for arm, lines in differences(group):
            sentences.append(
                f"{arm} and {group.baseline} ({group.title}) were not measured under equal "
                f"conditions: {'; '.join(lines)}."
            )
    for group in groups:
        sentences += _sentences(group)
    sentences += _known_faults(groups)
    for loaded in loaded_runs(groups):
        sentences += [f"{no_limit(exceeded)}." for exceeded in loaded.exceeded]
    return tuple(dict.fromkeys(sentences))


def _known_faults(groups: Sequence[Group]) -> Iterator[str]:
    """Name the faults of the hosts' kernels that can lose the data of these trials."""
    hosts = []
    for loaded in loaded_runs(groups):
        hosts += list(loaded.run.hosts.values()) or [loaded.run.host]
    trials = [trial for group in groups for trial in group.trials if trial.filesystem]
    for host in hosts:
        for fault, version in known_faults.of_host(host):
            if any(_concerns(fault, trial) for trial in trials):
                yield f"{fault.sentence(version)}. No verdict depends on this."
    for trial in trials:
        yield from unjudged_options(trial)


def unjudged_options(trial: Trial) -> Iterator[str]:
    """Yield a sentence for each option of the trial that its durability class does not know."""
    made = trial.filesystem
    if made is None:
        return
    chosen: dict[str, object] = dict(trial.engine_features)
    for name, setting in trial.settings.items():
        if setting.origin != "default":
            chosen[name] = word(setting.value)
    text = known_faults.options_text(_options(made), chosen)
    for sentence in known_faults.unknown_options(made.family, trial.engine, text):
        yield f"{sentence}."


def _options(made: FilesystemFacts) -> list[str]:
    """Return the words of all mkfs commands, and the options of the mount."""
    options = [argument for command in made.mkfs for argument in command]
    return [*options, *made.mount_options_effective]


def _concerns(fault: KnownFault, trial: Trial) -> bool:
    made = trial.filesystem
    if made is None:
        return False
    # A fault may need an option of the filesystem or of the server.
    text = known_faults.options_text(_options(made), trial.effective_settings)
    return fault.concerns(made.family, trial.engine, text)


def differences(group: Group) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (arm, conditions in which it differs from the baseline), from the trials that were
    used.
    """
    base = group.used_of(group.baseline)
    for arm in group.arms:
        lines = texts(unequal(base, group.used_of(arm)))
        if lines and arm != group.baseline:
            yield arm, lines


def _sentences(group: Group) -> Iterator[str]:
    # A sentence that is true of all arms names none.
    trials = [trial for trial in group.trials if trial.status is not Status.FAILED]
    for condition in CONDITIONS:
        arms_of: dict[str, dict[str, None]] = {}
        for trial in trials:
            text = condition.sentence(trial)
            if text is not None:
                arms_of.setdefault(text, {})[trial.fs_setup] = None
        for text, arms in arms_of.items():
            of_arms = f", {join_words(list(arms))}" if len(arms_of) > 1 else ""
            yield f"{group.title}{of_arms}: {text}."
