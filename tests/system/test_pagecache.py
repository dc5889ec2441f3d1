"""The cold cache is real and proved for each family, and nothing else on the machine becomes cold."""

import contextlib
import dataclasses
import itertools
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench.machine import pagecache
from dbbench.machine.host.proc import vmstat
from dbbench.model import CacheFacts
from dbbench.plan import catalog
from dbbench.samplers.accounting import DiskClock
from dbbench.storage import filesystems
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import shape

pytestmark = pytest.mark.alone  # judges what the page cache of the whole machine holds
MIB = 2**20
SIZE = 96 * MIB
FAMILIES = ["ext4", "xfs", "btrfs", "btrfs-zstd"]


@contextlib.contextmanager
def mounted(
    name: str,
    device: Device,
    at: Path,
) -> Iterator[tuple[filesystems.Mounted, list[Path]]]:
    """A shipped setup with two data files; the first half of each MiB shrinks when it is
    compressed.
    """
    setup = catalog.catalog().setup(name)
    if reason := filesystems.works(setup):
        pytest.skip(f"needs {reason}")
    filesystems.make(setup, device)
    with filesystems.mount(setup, device, at) as fs:
        files = [fs.path / "a", fs.path / "b"]
        for file in files:
            with file.open("wb") as out:
                for _mib in range(SIZE // MIB // 2):
                    out.write(
                        b"the same row again " * (MIB // 38) + os.urandom(MIB - MIB // 38 * 19)
                    )
        filesystems.sync(fs.path)
        yield fs, files


def emptied(files: list[Path], *arguments: Any, **keys: Any) -> CacheFacts:
    """Empty the caches of files that were resident, with the proof. If another process emptied the
    machine's page cache before this could, the files are read again.
    """
    for _ in range(5):
        facts = pagecache.empty_and_prove(files, 42, *arguments, **keys)
        if (facts.before_bytes or 0) >= 0.9 * SIZE:
            break
        for file in files:
            file.read_bytes()
    return facts


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("remounted", [True, False])
def test_the_cache_is_emptied_and_both_proofs_hold(
    name: str,
    remounted: bool,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """Pages were resident and are not; the sample came from the device; nothing of it stays behind."""
    with mounted(name, loop_device, tmp_path / "mnt") as (fs, files):
        setup = catalog.catalog().setup(name)
        by = (
            filesystems.FAMILIES[fs.family].emptying(setup, loop_device, fs)
            if remounted
            else pagecache.EVICTING
        )
        facts = emptied(files, [loop_device.path.name], by, least_share=shape.least_read_share(fs))
        assert facts.reason == ""
        assert facts.proved
        assert (facts.method, facts.whole_machine) == (
            "unmount and mount" if remounted else "posix_fadvise",
            False,
        )
        # the kernel may have evicted some on its own
        assert 0.9 * SIZE <= (facts.before_bytes or 0) <= SIZE
        assert facts.after_bytes == 0 == pagecache.resident_bytes(files)
        assert facts.sample_bytes == 64 * MIB
        delivered = (facts.sample_read_bytes or 0) / 64 / MIB
        assert 0.4 < delivered < 0.7 if name == "btrfs-zstd" else 0.99 < delivered < 1.2
        again = filesystems.FAMILIES[fs.family].read_at(fs.path)
        assert set(again.options_effective) == set(fs.options_effective)


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", FAMILIES)
def test_metadata_is_read_from_the_device_again(
    name: str,
    loop_device: Device,
    tmp_path: Path,
) -> None:
    """Directories and inodes, and the device's own buffers, are gone too."""
    with mounted(name, loop_device, tmp_path / "mnt") as (fs, _files):
        for number in range(2000):
            (fs.path / f"d{number}").mkdir()
        filesystems.sync(fs.path)
        setup = catalog.catalog().setup(name)
        filesystems.FAMILIES[fs.family].emptying(setup, loop_device, fs).empty()
        before = DiskClock(loop_device.leaves)
        assert len([path.stat() for path in fs.path.iterdir()]) >= 2000
        assert (before.difference()["read_bytes"] or 0) >= 2000 * 64  # bytes; no inode is smaller


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_the_rest_of_the_machine_stays_warm(loop_device: Device, tmp_path: Path) -> None:
    """A file on another filesystem keeps its pages, and the kernel counts no drop of the whole
    cache.
    """
    theirs = tmp_path / "theirs"
    theirs.write_bytes(os.urandom(16 * MIB))
    with mounted("ext4", loop_device, tmp_path / "mnt") as (fs, files):
        drops = vmstat()["drop_pagecache"]
        resident = pagecache.resident_bytes([theirs]) or 0
        by = filesystems.FAMILIES["ext4"].emptying(catalog.catalog().setup("ext4"), loop_device, fs)
        assert emptied(files, [loop_device.path.name], by).proved
        assert vmstat()["drop_pagecache"] == drops
        assert (pagecache.resident_bytes([theirs]) or 0) >= 0.9 * resident >= 0.8 * 16 * MIB


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_what_remains_is_dropped_with_the_whole_cache_and_that_is_recorded(
    loop_device: Device, tmp_path: Path
) -> None:
    """Eviction alone leaves what another process maps, and so does a control file that has no
    effect.
    """
    fake = tmp_path / "drop_caches"
    fake.touch()
    with (
        mounted("ext4", loop_device, tmp_path / "mnt") as (_fs, files),
        files[0].open("rb") as file,
        mmap.mmap(file.fileno(), MIB, access=mmap.ACCESS_READ) as mapped,
    ):
        assert mapped[0] == ord("t")
        facts = pagecache.empty_and_prove(files, 1, [loop_device.path.name], control=fake)
    assert fake.read_text() == "3\n"
    assert (facts.method, facts.whole_machine) == (
        "posix_fadvise, then drop_caches of the whole machine",
        True,
    )
    assert not facts.proved
    assert "resident" in facts.reason


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_a_lying_count_of_resident_pages_is_found_by_the_device(
    loop_device: Device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With nothing dropped and a kernel that says "none resident", the sample comes from memory,
    and that shows.
    """
    answers = itertools.cycle([SIZE, 0, 0])
    monkeypatch.setattr(pagecache, "resident_bytes", lambda files: next(answers))
    monkeypatch.setattr(pagecache, "drop", lambda at, control: None)
    monkeypatch.setattr(pagecache, "_empty", lambda by, files: None)
    with mounted("ext4", loop_device, tmp_path / "mnt") as (_fs, files):
        facts = pagecache.empty_and_prove(files, 1, [loop_device.path.name])
    assert not facts.proved
    delivered = facts.sample_read_bytes
    # udev may read the device, and the kernel evict some pages
    assert delivered is not None and delivered < 8 * MIB
    assert f"the device delivered {delivered} bytes" in facts.reason


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_pages_that_somebody_maps_are_not_called_gone(loop_device: Device, tmp_path: Path) -> None:
    """fadvise leaves mapped pages: not proved, with their bytes, if the whole cache cannot be
    dropped either.
    """
    nowhere = tmp_path / "missing" / "drop_caches"
    with mounted("ext4", loop_device, tmp_path / "mnt") as (_fs, files):
        with (
            files[0].open("rb") as file,
            mmap.mmap(file.fileno(), MIB, access=mmap.ACCESS_READ) as mapped,
        ):
            assert mapped[0] == ord("t")
            facts = pagecache.empty_and_prove(files, 1, [loop_device.path.name], control=nowhere)
        assert not facts.proved
        assert 0 < (facts.after_bytes or 0) <= MIB
        assert pagecache.empty_and_prove(files, 1, [loop_device.path.name], control=nowhere).proved


@pytest.mark.needs("root", "mkfs.xfs", "fs:xfs")
def test_a_proof_needs_something_before(loop_device: Device, tmp_path: Path) -> None:
    """Where nothing was resident the sample is read first, so that there is something to drop."""
    with mounted("xfs", loop_device, tmp_path / "mnt") as (_fs, files):
        for _ in range(10):  # a page that another CPU has just released survives a drop
            pagecache.drop(files[0])
            if not pagecache.resident_bytes(files):
                break
            time.sleep(0.1)
        assert pagecache.resident_bytes(files) == 0
        facts = pagecache.empty_and_prove(files, 5, [loop_device.path.name])
        assert facts.method == "touched, then posix_fadvise"
        # the kernel may have evicted some on its own
        assert 0.9 * 64 * MIB <= facts.before_bytes <= 64 * MIB
        assert facts.proved
        with (files[0].parent / "hole").open("wb") as sparse:
            sparse.truncate(MIB)
        hole = pagecache.empty_and_prove([files[0].parent / "hole"], 5, [loop_device.path.name])
        assert not hole.proved
        assert hole.reason


@pytest.mark.needs("root", "mkfs.btrfs", "fs:btrfs")
def test_without_a_disks_name_our_own_reads_are_counted(
    loop_device: Device, tmp_path: Path
) -> None:
    """On an existing filesystem the disk may be unknown: the process's own reads from storage are
    the proof.
    """
    with mounted("btrfs", loop_device, tmp_path / "mnt") as (_fs, files):
        facts = pagecache.empty_and_prove(files, 5)
    assert facts.proved
    assert 64 * MIB <= (facts.sample_read_bytes or 0) < 80 * MIB


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
def test_the_proof_is_quick(loop_device: Device, tmp_path: Path) -> None:
    """Beside a trial of two minutes the proof costs next to nothing; the least of three tries, the
    device's own 64 MiB taken off.
    """
    with mounted("ext4", loop_device, tmp_path / "mnt") as (_fs, files):
        spent = []
        for seed in range(3):
            pagecache.drop(files[0])
            pieces = pagecache.sample(files, seed)
            began = time.monotonic()
            pagecache.read(pieces)
            reading = time.monotonic() - began
            began = time.monotonic()
            facts = pagecache.empty_and_prove(files, seed, [loop_device.path.name])
            spent.append(time.monotonic() - began - reading)
            assert facts.proved
    assert min(spent) < 3  # 0.1 s on an idle machine


def test_facts_are_plain(tmp_path: Path) -> None:
    """On an existing directory, without root: the same facts, whatever could be proved."""
    path = tmp_path / "data"
    path.write_bytes(os.urandom(4 * MIB))
    facts = pagecache.empty_and_prove([path])
    assert 0.9 * 4 * MIB <= facts.before_bytes <= 4 * MIB
    assert dataclasses.asdict(facts)["method"] == "posix_fadvise"
    assert facts.proved or facts.reason
