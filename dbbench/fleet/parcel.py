"""The results of a part on their way from a host: a compressed tar of a run's folder."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import zlib
from pathlib import Path

from dbbench import results
from dbbench.errors import ImportRefused, ResultDamaged
from dbbench.results import merging
from dbbench.results.at_ceiling import FILE as CEILING
from dbbench.results.fileio import RAW, sync, writing


def pack(folder: Path) -> bytes:
    """Return the run in `folder` with its finished trials. Raises ImportRefused, ResultDamaged."""
    finished = results.list_results(folder)
    names = ["run.json", "plan.toml"]
    if os.path.lexists(folder / CEILING):
        names.append(CEILING)
    names += _files_below(folder, "scripts")
    for spec in results.load_spec(folder).order:
        if spec.id in finished:
            names += _files_below(folder, f"trials/{spec.id}")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for name in names:
            content = merging.read(folder / name, folder.parent, most=RAW)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Write a run to `folder`, which appears as a whole and is on the disk then. Raises
    ImportRefused for anything but regular files below it, ResultDamaged, NotWritable.
    """
    arriving = folder.with_name(f".partial-{folder.name}")
    with writing(folder):
        shutil.rmtree(arriving, ignore_errors=True)
        arriving.mkdir(parents=True)
        try:
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                for entry in tar:
                    _write(tar, entry, arriving)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise ResultDamaged(f"{folder.name}: {error}", effect=merging.UNCHANGED) from error
        for path in (*arriving.rglob("*"), arriving):
            sync(path)
        arriving.rename(folder)
        sync(folder.parent)


def _files_below(folder: Path, part: str) -> list[str]:
    if not (folder / part).is_dir():
        return []
    return [f"{part}/{name}" for name, _size in merging.files_of(folder / part)]


def _write(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    content = tar.extractfile(entry) if entry.isreg() else None
    if content is None:
        raise ImportRefused(f"{entry.name!r} is not a regular file", effect=merging.UNCHANGED)
    path = folder / merging.inner(entry.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(content, file)
