"""Find the TOML files of fs setups and workloads: those of dbbench, and those in the user's
directories. A directory given with `--path` or in DBBENCH_PATH (separated by colons) has the
layout of dbbench's data: `DIR/fs_setups/NAME.toml` and `DIR/workloads/NAME.toml` with scripts
next to them. If several directories have the same name, the user's file takes precedence over
dbbench's, `--path` over DBBENCH_PATH, and an earlier directory over a later one; `dbbench fs`
and `dbbench workload` print the file that is used.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dbbench.drivers import fio
from dbbench.errors import FileUnreadable, PlanInvalid, UnknownName
from dbbench.errors.similar_names import did_you_mean
from dbbench.machine import ownership
from dbbench.metrics.table import METRICS
from dbbench.model import Arm, Dataset, FsSetup, Parameter, Scalar, Workload
from dbbench.model.base import NAME, NAME_RULE, PACKED, SIZE_PARAMETERS, adapter, data_folder
from dbbench.plan.labels import effective_name
from dbbench.plan.tomlfile import Document, Key, read_as
from dbbench.results.fileio import given_text
from dbbench.storage.filesystems import added_options
from dbbench.units import bytes_of, seconds_of

MOST_SCRIPT: Final = 16 * 2**20  # bytes of a workload's script

_SIZE: Final = {
    "size": Parameter(
        "string",
        "",
        choices=("", "cached", "edge", "io-bound"),
        help="instead of the size: 0.5, 1.25 or 3 times the `memory`",
    )
}
_PROTOCOL: Final = {
    "protocol": Parameter(
        "string",
        choices=("simple", "extended", "prepared"),
        help="protocol for sending statements (default: pgbench's)",
    )
}
_PACKED: Final = {
    "compressibility": Parameter(
        "number",
        min=0,
        max=1,
        help="share of a file that zlib removes",
    )
}
# Of the parameters that are those of the generated dataset; a workload may describe them itself.
_DATASET_HELP: Final = {
    "scale": "size of the dataset: 100 000 accounts (about 16 MB) per unit",
    "tables": "number of tables",
    "table_size": "rows per table (100 000 take about 26 MB)",
    "large_bytes": "size of a table that the load does not use",
    "warehouses": "size of the dataset, about 130 MB each",
    "districts": "number of districts per warehouse",
    "customers": "number of customers per district, each with one order",
    "items": "number of items, and of rows of stock per warehouse",
    "seed": "seed of the dataset",
}
_TYPE_OF: Final[dict[type, Any]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
}
_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "tables": ((int, str), "a number or a text in quotes"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "string": (str, "a text in quotes"),
    "boolean": (bool, "true or false"),
}


@dataclass(frozen=True)
class Catalog:
    """Names of all setups and workloads with their files; a file is read on demand."""

    setups: dict[str, Path]
    workloads: dict[str, Path]

    def setup(self, name: str) -> FsSetup:
        """Return the fs setup of that name. Raises UnknownName, PlanInvalid."""
        return read_as(_path(name, self.setups, "fs setup"), FsSetup, _check_layers)

    def setup_of(self, arm: Arm) -> FsSetup:
        """Return the arm's setup with the options that the arm adds. Raises UnknownName,
        PlanInvalid.
        """
        setup = self.setup(arm.use)
        if not arm.adds:
            return setup
        setup = added_options.change(setup, effective_name(arm), arm.mount, arm.mkfs, arm.tuning)
        flaws = "; ".join(added_options.flaws(setup, arm.mount, arm.mkfs))
        if flaws:
            raise PlanInvalid(f'"{arm.label or setup.name}": {flaws}')
        return setup

    def workload(self, name: str) -> Workload:
        """Return the workload of that name. Raises UnknownName, PlanInvalid."""
        workload = read_as(_path(name, self.workloads, "workload"), Workload, _check_workload)
        # A job file may not decide what dbbench measures.
        job = self.script(workload) if workload.driver == "fio" else None
        if job is not None:
            conflicts = fio.find_conflicts(given_text(job, MOST_SCRIPT))
            lines = [f"{job.name}:{number} {option}" for number, option in conflicts]
            if lines:
                raise PlanInvalid(
                    f"{job} has lines that dbbench sets for each trial, that run programs or name "
                    "files elsewhere, or with which a job does not run during the whole window; "
                    f"remove {', '.join(lines)}"
                )
        return workload

    def script(self, workload: Workload) -> Path | None:
        """Return the workload's script next to its TOML file, or None for a script that the driver
        includes.
        """
        path = self.workloads[workload.name].parent / workload.script
        if workload.script and path.is_file():
            return path.resolve()
        return None

    def beside(self, workload: Workload) -> tuple[Path, ...]:
        """Return the workload's further files."""
        folder = self.workloads[workload.name].parent
        return tuple((folder / name).resolve() for name in workload.beside)


def catalog(paths: Sequence[str | Path] = ()) -> Catalog:
    """Return the catalogue of dbbench's data, DBBENCH_PATH and `paths`. Raises FileUnreadable for a
    path that is not a directory.
    """
    given = [*paths, *os.environ.get("DBBENCH_PATH", "").split(":")]
    roots = [Path(path) for path in given if str(path)]
    # Whoever can change a file of the catalogue decides what root runs.
    for folder in roots:
        if not folder.is_dir():
            remedy = "Correct --path or DBBENCH_PATH."
            raise FileUnreadable(f"{folder} is not a directory", remedy=remedy)
        files = [folder, *(folder / "fs_setups").glob("*"), *(folder / "workloads").glob("*")]
        if writer := ownership.other_writer(files):
            raise FileUnreadable(
                f"{writer}, and root would use it",
                remedy="Change its owner to root, or copy the directory to a place of root's.",
            )
    roots.append(data_folder())
    return Catalog(_files(roots, "fs_setups"), _files(roots, "workloads"))


def parameters(workload: Workload) -> dict[str, Parameter]:
    """Return what a plan may set: the parameters of the workload and of its dataset."""
    # Every parameter of the dataset can be set, even if the workload does not describe it.
    possible: dict[str, Parameter] = {}
    for name, value in workload.dataset_parameters.items():
        possible[name] = Parameter(
            type=_TYPE_OF.get(type(value), "string"),
            default=value,
            help=_DATASET_HELP.get(name, "of the dataset"),
        )
    # Parameters that the kind of dataset or the driver adds.
    kind = workload.dataset.get("kind")
    if kind in SIZE_PARAMETERS:
        possible |= _SIZE
    if kind in PACKED:
        possible |= _PACKED
    if workload.driver == "pgbench":
        possible |= _PROTOCOL
    return possible | workload.parameters


def defaults(workload: Workload) -> dict[str, Scalar]:
    """Return the workload's parameters that have a default; durations in seconds, sizes in bytes."""
    values = {}
    for name, parameter in parameters(workload).items():
        if parameter.default is not None:
            values[name] = convert_value(parameter, parameter.default)
    return values


def dataset_of(workload: Workload, values: dict[str, Scalar]) -> Dataset:
    """Return the workload's dataset with those of `values` that are its parameters."""
    kind = workload.dataset["kind"]
    names = [*workload.dataset_parameters, *(_PACKED if kind in PACKED else ())]
    # Values of the plan take precedence over those of the file.
    merged = workload.dataset_parameters | values
    selected = {name: merged[name] for name in names if name in merged}
    return adapter(Dataset).validate_python({"kind": kind, "parameters": selected})


def convert_value(parameter: Parameter, value: Any) -> Scalar:
    """Convert `value` to the parameter's type: seconds for a duration, bytes for a size. Raises
    ValueError.
    """
    converted = _convert(parameter, value)
    if parameter.choices and converted not in parameter.choices:
        raise ValueError(f"must be one of {', '.join(map(str, parameter.choices))}, not {value!r}")
    if isinstance(converted, int | float) and not isinstance(converted, bool):
        if parameter.min is not None and converted < parameter.min:
            raise ValueError(f"must be at least {parameter.min:g}, not {value!r}")
        if parameter.max is not None and converted > parameter.max:
            raise ValueError(f"must be at most {parameter.max:g}, not {value!r}")
    return converted


def _convert(parameter: Parameter, value: Any) -> Scalar:
    if isinstance(value, list):
        raise ValueError(f"must be one {parameter.type}, not a list")
    if parameter.type == "duration":
        return seconds_of(value)
    if parameter.type == "size":
        return bytes_of(value)
    kind, words = _TYPES[parameter.type]
    # isinstance(True, int) is true
    is_flag = isinstance(value, bool) and parameter.type != "boolean"
    if is_flag or not isinstance(value, kind):
        raise ValueError(f"must be {words}, not {value!r}")
    converted: Scalar = value
    return converted


def _check_layers(document: Document, setup: FsSetup) -> None:
    for number, layer in enumerate(setup.layers):
        if layer.kind == "md" and layer.level is None:
            document.flaw(("layers", number), "an md layer requires level = 0, 1 or 10")
        if layer.kind == "delay" or layer.delays:
            text = "an fs setup cannot delay its device; use `limit` in [device] of the plan"
            document.flaw(("layers", number), text)


def _check_words(document: Document, workload: Workload) -> None:
    if not workload.engines:
        document.flaw(("engines",), '"engines" must list at least one engine')
    if workload.primary not in METRICS:
        hint = did_you_mean(workload.primary, METRICS)
        document.flaw(("primary",), f'unknown metric "{workload.primary}"{hint}')
    if workload.during and workload.window != "fixed":
        document.flaw(("during",), '"during" requires window = "fixed"')


def _check_script(document: Document, key: Key, file: str) -> None:
    if file and not NAME.fullmatch(Path(file).name):  # the run's copy has this name
        text = f'invalid name of a script "{file}": {NAME_RULE}'
        document.flaw(key, text)
    folder = document.path.parent.resolve()
    path = folder / file
    # also one that is not there: a driver would look for it from another directory
    if not path.resolve().is_relative_to(folder):
        document.flaw(key, f'"{file}" is not beneath the directory of this file')
    # the names of sysbench's own scripts have no ending
    elif "." in file and not (path.is_file() or (data_folder() / "workloads" / file).is_file()):
        document.flaw(key, f'"{file}" is not a file, here or among the workloads of dbbench')


def _check_workload(document: Document, workload: Workload) -> None:
    _check_words(document, workload)
    # The dataset must be one that the model knows; its parameters come from the plan.
    dataset = {"kind": workload.dataset.get("kind"), "parameters": workload.dataset_parameters}
    try:
        adapter(Dataset).validate_python(dataset)
    except ValidationError as error:
        message = str(error.errors()[0]["msg"])
        document.flaw(("dataset", "kind"), message.replace("Input should", "kind must"))
    # The files are looked for where the description is.
    _check_script(document, ("script",), workload.script)
    for index, file in enumerate(workload.beside):
        _check_script(document, ("beside", index), file)
        if "/" in file or not (document.path.parent / file).is_file():
            document.flaw(("beside", index), f'"{file}" is not a file in the directory of this one')
    # pgbench chooses among the scripts.
    all_weighted = len(workload.weights) == 1 + len(workload.beside)
    if workload.weights and not (all_weighted and workload.driver == "pgbench"):
        text = (
            '"weights" must have one entry for `script` and one for each file in `beside`, and '
            "requires pgbench"
        )
        document.flaw(("weights",), text)
    # A default is checked like a value that a plan gives.
    for name, parameter in workload.parameters.items():
        if parameter.default is None:
            continue
        try:
            convert_value(parameter, parameter.default)
        except ValueError as error:
            document.flaw(("parameters", name, "default"), f'default of "{name}" {error}')


def _files(roots: Sequence[Path], kind: str) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for root in roots:
        for path in sorted((root / kind).glob("*.toml")):
            if NAME.fullmatch(path.stem):
                files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def _path(name: str, files: dict[str, Path], what: str) -> Path:
    if name not in files:
        hint = did_you_mean(name, files) or f"; list them with `dbbench {what.split()[0]}`"
        if "/" in name:
            hint = "; name it without a path, and its folder's parent with --path DIR"
        if " " in name:
            hint = "; write a comma between two names, without a space"
        raise UnknownName(f'unknown {what} "{name}"{hint}')
    return files[name]
