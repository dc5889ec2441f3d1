"""The files of the catalogue: fs setups, and workloads with their datasets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from dbbench.model.base import STRICT, Bytes, EngineName, Scalar


@dataclass(frozen=True)
class Mkfs:
    """How to make the filesystem: its family (the word after `mkfs.`) and options. `topology`: how
    a ZFS pool combines its devices; `log`: the last device holds the intent log. `tune`:
    arguments for the family's tuning program (tune2fs), which runs after mkfs.
    """

    __pydantic_config__ = STRICT
    family: str
    options: tuple[str, ...] = ()
    topology: Literal["stripe", "mirror", "log"] = "stripe"
    tune: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceCount:
    """How many devices a setup uses: all that the plan provides, up to `max`."""

    __pydantic_config__ = STRICT
    min: int = 1
    max: int = 1


@dataclass(frozen=True)
class Layer:
    """A layer between devices and filesystem: md (RAID), lvm, crypt (dm-crypt), delay (dm-delay, of
    the plan's `limit`). `groups`: the devices are divided into this many arrays or volumes (two
    RAID1 arrays below one LVM stripe).
    """

    __pydantic_config__ = STRICT
    kind: Literal["md", "lvm", "crypt", "delay"]
    level: Literal[0, 1, 10] | None = None  # md only
    # for lvm the size of a stripe
    chunk_bytes: Annotated[Bytes | None, Field(alias="chunk")] = None
    groups: Annotated[int, Field(ge=1)] = 1
    stripes: Annotated[int, Field(ge=1)] = 1  # lvm only
    snapshot: Literal["", "classic", "thin"] = ""  # lvm only; kept during the whole trial
    snapshot_size: Annotated[str, Field(pattern=r"^[1-9]\d{0,2}%$")] = "20%"  # share of the volume
    cipher: str = "aes-xts-plain64"  # crypt only
    # milliseconds, delay only
    delays: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Volume:
    """A part of the filesystem with its own options: a btrfs subvolume, a ZFS dataset."""

    __pydantic_config__ = STRICT
    options: tuple[str, ...] = ()  # properties of the family: "compression=zstd", "recordsize=8K"
    attributes: tuple[str, ...] = ()  # arguments of chattr: "+C"


@dataclass(frozen=True)
class FsSetup:
    """How to make a filesystem: layers, mkfs and mount options, tuning per engine.
    `fs_setups/NAME.toml`.
    """

    __pydantic_config__ = STRICT
    title: str
    mkfs: Mkfs
    name: str = ""  # the name of the file; set by the catalogue
    devices: DeviceCount = DeviceCount()
    layers: tuple[Layer, ...] = ()  # from bottom to top
    mount: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()  # set on the data directory with chattr
    volumes: dict[Literal["data", "wal"], Volume] = field(default_factory=dict)
    tuning: dict[EngineName, dict[str, Scalar]] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a workload that a plan can set."""

    __pydantic_config__ = STRICT
    type: Literal["integer", "number", "string", "boolean", "duration", "size", "tables"]
    default: Scalar | None = None
    min: float | None = None
    max: float | None = None
    choices: tuple[Scalar, ...] = ()
    help: str = ""


@dataclass(frozen=True)
class Dataset:
    """The data to load. `parameters` (scale, tables ...) depend on `kind`; "source" is the user's
    own data.
    """

    kind: Literal["pgbench", "sysbench", "clone-tables", "tpcc", "archive", "none", "source"]
    parameters: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """The load and the primary metric. `workloads/NAME.toml`. `plain_name`: what it does, in words
    for people who do not know the technical name: "many small writes". `dataset`: a table with `kind` and
    its parameters, which workload parameters of the same name override. `settings`: server
    settings per engine. `script`: a file next to the TOML file or one that the driver includes;
    `beside`: further ones. pgbench chooses among them by `weights`.
    """

    __pydantic_config__ = STRICT
    title: str
    driver: Literal[
        "sysbench",
        "pgbench",
        "scan",
        "statements",
        "bonnie",
        "fio",
        "copy",
        "smallfiles",
        "apply",
        "insert",
    ]
    engines: tuple[EngineName, ...]
    dataset: dict[str, Scalar]
    name: str = ""
    window: Literal["fixed", "to-completion"] = "fixed"
    primary: str = "tps"
    script: str = ""
    beside: tuple[str, ...] = ()
    weights: tuple[Annotated[int, Field(ge=0)], ...] = ()
    during: str = ""  # SQL that is executed once, during the window
    options: dict[str, Scalar] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    settings: dict[EngineName, dict[str, Scalar]] = field(default_factory=dict)
    plain_name: str = ""

    @property
    def dataset_parameters(self) -> dict[str, Scalar]:
        return {name: value for name, value in self.dataset.items() if name != "kind"}

    @property
    def prepares(self) -> bool:
        """Whether the load has work of unknown length to do before its warm-up or window."""
        return self.driver in ("statements", "insert")
