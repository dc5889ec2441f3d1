"""`source` of a workload: the user's own data in place of the dataset that its file names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dbbench.catalog import parameters
from dbbench.datasets import sources
from dbbench.errors import PlanInvalid
from dbbench.model import Dataset, Scalar, Workload, WorkloadSpec
from dbbench.tomlfile import Document, Key

ENGINES: Final = ("", "postgres", "mariadb", "mysql")
_MADE: Final = ("size", "table_bytes", "rows", "seed", "fillfactor", "compressibility")  # of what is generated alone


def check_source(document: Document, key: Key, spec: WorkloadSpec, own: Mapping[str, Any]) -> None:
    """Note what is wrong with `source`, `tablespace` and `database`, and with what means nothing beside them."""
    for name in ("tablespace", "database"):
        if getattr(spec, name) and not spec.source:
            document.flaw((*key, name), f'"{name}" is one of a "source"')
    if not spec.source:
        return
    for engine in spec.source:
        if engine not in ENGINES:
            document.flaw((*key, "source", engine), f'"{engine}" is no engine; {", ".join(ENGINES[1:])} are')
    for engine in spec.engines:
        if "" not in spec.source and engine not in spec.source:
            document.flaw((*key, "source"), f'"source" has no path for {engine}')
    for name in own:
        if name in _MADE:
            document.flaw((*key, name), f'"{name}" is of a dataset that is generated, and the data is your own')


def dataset_of(spec: WorkloadSpec, engine: str) -> Dataset | None:
    """The source of that engine as a dataset, looked at now; None where the workload's own dataset is meant.

    Raises what `sources.look` does; PlanInvalid where the plan names none for the engine.
    """
    if not spec.source:
        return None
    path = spec.source.get(engine, spec.source.get(""))
    if path is None:
        raise PlanInvalid(f'"source" of {spec.name} has no path for {engine}', remedy=f'{engine} = "PATH" in it')
    source = sources.look(Path(path))
    if spec.tablespace and not (source.physical and source.engine == "postgres"):
        raise PlanInvalid(f"{source.path} is {source.form}: only a physical copy of PostgreSQL has tablespaces")
    return sources.dataset_of(source, spec.tablespace, spec.database)


def own_values(workload: Workload, values: dict[str, Scalar], given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The parameters beside the user's own data: those that say what is generated go, but for what the plan gives."""
    implied = {name for name in workload.dataset if name != "kind"} | {"size"}
    if workload.driver == "scan":
        implied -= {"tables"}  # how many of the user's are scanned
    known = parameters(workload)
    return {name: value for name, value in values.items() if name in given or name not in implied or name not in known}
