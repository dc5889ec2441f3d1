"""Finds the TOML files of fs setups and workloads: the shipped ones, and those in a user's own folders.

A folder given with `--path` or in DBBENCH_PATH (colon-separated) has the same layout as the shipped data:
`DIR/fs_setups/NAME.toml` and `DIR/workloads/NAME.toml` with scripts beside them. Where a name stands in
several folders, the user's own wins over the shipped one, `--path` over DBBENCH_PATH, and the earlier of
two over the later; `fs show` and `workload show` print the file that was taken.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from dbbench.errors import FileMissing, UnknownName
from dbbench.metrics import METRICS
from dbbench.model import Dataset, FsSetup, Parameter, Scalar, Workload
from dbbench.tomlfile import Document, did_you_mean, read, typed
from dbbench.units import bytes_of, seconds_of

Item = TypeVar("Item", FsSetup, Workload)

# A name becomes part of file names and of trial IDs.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:=-]*")


# By which parameter a dataset of that kind grows; `size` sets it.
GROWING: Final = {"pgbench": "scale", "sysbench": "table_size", "tpcc": "warehouses"}
_SIZE: Final = {
    "size": Parameter("string", "", choices=("", "cached", "edge", "io-bound"), help="of the dataset, by the memory")
}


# Kinds whose rows can be made so that a given share of them compresses away; without it they are as they come.
PACKED: Final = ("sysbench", "clone-tables")
_PACKED: Final = {
    "compressibility": Parameter("number", min=0, max=1, help="of the dataset: the share that compresses away")
}


@dataclass(frozen=True)
class Catalog:
    """Names of all setups and workloads with their files; a file is read when it is asked for."""

    setups: dict[str, Path]
    workloads: dict[str, Path]

    def setup(self, name: str) -> FsSetup:
        """The fs setup of that name. UnknownName, PlanInvalid."""
        document = read(_path(name, self.setups, "fs setup", "dbbench fs list"))
        setup = typed(document, FsSetup, document.data)
        for number, layer in enumerate(setup.layers if setup else ()):
            if layer.kind == "md" and layer.level is None:
                document.flaw(("layers", number), "md wants a level: 0, 1 or 10")
        document.finish()
        return _named(setup, name)

    def workload(self, name: str) -> Workload:
        """The workload of that name. UnknownName, PlanInvalid."""
        document = read(_path(name, self.workloads, "workload", "dbbench workload list"))
        workload = typed(document, Workload, document.data)
        if workload is not None:
            _check_workload(document, workload)
        document.finish()
        return _named(workload, name)

    def script(self, workload: Workload) -> Path | None:
        """The workload's script where it lies beside its TOML file; None: one that the driver ships."""
        beside = self.workloads[workload.name].parent / workload.script
        return beside.resolve() if workload.script and beside.is_file() else None

    def beside(self, workload: Workload) -> tuple[Path, ...]:
        """The further files of its script."""
        return tuple((self.workloads[workload.name].parent / name).resolve() for name in workload.beside)


def catalog(paths: Sequence[str | Path] = ()) -> Catalog:
    """The catalogue of the shipped data, DBBENCH_PATH and `paths`. FileMissing for a folder that is none."""
    own = [Path(path) for path in (*paths, *os.environ.get("DBBENCH_PATH", "").split(":")) if str(path)]
    for folder in own:
        if not folder.is_dir():
            raise FileMissing(f"{folder} is no folder", remedy="Correct --path or DBBENCH_PATH.")
    roots = [*own, shipped()]
    return Catalog(_files(roots, "fs_setups"), _files(roots, "workloads"))


def shipped() -> Path:
    """The package's own data folder: `fs_setups`, `workloads` and `reports` are in it."""
    return Path(str(resources.files("dbbench"))) / "data"


def parameters(workload: Workload) -> dict[str, Parameter]:
    """What a plan may set: the workload's own parameters, and its dataset's, which need no second schema."""
    implied = {
        name: Parameter(type=_type_of(value), default=value, help="of the dataset")
        for name, value in workload.dataset.items()
        if name != "kind"
    }
    kind = workload.dataset.get("kind")
    further = {**(_SIZE if kind in GROWING else {}), **(_PACKED if kind in PACKED else {})}
    return {**implied, **further, **workload.parameters}


def defaults(workload: Workload) -> dict[str, Scalar]:
    """The workload's parameters that have a default; durations in seconds, sizes in bytes."""
    known = parameters(workload)
    return {name: checked(p, p.default) for name, p in known.items() if p.default is not None}


def dataset_of(workload: Workload, values: dict[str, Scalar]) -> Dataset:
    """The workload's dataset, with those of `values` that are its parameters."""
    own = {name: values.get(name, value) for name, value in workload.dataset.items() if name != "kind"}
    own |= {name: values[name] for name in _PACKED if name in values and workload.dataset["kind"] in PACKED}
    adapter: TypeAdapter[Dataset] = TypeAdapter(Dataset)
    return adapter.validate_python({"kind": workload.dataset["kind"], "parameters": own})


def checked(parameter: Parameter, value: Any) -> Scalar:
    """`value` as the parameter's type: seconds for a duration, bytes for a size. ValueError says what is wrong."""
    taken = _converted(parameter, value)
    if parameter.choices and taken not in parameter.choices:
        raise ValueError(f"should be one of {', '.join(map(str, parameter.choices))}, not {value!r}")
    if isinstance(taken, int | float) and not isinstance(taken, bool):
        if parameter.min is not None and taken < parameter.min:
            raise ValueError(f"should be at least {parameter.min:g}, not {value!r}")
        if parameter.max is not None and taken > parameter.max:
            raise ValueError(f"should be at most {parameter.max:g}, not {value!r}")
    return taken


def _converted(parameter: Parameter, value: Any) -> Scalar:
    if isinstance(value, list):
        raise ValueError(f"should be one {parameter.type}, not a list")
    if parameter.type == "duration":
        return seconds_of(value)
    if parameter.type == "size":
        return bytes_of(value)
    kinds: dict[str, Any] = {
        "tables": (int, str),
        "integer": int,
        "number": (int, float),
        "string": str,
        "boolean": bool,
    }
    is_flag = isinstance(value, bool) and parameter.type != "boolean"  # true is an int to Python
    if is_flag or not isinstance(value, kinds[parameter.type]):
        raise ValueError(f"should be of type {parameter.type}, not {value!r}")
    taken: Scalar = value
    return taken


def _type_of(value: Scalar) -> Any:
    if isinstance(value, bool):
        return "boolean"
    return {int: "integer", float: "number"}.get(type(value), "string")


def _check_words(document: Document, workload: Workload) -> None:
    if not workload.engines:
        document.flaw(("engines",), "a workload names at least one engine")
    if workload.primary not in METRICS:
        document.flaw(("primary",), f'no metric "{workload.primary}"{did_you_mean(workload.primary, METRICS)}')
    if workload.during and workload.window != "fixed":
        document.flaw(("during",), '"during" wants window = "fixed"')


def _check_workload(document: Document, workload: Workload) -> None:
    """What the types alone do not say."""
    _check_words(document, workload)
    kind, own = workload.dataset.get("kind"), {k: v for k, v in workload.dataset.items() if k != "kind"}
    try:
        TypeAdapter(Dataset).validate_python({"kind": kind, "parameters": own})
    except ValidationError as error:
        document.flaw(("dataset", "kind"), str(error.errors()[0]["msg"]).replace("Input should", "kind should"))
    for index, file in enumerate(workload.beside):
        if "/" in file or not (document.path.parent / file).is_file():
            document.flaw(("beside", index), f'"{file}" is no file beside this one')
    if workload.weights and (workload.driver != "pgbench" or len(workload.weights) != 1 + len(workload.beside)):
        document.flaw(("weights",), '"weights" are those of `script` and of each of `beside`, for pgbench')
    for name, parameter in workload.parameters.items():
        if parameter.default is None:
            continue
        try:
            checked(parameter, parameter.default)
        except ValueError as error:
            document.flaw(("parameters", name, "default"), f'default of "{name}" {error}')


def _files(roots: Sequence[Path], kind: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for root in roots:
        for path in sorted((root / kind).glob("*.toml")):
            if NAME.fullmatch(path.stem):
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def _path(name: str, known: dict[str, Path], what: str, lister: str) -> Path:
    if name not in known:
        hint = did_you_mean(name, known)
        raise UnknownName(f'no {what} "{name}"{hint}', effect="Nothing was changed.", remedy=lister)
    return known[name]


def _named(item: Item | None, name: str) -> Item:
    if item is None:
        raise AssertionError("a file without flaws gives a value")
    return dataclasses.replace(item, name=name)
