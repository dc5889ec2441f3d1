"""ext2, ext3 and ext4: made by mke2fs, served by the kernel's ext4 driver (ext2 by one of its own in some kernels)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import KernelLacks
from dbbench.filesystems import common
from dbbench.filesystems.common import PAGE_BYTES, option_value
from dbbench.model import Durability, FsSetup, Scalar

mount_options = common.mount_options
bdi = common.bdi_of_device_number
SNAPSHOTS: Final = False

# Lazy initialisation would write inode tables in the background while the window is measured; a discard would
# give back the extents of a fully written image.
_EXTENDED: Final = ("lazy_itable_init=0", "lazy_journal_init=0", "nodiscard")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def programs(setup: FsSetup) -> tuple[str, ...]:
    """What making and reading back takes."""
    return (f"mkfs.{setup.mkfs.family}", "dumpe2fs", *(("tune2fs",) if setup.mkfs.tune else ()))


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """mke2fs without -F: it asks about old signatures only on a terminal, and still refuses a mounted device.
    Of several -E it takes the last, so the setup's own are put into ours; where both name a key, the setup's
    wins, as mke2fs takes the later one."""
    rest, extended = _split_extended(setup.mkfs.options)
    return [f"mkfs.{setup.mkfs.family}", "-q", *rest, "-E", ",".join((*_EXTENDED, *extended)), *targets]


def geometry(target: Path) -> dict[str, Scalar]:
    """By dumpe2fs: block and inode size, journal, features, and groups whose inode tables are not written yet."""
    return parse_dumpe2fs(process.run(["dumpe2fs", target], timeout_s=300).stdout)


@process.understood("dumpe2fs")
def parse_dumpe2fs(text: str) -> dict[str, Scalar]:
    """The superblock part and the groups' flags of dumpe2fs's output."""
    head = dict(re.findall(r"^([A-Z][^:\n]*):[ \t]+(.*)$", text.split("\nGroup 0:")[0], re.MULTILINE))
    groups = re.findall(r"^Group \d+:.*$", text, re.MULTILINE)
    features = head["Filesystem features"].split()
    found: dict[str, Scalar] = {
        "uuid": head["Filesystem UUID"],
        "block_size": int(head["Block size"]),
        "blocks": int(head["Block count"]),
        "inode_size": int(head["Inode size"]),
        **({"cluster_size": int(head["Cluster size"])} if "Cluster size" in head else {}),
        "default_mount_options": head["Default mount options"].replace("(none)", ""),
        "has_journal": "has_journal" in features,
        "features": " ".join(features),
        "groups": len(groups),
        "uninitialised_groups": sum("ITABLE_ZEROED" not in line for line in groups)
        if "metadata_csum" in features or "uninit_bg" in features
        else 0,  # without checksums of groups there is no lazy initialisation
    }
    journal = head.get("Total journal size") or head.get("Journal size")
    if match := re.fullmatch(r"(\d+)([KMG]?)", journal or ""):
        found["journal_bytes"] = int(match[1]) * _UNITS[match[2]]
    return found


def lacks(setup: FsSetup) -> str | None:
    """Blocks above the page size: the driver refuses them."""
    block = option_value(setup.mkfs.options, "-b")
    if block and block.isdigit() and int(block) > PAGE_BYTES:
        return f"blocks of {block} bytes: the ext4 driver takes no more than the page size, {PAGE_BYTES} here"
    return None


def live(device_name: str, proc: Path = Path("/proc")) -> dict[str, Scalar]:
    """has_journal and data_mode: the kernel names a data mode only where there is a journal. It names it here also
    where the filesystem's own default, and not the mount option, has chosen it. KernelLacks where it is silent."""
    source = proc / f"fs/ext4/{device_name}/options"
    try:
        options = source.read_text().split()
    except OSError as error:
        if not (proc / "fs/ext4" / device_name).exists() and _is_ext2(device_name, proc):
            return {"has_journal": False}  # the kernel's own ext2 driver knows no journal
        raise KernelLacks(
            f"{source} cannot be read ({error.strerror}): whether {device_name} has a journal is not known",
            effect="Nothing was measured.",
        ) from error
    modes = [option.removeprefix("data=") for option in options if option.startswith("data=")]
    return {"has_journal": bool(modes), **({"data_mode": modes[-1]} if modes else {})}


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """data=writeback brings none: what is fsynced is safe, and databases fsync what they promise."""
    found = []
    if "nobarrier" in effective or "barrier=0" in effective:  # the kernel shows the first for both
        found.append(Durability.NO_BARRIER)
    if not live["has_journal"]:
        found.append(Durability.NO_JOURNAL)
    return tuple(found)


def tears(effective: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Always: data=journal too tears pages in a power cut."""
    return True


def lazy_init_running(proc: Path = Path("/proc")) -> bool | None:
    """Whether the kernel's thread `ext4lazyinit` runs, for whichever filesystem; None where kernel threads are
    not seen (inside a pid namespace). Of one filesystem alone, `uninitialised_groups` = 0 is the proof: the kernel
    has nothing to initialise. From 5.8 on the same thread reads block bitmaps ahead, in the first 5 s after a mount."""
    names = set()
    for comm in proc.glob("[0-9]*/comm"):
        try:
            names.add(comm.read_text().strip())
        except OSError:
            continue  # it has ended
    return "ext4lazyinit" in names if "kthreadd" in names else None


def _is_ext2(device_name: str, proc: Path) -> bool:
    table = (proc / "self/mountinfo").read_text().splitlines()
    return any(line.split(" - ")[-1].startswith(f"ext2 /dev/{device_name} ") for line in table)


def _split_extended(options: tuple[str, ...]) -> tuple[list[str], list[str]]:
    rest: list[str] = []
    extended: list[str] = []
    words = iter(options)
    for word in words:
        if word == "-E":
            extended += next(words, "").split(",")
        else:
            rest.append(word)
    return rest, extended
