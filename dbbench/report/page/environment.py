"""Sections "Environment" and "Conditions": what differs between the compared cells first, then what
is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace as View
from typing import Final, NamedTuple

from dbbench.compare.conditions import CONDITIONS, unequal
from dbbench.compare.remarks import texts
from dbbench.engines import profile_of
from dbbench.model import Run, Status, Trial
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.trial_facts import fact_text, facts, flatten, server_settings
from dbbench.units import MISSING, join_words

MOST_VALUES: Final = 3  # different values of an arm that a cell shows

Facts = dict[str, str]


class Fact(NamedTuple):
    """One line: a name and a value for each arm (or one for all)."""

    name: str
    cells: tuple[str, ...]


def environment(groups: Sequence[Group]) -> View:
    """Return the facts of all trials: first those that differ between arms, then the others."""
    arms = all_arms(groups)
    trials = [trial for group in groups for trial in group.trials]
    differs, same = _compare(
        [[facts(trial) for trial in trials if trial.fs_setup == arm] for arm in arms]
    )
    engines = []
    for engine in dict.fromkeys(group.engine for group in groups):
        of_engine = [trial for trial in trials if trial.engine == engine]
        title = profile_of(engine).title
        unlike, _ = _compare(
            [[server_settings(t) for t in of_engine if t.fs_setup == arm] for arm in arms]
        )
        differs += [Fact(f"{title}: {fact.name}", fact.cells) for fact in unlike]
        engines.append(_settings(title, of_engine, {fact.name for fact in unlike}))
        same += _versions(title, of_engine)
    machines = [machine for loaded in loaded_runs(groups) for machine in _machines(loaded.run)]
    host_differs, host = _compare([[host] for _, host, _ in machines])
    version_differs, versions = _compare([[versions] for _, _, versions in machines])
    return View(
        marks=[groups[0].marks[arm] for arm in arms],
        differs=differs,  # one value per arm
        hosts=[name for name, _, _ in machines],  # or the name of the run if it used a single host
        several_hosts=any(loaded.run.hosts for loaded in loaded_runs(groups)),
        host_differs=host_differs + version_differs,  # one value per entry of `hosts`
        host=host,
        versions=versions,
        same=same,
        engines=engines,
    )


def _machines(run: Run) -> list[tuple[str, Facts, Facts]]:
    """Return (name, facts, versions) for the machine of a run, or for each host of a run with
    several.
    """
    if not run.hosts:
        return [(run.name, flatten(run.host), {**run.versions, "dbbench": run.dbbench_version})]
    own = ("versions", "hostname")
    return [
        (
            name,
            flatten({key: value for key, value in host.items() if key not in own}),
            dict(host.get("versions", {})),
        )
        for name, host in run.hosts.items()
    ]


def _versions(title: str, trials: Sequence[Trial]) -> list[Fact]:
    features_of = {
        trial.engine_version: trial.engine_features for trial in trials if trial.engine_features
    }
    return [
        Fact(
            f"{title} {version}",
            (", ".join(f"{name} {value}" for name, value in features.items()),),
        )
        for version, features in sorted(features_of.items())
    ]


def _settings(title: str, trials: Sequence[Trial], unlike: set[str]) -> View:
    """Return the settings of an engine as they were requested, and how many the server itself
    reported.
    """
    settings = {name: setting for trial in trials for name, setting in trial.settings.items()}
    rows = [
        (name, "differs, see above" if name in unlike else fact_text(setting.value), setting.origin)
        for name, setting in sorted(settings.items())
    ]
    return View(
        title=title,
        rows=rows,
        effective=max((len(t.effective_settings) for t in trials), default=0),
    )


def _compare(columns: Sequence[Sequence[Facts]]) -> tuple[list[Fact], list[Fact]]:
    """Return (facts that differ between columns, other facts). Columns without any facts are left
    out.
    """
    differs = []
    same = []
    known = [column for column in columns if any(column)]
    for name in dict.fromkeys(name for column in known for entry in column for name in entry):
        values = [
            list(dict.fromkeys(entry[name] for entry in column if name in entry))
            for column in columns
        ]
        if (
            len(
                {tuple(sorted(v)) for v, column in zip(values, columns, strict=True) if any(column)}
            )
            > 1
        ):
            differs.append(Fact(name, tuple(map(_text, values))))
        else:
            same.append(Fact(name, (_text(next(filter(None, values))),)))
    return differs, same


def _text(values: Sequence[str]) -> str:
    rest = f" … {len(values)} values" if len(values) > MOST_VALUES else ""
    return " | ".join(values[:MOST_VALUES]) + rest if values else MISSING


def conditions(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the conditions of all groups, differences first; one that applies to several groups
    appears once.
    """
    unlike = [
        f"{arm} and {group.baseline} ({group.title}) were not measured under equal conditions: "
        f"{'; '.join(lines)}."
        for group in groups
        for arm, lines in differences(group)
    ]
    return tuple(
        dict.fromkeys((*unlike, *(line for group in groups for line in _sentences(group))))
    )


def differences(group: Group) -> list[tuple[str, tuple[str, ...]]]:
    """Return (arm, conditions in which it differs from the baseline), from the trials that were
    used.
    """
    base = group.used_of(group.baseline)
    sentences = [
        (arm, texts(unequal(base, group.used_of(arm))))
        for arm in group.arms
        if arm != group.baseline
    ]
    return [(arm, lines) for arm, lines in sentences if lines]


def _sentences(group: Group) -> Iterator[str]:
    for condition in CONDITIONS:
        arms: dict[str, dict[str, None]] = {}
        for trial in group.trials:
            if (
                trial.status is not Status.FAILED
                and (text := condition.sentence(trial)) is not None
            ):
                arms.setdefault(text, {})[trial.fs_setup] = None
        for text, of in arms.items():
            yield (
                f"{group.title}: {text}."
                if len(arms) == 1
                else f"{group.title}, {join_words(list(of))}: {text}."
            )
