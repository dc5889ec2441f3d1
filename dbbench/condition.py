"""The history of an SSD, made the same for all trials: discarded, or written until it is steady; and its wear.

A fresh or discarded SSD writes faster than one that is full and has to clean up. `discard` brings every trial to the
same begin; `precondition` to the state of a disk in its second year, once before each block of trials.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import statistics
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dbbench import ceiling, process
from dbbench.devices.port import Device
from dbbench.errors import (
    AnswerUnknown,
    CommandFailed,
    ConditionImpossible,
    DeadlinePassed,
    ProgramMissing,
    ProgramNotStarted,
)
from dbbench.model import ConditionFacts, WearFacts

_BLKDISCARD: Final = 0x1277  # linux/fs.h
FILLS: Final = 2  # twice the user capacity: then no spare block is left unwritten (SNIA SSS PTS, workload independent)
# Steady by the same specification: five rounds whose rates lie within 20 % of their mean, and whose fitted line stays
# within 10 % of it; 25 rounds at most, of a minute each. Small devices (tests) are filled in seconds: 1 s.
_ROUNDS, _MOST_ROUNDS, _RANGE, _SLOPE = 5, 25, 0.20, 0.10
_LONG_ROUND_S, _SHORT_ROUND_S = 60.0, 1.0
_SMALL: Final = 8 * 2**30
_FILL_RATE: Final = 20 * 10**6  # bytes/s; a disk that is slower than that is stuck
_UNIT: Final = 512_000  # an NVMe "data unit": a thousand blocks of 512 bytes (NVM Express base specification, log 02h)
_KELVIN: Final = 273


def discarded(device: Device) -> ConditionFacts:
    """Discard every block of each disk. ConditionImpossible where one cannot."""
    began = time.monotonic()
    for member in device.each:
        try:
            fcntl.ioctl(member.fd, _BLKDISCARD, struct.pack("QQ", 0, member.facts.size_bytes))
        except OSError as error:
            what = "does not discard" if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY) else f": {error.strerror}"
            raise ConditionImpossible(
                f"{member.path} {what}",
                effect="It was not changed.",
                remedy='Take  condition = "none"  or  "precondition"  in [device].',
            ) from None
    return ConditionFacts("discard", round(time.monotonic() - began, 3), written_bytes=0)


def preconditioned(device: Device, seed: int) -> ConditionFacts:
    """Fill each disk twice, then write it at random until its rate is steady. ConditionImpossible without fio.

    Where it is not steady after 25 rounds, `steady` is False and the rounds say how it went.
    """
    if process.find("fio") is None:
        raise ConditionImpossible("preconditioning needs fio", effect="Nothing was changed.", remedy="apt install fio")
    began, written, rates, steady = time.monotonic(), 0, list[float](), True
    for member in device.each:
        size = member.facts.size_bytes
        for _ in range(FILLS):
            _fio(member, ["--rw=write", "--bs=1m", f"--size={size}"], 60 + size / _FILL_RATE, seed)
        each_s = _SHORT_ROUND_S if size < _SMALL else _LONG_ROUND_S
        own: list[float] = []
        while len(own) < _MOST_ROUNDS and not settled(own):
            words = ["--rw=randwrite", "--bs=8k", f"--size={size}", "--time_based", f"--runtime={each_s:.0f}s"]
            own.append(_fio(member, words, 60 + 2 * each_s, seed + len(own)))
        written += FILLS * size + round(sum(own) * 8192 * each_s)
        rates, steady = rates + own, steady and settled(own)
    return ConditionFacts("precondition", round(time.monotonic() - began, 3), written, tuple(rates), steady)


def settled(rates: Sequence[float]) -> bool:
    """Whether the last five rounds are steady."""
    last = list(rates[-_ROUNDS:])
    if len(last) < _ROUNDS or not (mean := statistics.fmean(last)):
        return False
    line = statistics.linear_regression(range(_ROUNDS), last)
    return max(last) - min(last) <= _RANGE * mean and abs(line.slope) * (_ROUNDS - 1) <= _SLOPE * mean


def _fio(device: Device, words: list[str], timeout_s: float, seed: int) -> float:
    """Run one job on the device; its IOPS."""
    argv = ["fio", "--output-format=json", "--name=condition", f"--filename={device.argument}", "--ioengine=libaio",
            "--direct=1", "--iodepth=32", "--refill_buffers", "--allow_file_create=0",
            f"--randseed={seed}", *words]  # fmt: skip
    return ceiling.parsed(process.run(argv, timeout_s=timeout_s, pass_fds=(device.fd,)).stdout)[0].iops


# --- wear ------------------------------------------------------------------------------------------


def wear(disk: str) -> WearFacts | None:
    """What a disk says of itself through nvme-cli or smartctl; None where neither is installed or it says nothing."""
    path = f"/dev/{disk}"
    if not disk or disk.startswith("loop"):
        return None
    for argv, read in (
        (["nvme", "smart-log", "--output-format=json", path], of_nvme),
        (["smartctl", "--json", "--attributes", "--info", path], of_smartctl),
    ):
        with contextlib.suppress(
            ProgramMissing, ProgramNotStarted, CommandFailed, DeadlinePassed, AnswerUnknown, ValueError
        ):
            # smartctl's status is a set of flags; what it could read stands in its JSON all the same.
            found = read(json.loads(process.run(argv, timeout_s=20, ok=range(256), note=False).stdout))
            if found is not None:
                return found
    return None


@process.understood("nvme")
def of_nvme(document: Mapping[str, Any]) -> WearFacts | None:
    """nvme-cli's smart-log: temperature in kelvin, use in per cent (it may pass 100)."""
    units, used, kelvin = (document.get(key) for key in ("data_units_written", "percent_used", "temperature"))
    if units is None and used is None:
        return None
    return WearFacts(
        written_bytes=None if units is None else int(units) * _UNIT,
        used_share=None if used is None else float(used) / 100,
        temperature_c=None if kelvin is None else float(kelvin) - _KELVIN,
    )


@process.understood("smartctl")
def of_smartctl(document: Mapping[str, Any]) -> WearFacts | None:
    """smartctl's JSON, of NVMe and of SATA disks; there only what is written has a name that most makers share."""
    log = document.get("nvme_smart_health_information_log") or {}
    units, used = log.get("data_units_written"), log.get("percentage_used")
    written = None if units is None else int(units) * _UNIT
    for row in (document.get("ata_smart_attributes") or {}).get("table", ()):
        if row.get("name") == "Total_LBAs_Written":
            written = int(row["raw"]["value"]) * int(document.get("logical_block_size", 512))
    celsius = (document.get("temperature") or {}).get("current")
    if written is None and used is None and celsius is None:
        return None
    return WearFacts(written, None if used is None else float(used) / 100, None if celsius is None else float(celsius))


def endurance_share(found: WearFacts | None, written_bytes: int) -> float | None:
    """Which share of the disk's life writing so many bytes takes, by what its own use so far took of it; None where
    it does not tell, or has used too little of it to tell."""
    if found is None or not found.used_share or not found.written_bytes:
        return None
    return written_bytes / (found.written_bytes / found.used_share)
