"""Operation `repair`: what a DBA does against fragmentation, timed: the filesystem's own tool, then the engine's.

Each filesystem's tool works on the data files of the stopped server; VACUUM FULL and OPTIMIZE TABLE write the tables
anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dbbench import filesystems, process
from dbbench.engines.asking import execute, rows
from dbbench.engines.port import Server
from dbbench.filesystems import shape
from dbbench.model import OperationFacts
from dbbench.operations.port import Filled
from dbbench.operations.steps import ended, impossible

_TOOL_S: Final = 6 * 3600.0

# Compression stays what the mount says; without -f btrfs would leave what is dirty yet. e4defrag and xfs_fsr leave a
# file alone that they cannot make better.
TOOLS: Final[dict[str, Callable[[Path, list[Path]], list[list[str]]]]] = {
    "ext4": lambda _datadir, files: [["e4defrag", *map(str, files)]],
    "xfs": lambda _datadir, files: [["xfs_fsr", "-v", str(file)] for file in files],
    "btrfs": lambda datadir, _files: [["btrfs", "filesystem", "defragment", "-r", "-f", str(datadir)]],
}


def repair(filled: Filled) -> Iterator[OperationFacts]:
    """Two steps."""
    yield of_filesystem(filled)
    yield of_engine(filled)


def of_filesystem(filled: Filled) -> OperationFacts:
    """The family's defragmentation of the data files; the text has their extents before and after."""
    tool, files = TOOLS.get(filled.fs.family), _files(filled)
    if tool is None:
        return impossible("repair: filesystem", f"{filled.fs.family} has no tool that defragments files")
    if not files:
        return impossible("repair: filesystem", "there are no data files on it")
    before = _extents(files)
    filesystems.sync(filled.fs.path)
    began = time.monotonic()
    argvs = tool(filled.datadir, files)
    for argv in argvs:
        process.run(argv, timeout_s=_TOOL_S, ok=(0, 1) if argv[0] == "e4defrag" else (0,))
    filesystems.sync(filled.fs.path)
    done = ended("repair: filesystem", began)
    words = " ".join(word for word in argvs[0] if not word.startswith("/"))
    return OperationFacts(done.name, done.seconds, text=f"{words}: {before} extents before, {_extents(files)} after")


def of_engine(filled: Filled) -> OperationFacts:
    """Every table written anew by the server, until it is on the device."""
    before = _extents(_files(filled))
    with filled.serving(filled.datadir) as server:
        verb, tables = _statements(server)
        began = time.monotonic()
        execute(server, *(f"{verb} {table}" for table in tables))
        server.checkpoint()
        filesystems.sync(filled.fs.path)
        done = ended("repair: engine", began)
    text = f"{verb} of {len(tables)} tables: {before} extents before, {_extents(_files(filled))} after"
    return OperationFacts(done.name, done.seconds, text=text)


def _statements(server: Server) -> tuple[str, list[str]]:
    """The verb and the quoted tables of the dataset."""
    if server.engine == "postgres":
        verb = "VACUUM (FULL, ANALYZE)"
        query, quote = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace", '"'
    else:
        verb = "OPTIMIZE TABLE"
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
        quote = "`"
    return verb, [f"{quote}{name}{quote}" for (name,) in rows(server, query)]


def _files(filled: Filled) -> list[Path]:
    return list(filled.data_files(filled.datadir)) if filled.data_files is not None else []


def _extents(files: list[Path]) -> int | None:
    """Of all files; None where the filesystem does not tell."""
    counts = [shape.extents(path) for path in files]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
