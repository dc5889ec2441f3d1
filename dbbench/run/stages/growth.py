"""The files that the load lets grow: their sizes before it, and how their new ends are stored after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dbbench.engines.port import Engine
from dbbench.model import GrowthFacts
from dbbench.storage import filesystems
from dbbench.storage.filesystems import Mounted


def restored(fs: Mounted, files: Sequence[Path]) -> GrowthFacts:
    """Return how the restored files are stored, before anything grew."""
    return GrowthFacts(restored_share=filesystems.restored_share(fs, filesystems.sizes(files)))


def sizes(engine: Engine, datadir: Path, effective: dict[str, str]) -> dict[Path, int]:
    """Return the sizes of the server's data and log files."""
    return filesystems.sizes([*engine.data_files(datadir), *engine.log_files(datadir, effective)])


def grown(
    fs: Mounted, engine: Engine, datadir: Path, effective: dict[str, str], before: dict[Path, int]
) -> GrowthFacts:
    """Return what grew since `before`, the result of `sizes`. It is written back for that."""
    data, logs = engine.data_files(datadir), engine.log_files(datadir, effective)
    return filesystems.growth(fs, before, filesystems.sizes(data), filesystems.sizes(logs), None)
