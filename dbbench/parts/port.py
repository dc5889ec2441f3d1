"""What the road calls, in the order in which it calls it. Tests hand it no-ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbbench.clock import Clock
from dbbench.datasets import Restored
from dbbench.devices.port import Device
from dbbench.drivers.port import Load
from dbbench.engines.port import Engine, Place, Server
from dbbench.filesystems import Made, Mounted
from dbbench.kmsg import Watch
from dbbench.limits import Confined
from dbbench.meter import Meter
from dbbench.model import (
    AgeFacts,
    CacheFacts,
    CeilingFacts,
    ConditionFacts,
    DeviceFacts,
    EngineAgeFacts,
    FilesystemFacts,
    OperationFacts,
    Settings,
    SpaceFacts,
    WearFacts,
)
from dbbench.record import Record
from dbbench.samplers import Samples


@dataclass(frozen=True)
class Parts:
    """What the road calls, in the order in which it calls it."""

    engine: Engine
    settings: Settings
    attached: Callable[[], AbstractContextManager[Device]]
    kernel_messages: Callable[[], AbstractContextManager[Watch]]
    probe: Callable[[Device], dict[str, float]]
    host_state: Callable[[Device], dict[str, Any]]
    first_state: Callable[[], dict[str, Any]]
    wear: Callable[[Device], WearFacts | None]
    conditioned: Callable[[Device], ConditionFacts | None]
    layered: Callable[[Device], AbstractContextManager[Device]]
    make: Callable[[Device], Made]
    mounted: Callable[[Device], AbstractContextManager[Mounted]]
    filesystem_facts: Callable[[Device, Made, Mounted], FilesystemFacts]
    aged: Callable[[Device, Mounted], AgeFacts | None]
    restored: Callable[[Mounted], Restored]
    log_moved: Callable[[Mounted, Path, Place], Place]
    effective: Callable[[Server, Path, Place], dict[str, str]]
    held: Callable[[Device, Record], None]
    drop_and_prove: Callable[[Sequence[Path], Device, Mounted], CacheFacts]
    sampled: Callable[[Device, Server, Path], AbstractContextManager[Samples]]
    reached: Callable[[Place, Clock, Path], AbstractContextManager[Place]]
    driving: Callable[[Server, Clock, Path], AbstractContextManager[Load]]
    ceiling: Callable[[], CeilingFacts]
    confined: Callable[[], AbstractContextManager[Confined]]
    snapshotting: Callable[[Record, Device, Mounted, Path, Server], AbstractContextManager[None]]
    meter: Callable[[Device, Server, Load, Confined, Sequence[Path]], Meter]
    sync: Callable[[Mounted], None]
    must_be_healthy: Callable[[Mounted], None]
    consistent: Callable[[Path, Place], str]
    space: Callable[[Mounted, Sequence[Path]], SpaceFacts]
    device_facts: Callable[[Device], DeviceFacts]
    worn: Callable[[Device, Mounted, Path, Record], EngineAgeFacts | None]
    operated: Callable[[Device, Mounted, Path], tuple[OperationFacts, ...]]
