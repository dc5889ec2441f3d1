"""What is wrong with where a plan puts the write-ahead log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from dbbench.catalog import Catalog
from dbbench.engines import SERVERLESS
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.filesystems.families import POOLED
from dbbench.model import Arm, DeviceSpec, EngineSpec, FsSetup, WalDevice
from dbbench.tomlfile import Document, Key

LEAST_BYTES: Final = 320 * 2**20  # mkfs.xfs makes nothing below 300 MiB


def check_logs(
    document: Document,
    arms: Mapping[Key, Arm],
    engines: Mapping[Key, EngineSpec],
    device: DeviceSpec | None,
    catalog: Catalog,
) -> None:
    """Note what does not fit: the log's own setup, arms whose log lies elsewhere, arms without a filesystem."""
    if device is not None and device.wal is not None:
        _check_wal(document, device, device.wal, catalog)
        for key, engine in engines.items():
            if engine.name in SERVERLESS:
                document.flaw((*key, "name"), f'engine "{engine.name}" has no log that could lie on [device.wal]')
    for key, arm in arms.items():
        if device is not None and device.wal is None and value_at(document, key, "wal") is not None:
            document.flaw((*key, "wal"), '"wal" says nothing without [device.wal]')
        with contextlib.suppress(UnknownName, PlanInvalid):  # told already
            setup = catalog.setup(arm.use)
            _check_arm(document, key, arm, setup, device)
            if setup.mkfs.family == "raw":
                _check_raw(document, key, arm, engines, device)


def _check_raw(
    document: Document, key: Key, arm: Arm, engines: Mapping[Key, EngineSpec], device: DeviceSpec | None
) -> None:
    """InnoDB alone can lie on a bare device, and what it must have as files needs another."""
    if device is not None and (device.wal is None or not arm.wal):
        document.flaw(key, f'"{arm.use}" has no filesystem: what must be files lies on that of [device.wal]')
    for served in sorted({engine.name for engine in engines.values()} - {"mariadb", "mysql"}):
        who = "PostgreSQL" if served == "postgres" else f'engine "{served}"'
        document.flaw(key, f'"{arm.use}" is for mariadb and mysql; {who} cannot do without a filesystem')
    for name in ("age", "operations"):
        if document.data.get(name) not in (None, []):
            document.flaw((name,), f'"{name}" is of a filesystem; "{arm.use}" has none')


def value_at(document: Document, key: Key, name: str) -> Any:
    """What stands at `name` in the table at `key` of the file; None where there is neither."""
    found: Any = document.data
    for part in (*key, name):
        try:
            found = found[part]
        except (KeyError, IndexError, TypeError):
            return None
    return found


def _check_arm(document: Document, key: Key, arm: Arm, setup: FsSetup, device: DeviceSpec | None) -> None:
    elsewhere, volume = bool(device and device.wal and arm.wal), "wal" in setup.volumes
    if elsewhere and volume:
        document.flaw(key, f'fs setup "{setup.name}" has a volume of its own for the log; with [device.wal] write '
                           f'{{ use = "{arm.use}", wal = false }}')  # fmt: skip
    # A copy of the data alone is no database: its log lies elsewhere, and belongs to the server that runs.
    asked = document.data.get("operations")
    copies = [name for name in ("snapshot", "clone") if isinstance(asked, list) and name in asked]
    if copies and (elsewhere or volume):
        text = f'"{" and ".join(copies)}" cannot copy "{arm.label}": its log lies apart from its data'
        document.flaw(key, text)


def _check_wal(document: Document, device: DeviceSpec, wal: WalDevice, catalog: Catalog) -> None:
    """Whether the log's setup can be made on the one device that it gets."""
    key = ("device", "wal")
    if device.kind == "dir":
        document.flaw(key, '"wal" says nothing for kind = "dir"')
        return
    try:
        setup = catalog.setup(wal.fs_setup)
    except (UnknownName, PlanInvalid) as error:
        document.flaw((*key, "fs_setup"), error.evidence)
        return
    if setup.devices.min > 1:
        document.flaw((*key, "fs_setup"), f'fs setup "{setup.name}" wants {setup.devices.min} devices or more; '
                                          "the log has one")  # fmt: skip
    if setup.mkfs.family in POOLED:
        document.flaw((*key, "fs_setup"), f'a pool ("{setup.name}") cannot be the log\'s own filesystem; '
                                          "a setup with a volume for the log has it within one")  # fmt: skip
    if setup.volumes:
        document.flaw((*key, "fs_setup"), f'fs setup "{setup.name}" has volumes: they belong to a data directory')
    if device.kind == "block" and not wal.path:
        document.flaw(key, 'kind = "block" needs path = "/dev/disk/by-id/..." for the log too')
    if device.kind == "loop" and wal.size_bytes < LEAST_BYTES:
        document.flaw((*key, "size"), '"size" should be 320MiB or more')
    for name in {"loop": ("path", "identity"), "block": ("size", "at")}[device.kind]:
        if value_at(document, key, name) is not None:
            document.flaw((*key, name), f'"{name}" says nothing for kind = "{device.kind}"')
