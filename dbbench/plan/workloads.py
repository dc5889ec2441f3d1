"""A `[[workload]]` of a plan: its place, length and parameters, the size of its dataset, and the
user's data as `source`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dbbench.datasets import generated, sources, tpcc
from dbbench.engines import profile_of
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.errors.similar_names import nearest
from dbbench.model import Dataset, Json, Parameter, Scalar, Scalars, Workload, WorkloadSpec
from dbbench.model.base import SIZE_PARAMETERS
from dbbench.plan.catalog import Catalog, convert_value, parameters
from dbbench.plan.tomlfile import Document, Key, convert, hint_at
from dbbench.plan.variants import twins

# Keys of every workload; all others are its parameters.
_COMMON: Final = (
    "name",
    "engines",
    "source",
    "tablespace",
    "database",
    "settle",
    "checksums",
    "warmup",
    "measure",
)
_SESSIONS: Final = ("clients", "threads", "jobs")
_MOST_SESSIONS: Final = 10_000
_MOST_VALUES: Final = 200  # values of a list
CACHED: Final = 0.8  # dataset ÷ memory; below this ratio reads from the disk end after some time
IO_BOUND: Final = 2.0  # dataset ÷ memory; from this ratio on, most reads are from the disk
# Dataset ÷ memory of the three words: far enough from the limits 0.8 and 2 that an error of some
# per cent in the size of a row does not change the word.
RATIOS: Final = {
    "cached": 0.5,
    "edge": 1.25,
    "io-bound": 3.0,
}


def read_workload(
    document: Document,
    item: Any,
    key: Key,
    catalog: Catalog,
) -> tuple[WorkloadSpec, Workload] | None:
    """Return the entry and its workload, or note the errors and return None."""
    if not isinstance(item, dict):
        document.flaw(key, f'each entry of "workload" must be a table, not {item!r}')
        return None
    # The keys that every workload has; the rest are its own parameters.
    common = {name: item[name] for name in _COMMON if name in item}
    if "name" not in item:  # it may be there, but misspelt
        common |= {name: value for name, value in item.items() if nearest(name, ["name"])}
    spec = convert(document, WorkloadSpec, common, key)
    try:
        workload = catalog.workload(str(item["name"])) if "name" in item else None
    except (UnknownName, PlanInvalid) as error:
        document.flaw_elsewhere((*key, "name"), error)
        return None
    if spec is None or workload is None:
        return None
    # A list of several values is a factor.
    values = _parameters(document, item, key, workload)
    single = {name: inner[0] for name, inner in values.items() if len(inner) == 1}
    several = {name: inner for name, inner in values.items() if len(inner) > 1}
    return dataclasses.replace(
        spec,
        parameters=single,
        sweeps=several,
    ), workload


def _parameters(
    document: Document,
    item: Json,
    key: Key,
    workload: Workload,
) -> dict[str, tuple[Scalar, ...]]:
    possible = parameters(workload)
    values = {}
    for name, given in item.items():
        place = (*key, name)
        if name in possible:
            values[name] = _values(document, possible[name], given, place)
        elif name not in _COMMON:
            hint = hint_at(name, {*possible, *_COMMON}, key)
            document.flaw(place, f'workload "{workload.name}" has no parameter "{name}"{hint}')
    return values


def _values(
    document: Document,
    parameter: Parameter,
    given: Any,
    key: Key,
) -> tuple[Scalar, ...]:
    values: list[Scalar] = []
    for index, value in enumerate(given if isinstance(given, list) else [given]):
        try:
            number = convert_value(parameter, value)
            values.append(number)
            if key[-1] in _SESSIONS and isinstance(number, int) and number > _MOST_SESSIONS:
                raise ValueError(f"must be at most {_MOST_SESSIONS}, not {value}")
        except ValueError as error:
            place = (*key, index) if isinstance(given, list) else key
            reason = str(error).replace("expected", "must be", 1)
            document.flaw(place, f'"{key[-1]}" {reason}')
    check_list(document, key, given, values, parameter.type)
    return tuple(values)


def check_list(
    document: Document,
    key: Key,
    given: Any,
    values: Sequence[Any],
    kind: str,
) -> None:
    """Note a list that is empty or has a value twice. `kind`: "size", "path" or another. Raises
    PlanInvalid if it has more values than a plan can have cells.
    """
    if isinstance(given, list) and len(given) > _MOST_VALUES:
        document.flaw(key, f'"{key[-1]}" has {len(given)} values, but the limit is {_MOST_VALUES}')
        document.finish()
    if given == []:
        document.flaw(key, f'"{key[-1]}" is an empty list')
    for value in twins(values, kind):
        document.flaw(key, f'"{key[-1]}" lists {value!r} twice')


def dataset_of(spec: WorkloadSpec, engine: str) -> Dataset | None:
    """Return the source of that engine as a dataset, inspected now; None if the workload's own
    dataset is used. Raises what `sources.look` raises, and PlanInvalid if the plan names no
    source for the engine.
    """
    if not spec.source:
        return None
    # One path for all engines, or one for each.
    path = spec.source.get(engine, spec.source.get(""))
    if path is None:
        raise PlanInvalid(
            f'"source" of {spec.name} has no path for {engine}', remedy=f'{engine} = "PATH" in it'
        )
    source = sources.look(Path(path))
    # What only a physical copy, or only PostgreSQL, can do.
    profile = profile_of(source.engine)
    actual = f"but {source.path} is {source.form}"
    postgres = "requires a physical copy of PostgreSQL"
    if spec.tablespace and not (source.physical and profile.tablespaces):
        raise PlanInvalid(f'"tablespace" {postgres}, {actual}')
    if not spec.settle and not source.physical:
        raise PlanInvalid(f"settle = false requires a physical copy, {actual}; remove it")
    if spec.checksums is not None and not (source.physical and profile.chosen_checksums):
        raise PlanInvalid(f'"checksums" {postgres}, {actual}; remove it')
    return source.dataset(spec.tablespace, spec.database, spec.settle, spec.checksums)


def place_tables(dataset: Dataset, spec: WorkloadSpec) -> Dataset:
    """Return the generated dataset with its tables in the tablespace that the plan names."""
    if not spec.tablespace:
        return dataset
    return Dataset(dataset.kind, {**dataset.parameters, generated.TABLESPACE: spec.tablespace})


def own_values(
    workload: Workload,
    values: Scalars,
    given: Mapping[str, Scalar],
) -> Scalars:
    """Return the parameters that apply to the user's own data; those of generated data only if the
    plan sets them.
    """
    generated_only = parameters(workload).keys() & {*workload.dataset_parameters, "size"}
    if workload.driver == "scan":
        generated_only -= {"tables"}  # the number of the user's tables to scan
    # What the plan sets applies to a user's data, too.
    left_out = generated_only - given.keys()
    return {name: value for name, value in values.items() if name not in left_out}


def resize(
    kind: str,
    values: Scalars,
    memory_bytes: int | None,
) -> Scalars:
    """Return `values` with `size` converted to the amount of data: pgbench's scale, sysbench's
    rows, TPC-C's warehouses. Raises ValueError if the plan sets no memory to which the size
    could refer.
    """
    others = {name: value for name, value in values.items() if name != "size"}
    word = str(values.get("size", ""))
    if not word:
        return others
    if memory_bytes is None:
        raise ValueError(f'size = "{word}" needs `memory` in the plan')
    units = RATIOS[word] * memory_bytes / _unit_bytes(kind, others)
    return {**others, SIZE_PARAMETERS[kind]: max(1, round(units))}


def _unit_bytes(kind: str, values: Scalars) -> int:
    """Return the bytes that the dataset grows by if its size parameter grows by 1."""
    if kind == "tpcc":
        return tpcc.loaded_bytes(
            {
                **tpcc.PARAMETERS,
                **values,
                "warehouses": 1,
            }
        )
    if kind == "pgbench":
        return generated.SCALE_BYTES
    return generated.SYSBENCH_ROW_BYTES * int(values.get("tables", 1))


def label(ratio: float | None) -> str | None:
    """Return the word for a dataset of `ratio` × the memory."""
    if ratio is None:
        return None
    if ratio < CACHED:
        return "cached"
    return "edge" if ratio < IO_BOUND else "io-bound"
