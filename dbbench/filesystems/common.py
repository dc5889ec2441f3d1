"""What several families do alike."""

from __future__ import annotations

import os
from pathlib import Path


def without_discard(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options, and `nodiscard` unless they say something about discard themselves: online discard is an
    explicit variant, and some kernels turn it on where nobody asked."""
    said = any(option.split("=")[0] in ("discard", "nodiscard") for option in options)
    return options if said else (*options, "nodiscard")


def bdi_of_device_number(path: Path) -> Path:
    """The bdi folder in /sys by the device number that stat(2) gives."""
    number = path.stat().st_dev
    return Path(f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}")
