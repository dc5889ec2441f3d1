"""From a source to a data directory of ours: laid out or loaded, its database chosen, what was left out told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.sources import innodb, postgres
from dbbench.datasets.sources.looking import look
from dbbench.datasets.sources.source import UNTOUCHED, Source, fits
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.errors import ProgramMissing, SourceChanged
from dbbench.model import Dataset, EngineSpec
from dbbench.packages import package_of
from dbbench.units import size_text

INNODB_PAGE: Final = 16384  # no other is asked of a server here


def of(dataset: Dataset, spec: EngineSpec) -> Source | None:
    """The source of a cell's dataset, looked at now; None where the dataset is made by a rule.

    Raises what `look` does, SourceChanged where it is not the one that the cell was planned with, SourceForeign,
    and ProgramMissing where loading it wants a program that is not here.
    """
    if dataset.kind != "source":
        return None
    own = dataset.parameters
    source = look(Path(str(own["path"])))
    if source.identity != own["identity"]:
        raise SourceChanged(
            f"{source.path} has other files, sizes or times than when the run was planned",
            effect="Nothing was built.",
            remedy="Begin another run of the plan: dbbench run --new",
        )
    bin_ = Path(spec.bin) if spec.bin else None
    version = ENGINES[spec.name].installed(bin_)
    if version is None:
        raise ProgramMissing(f"{spec.name} is not installed", effect=UNTOUCHED, remedy="dbbench doctor")
    page = INNODB_PAGE
    if spec.name == "postgres" and source.engine == "postgres":
        page = postgres.block_size(bin_)
        source = dataclasses.replace(source, page_size=postgres.page_size(source, bin_))
    fits(source, spec.name, version, page)
    if lacking := [name for name in programs(source) if process.find(name) is None]:
        packages = " ".join(package_of(name) or name for name in lacking)
        raise ProgramMissing(
            f"not installed: {', '.join(lacking)}, for {source.form}",
            effect=UNTOUCHED,
            remedy=f"apt-get install --no-install-recommends {packages}",
        )
    return source


def programs(source: Source) -> tuple[str, ...]:
    """What loading it wants beside the server's own programs."""
    return innodb.programs(source) if source.engine != "postgres" else ()


def described(source: Source) -> str:
    """The source in a few words."""
    version = f" {source.version}" if source.version else ""
    return f"{source.path}: {source.form} of {source.engine}{version}, {size_text(source.bytes)}"


def laid(source: Source, data: Path, place: Place) -> tuple[str, ...]:
    """Copy a physical source as the data directory of a server of ours; what of it was left out, in sentences."""
    return postgres.laid(source, data, place) if source.engine == "postgres" else innodb.laid(source, data, place)


def loaded(source: Source, dataset: Dataset, server: Server, data: Path) -> tuple[str, ...]:
    """Load a dump into the server that runs, and choose the database that drivers connect to; further sentences."""
    wanted = str(dataset.parameters.get("database", ""))
    tablespace = str(dataset.parameters.get("tablespace", ""))
    if server.engine == "postgres":
        return postgres.loaded(source, server, data, wanted, tablespace)
    return innodb.loaded(source, server, data, wanted)


def sealed(source: Source, data: Path, place: Place) -> tuple[str, ...]:
    """What is done to the stopped server's files: PostgreSQL's data checksums, as in every other dataset."""
    return postgres.sealed(data, place) if source.engine == "postgres" and source.physical else ()


def tablespaces_of(server: Server) -> dict[str, str]:
    """PostgreSQL's own tablespaces: name -> OID; {} of other engines."""
    return postgres.tablespaces_of(server) if server.engine == "postgres" else {}
