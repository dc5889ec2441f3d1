"""The variants of a cell: one for each choice of values from the plan's lists. Arms are compared
only within the same values. Of the plan's factors, each engine uses those that it supports:
`profile`, a word of its `switches` such as `binlog`, and server settings. It runs every
combination of their levels.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal, NamedTuple

from dbbench.engines import ENGINES
from dbbench.model import (
    DeviceLimit,
    EngineSpec,
    Json,
    Parameter,
    Plan,
    Scalar,
    Scalars,
    WorkloadSpec,
    spelt,
)
from dbbench.plan.labels import word_of
from dbbench.plan.server_settings import defaults
from dbbench.units import size_text

Factors = Mapping[str, tuple[Scalar, ...]]
PROFILE: Final = "profile"
LIMIT: Final = "limit"  # the factor of a plan whose device has a list of limits


class Axis(NamedTuple):
    """A list of the plan, each value of which becomes a separate cell."""

    kind: Literal["parameter", "setting", "plan", "queue"]  # what the values are of
    name: str
    values: Sequence[Any]
    word: Callable[[Any], str]  # a value, as in the name of a variant


class Variant(NamedTuple):
    """One choice of values from all lists that apply to a cell. `name`: "clients=8+memory=1GiB"; ""
    without lists.
    """

    name: str
    parameters: Scalars
    memory_bytes: int | None
    limit: DeviceLimit | None
    queue: Scalars
    engine: EngineSpec
    levels: Scalars  # factor -> level


def variants(
    plan: Plan,
    spec: WorkloadSpec,
    engine: EngineSpec,
    parameters: Mapping[str, Parameter],
) -> Iterator[Variant]:
    """Yield all choices, with the first list changing slowest; a single one without a name if the
    plan has no list.
    """
    # Three kinds of factors: the plan's lists, limits of the device, and combinations.
    axes = _axes(plan, spec, engine, parameters)
    choices = itertools.product(*(axis.values for axis in axes))
    limits = device_limits(plan)
    combined = combinations(plan, engine)
    for choice, limit, levels in itertools.product(choices, limits, combined):
        # The values of the lists, each where it belongs.
        words = []
        values: dict[str, Json] = {
            "parameter": {},
            "setting": {},
            "plan": {},
            "queue": {},
        }
        all_levels: Scalars = {}
        for axis, value in zip(axes, choice, strict=True):
            values[axis.kind][axis.name] = value
            if len(axis.values) > 1:
                words.append(f"{axis.name}={axis.word(value)}")
                if axis.kind == "queue":
                    all_levels[axis.name] = value

        # A list of limits is a factor, too. Every title says that a limited disk is a model.
        if limit is not None:
            words.append(level_text(LIMIT, limit.name))
            if len(limits) > 1:
                all_levels[LIMIT] = limit.name
        words += [level_text(name, level) for name, level in levels.items()]

        # The engine without lists: each has one value now.
        folder = values["plan"]["bin"]
        server = dataclasses.replace(
            engine,
            bins=() if folder is None else (folder,),
            settings={**engine.settings, **values["setting"]},
            sweeps={},
        )
        yield Variant(
            "+".join(words),
            values["parameter"],
            values["plan"]["memory"],
            limit,
            values["queue"],
            with_levels(server, levels),
            {**all_levels, **levels},
        )


def number(plan: Plan, spec: WorkloadSpec, engine: EngineSpec) -> int:
    """Return the number of choices that `variants` yields."""
    counts = [len(axis.values) for axis in _axes(plan, spec, engine, {})]
    counts += map(len, factors_of(plan.factors, engine).values())
    return len(device_limits(plan)) * math.prod(counts)


def _axes(
    plan: Plan,
    spec: WorkloadSpec,
    engine: EngineSpec,
    parameters: Mapping[str, Parameter],
) -> list[Axis]:
    # Lists of the workload, of the server's settings, and of the plan.
    axes = []
    for name, values in spec.sweeps.items():
        is_size = name in parameters and parameters[name].type == "size"
        axes.append(Axis("parameter", name, values, _size if is_size else word_of))
    for name, values in engine.sweeps.items():
        axes.append(Axis("setting", name, values, word_of))
    for name, values in plan.device.queue.items():
        axes.append(Axis("queue", name, values, word_of))
    axes.append(Axis("plan", "memory", plan.memory or (None,), _size))
    words = distinct(engine.bins)
    bins = dict(zip(engine.bins, words, strict=True))
    axes.append(Axis("plan", "bin", engine.bins or (None,), bins.__getitem__))
    return axes


def device_limits(plan: Plan) -> tuple[DeviceLimit | None, ...]:
    """Return the levels of the device's limit; (None,) without one."""
    if plan.device.limit:
        return plan.device.limit.levels
    return (None,)


def factors_of(factors: Factors, engine: EngineSpec) -> dict[str, tuple[Scalar, ...]]:
    """Return the factors that the engine knows, in the order of the plan."""
    names = {spelt(name) for name in factor_names(engine)}
    return {name: levels for name, levels in factors.items() if spelt(name) in names}


def combinations(plan: Plan, engine: EngineSpec) -> list[Scalars]:
    """Return every combination of the levels of the engine's factors, the first factor changing
    slowest; a single empty one if it has none.
    """
    factors = factors_of(plan.factors, engine)
    choices = itertools.product(*factors.values())
    return [dict(zip(factors, levels, strict=True)) for levels in choices]


def with_levels(engine: EngineSpec, levels: Mapping[str, Scalar]) -> EngineSpec:
    """Return the engine with these levels of its factors."""
    switches = ENGINES[engine.name].PROFILE.switches
    profile = engine.profile
    settings = dict(engine.settings)
    for name, level in levels.items():
        if name == PROFILE:
            profile = str(level)
            continue
        # A switch stands for several settings, and another factor for itself.
        changed = switches[name][bool(level)] if name in switches else {name: level}
        # The plan may spell the same setting differently.
        spellings = {spelt(setting) for setting in changed}
        for setting in [setting for setting in settings if spelt(setting) in spellings]:
            del settings[setting]
        settings |= changed
    return dataclasses.replace(
        engine,
        profile=profile,
        settings=settings,
    )


def level_text(factor: str, level: Scalar) -> str:
    """Return a factor's level as in the name of a variant: "io_method=sync"."""
    return f"{factor}={word_of(level)}"


def factor_names(engine: EngineSpec) -> list[str]:
    """Return the names that can be factors of an engine: those that dbbench knows, and those that
    the plan sets.
    """
    server = ENGINES[engine.name]
    profile = server.PROFILE
    if not profile.has_server:
        return []
    return [
        PROFILE,
        *profile.switches,
        *defaults(engine, None),
        *server.window_settings(1, 1),
        *itertools.chain.from_iterable(profile.settings_profiles.values()),
        *profile.versions,
        *engine.settings,
    ]


def twins(values: Sequence[Any], kind: str) -> list[Any]:
    """Return the values of a list that are equal to an earlier one: they would be the same cell."""
    if kind == "path":
        words = distinct(values)
    elif kind == "size":
        words = [_size(value) for value in values]
    else:
        words = [word_of(value) for value in values]
    earlier = set[str]()
    equal = []
    for word, value in zip(words, values, strict=True):
        if word in earlier:
            equal.append(value)
        earlier.add(word)
    return equal


def distinct(paths: Sequence[str]) -> list[str]:
    """Return the words that distinguish paths: "15" and "17" for /usr/lib/postgresql/15/bin and
    .../17/bin.
    """
    split = [PurePath(path).parts for path in paths]
    head = _common(split)
    rest = [parts[head:] for parts in split]
    tail = _common([parts[::-1] for parts in rest])
    words = []
    for path, parts in zip(paths, rest, strict=True):
        word = word_of("-".join(parts[: len(parts) - tail]))
        words.append(word or word_of(path))
    return words


def _common(split: Sequence[tuple[str, ...]]) -> int:
    """Return the number of parts with which all paths begin."""
    common = 0
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        common += 1
    return common


def _size(value: int) -> str:
    return size_text(value).replace(" ", "")
