"""Published comparisons of filesystems as plans: one TOML file per study, with its published values
and three scales. The plan of a study is a text with placeholders (`$size`) that each scale
fills. A run of it records study and scale in its plan (`study`), and the page shows the
published values next to the measured ones.
"""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench.engines.settings import numbers_of
from dbbench.errors import ProgramMissing, UnknownName
from dbbench.errors.similar_names import did_you_mean
from dbbench.model import EngineName, Scalars
from dbbench.model.base import STRICT
from dbbench.plan.tomlfile import read_as
from dbbench.units import level_text

SCALES: Final = ("tiny", "laptop", "full")
DEFAULT: Final = "laptop"
_FOLDER: Final = Path(__file__).parent

# engine -> folder of its programs ("": the newest installed) -> version
Installed = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class StudyTable:
    """The published values of one metric of one workload. `then`: values in the metric's unit, by
    arm; `ratios`: to the baseline, if only those were published. Without either, only the
    measured value is shown. `intervals`: of the ratios to the baseline, with 95 % confidence, if
    they were published.
    """

    __pydantic_config__ = STRICT
    workload: str
    metric: str
    variant: str = ""  # variant of a sweep, with placeholders: "scale=$large"; "": all variants
    then: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Reference:
    """Another publication about the same question, for orientation. No run of the study is compared
    with it.
    """

    __pydantic_config__ = STRICT
    address: str
    did: str  # what was measured under which conditions
    # metric with its unit -> case -> value
    figures: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class TuningClaim:
    """A sentence that is repeated: `arm` is faster `than` another. `costs`: what is given up for
    it. `engines`: only of these; (): of each.
    """

    __pydantic_config__ = STRICT
    says: str
    arm: str
    than: str
    source: str
    costs: str = ""
    engines: tuple[EngineName, ...] = ()


@dataclass(frozen=True)
class StudyScale:
    """One size of the study's plan: its approximate duration and the values of its placeholders.
    After its trials, the power-loss lab makes `cuts` and harms each setup otherwise in `rounds`;
    without cuts it does not run.
    """

    __pydantic_config__ = STRICT
    takes: str
    values: Scalars
    cuts: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Study:
    """The content of a study's file."""

    __pydantic_config__ = STRICT
    title: str
    address: str
    did: str  # what the authors did
    plan: str  # text of the plan, with placeholders
    scales: dict[str, StudyScale]
    table: tuple[StudyTable, ...]
    # row of the page (hardware, kernel, server ...) -> the published condition
    then: dict[str, str]
    claim: tuple[TuningClaim, ...] = ()
    differs: tuple[str, ...] = ()  # differences of the plan from the original, on any machine
    notes: tuple[str, ...] = ()
    superseded: str = ""  # why the published figures should not be relied on
    reference: tuple[Reference, ...] = ()
    # `$engine` is the first of these that is installed, `$servers` all of them
    engines: tuple[EngineName, ...] = ()
    # oldest suitable release of each branch
    servers: dict[EngineName, tuple[str, ...]] = field(default_factory=dict)
    name: str = ""  # name of the file


def names() -> list[str]:
    """Return the names of all studies."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def study(name: str) -> Study:
    """Return the study of that name. Raises UnknownName."""
    if name not in names():
        raise UnknownName(
            f'unknown study "{name}"{did_you_mean(name, names())}',
            remedy="List the studies with: dbbench study",
        )
    return read_as(_FOLDER / f"{name}.toml", Study)


def servers_of(
    chosen: Study,
    installed: Installed,
    given: Sequence[str] = (),
) -> dict[str, list[str]]:
    """Return the folders of the servers that the study runs, by engine: those of the first engine
    that has one in a version that will do, or of every engine if the plan has `$servers`. Raises
    ProgramMissing with what is required and what is there instead, also if one of the `given`
    folders has no server that the study runs.
    """
    servers: dict[str, list[str]] = {}
    present = []
    for name in chosen.engines:
        branches = chosen.servers.get(name, ())
        for folder, version in installed.get(name, {}).items():
            present.append(f"{name} {version}")
            if suits(version, branches):
                servers.setdefault(name, []).append(folder)
    # A plan for one server gets the first that will do.
    if "$servers" not in chosen.plan:
        servers = dict(list(servers.items())[:1])
    used = list(itertools.chain.from_iterable(servers.values()))
    unused = [f"; it cannot use {folder}" for folder in given if folder not in used]
    if servers and not unused:
        return servers
    # What is there instead.
    there = ", ".join(present) or "none of them"
    raise ProgramMissing(
        f"study {chosen.name} requires {servers_text(chosen)}; installed: {there}{''.join(unused)}",
        remedy="Install the server, or name the folder of its programs with --bin. dbbench doctor "
        "lists the packages.",
    )


def servers_text(chosen: Study) -> str:
    """Return the servers of which the study requires one: "postgres 18 or later"."""
    texts = []
    for name in chosen.engines:
        version = ", ".join(chosen.servers.get(name, ()))
        texts.append(f"{name} {version} or later" if version else name)
    return " or ".join(texts)


def suits(version: str, branches: Sequence[str]) -> bool:
    """Return whether the version is later than all of `branches`, or in one and not older; or if
    there are none.
    """
    if not branches:
        return True
    # Within a branch a later release will do; an older branch may have no such release.
    numbers = numbers_of(version)
    oldest = [numbers_of(branch) for branch in branches]
    of_branch = [first for first in oldest if first[:1] == numbers[:1]]
    return numbers >= max(oldest) or any(numbers >= first for first in of_branch)


def plan_text(
    chosen: Study,
    scale: str,
    servers: Mapping[str, Sequence[str]],
) -> str:
    """Return the plan of a scale as a file. `servers`: folders of programs, by engine; "" is the
    newest installed. Raises UnknownName for a scale that does not exist.
    """
    if scale not in chosen.scales:
        raise UnknownName(f'unknown scale "{scale}"{did_you_mean(scale, SCALES)}')
    # The values of the scale, and an [[engine]] for each server.
    takes = chosen.scales[scale].takes
    places = {name: level_text(value) for name, value in chosen.scales[scale].values.items()}
    bins = {name: _bin_line(folders) for name, folders in servers.items()}
    tables = [f'[[engine]]\nname = "{name}"\n{line}'.strip() for name, line in bins.items()]
    engine, line = next(iter(bins.items()))
    text = string.Template(chosen.plan.strip()).substitute(
        places,
        engine=engine,
        bin=line,
        servers="\n\n".join(tables),
    )
    # The head of the file says where the study is from.
    lines = (
        f"# {chosen.title}",
        f"# {chosen.address}",
        f"# Scale {scale}: {takes}.",
        f'name = "{chosen.name}-{scale}"',
        f'study = {{ name = "{chosen.name}", scale = "{scale}" }}',
        f"{text}\n",
    )
    return "\n".join(lines)


def _bin_line(folders: Sequence[str]) -> str:
    named = list(filter(None, folders))
    if not named:
        return ""
    return f"bin = {json.dumps(named[0] if len(named) == 1 else named)}"


def interval_text(table: StudyTable, arm: str) -> str:
    """Return the published interval of an arm's ratio to the baseline as " [0.81, 0.9]", or "" if
    there is none.
    """
    if arm in table.intervals:
        return " [{:g}, {:g}]".format(*table.intervals[arm])
    return ""


def variant_of(table: StudyTable, scale: StudyScale | None) -> str:
    """Return the variant of a table in the plan of that scale."""
    return string.Template(table.variant).safe_substitute(scale.values if scale else {})
