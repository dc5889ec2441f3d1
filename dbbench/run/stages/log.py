"""The write-ahead log at the place that the plan or the fs setup requests: moved after the restore, and verified."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dbbench.engines.port import Engine, HasLog, Place, log_files_of
from dbbench.errors import FilesElsewhere
from dbbench.run.stages import Mounts, Setups
from dbbench.storage import filesystems


def move_log(setups: Setups, mounts: Mounts, engine: Engine, datadir: Path, place: Place) -> Place:
    """Move the restored log to its own filesystem or volume; return the place with its directory, or unchanged."""
    folder = filesystems.log_directory(setups["data"], mounts)
    # If only a tablespace is on the filesystem under test, the log stays with the rest of the cluster.
    alone = "log" not in mounts and not datadir.is_relative_to(mounts["data"].path)
    if folder is None or alone or not isinstance(engine, HasLog):
        return place
    if "log" in setups:
        folder.mkdir(mode=0o700)
        filesystems.apply_attributes(setups["log"], folder)
    engine.place_log(datadir, folder)
    return dataclasses.replace(place, log_dir=folder)


def check_log(engine: Engine, datadir: Path, place: Place, effective: dict[str, str]) -> None:
    """Raise FilesElsewhere if a file of the running server's log is not in the directory to which it was moved."""
    if place.log_dir is None:
        return
    files = log_files_of(engine, datadir, effective)
    folder = place.log_dir.resolve()
    astray = [path for path in files if folder not in path.parents]
    if astray or not files:
        raise FilesElsewhere(
            f"{astray[0]} of the write-ahead log is not in {folder}" if astray else f"{folder} contains no log file",
            effect="Nothing was measured.",
            remedy="Remove settings for the location of the log (innodb_log_group_home_dir, log_bin) from the plan.",
        )
