"""Published comparisons of filesystems as plans: one TOML file per study, with its published values and three scales.

The plan of a study is a text with placeholders (`$size`) that each scale fills. A run of it records study and scale in
its plan (`study`), and the page shows the published values next to the measured ones.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final

from dbbench.errors import StudyImpossible, UnknownName
from dbbench.model import EngineName, Scalar
from dbbench.model.base import STRICT
from dbbench.plan.tomlfile import did_you_mean, read, typed

SCALES: Final = ("tiny", "laptop", "full")
DEFAULT: Final = "laptop"


@dataclass(frozen=True)
class StudyTable:
    """The published values of one metric of one workload.

    `then`: values in the metric's unit, by arm; `ratios`: to the baseline, if only those were published. Without
    either, only the measured value is shown.
    """

    __pydantic_config__ = STRICT
    workload: str
    metric: str
    variant: str = ""  # of a sweep in the plan: "scale=$large", with the scale's values; "": all variants
    then: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Reference:
    """Another publication about the same question, for orientation. No run of the study is compared with it."""

    __pydantic_config__ = STRICT
    address: str
    did: str  # conditions
    figures: dict[str, dict[str, float]] = field(default_factory=dict)  # what, with its unit -> of what -> value


@dataclass(frozen=True)
class StudyScale:
    """One size of the study's plan: its approximate duration and the values of its placeholders."""

    __pydantic_config__ = STRICT
    takes: str
    values: dict[str, Scalar]


@dataclass(frozen=True)
class Study:
    """The content of a study's file."""

    __pydantic_config__ = STRICT
    title: str
    address: str
    did: str  # what was done
    plan: str  # its text, with places
    scales: dict[str, StudyScale]
    table: tuple[StudyTable, ...]
    then: dict[str, str]  # the conditions then, by the words of the page's rows: hardware, kernel, server ...
    differs: tuple[str, ...] = ()  # from the original, whatever the machine
    notes: tuple[str, ...] = ()
    superseded: str = ""  # why the published figures should not be relied on
    reference: tuple[Reference, ...] = ()
    engines: tuple[EngineName, ...] = ()  # for `$engine`: the first that is installed
    charts: tuple[str, ...] = ()  # of the published article: "cpu", "disk", "iowait"
    name: str = ""  # the file's


def names() -> list[str]:
    """Return the names of all studies."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def study(name: str) -> Study:
    """Return the study of that name. Raises UnknownName."""
    if name not in names():
        raise UnknownName(f'unknown study "{name}"{did_you_mean(name, names())}', effect="Nothing was changed.",
                          remedy="List the studies with: dbbench study")  # fmt: skip
    document = read(_folder() / f"{name}.toml")
    checked = typed(document, Study, document.data)
    document.finish()
    if checked is None:
        raise AssertionError("a file without flaws gives a value")
    return dataclasses.replace(checked, name=name)


def plan_text(found: Study, scale: str, installed: Sequence[str]) -> str:
    """Return the plan of a scale as a file.

    Raises UnknownName for a scale that does not exist, StudyImpossible if none of the study's engines is installed.
    """
    if scale not in found.scales:
        raise UnknownName(f'unknown scale "{scale}"{did_you_mean(scale, SCALES)}', effect="Nothing was changed.")
    engine = next((name for name in found.engines if name in installed), None)
    if engine is None:
        raise StudyImpossible(
            f"study {found.name} requires {' or '.join(found.engines)}, but none of them is installed",
            effect="Nothing was changed.",
            remedy="dbbench doctor",
        )
    places = {name: _written(value) for name, value in found.scales[scale].values.items()}
    text = string.Template(found.plan.strip()).substitute(places, engine=engine)
    head = f"# {found.title}\n# {found.address}\n# Scale {scale}: {found.scales[scale].takes}.\n"
    named = f'name = "{found.name}-{scale}"\nstudy = {{ name = "{found.name}", scale = "{scale}" }}\n'
    return f"{head}{named}{text}\n"


def variant_of(table: StudyTable, scale: StudyScale | None) -> str:
    """Return the variant of a table in the plan of that scale."""
    return string.Template(table.variant).safe_substitute(scale.values if scale else {})


def _written(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder() -> Path:
    return Path(str(resources.files("dbbench"))) / "plan/studies"


__all__ = ["DEFAULT", "SCALES", "Reference", "Study", "StudyScale", "StudyTable", "names", "plan_text", "study",
           "variant_of"]  # fmt: skip
