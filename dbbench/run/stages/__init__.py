"""The stages of a trial between its device and its result, called in order by `run/trial.py`: each
takes what it reads and returns what it found. What a trial has of each volume is a mapping by
role.
"""

from collections.abc import Mapping
from pathlib import Path

from dbbench.model import FsSetup, Role
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import Mounted

Setups = Mapping[Role, FsSetup]
Volumes = Mapping[Role, Device]
Mounts = Mapping[Role, Mounted]


def paths(mounts: Mounts) -> tuple[Path, ...]:
    """Return the directories of the filesystems under test."""
    return tuple(fs.path for fs in mounts.values())
