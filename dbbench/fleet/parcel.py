"""The results of a part on their way from a host: the files of a run's folder, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dbbench import results
from dbbench.results import merging
from dbbench.results.at_ceiling import FILE as CEILING
from dbbench.results.fileio import RAW, writing


def pack(folder: Path) -> dict[str, bytes]:
    """Return the run in `folder` with its finished trials. Raises ImportRefused, ResultDamaged."""
    finished = results.list_results(folder)
    trials = [spec.id for spec in results.load_spec(folder).order if spec.id in finished]
    names = ["run.json", "plan.toml"]
    if os.path.lexists(folder / CEILING):
        names.append(CEILING)
    for part in ("scripts", *(f"trials/{trial}" for trial in trials)):
        if (folder / part).is_dir():
            names += [f"{part}/{name}" for name, _size in merging.files_of(folder / part)]
    return {name: merging.read(folder / name, folder.parent, most=RAW) for name in names}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a run to `folder`, where `merging.merge` verifies it. Raises ImportRefused for a name
    that leads out of it, NotWritable.
    """
    for name, content in files.items():
        path = folder / merging.inner(name)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
