"""Give a device a known history: every block discarded, or filled and written at random until its
rate is steady.
"""

from __future__ import annotations

import fcntl
import statistics
import struct
import time
from collections.abc import Sequence
from typing import Final

from dbbench import errors, packages, process
from dbbench.model import ConditionFacts
from dbbench.storage.devices import ceiling, hold
from dbbench.storage.devices.port import Device

_BLKDISCARD: Final = 0x1277  # linux/fs.h
# Writes twice the capacity, so that no spare block is left unwritten (SNIA SSS PTS, workload
# independent).
FILLS: Final = 2
# Steady state by the same specification: five rounds whose rates are within 20 % of their mean, and
# whose fitted line is within 10 % of it; at most 25 rounds of one minute. Small devices in tests
# are filled in seconds: rounds of 1 s.
_ROUNDS = 5
_MOST_ROUNDS = 25
_RANGE = 0.20
_SLOPE = 0.10
_LONG_ROUND_S = 60.0
_SHORT_ROUND_S = 1.0
_SMALL: Final = 8 * 2**30
_FILL_RATE: Final = 20 * 10**6  # bytes/s; a slower disk is considered stuck


def discard(device: Device) -> ConditionFacts:
    """Discard every block of each disk. Raises KernelLacks if a disk does not support it."""
    began = time.monotonic()
    for member in device.each:
        hold.must_be_alone(member.fd)
        try:
            fcntl.ioctl(
                hold.fd_of(member.fd),
                _BLKDISCARD,
                struct.pack("QQ", 0, member.facts.size_bytes),
            )
        except OSError as error:
            raise errors.KernelLacks(
                f"{member.path} cannot be discarded: {error.strerror}",
                effect="The device was not changed.",
                remedy='Set condition = "none" or "precondition" in [device].',
            ) from None
    return ConditionFacts("discard", round(time.monotonic() - began, 3), written_bytes=0)


def fill(device: Device, seed: int) -> ConditionFacts:
    """Fill each disk twice, then write at random until `steady` or for 25 rounds. Raises
    ProgramMissing.
    """
    if process.find("fio") is None:
        raise errors.ProgramMissing(
            "preconditioning requires fio, which is not installed",
            remedy=f"Install it: {packages.install(['fio'], '--no-install-recommends')}",
        )
    began = time.monotonic()
    written = 0
    rates = list[float]()
    steady = True
    # Each disk by itself: a layer would spread the writes.
    for member in device.each:
        hold.must_be_alone(member.fd)
        size = member.facts.size_bytes
        for _ in range(FILLS):
            _fio(member, ["--rw=write", "--bs=1m", f"--size={size}"], 60 + size / _FILL_RATE, seed)
        # Random writes until the rate of some rounds is the same.
        each_s = round_s(size)
        disk_rates: list[float] = []
        while len(disk_rates) < _MOST_ROUNDS and not is_steady(disk_rates):
            words = [
                "--rw=randwrite",
                "--bs=8k",
                f"--size={size}",
                "--time_based",
                f"--runtime={each_s:.0f}s",
            ]
            disk_rates.append(_fio(member, words, 60 + 2 * each_s, seed + len(disk_rates)))
        # What fio wrote: the fills, and each round's rate times its length.
        written += FILLS * size + round(sum(disk_rates) * 8192 * each_s)
        rates = rates + disk_rates
        steady = steady and is_steady(disk_rates)
    return ConditionFacts(
        "precondition",
        round(time.monotonic() - began, 3),
        written,
        tuple(rates),
        steady,
    )


def round_s(size_bytes: int) -> float:
    """Return the length of a round on a disk of this size."""
    return _SHORT_ROUND_S if size_bytes < _SMALL else _LONG_ROUND_S


def is_steady(rates: Sequence[float]) -> bool:
    """Whether the last five rounds are steady."""
    last = list(rates[-_ROUNDS:])
    if len(last) < _ROUNDS:
        return False
    mean = statistics.fmean(last)
    if not mean or max(last) - min(last) > _RANGE * mean:
        return False
    line = statistics.linear_regression(range(_ROUNDS), last)
    change = abs(line.slope) * (_ROUNDS - 1)
    return change <= _SLOPE * mean


def _fio(
    device: Device,
    words: list[str],
    timeout_s: float,
    seed: int,
) -> float:
    argv = [
        "fio",
        "--output-format=json",
        "--name=condition",
        f"--filename={device.argument}",
        "--ioengine=libaio",
        "--direct=1",
        "--iodepth=32",
        "--refill_buffers",
        "--allow_file_create=0",
        f"--randseed={seed}",
        *words,
    ]
    done = process.run(argv, timeout_s=timeout_s, pass_fds=(device.fd,))
    rows = ceiling.parse_rows(done.stdout)
    return rows[0].iops
