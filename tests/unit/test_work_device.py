"""The bytes of a load must reach the devices of the trial."""

import dataclasses
from pathlib import Path

import pytest

from dbbench.metrics.outcome import Claim
from dbbench.model import FilesystemFacts, SpaceFacts, Status, Work
from dbbench.samplers.accounting import DiskBytes
from tests.support.judged import IO, Judged, outcome, readings
from tests.support.work import MIB

GIB = 2**30


@pytest.mark.parametrize(
    ("claimed", "files", "stored", "device", "family", "error"),
    [
        (GIB, 64 * MIB, DiskBytes(0, GIB, 0), GIB, "ext4", None),
        # on another disk, and in memory; the program's output is on a disk
        (GIB, 64 * MIB, DiskBytes(0, GIB, 0), 300_000, "ext4", "E352"),
        (GIB, 64 * MIB, DiskBytes(0, 50_000, 0), 300_000, "ext4", "E352"),
        (GIB, 0, DiskBytes(0, 50_000, 0), 300_000, "ext4", "E352"),
        # one page, written again and again, in a folio of 2 MiB
        (GIB, 2 * MIB, DiskBytes(0, 8 * MIB, 0), 40_000, "ext4", None),
        # removed before it was written
        (GIB, 0, DiskBytes(0, GIB, GIB), 0, "ext4", None),
        # a little of it is in every cache
        (8 * MIB, 8 * MIB, DiskBytes(0, 8 * MIB, 0), 0, "ext4", None),
        # it holds data back and compresses zeros to nothing
        (GIB, GIB, DiskBytes(0, GIB, 0), 0, "zfs", None),
        # the kernel does not count; the device is a network
        (GIB, GIB, None, 0, "ext4", None),
        (GIB, GIB, DiskBytes(0, GIB, 0), None, "ext4", None),
    ],
)
def test_files_that_reach_no_device_of_the_trial_fail_it(
    claimed: int,
    files: int,
    stored: DiskBytes | None,
    device: int | None,
    family: str,
    error: str | None,
    tmp_path: Path,
) -> None:
    """What a cache, a removed file or compression may have saved is no accusation."""
    seen = readings(IO, Work(write_bytes=claimed))
    processes = dataclasses.replace(seen.processes, stored=stored)
    seen = dataclasses.replace(seen, processes=processes, device_write_bytes=device)
    load = dataclasses.replace(outcome(), claims=(Claim("write_bytes", claimed),))
    space = SpaceFacts(logical_bytes=files)
    facts = {"filesystem": FilesystemFacts(family), "space": space}
    trial = Judged(load, seen, facts=facts).trial(tmp_path)
    assert (trial.error and trial.error.id) == error


@pytest.mark.parametrize(("syncs", "error"), [(0, None), (100, "E352")])
def test_syncs_of_files_need_a_flush(
    syncs: int,
    error: str | None,
    tmp_path: Path,
) -> None:
    """fio counts them; a load without any may leave everything in the cache."""
    io = dataclasses.replace(IO, flushes=0, engine_write_bytes=None)
    load = dataclasses.replace(outcome(), commits=syncs)
    trial = Judged(load, readings(io)).trial(tmp_path)
    assert (trial.error and trial.error.id) == error


@pytest.mark.parametrize(
    ("log_bytes", "device", "error"),
    [
        (GIB, GIB, None),
        (GIB, GIB // 33, None),  # zeros, compressed by btrfs
        (GIB, 300_000, "E352"),
        (MIB, 0, None),
    ],
)
def test_a_log_that_does_not_reach_the_device_fails_the_trial(
    log_bytes: int,
    device: int,
    error: str | None,
    tmp_path: Path,
) -> None:
    """Also where no commit waits for a flush: the drain writes everything."""
    seen = readings(IO, Work(transactions=20, log_bytes=log_bytes, writes=20))
    seen = dataclasses.replace(seen, device_write_bytes=device)
    load = dataclasses.replace(outcome(), claims=(Claim("transactions", 20),))
    trial = Judged(load, seen).trial(tmp_path)
    assert (trial.error and trial.error.id) == error


@pytest.mark.parametrize(
    ("claimed", "stored", "device", "error"),
    [
        (GIB, GIB, GIB, None),
        (GIB, GIB, 0, "E352"),  # from another disk
        (GIB, 40 * MIB, 0, None),  # a program, and files that were still cached
    ],
)
def test_reads_of_another_disk_fail_the_trial(
    claimed: int,
    stored: int,
    device: int,
    error: str | None,
    tmp_path: Path,
) -> None:
    """What programs read of themselves lies elsewhere."""
    seen = readings(IO, Work(read_bytes=claimed))
    processes = dataclasses.replace(seen.processes, stored=DiskBytes(stored, 0, 0))
    seen = dataclasses.replace(seen, processes=processes, device_read_bytes=device)
    load = dataclasses.replace(outcome(), claims=(Claim("read_bytes", claimed),))
    facts = {"filesystem": FilesystemFacts("ext4")}
    trial = Judged(load, seen, facts=facts).trial(tmp_path)
    assert (trial.error and trial.error.id) == error


def test_files_elsewhere_fail_the_trial(tmp_path: Path) -> None:
    """Of a load that used another filesystem too, no figure counts."""
    strays = tuple(f"/var/tmp/{number}.ibd" for number in range(9))
    trial = Judged(readings=readings(strays=strays)).trial(tmp_path)
    assert trial.error is not None
    assert (trial.status, trial.error.id) == (Status.FAILED, "E355")
    assert "/var/tmp/0.ibd" in trial.error.text and "/var/tmp/8.ibd" not in trial.error.text
