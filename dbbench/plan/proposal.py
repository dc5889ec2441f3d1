"""A first plan: what `dbbench init` writes from a few answers, or from the facts of a running
server.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from dbbench.datasets.generated import SCALE_BYTES, SYSBENCH_ROW_BYTES
from dbbench.engines import SERVERS, profile_of
from dbbench.errors import DbbenchError, PlanInvalid
from dbbench.machine.mounts import Mount
from dbbench.model import Arm, EngineName, Scalars
from dbbench.model.base import data_folder
from dbbench.model.times import MEASURE_S, WARMUP_S
from dbbench.plan.catalog import Catalog
from dbbench.plan.labels import default_label, split_fs
from dbbench.plan.variants import distinct
from dbbench.storage.devices.directory import check_directory
from dbbench.storage.filesystems import promises
from dbbench.storage.filesystems.common import mount_of
from dbbench.units import one_line, size_text

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # a key that needs no quotes
_SETUPS: Final = ("ext4", "xfs", "btrfs")
_BUDGET: Final = (
    'budget = "{}"      # for the whole run: as many blocks as fit, at least 3; a block runs '
    "everything once"
)
_LEAST_BLOCKS: Final = 3
_STAGES_S: Final = 45.0  # of a trial, beside its warm-up and window
_HALF_HOUR_MIN: Final = 30
_BLOCKS: Final = (
    "blocks = 5          # every combination once per block, in random order; fewer are seldom "
    "conclusive"
)
_LOOP: Final = """\
kind = "loop"       # a file with direct I/O on the disk of the results: safe, for a first impression
size = "{}GiB"       # it is written in full once
# at = "/srv"       # directory of the file
# A disk, for a real decision: dbbench init --device /dev/disk/by-id/...      (`dbbench doctor` lists them)
# Directories on existing filesystems, without root: dbbench init --dirs /mnt/a,/mnt/b"""
_DISK: Final = """\
kind = "block"      # it is ERASED; `dbbench run` refuses it if it is in use or not empty
path = {}"""
_TABLES: Final = 8
_WORKLOADS: Final[dict[str, Scalars]] = {  # by the engine's kind of dataset
    "pgbench": {
        "name": "pgbench-tpcb",
        "scale": 50,
        "clients": 8,
    },
    "sysbench": {
        "name": "sysbench-oltp-read-write",
        "tables": _TABLES,
        "table_size": 250000,
        "clients": 8,
    },
}
# Mount options that do not characterise a setup.
_QUIET: Final = {"noatime", "relatime", "discard", "nodiscard", "nodiscard=async", "rw", "defaults"}
# size of the device ÷ size of a server's data: space for the copy, its log and growth
_FREE: Final = 2.5
# Size of an image on a disk with enough space; the least with which dataset and logs fit, by the
# engine's kind of dataset; space for golden copies and results beside it.
_IMAGE_GIB: Final = 8
_LEAST_GIB: Final = {"pgbench": 4, "sysbench": 6}
_BESIDE_GIB: Final = 3
_COPY: Final = "/srv/copy"


@dataclass(frozen=True)
class Proposal:
    """What to compare: directories, or setups (by default three) on a disk or, without one, on a
    file.
    """

    engines: tuple[EngineName, ...]
    directories: tuple[Path, ...] = ()
    setups: tuple[str, ...] = ()
    disk: str | None = None
    workloads: tuple[str, ...] = ()
    budget: str | None = None
    image_gib: int = _IMAGE_GIB

    def text(self, file: Path, available: Catalog) -> str:
        """Return the text of the plan `file`. Raises UnknownName, DeviceUnusable, PlanInvalid."""
        # The filesystems, as the plan lists them.
        entries = split_fs(self.setups or _SETUPS, available.setups.__contains__)
        arms = [Arm(name, mount=options) for name, options in entries]
        setups = []
        # A setup that is not in the catalogue is refused before the plan is written.
        for arm in arms:
            table = {"use": arm.use, "mount": arm.mount}
            setups.append(_inline(table) if arm.adds else _toml(arm.use))
        # A plan of directories is bounded by time unless the user says otherwise.
        budget = self.budget
        if self.directories and not budget:
            minutes = least_minutes(
                len(self.directories), len(self.engines), max(1, len(self.workloads))
            )
            budget = f"{minutes}min"
        values = {
            "file": str(file),
            "name": _name(file),
            "setups": ", ".join(setups),
            "use": arms[0].use,
            "engines": ", ".join(_inline({"name": engine}) for engine in self.engines),
            "length": _BUDGET.format(budget) if budget else _BLOCKS,
            "baseline": default_label(arms[0], None),
        }
        # Directories have filesystems already, so no setup is made.
        loads = self._loads(available)
        if self.directories:
            values |= _of_directories(self.directories, available)
            values["workloads"] = ", ".join(map(_inline, loads))
            return _fill("directories.in", values)
        for arm in arms:
            available.setup_of(arm)
        tables = ["\n".join(("[[workload]]", *_pairs(load))) for load in loads]
        values["device"] = (
            _DISK.format(_toml(self.disk)) if self.disk else _LOOP.format(self.image_gib)
        )
        values["workloads"] = "\n\n".join(tables)
        return _fill("filesystems.in", values)

    def _loads(self, available: Catalog) -> list[dict[str, object]]:
        """Return the workloads with their parameters; by default one for each kind of engine."""
        if self.workloads:
            return [{"name": available.workload(name).name} for name in self.workloads]
        loads: list[dict[str, object]] = []
        for kind, parameters in _WORKLOADS.items():
            engines = [name for name in self.engines if profile_of(name).generated == kind]
            if engines:
                load: dict[str, object] = dict(parameters)
                if len(self.engines) > 1:
                    load["engines"] = engines
                loads.append(load)
        return loads


def least_minutes(
    setups: int,
    engines: int,
    workloads: int = 1,
) -> int:
    """Return the half hours, in minutes, in which the least number of blocks fits."""
    trials = _LEAST_BLOCKS * setups * engines * workloads
    minutes = trials * (WARMUP_S + MEASURE_S + _STAGES_S) / 60
    return max(1, math.ceil(minutes / _HALF_HOUR_MIN)) * _HALF_HOUR_MIN


@dataclass(frozen=True)
class RunningServer:
    """What a plan takes from a running server. None: its role may not read it."""

    engine: str
    version: str
    socket: Path
    profile: str  # the settings profile that is closest
    # those that matter to storage and differ from what dbbench would set
    settings: Mapping[str, str]
    data_bytes: int | None
    mount: Mount | None  # the mount that contains the data directory

    def nearest_setup(self, available: Catalog) -> tuple[str, str]:
        """Return the fs setup that is closest to the mount, and in which respects it may differ."""
        if self.mount is None:
            return (
                "ext4",
                "this role cannot read the path of the data directory; choose the setup yourself",
            )
        # ZFS has properties instead of options, which a mount does not show.
        family = self.mount.fstype
        if family.startswith("zfs"):
            return (
                "zfs",
                "choose the nearest zfs setup: `zfs get all` shows record size and compression",
            )
        # The compression of btrfs also in the spelling that people use.
        options = set(self.mount.options)
        for option in self.mount.options:
            options.add(re.sub(r"^(compress(?:-force)?=(?:zlib|zstd)):3$", r"\1", option))
        # Of the setups whose options the mount has, the one with the most; then the shortest name.
        nearest: list[tuple[int, int, str]] = []
        for name in available.setups:
            with contextlib.suppress(DbbenchError):
                setup = available.setup(name)
                special = setup.layers or setup.volumes or setup.attributes or setup.mkfs.options
                needed = set(setup.mount) - _QUIET
                usual = setup.mkfs.family == family and not special and not promises(setup)
                if usual and needed <= options:
                    nearest.append((len(needed), -len(name), name))
        if not nearest:
            return "ext4", f"no fs setup uses {family}; choose the nearest one yourself"
        return max(nearest)[2], ""

    def text(
        self,
        file: Path,
        available: Catalog,
        memory_bytes: int | None,
        image_gib: int = _IMAGE_GIB,
    ) -> str:
        """Return the text of the plan `file`."""
        profile = profile_of(self.engine)
        baseline, unsure = self.nearest_setup(available)
        size = self.data_bytes or 0

        # The dataset has the size of the server's data.
        load = dict(_WORKLOADS[profile.generated])
        if "scale" in load:
            load["scale"] = max(1, size // SCALE_BYTES)
        else:
            load["table_size"] = max(1000, size // SYSBENCH_ROW_BYTES // _TABLES)
        # What was found, in words for the plan's comments.
        place = "an unknown filesystem"
        if self.mount is not None:
            mounted = ",".join(self.mount.options)
            place = f"{self.mount.fstype} ({mounted}) at {self.mount.point}"
        data = "data of unknown size"
        if self.data_bytes is not None:
            data = f"{size_text(size)}, as the dataset below"
        # The command by which the user copies the server's data.
        command = profile.copying.format(
            host=shlex.quote(str(self.socket.parent)),
            port=self.socket.suffix[1:],
            socket=shlex.quote(str(self.socket)),
            copy=_COPY,
        )
        values = {
            "engine": self.engine,
            "profile": self.profile,
            "version": self.version,
            "socket": str(self.socket),
            "file": str(file),
            "name": _name(file),
            "copy": _COPY,
            "command": command,
            "baseline": baseline,
            "ground": place,
            "setups": _toml(list(dict.fromkeys((baseline, *_SETUPS)))),
            "memory": f"{max(1, (memory_bytes or 8 * 2**30) // 2**30)}GiB",
            "device": f"{max(image_gib, -(-int(size * _FREE) // 2**30))}GiB",
            "data": data,
        }
        # What a server reports may contain line breaks.
        values = {key: one_line(value, len(value)) for key, value in values.items()}
        # Names that need quotes, and values with control characters, are left out.
        lines = []
        for name, text in self.settings.items():
            if _BARE.fullmatch(name) and text.isprintable():
                lines.append(f"settings.{name} = {_toml(text)}")
        values["settings"] = "\n".join(lines) or "# (none)"
        values["workload"] = "\n".join(_pairs(load))
        values["unsure"] = f"  # {unsure}" if unsure else ""
        return _fill("from-running.in", values)


def fitting_gib(free_bytes: int, engines: Iterable[str]) -> int:
    """Return the size of an image for a disk with so much free space; at least the smallest that
    these engines can use, even if that does not fit.
    """
    least = max(_LEAST_GIB[profile_of(engine).generated] for engine in engines)
    return min(_IMAGE_GIB, max(least, free_bytes // 2**30 - _BESIDE_GIB))


def installed_engines() -> tuple[EngineName, ...]:
    """Return the engines whose server is installed here; the first of all if none is."""
    from dbbench.engines import ENGINES

    installed = [name for name in SERVERS if ENGINES[name].installed_version() is not None]
    return tuple(installed) or SERVERS[:1]


def _of_directories(directories: tuple[Path, ...], available: Catalog) -> dict[str, str]:
    real = [check_directory(path) for path in directories]
    if len(set(real)) < len(real):
        raise PlanInvalid(
            f"a directory is listed twice: {', '.join(map(str, directories))}",
            effect="Nothing was written.",
            remedy="Name directories on different filesystems:  dbbench init --dirs A,B",
        )
    # A label is what distinguishes a directory from the others.
    labels = distinct([str(path) for path in real])
    arms = []
    for path, label in zip(real, labels, strict=True):
        kind = mount_of(path).fstype
        arms.append({"use": kind if kind in available.setups else _SETUPS[0], "label": label})
    paths = dict(zip(labels, map(str, real), strict=True))
    return {"setups": ", ".join(map(_inline, arms)), "paths": ", ".join(_pairs(paths))}


def _fill(template: str, values: Mapping[str, str]) -> str:
    text = (data_folder() / "plans" / template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def _name(file: Path) -> str:
    letters = [letter if letter.isalnum() or letter in "._-" else "-" for letter in file.stem]
    return "".join(letters).strip("._-") or "plan"


def _toml(value: object) -> str:
    # strings, numbers and lists are written as in TOML
    return json.dumps(value, ensure_ascii=False)


def _pairs(table: Mapping[str, object]) -> list[str]:
    pairs = []
    for key, value in table.items():
        written = key if _BARE.fullmatch(key) else _toml(key)
        pairs.append(f"{written} = {_toml(value)}")
    return pairs


def _inline(table: Mapping[str, object]) -> str:
    return "{ " + ", ".join(_pairs(table)) + " }"
