"""Starts the lab's process, and says before anything is made whether this machine can have a lab."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.errors import LabUnavailable, NotRoot
from dbbench.powercut.disk import library
from dbbench.progress.events import Emit
from dbbench.runner import LOG
from dbbench.runner.children import launch, stoppable

MEMORY_BYTES: Final = 2 * 2**30  # images and logs lie in memory: five images of 200 MB, a log of as much, a server


@dataclass(frozen=True)
class Order:
    """What the lab is to do. `controls`: only these, by name; `lying`: see `lab.Bench`."""

    seed: int
    cuts: int | None = None  # of each target
    minutes: float | None = None  # of all
    controls: tuple[str, ...] | None = None
    lying: bool = False

    @classmethod
    def parsed(cls, text: str) -> Order:
        """The order that `text` was made from."""
        fields = json.loads(text)
        named = fields.pop("controls")
        return cls(**fields, controls=None if named is None else tuple(named))

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps(dataclasses.asdict(self))


def unavailable() -> str | None:
    """Why this machine can have no lab, with what to install; None where it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse (modprobe fuse)"
    if library() is None:
        return "libfuse 3 is not installed: apt install libfuse3-3"
    if importlib.util.find_spec("mfusepy") is None:
        return "the Python package mfusepy is not installed: pip install 'dbbench[lab]'"
    free = _available_bytes()
    if free is not None and free < MEMORY_BYTES:
        return f"{free // 2**20} MiB of memory are available, its images need {MEMORY_BYTES // 2**20} MiB"
    return None


def examined(folder: Path, order: Order, emit: Emit) -> None:
    """Work through the order for the cells of the run in `folder`; what was found is in there afterwards. NotRoot,
    LabUnavailable, Interrupted, Terminated; what was finished until then stays in the folder, told as incomplete."""
    if os.geteuid() != 0:
        raise NotRoot("the power-cut lab mounts filesystems", effect="Nothing was changed.", remedy="sudo dbbench ...")
    if why := unavailable():
        raise LabUnavailable(why, effect="Nothing was changed.")
    with stoppable() as stop:
        status = launch([str(folder), order.text], folder / LOG, emit, stop, {}, module="dbbench.powercut")
    if status != 0:
        raise LabUnavailable(f"the lab's process ended with status {status}", remedy=f"See {folder / LOG}.")


def _available_bytes() -> int | None:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
