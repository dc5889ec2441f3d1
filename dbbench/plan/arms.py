"""The arms of a plan: their labels, and lists of which each value becomes a separate cell. Arms are
compared only within the same values. Of the plan's factors, each engine uses those that it
supports: `profile`, a word of its `switches` such as `binlog`, and server settings. It runs
every combination of their levels.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from dbbench.engines import ENGINES
from dbbench.model import (
    Arm,
    DeviceLimit,
    DeviceSpec,
    EngineSpec,
    Parameter,
    Plan,
    Scalar,
    WorkloadSpec,
    spelt,
)
from dbbench.plan.server_settings import defaults
from dbbench.units import size_text

# Characters that are invalid in a label, and "+" and "=", which separate the parts of a variant.
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._:-]+")
_FOREIGN_OPTION: Final = re.compile(r"[^A-Za-z0-9._:=-]+")  # the same, but an option has "="

Factors = Mapping[str, tuple[Scalar, ...]]
PROFILE: Final = "profile"
LIMIT: Final = "limit"  # the factor of a plan whose device has a list of limits


class Variant(NamedTuple):
    """One choice of values from all lists that apply to a cell. `name`: "clients=8+memory=1GiB"; ""
    without lists.
    """

    name: str
    parameters: dict[str, Scalar]
    memory_bytes: int | None
    limit: DeviceLimit | None
    engine: EngineSpec
    levels: dict[str, Scalar]  # factor -> level


def variants(
    plan: Plan, spec: WorkloadSpec, engine: EngineSpec, known: dict[str, Parameter]
) -> Iterator[Variant]:
    """Yield all choices, with the first list changing slowest; a single one without a name if the
    plan has no list.
    """
    sizes = {name for name, parameter in known.items() if parameter.type == "size"}
    lists: list[tuple[str, Sequence[Any], Callable[[Any], str]]] = [
        (name, values, _size if name in sizes else _word) for name, values in spec.sweeps.items()
    ]
    lists += [(name, values, _word) for name, values in engine.sweeps.items()]
    bins = dict(zip(engine.bins, distinct(engine.bins), strict=True))
    lists.append(("memory", plan.memory or (None,), _size))
    lists.append(("bin", engine.bins or (None,), bins.__getitem__))
    limits = device_limits(plan)
    levels_of = combinations(plan, engine)
    for *choice, limit, levels in itertools.product(
        *(values for _, values, _ in lists), limits, levels_of
    ):
        all_levels = {**({LIMIT: limit.name} if limit and len(limits) > 1 else {}), **levels}
        words = [
            f"{name}={word(value)}"
            for (name, values, word), value in zip(lists, choice, strict=True)
            if len(values) > 1
        ]
        words += [level_text(name, level) for name, level in all_levels.items()]
        *swept, memory, folder = choice
        # the others are those of the server
        parameters = dict(zip(spec.sweeps, swept, strict=False))
        settings = {
            **engine.settings,
            **dict(zip(engine.sweeps, swept[len(spec.sweeps) :], strict=True)),
        }
        programs = () if folder is None else (folder,)
        server = with_levels(
            dataclasses.replace(engine, bins=programs, settings=settings, sweeps={}), levels
        )
        yield Variant("+".join(words), parameters, memory, limit, server, all_levels)


def number(plan: Plan, spec: WorkloadSpec, engine: EngineSpec) -> int:
    """Return the number of choices that `variants` yields."""
    lists = (
        *spec.sweeps.values(),
        *engine.sweeps.values(),
        plan.memory or (None,),
        engine.bins or (None,),
    )
    levels = math.prod(map(len, factors_of(plan.factors, engine).values()))
    return levels * len(device_limits(plan)) * math.prod(map(len, lists))


def device_limits(plan: Plan) -> tuple[DeviceLimit | None, ...]:
    """Return the levels of the device's limit; (None,) without one."""
    return plan.device.limit.levels if plan.device.limit else (None,)


def factors_of(factors: Factors, engine: EngineSpec) -> dict[str, tuple[Scalar, ...]]:
    """Return the factors that the engine knows, in the order of the plan."""
    known_names = {spelt(name) for name in factor_names(engine)}
    return {name: levels for name, levels in factors.items() if spelt(name) in known_names}


def combinations(plan: Plan, engine: EngineSpec) -> list[dict[str, Scalar]]:
    """Return every combination of the levels of the engine's factors, the first factor changing
    slowest; a single empty one if it has none.
    """
    factors = factors_of(plan.factors, engine)
    return [
        dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())
    ]


def with_levels(engine: EngineSpec, levels: Mapping[str, Scalar]) -> EngineSpec:
    """Return the engine with these levels of its factors."""
    switches = ENGINES[engine.name].PROFILE.switches
    profile = engine.profile
    settings = dict(engine.settings)
    for name, level in levels.items():
        if name == PROFILE:
            profile = str(level)
            continue
        values = switches[name][bool(level)] if name in switches else {name: level}
        settings = {
            known: value
            for known, value in settings.items()
            if spelt(known) not in map(spelt, values)
        }
        settings |= values
    return dataclasses.replace(engine, profile=profile, settings=settings)


def level_text(factor: str, level: Scalar) -> str:
    """Return a factor's level as in the name of a variant: "io_method=sync"."""
    return f"{factor}={_word(level)}"


def factor_names(engine: EngineSpec) -> list[str]:
    """Return the names that can be factors of an engine: those that dbbench knows, and those that
    the plan sets.
    """
    own = ENGINES[engine.name]
    if not own.PROFILE.has_server:
        return []
    profiles = [name for values in own.PROFILE.settings_profiles.values() for name in values]
    return [
        PROFILE,
        *own.PROFILE.switches,
        *defaults(engine, None),
        *own.window_settings(1, 1),
        *profiles,
        *own.PROFILE.versions,
        *engine.settings,
    ]


def twins(values: Sequence[Any], kind: str) -> list[Any]:
    """Return the values of a list that are equal to an earlier one: they would be the same cell."""
    words = (
        distinct(values)
        if kind == "path"
        else [(_size if kind == "size" else _word)(value) for value in values]
    )
    first = {word: index for index, word in reversed(list(enumerate(words)))}
    return [value for index, value in enumerate(values) if first[words[index]] < index]


def distinct(paths: Sequence[str]) -> list[str]:
    """Return the words that distinguish paths: "15" and "17" for /usr/lib/postgresql/15/bin and
    .../17/bin.
    """
    split = [PurePath(path).parts for path in paths]
    shortest = min(map(len, split), default=0)
    head = next((i for i in range(shortest) if len({parts[i] for parts in split}) > 1), shortest)
    tail = next(
        (i for i in range(shortest - head) if len({parts[-1 - i] for parts in split}) > 1),
        shortest - head,
    )
    words = [_word("-".join(parts[head : len(parts) - tail])) for parts in split]
    return [word or _word(path) for word, path in zip(words, paths, strict=True)]


def _word(value: Scalar) -> str:
    text = (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
    return _FOREIGN.sub("-", text).strip("-")


def _size(value: int) -> str:
    return size_text(value).replace(" ", "")


def default_label(arm: Arm, device: DeviceSpec | None) -> str:
    """Return "xfs:commit=60", or "xfs:commit=60+wal:ext4" with the log on a separate device."""
    name = effective_name(arm)
    return f"{name}+wal:{device.wal.fs_setup}" if device and device.wal and arm.wal else name


def effective_name(arm: Arm) -> str:
    """Return the name of the arm's setup with the options that the arm adds:
    "ext4:commit=60+data=writeback".
    """
    flags = re.sub(r" (?=[^-])", "=", " ".join(arm.mkfs)).split()
    settings = [
        f"{name}={_word(value)}" for values in arm.tuning.values() for name, value in values.items()
    ]
    words = dict.fromkeys(
        _FOREIGN_OPTION.sub("-", word).strip("-") for word in (*arm.mount, *flags, *settings)
    )
    return f"{arm.use}:{'+'.join(words)}" if words else arm.use


def split_fs(
    words: Iterable[str], known: Callable[[str], bool]
) -> list[tuple[str, tuple[str, ...]]]:
    """Return name and mount options of each entry of `--fs`, split at its commas.
    "xfs,ext4:commit=60,data=writeback" has two entries: after options, a word that is not
    `known` is another option.
    """
    entries: list[tuple[str, tuple[str, ...]]] = []
    for word in words:
        colons = [at for at, letter in enumerate(word) if letter == ":"]
        split = next((at for at in reversed(colons) if known(word[:at])), None)
        if not known(word) and split is not None:
            entries.append((word[:split], (word[split + 1 :],)))
        elif not known(word) and entries and entries[-1][1]:
            entries[-1] = (entries[-1][0], (*entries[-1][1], word))
        else:
            entries.append((word, ()))
    return entries


def label_of(word: str, arms: Iterable[Arm]) -> str | None:
    """Return the label that `word` means: the label itself, or that of the first arm that uses the
    setup of that name.
    """
    nearest = sorted(arms, key=lambda arm: arm.label != word)
    return next((arm.label for arm in nearest if word in (arm.label, arm.use)), None)
