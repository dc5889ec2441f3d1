"""f2fs: log-structured, made for flash. Data is mostly written to new places, and yet a page can
tear: an fsync of a few blocks overwrites them in place (`ipu_policy`), and a page of two blocks
is not written atomically.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.model import Durability, Scalars, Words
from dbbench.storage.filesystems.common import FSCK_S
from dbbench.storage.filesystems.family import Character, Check, Stored
from dbbench.storage.filesystems.formatted import Formatted, damage_error


def _fsck(stored: Stored) -> str:
    argv = ["fsck.f2fs", "-f", "--dry-run", stored.volume.argument]
    done = process.run(
        argv,
        timeout_s=FSCK_S,
        ok=range(256),
        pass_fds=(stored.volume.fd,),
    )
    damage = damages(done.stdout)
    if done.returncode and not damage:
        damage = done.stderr.strip()
    if damage:
        raise damage_error("fsck.f2fs", stored, f": {damage}")
    return "no errors"


class F2fs(Formatted):
    """f2fs; its pages can tear (see above)."""

    needs = ("mkfs.f2fs", "dump.f2fs", "blkid")
    mkfs = ("mkfs.f2fs", "-q", "-f", "-t", "0")
    described = Character("none", False, "no", False, "no", False)
    checks = (Check("fsck.f2fs --dry-run", _fsck),)

    def geometry(self, target: Path) -> Scalars:
        dump = process.run(["dump.f2fs", "-d", "1", target])
        blkid = [
            "blkid",
            "--probe",
            "--output",
            "value",
            "--match-tag",
            "UUID",
            str(target),
        ]
        uuid = process.run(blkid, note=False)
        return {"uuid": uuid.stdout.strip(), **parse_dump(dump.stdout)}

    def flags(self, effective: Words, live: Scalars) -> tuple[Durability, ...]:
        """Return the flag of options that send no flush, or make no checkpoints: data since the
        last one is lost.
        """
        for option in effective:
            without_flush = option in ("nobarrier", "fsync_mode=nobarrier")
            if without_flush or option.startswith("checkpoint=disable"):
                return (Durability.NO_BARRIER,)
        return ()


FAMILY: Final = F2fs("f2fs")


@process.understood("dump.f2fs")
def parse_dump(text: str) -> Scalars:
    """Parse superblock and checkpoint in `dump.f2fs -d 1`."""
    rows = re.findall(
        r"^(\w+)\s+\[0x[ \w]+: (\d+)\]",
        text,
        re.MULTILINE,
    )
    values = {name: int(value) for name, value in rows}
    features = re.search(
        r"^Info: superblock features = \w+ :(.*)$",
        text,
        re.MULTILINE,
    )
    # The names of the facts are those of the other families.
    block = 2 ** values["log_blocksize"]
    return {
        "block_size": block,
        "blocks": values["block_count"],
        "sector_size": 2 ** values["log_sectorsize"],
        "segment_bytes": block * 2 ** values["log_blocks_per_seg"],
        "segments": values["segment_count_main"],
        "segments_per_section": values["segs_per_sec"],
        "overprovisioned_segments": values["overprov_segment_count"],
        "features": " ".join(features[1].split()) if features else "",
    }


def damages(text: str) -> str:
    """Return the failed checks in fsck.f2fs's table; its exit status is 0 for many of them."""
    failed = []
    for line in text.splitlines():
        if "[Fail]" in line:
            words = line.removeprefix("[FSCK]").split()
            failed.append(" ".join(words))
    return "; ".join(failed)
