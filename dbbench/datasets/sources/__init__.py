"""The user's own data as a dataset: format (`look`), whether an engine can load it (`source`),
conversion.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Final, Protocol

from dbbench import process
from dbbench.datasets.sources import innodb_sources, postgres_copies
from dbbench.datasets.sources.look import find_packer, look
from dbbench.datasets.sources.scripts import change_of
from dbbench.datasets.sources.source import FORMS, Source, fits, places, unusable
from dbbench.engines import ENGINES, profile_of
from dbbench.engines.port import Place, Server
from dbbench.errors import ProgramMissing
from dbbench.model import Dataset, EngineSpec, SourceChange, SourceChangeKind
from dbbench.packages import install, package_of
from dbbench.units import size_text

__all__ = ["FORMS", "Source", "find_packer", "fits", "look", "places"]
READ_AHEAD_BYTES: Final = 4 * 2**30  # of the data of a dump that `plan` reads; some seconds
_TEXTS: Final = {
    SourceChangeKind.CONFIGURATION: "setting removed: {settings}; set it in `settings` of [[engine]] to restore it",
    SourceChangeKind.PERSISTED: "settings persisted by MySQL (mysqld-auto.cnf) are removed",
    SourceChangeKind.DATABASE_SETTINGS: "settings of the database are reset: {settings}",
    SourceChangeKind.RENAMED: "the database {database} is renamed to {name} in the copy",
    SourceChangeKind.CHOSEN: "the load uses the largest database, {database}",
    SourceChangeKind.CHECKSUMS: "data checksums were enabled in the copy",
    SourceChangeKind.CHECKSUMS_REMOVED: "data checksums were disabled in the copy",
    SourceChangeKind.NO_CHECKSUMS: "no data checksums, as in the source",
    SourceChangeKind.SETTLED: "{done} once, before the first trial",
    SourceChangeKind.NOT_SETTLED: "used as it is (settle = false): the first reads may also write",
    SourceChangeKind.SKIPPED: "left out of the dump: {statements}",
    SourceChangeKind.WARNED: "warnings of the server while it loaded the dump: {warnings}",
    SourceChangeKind.NOT_COUNTED: "mydumper counted no rows, so missing ones at the end would not be noticed: {tables}",
    SourceChangeKind.NOT_MEASURED: "not measured, because only InnoDB is: {tables}",
}


class Dialect(Protocol):
    """What differs between the dumps and copies of two dialects."""

    # the programs that loading needs, in addition to the server's own
    def programs(self, source: Source) -> tuple[str, ...]: ...
    def lay(
        self,
        source: Source,
        data: Path,
        place: Place,
    ) -> tuple[SourceChange, ...]: ...
    def load(
        self,
        source: Source,
        server: Server,
        data: Path,
        wanted: str,
        tablespace: str,
    ) -> tuple[SourceChange, ...]: ...
    # settles tables that were copied as files; returns what was done
    def settle(self, server: Server) -> str: ...
    # reads a source without a server; returns what is left out
    def examine(self, source: Source, bin: Path | None) -> tuple[SourceChange, ...]: ...


_DIALECTS: Final[dict[str, Dialect]] = {"postgres": postgres_copies, "mysql": innodb_sources}


def of(dataset: Dataset, spec: EngineSpec) -> Source | None:
    """Return the source of a cell's dataset, inspected now; None for a generated dataset. Raises
    what `look` raises, SourceUnusable if it differs from the one in the plan, and
    ProgramMissing.
    """
    if dataset.kind != "source":
        return None
    source = look(Path(str(dataset.parameters["path"])))
    profile = profile_of(spec.name)
    if source.identity != dataset.parameters["identity"]:
        raise unusable(
            f"{source.path} has changed since the run was planned: files, sizes or times differ",
            "Start a new run of the plan with dbbench run --new.",
        )
    version = ENGINES[spec.name].installed_version(spec.bin)
    if version is None:
        raise ProgramMissing(
            f"{spec.name} is not installed", remedy="Run dbbench doctor to see how to install it."
        )
    page = profile.page_bytes
    is_postgres = profile.dialect == "postgres" and source.engine == spec.name
    if is_postgres:
        page = postgres_copies.block_size(spec.bin)
        source = dataclasses.replace(source, page_size=postgres_copies.page_size(source, spec.bin))
    fits(source, spec.name, version, page)
    if is_postgres:
        postgres_copies.check_locales(source)
    programs = _DIALECTS[profile.dialect].programs(source)
    lacking = [name for name in programs if process.find(name) is None]
    if lacking:
        packages = [package_of(name) or name for name in lacking]
        raise ProgramMissing(
            f"not installed: {', '.join(lacking)}, required for {source.form}",
            remedy=install(packages, "--no-install-recommends"),
        )
    return source


@functools.lru_cache
def examine(source: Source, bin: Path | None) -> tuple[SourceChange, ...]:
    """Read a source as a whole, without a server, unless that would take minutes; return what its
    copy will not have. Raises what `load` raises for a source that is incomplete or has no rows.
    """
    if not source.physical and source.bytes * FORMS[source.form][1] > READ_AHEAD_BYTES:
        return ()
    return _DIALECTS[profile_of(source.engine).dialect].examine(source, bin)


def describe(source: Source) -> str:
    """Describe the source in a few words."""
    version = f" {source.version}" if source.version else ""
    return f"{source.path}: {source.form} of {source.engine}{version}, {size_text(source.bytes)}"


def lay(source: Source, data: Path, place: Place) -> tuple[SourceChange, ...]:
    """Copy a physical source as a data directory; return what was left out."""
    return _DIALECTS[profile_of(source.engine).dialect].lay(source, data, place)


def load(
    source: Source,
    dataset: Dataset,
    server: Server,
    data: Path,
) -> tuple[SourceChange, ...]:
    """Load a dump, choose the database for the drivers, and settle a physical copy; return further
    changes.
    """
    dialect = _DIALECTS[profile_of(source.engine).dialect]
    parameters = dataset.parameters
    database = str(parameters.get("database", ""))
    tablespace = str(parameters.get("tablespace", ""))
    changes = dialect.load(source, server, data, database, tablespace)
    if kept_as_it_is(dataset):
        return (*changes, SourceChange(SourceChangeKind.NOT_SETTLED))
    if not source.physical:
        return changes
    return changes + change_of(SourceChangeKind.SETTLED, done=dialect.settle(server))


def kept_as_it_is(dataset: Dataset) -> bool:
    """Return whether the plan says `settle = false`: a physical copy is then neither vacuumed nor
    purged.
    """
    return dataset.parameters.get("settle") is False


def seal(
    source: Source,
    dataset: Dataset,
    data: Path,
    place: Place,
) -> tuple[SourceChange, ...]:
    """Change a physical PostgreSQL copy's data checksums if the plan asks for it; dumps and InnoDB
    always have them.
    """
    if not source.physical or not profile_of(source.engine).chosen_checksums:
        return ()
    return postgres_copies.seal(data, place, dataset.parameters.get("checksums"))


def text(change: SourceChange) -> str:
    """Describe what was left out or changed."""
    return _TEXTS[change.kind].format(**change.values)


def tablespaces_of(server: Server) -> dict[str, str]:
    """Return PostgreSQL's user-defined tablespaces: name -> OID; {} for other engines."""
    if profile_of(server.engine).tablespaces:
        return postgres_copies.tablespaces_of(server)
    return {}
