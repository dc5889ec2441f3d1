"""The arms of a plan: their labels, and lists of which each value becomes a separate cell.

Arms are compared only within the same values.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from dbbench.model import Arm, DeviceSpec, EngineSpec, Parameter, Plan, Scalar, WorkloadSpec
from dbbench.units import size_text

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._:-]+")  # what a label may not have, and the "+" and "=" of a variant


class Variant(NamedTuple):
    """One choice of values from all lists that apply to a cell. `name`: "clients=8+memory=1GiB"; "" without lists."""

    name: str
    parameters: dict[str, Scalar]
    memory_bytes: int | None
    engine: EngineSpec


def variants(plan: Plan, spec: WorkloadSpec, engine: EngineSpec, known: dict[str, Parameter]) -> Iterator[Variant]:
    """Yield all choices, with the first list changing slowest; a single one without a name if the plan has no list."""
    sizes = {name for name, parameter in known.items() if parameter.type == "size"}
    lists: list[tuple[str, Sequence[Any], Callable[[Any], str]]] = [
        (name, values, _size if name in sizes else _word) for name, values in spec.sweeps.items()
    ]
    lists += [(name, values, _word) for name, values in engine.sweeps.items()]
    bins = dict(zip(engine.bins, distinct(engine.bins), strict=True))
    lists.append(("memory", plan.memory or (None,), _size))
    lists.append(("bin", engine.bins or (None,), bins.__getitem__))
    for choice in itertools.product(*(values for _, values, _ in lists)):
        descriptions = [
            f"{name}={word(value)}"
            for (name, values, word), value in zip(lists, choice, strict=True)
            if len(values) > 1
        ]
        *swept, memory, folder = choice
        of_workload, of_server = swept[: len(spec.sweeps)], swept[len(spec.sweeps) :]
        settings = {**engine.settings, **dict(zip(engine.sweeps, of_server, strict=True))}
        yield Variant(
            "+".join(descriptions),
            dict(zip(spec.sweeps, of_workload, strict=True)),
            memory,
            dataclasses.replace(engine, bins=() if folder is None else (folder,), settings=settings, sweeps={}),
        )


def number(plan: Plan, spec: WorkloadSpec, engine: EngineSpec) -> int:
    """Return the number of choices that `variants` yields."""
    lists = (*spec.sweeps.values(), *engine.sweeps.values(), plan.memory or (None,), engine.bins or (None,))
    return math.prod(len(values) for values in lists)


def twins(values: Sequence[Any], kind: str) -> list[Any]:
    """Return the values of a list that are equal to an earlier one: they would be the same cell."""
    words = distinct(values) if kind == "path" else [(_size if kind == "size" else _word)(value) for value in values]
    first = {word: index for index, word in reversed(list(enumerate(words)))}
    return [value for index, value in enumerate(values) if first[words[index]] < index]


def distinct(paths: Sequence[str]) -> list[str]:
    """Return the words that distinguish paths: "15" and "17" for /usr/lib/postgresql/15/bin and .../17/bin."""
    split = [PurePath(path).parts for path in paths]
    shortest = min(map(len, split), default=0)
    head = next((i for i in range(shortest) if len({parts[i] for parts in split}) > 1), shortest)
    tail = next((i for i in range(shortest - head) if len({parts[-1 - i] for parts in split}) > 1), shortest - head)
    words = [_word("-".join(parts[head : len(parts) - tail])) for parts in split]
    return [word or _word(path) for word, path in zip(words, paths, strict=True)]


def _word(value: Scalar) -> str:
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return _FOREIGN.sub("-", text).strip("-")


def _size(value: int) -> str:
    return size_text(value).replace(" ", "")


def default_label(use: str, wal: object, device: DeviceSpec | None) -> str:
    """Return "xfs", or "xfs+wal:ext4" with the log on a separate device."""
    return f"{use}+wal:{device.wal.fs_setup}" if device and device.wal and wal is not False else use


def label_of(word: str, arms: Iterable[Arm]) -> str | None:
    """Return the label that `word` means: the label itself, or that of the first arm that uses the setup of
    that name."""
    labels = list(arms)
    if any(arm.label == word for arm in labels):
        return word
    return next((arm.label for arm in labels if arm.use == word), None)
