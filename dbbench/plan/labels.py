"""What the arms of a plan are called: by their setup, and by that of their log where it lies elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from dbbench.model import Arm, DeviceSpec


def default_label(use: str, wal: object, device: DeviceSpec | None) -> str:
    """ "xfs", or "xfs+wal:ext4" with the log on a device of its own."""
    return f"{use}+wal:{device.wal.fs_setup}" if device and device.wal and wal is not False else use


def label_of(word: str, arms: Iterable[Arm]) -> str | None:
    """The label that `word` means: the label itself, or the first arm's that uses the setup of that name."""
    known = list(arms)
    if any(arm.label == word for arm in known):
        return word
    return next((arm.label for arm in known if arm.use == word), None)
