"""Restore rate against the same device's own sequential write rate, and against `cp -a` and `sync`
by hand.

    sudo .venv/bin/python benchmarks/restore.py [--rounds 5] [--folder /var/tmp] [--data
    A_STOPPED_SERVERS_FOLDER]

On a fully written loop image with direct I/O, for ext4, xfs and btrfs: in interleaved rounds the
golden copy of a pgbench dataset of about 500 MB is restored (with its comparison), the same
number of bytes is written sequentially in 1-MiB blocks with one fsync, and the data directory is
copied with `cp -a` and `sync`. Each starts on an empty, synced filesystem with the sources in
the page cache; a first round is not counted (a virtual machine gets its memory page by page from
the host). Medians, of ratios within the rounds too; exit status 1 where a target is missed:
restore >= 80 % of the sequential rate; restore and comparison <= 1.5 x the time of cp and sync.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets import golden, manifest, restore_copy
from dbbench.datasets.manifest import Golden, Manifest
from dbbench.engines.port import Place
from dbbench.model import Dataset, EngineSpec, FsSetup, Mkfs
from dbbench.storage import filesystems
from dbbench.storage.devices import loop
from dbbench.storage.devices.image import make_image

IMAGE_BYTES: Final = 2 * 2**30
DATASET: Final = Dataset("pgbench", {"scale": 28})
FAMILIES: Final = ("ext4", "xfs", "btrfs")
BLOCK: Final = 2**20
# the sequential write repeats these blocks; they are larger than the caches of the CPU
SOURCE_BLOCKS: Final = 64
LEAST_RATE: Final = 0.80
MOST_TIME: Final = 1.5


def main() -> int:
    """Measure all families and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("/var/tmp"),
    )
    parser.add_argument(
        "--data", type=Path, help="take this data directory instead of building one"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dbbench-restore-", dir=options.folder) as name:
        work = Path(name)
        work.chmod(0o755)
        copy = copied(work, options.data) if options.data else built(work)
        megabytes = copy.manifest.logical_bytes / 1e6
        print(
            f"{megabytes:.0f} MB in {len(copy.manifest.of_kind('file'))} files, {options.rounds} "
            "rounds, medians"
        )
        print(
            f"{'':8}{'write':>10}{'restore':>10}{'ratio':>8}  "
            f"{'cp -a + sync':>12}{'restore + compare':>19}{'ratio':>8}"
        )
        make_image(work / "image", IMAGE_BYTES, lambda _: None)
        met = [measured(family, copy, work, options.rounds) for family in FAMILIES]
    return 0 if all(met) else 1


def built(work: Path) -> Golden:
    """Build a golden copy of DATASET in `work`."""
    for folder in ("s", "logs"):
        (work / folder).mkdir()
    return golden.ensure(
        golden.recipe(EngineSpec("postgres"), DATASET),
        Place(work / "s", work / "logs"),
        print,
        cache=work / "cache",
    )


def copied(work: Path, data: Path) -> Golden:
    """Make a golden copy of an existing data directory."""
    shutil.copytree(data, work / "copy" / "data", symlinks=True)
    entries = manifest.scan(work / "copy" / "data", 2)
    total = sum(entry.size for entry in entries)
    whole = Manifest("copy", Dataset("none"), total, None, entries)
    manifest.save(work / "copy", whole)
    return Golden(work / "copy", whole)


def measured(
    family: str,
    copy: Golden,
    work: Path,
    rounds: int,
) -> bool:
    """Measure one family and print its line; return whether all targets are met."""
    setup = FsSetup(family, Mkfs(family), mount=("noatime",))
    owner = process.user("postgres", "nobody")
    copied_s: list[float] = []
    seconds: dict[str, list[float]] = {
        "write": [],
        "copy": [],
        "cp": [],
    }
    with loop.attach(work / "image") as device:
        filesystems.make(setup, device)
        with filesystems.mount(setup, device, work / "mnt") as fs:
            target = fs.path / "data"

            def restore() -> None:
                copied_s.append(restore_copy(copy, target, owner).copy_s)

            tasks: dict[str, Callable[[], None]] = {
                "write": lambda: write(target, copy.manifest.logical_bytes),
                "copy": restore,
                "cp": lambda: copy_by_hand(copy, target),
            }
            order = list(tasks)
            for number in range(-1, rounds):
                random.Random(f"{family}{number}").shuffle(order)
                for name in order:
                    warm(copy)
                    began = time.monotonic()
                    tasks[name]()
                    seconds[name].append(time.monotonic() - began)
                    clear(target)
    counted = {name: values[1:] for name, values in seconds.items()}
    return told(family, copy.manifest.logical_bytes / 1e6, counted, copied_s[1:])


def write(target: Path, size: int) -> None:
    """Write `size` bytes that do not compress in 1-MiB blocks, then fsync."""
    source = memoryview(random.Random(1).randbytes(BLOCK * SOURCE_BLOCKS))
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for number in range(size // BLOCK):
            begin = number % SOURCE_BLOCKS * BLOCK
            os.write(fd, source[begin : begin + BLOCK])
        os.fsync(fd)
    finally:
        os.close(fd)


def copy_by_hand(copy: Golden, target: Path) -> None:
    """Copy as an administrator would."""
    process.run(["cp", "-a", copy.data, target], timeout_s=600)
    process.run(["sync"], timeout_s=600)


def warm(copy: Golden) -> None:
    """Read the source into the page cache, so that only writing is compared."""
    for entry in copy.manifest.of_kind("file"):
        manifest.crc_of(copy.data / entry.path)


def clear(target: Path) -> None:
    """Remove all files and write all dirty data."""
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    os.sync()


def told(
    family: str, megabytes: float, seconds: dict[str, list[float]], copied_s: list[float]
) -> bool:
    """Print the medians of a family; return whether all targets are met."""
    rate = statistics.median(
        write_s / copy_s for write_s, copy_s in zip(seconds["write"], copied_s, strict=True)
    )
    slower = statistics.median(
        whole / by_hand for whole, by_hand in zip(seconds["copy"], seconds["cp"], strict=True)
    )
    write_s, by_hand, whole, copy_s = map(
        statistics.median, (*(seconds[n] for n in ("write", "cp", "copy")), copied_s)
    )
    print(
        f"{family:8}{megabytes / write_s:5.0f} MB/s{megabytes / copy_s:5.0f} MB/s{rate:8.2f}"
        f"{by_hand:12.2f} s{whole:18.2f} s{slower:8.2f}",
        flush=True,
    )
    return rate >= LEAST_RATE and slower <= MOST_TIME


if __name__ == "__main__":
    sys.exit(main())
