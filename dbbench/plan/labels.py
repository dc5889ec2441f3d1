"""The labels of a plan's arms, and the words by which a person names arms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from dbbench.model import Arm, DeviceSpec, Scalar
from dbbench.units import level_text

# Characters that are invalid in a label, and "+" and "=", which separate the parts of a variant.
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._:-]+")
_FOREIGN_OPTION: Final = re.compile(r"[^A-Za-z0-9._:=-]+")  # the same, but an option has "="


def word_of(value: Scalar) -> str:
    """Return a value as a part of a label or of a variant's name."""
    text = f"{value:g}" if isinstance(value, float) else level_text(value)
    return _FOREIGN.sub("-", text).strip("-")


def default_label(arm: Arm, device: DeviceSpec | None) -> str:
    """Return "xfs:commit=60", or "xfs:commit=60+wal:ext4" with the log on a separate device."""
    name = effective_name(arm)
    if device is not None and device.wal is not None and arm.wal:
        return f"{name}+wal:{device.wal.fs_setup}"
    return name


def effective_name(arm: Arm) -> str:
    """Return the name of the arm's setup with the options that the arm adds:
    "ext4:commit=60+data=writeback".
    """
    options = [*arm.mount]
    # "-m dup" of mkfs is one option.
    of_mkfs = re.sub(r" (?=[^-])", "=", " ".join(arm.mkfs))
    options += of_mkfs.split()
    for settings in arm.tuning.values():
        options += [f"{name}={word_of(value)}" for name, value in settings.items()]
    # An option that is given twice is named once.
    words = dict.fromkeys(_FOREIGN_OPTION.sub("-", option).strip("-") for option in options)
    return f"{arm.use}:{'+'.join(words)}" if words else arm.use


def split_fs(
    words: Iterable[str], is_name: Callable[[str], bool]
) -> list[tuple[str, tuple[str, ...]]]:
    """Return name and mount options of each entry of `--fs`, split at its commas.
    "xfs,ext4:commit=60,data=writeback" has two entries: after options, a word that is not a
    name is another option.
    """
    entries: list[tuple[str, tuple[str, ...]]] = []
    for word in words:
        # The last colon is tried first, because a name may contain colons.
        name = word
        while ":" in name and not is_name(name):
            name = name.rpartition(":")[0]
        if is_name(name):
            entries.append((name, () if name == word else (word[len(name) + 1 :],)))
        elif entries and entries[-1][1]:
            name, options = entries[-1]
            entries[-1] = (name, (*options, word))
        else:
            entries.append((word, ()))
    return entries


def label_of(word: str, arms: Iterable[Arm]) -> str | None:
    """Return the label that `word` means: the label itself, or that of the first arm that uses the
    setup of that name.
    """
    nearest = sorted(arms, key=lambda arm: arm.label != word)
    return next((arm.label for arm in nearest if word in (arm.label, arm.use)), None)
