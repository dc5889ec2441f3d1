"""What several families do alike."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, MkfsFailed, UnmountFailed
from dbbench.filesystems import holders
from dbbench.model import Durability, FsSetup, Scalar

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
BUSY_S: Final = 15.0  # a server that was killed may take seconds to let go of its files


def without_discard(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options, and `nodiscard` unless they say something about discard themselves: online discard is an
    explicit variant, and some kernels turn it on where nobody asked."""
    said = any(option.split("=")[0] in ("discard", "nodiscard") for option in options)
    return options if said else (*options, "nodiscard")


def kernel_version() -> tuple[int, int]:
    """(6, 12) of "6.12.9-amd64"."""
    major, minor = re.findall(r"\d+", os.uname().release)[:2]
    return int(major), int(minor)


def option_value(options: tuple[str, ...], flag: str) -> str | None:
    """The word after the last `flag` ("-b 16384"); None where it is not there."""
    return next((options[i + 1] for i in range(len(options) - 2, -1, -1) if options[i] == flag), None)


def mount_options(setup: FsSetup) -> tuple[str, ...]:
    """The setup's, without discard."""
    return without_discard(setup.mount)


def nothing_live(device_name: str) -> dict[str, Scalar]:
    """Of a family whose mount options say all."""
    return {}


def flags_of_barriers(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """Barriers are on where the kernel says nothing, and nothing else is given up by a mount option. (btrfs'
    nodatacow gives up `tears`, which weighs with the server's settings; xfs takes nobarrier before Linux 4.19.)"""
    return (Durability.NO_BARRIER,) if "nobarrier" in effective else ()


def always_tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Of a family on which a database page can be half written after a power cut, whatever the options."""
    return True


def bdi_of_device_number(path: Path) -> Path:
    """The bdi folder in /sys by the device number that stat(2) gives."""
    number = path.stat().st_dev
    return Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}")


def mkfs_failed(setup: FsSetup, device: Device, failure: Exception) -> MkfsFailed:
    """The error to raise where making it failed."""
    return MkfsFailed(
        f"{setup.mkfs.family} on {device.path}: {failure}",
        effect="The device holds no usable filesystem now.",
        remedy=f"dbbench fs show {setup.name}  prints the command.",
    )


def until_let_go(step: Callable[[], object], at: Path | None, stuck: Callable[[str], UnmountFailed]) -> None:
    """Do `step` (umount, zpool export) until it succeeds; after BUSY_S seconds of CommandFailed raise what `stuck`
    makes of who holds the filesystem at `at`, or of what was said last."""
    until, pause_s = time.monotonic() + BUSY_S, 0.02
    while True:
        try:
            step()
            return
        except CommandFailed as failure:
            if time.monotonic() > until:
                found = holders.of_filesystem(at) if at else []
                raise stuck("; ".join(found) or str(failure)) from failure
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.5)


def read_ahead_kb(bdi: Path) -> int | None:
    """Of that bdi folder; None where it tells nothing."""
    try:
        return int((bdi / "read_ahead_kb").read_text())
    except OSError:
        return None
