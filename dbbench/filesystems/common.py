"""What several families do alike."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


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


def bdi_of_device_number(path: Path) -> Path:
    """The bdi folder in /sys by the device number that stat(2) gives."""
    number = path.stat().st_dev
    return Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}")
