"""What is declared in data files: fs setups and workloads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from dbbench.model.words import STRICT, Bytes, Durability, EngineName, Scalar


@dataclass(frozen=True)
class Mkfs:
    """How the filesystem proper is made: its family (the word behind `mkfs.`) and options.

    `topology` is of a pool (ZFS): how its devices stand together; `log`: the last one takes the intent log. `tune`:
    words for the family's own tuner (tune2fs), run on what mkfs has made.
    """

    __pydantic_config__ = STRICT
    family: str
    options: tuple[str, ...] = ()
    topology: Literal["stripe", "mirror", "log"] = "stripe"
    tune: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceCount:
    """How many devices a setup takes: as many as the plan gives, at most `max`."""

    __pydantic_config__ = STRICT
    min: int = 1
    max: int = 1


@dataclass(frozen=True)
class Needs:
    """What must be there: programs, kernel filesystems or modules, and the packages that bring them."""

    __pydantic_config__ = STRICT
    programs: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()
    packages: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """A layer between devices and filesystem: md (RAID), lvm, crypt (dm-crypt).

    `groups`: the devices are dealt into so many arrays or volumes of their own (two RAID1 below one LVM stripe).
    """

    __pydantic_config__ = STRICT
    kind: Literal["md", "lvm", "crypt"]
    level: Literal[0, 1, 10] | None = None  # md
    chunk_bytes: Annotated[Bytes | None, Field(alias="chunk")] = None  # md; lvm: the stripe size
    groups: Annotated[int, Field(ge=1)] = 1
    stripes: Annotated[int, Field(ge=1)] = 1  # lvm
    snapshot: Literal["", "classic", "thin"] = ""  # lvm: held while the trial runs
    snapshot_size: Annotated[str, Field(pattern=r"^[1-9]\d{0,2}%$")] = "20%"  # room for what changes, of the volume
    cipher: str = "aes-xts-plain64"  # crypt


@dataclass(frozen=True)
class Volume:
    """A part of the filesystem with options of its own: a btrfs subvolume, a ZFS dataset."""

    __pydantic_config__ = STRICT
    options: tuple[str, ...] = ()  # "compression=zstd", "recordsize=8K": the family's own properties
    attributes: tuple[str, ...] = ()  # "+C"


@dataclass(frozen=True)
class FsSetup:
    """How to make a filesystem: layers, mkfs and mount options, tuning per engine. `fs_setups/NAME.toml`."""

    __pydantic_config__ = STRICT
    title: str
    mkfs: Mkfs
    name: str = ""  # the file's; given by the catalogue
    claims: tuple[Durability, ...] = ()
    devices: DeviceCount = DeviceCount()
    layers: tuple[Layer, ...] = ()  # bottom first
    mount: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()  # of the data directory
    volumes: dict[Literal["data", "wal"], Volume] = field(default_factory=dict)
    needs: Needs = Needs()
    tuning: dict[EngineName, dict[str, Scalar]] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """A workload's own parameter, as a plan may set it."""

    __pydantic_config__ = STRICT
    type: Literal["integer", "number", "string", "boolean", "duration", "size", "tables"]
    default: Scalar | None = None
    min: float | None = None
    max: float | None = None
    choices: tuple[Scalar, ...] = ()
    help: str = ""


@dataclass(frozen=True)
class Dataset:
    """What is loaded. `parameters` (scale, tables, table_size ...) are those of its kind; "source": the user's own."""

    kind: Literal["pgbench", "sysbench", "clone-tables", "tpcc", "archive", "none", "source"]
    parameters: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """What drives the engine and what it measures. `workloads/NAME.toml`.

    `dataset` is a table with `kind` and the dataset's parameters; a parameter of the workload with the same
    name as a dataset parameter overrides it. `settings` are server settings per engine. `script` names a
    file beside the TOML file, or one that the driver ships; `beside` further files there that belong to it. pgbench
    draws from script and `beside` by their `weights`.
    """

    __pydantic_config__ = STRICT
    title: str
    driver: Literal["sysbench", "pgbench", "scan", "statements", "bonnie", "fio", "copy", "smallfiles", "apply"]
    engines: tuple[EngineName, ...]
    dataset: dict[str, Scalar]
    name: str = ""
    window: Literal["fixed", "to-completion"] = "fixed"
    primary: str = "tps"
    script: str = ""
    beside: tuple[str, ...] = ()
    weights: tuple[Annotated[int, Field(ge=0)], ...] = ()
    during: str = ""  # SQL that is carried out once in the window, beside the load
    options: dict[str, Scalar] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    settings: dict[EngineName, dict[str, Scalar]] = field(default_factory=dict)

    @property
    def prepares(self) -> bool:
        """Whether something is done before the window, though the work runs to its end and has no warm-up."""
        return self.driver == "statements"
