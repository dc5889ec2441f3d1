"""Published comparisons of filesystems as plans: one TOML file a study, with its figures and three scales.

A study's plan is a text with places (`$size`) that each scale fills; a run of it says in its plan which study and
scale it is (`study`), and the page sets what was published beside what was measured.
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
from dbbench.model.words import STRICT
from dbbench.tomlfile import did_you_mean, read, typed

SCALES: Final = ("tiny", "laptop", "full")
DEFAULT: Final = "laptop"


@dataclass(frozen=True)
class Table:
    """What was published of one metric of one workload. `then`: values in the metric's unit, by arm; `ratios`: to the
    baseline, where only those were published. Without either nothing was, and what is measured stands alone."""

    __pydantic_config__ = STRICT
    workload: str
    metric: str
    variant: str = (
        ""  # of a sweep in the plan, "scale=100"; where the scale has no sweep it stands beside what there is
    )
    then: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    note: str = ""
    superseded: str = ""  # why these figures are not to be relied on


@dataclass(frozen=True)
class Scale:
    """One size of the study's plan: how long it takes about, and what stands in the places of its text."""

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
    scales: dict[str, Scale]
    table: tuple[Table, ...]
    then: dict[str, str]  # the conditions then, by the words of the page's rows: hardware, kernel, server ...
    differs: tuple[str, ...] = ()  # what is another thing here, whatever the machine
    notes: tuple[str, ...] = ()
    engines: tuple[EngineName, ...] = ()  # for `$engine`: the first that is installed
    charts: tuple[str, ...] = ()  # of the published article: "cpu", "disk", "iowait"
    name: str = ""  # the file's


def names() -> list[str]:
    """All studies."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def study(name: str) -> Study:
    """The study of that name. UnknownName."""
    if name not in names():
        raise UnknownName(f'no study "{name}"{did_you_mean(name, names())}', effect="Nothing was changed.",
                          remedy="dbbench study list")  # fmt: skip
    document = read(_folder() / f"{name}.toml")
    found = typed(document, Study, document.data)
    document.finish()
    if found is None:
        raise AssertionError("a file without flaws gives a value")
    return dataclasses.replace(found, name=name)


def plan_text(found: Study, scale: str, installed: Sequence[str]) -> str:
    """The plan of a scale as a file. UnknownName for a scale that there is not, StudyImpossible where none of the
    study's engines is among those installed."""
    if scale not in found.scales:
        raise UnknownName(f'no scale "{scale}"{did_you_mean(scale, SCALES)}', effect="Nothing was changed.")
    engine = next((name for name in found.engines if name in installed), None)
    if engine is None:
        raise StudyImpossible(
            f"{found.name} runs on {' or '.join(found.engines)}; none of them is installed",
            effect="Nothing was changed.",
            remedy="dbbench doctor",
        )
    places = {name: _written(value) for name, value in found.scales[scale].values.items()}
    text = string.Template(found.plan.strip()).substitute(places, engine=engine)
    head = f"# {found.title}\n# {found.address}\n# Scale {scale}: {found.scales[scale].takes}.\n"
    named = f'name = "{found.name}-{scale}"\nstudy = {{ name = "{found.name}", scale = "{scale}" }}\n'
    return f"{head}{named}{text}\n"


def _written(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder() -> Path:
    return Path(str(resources.files("dbbench"))) / "studies"


__all__ = ["DEFAULT", "SCALES", "Scale", "Study", "Table", "names", "plan_text", "study"]
