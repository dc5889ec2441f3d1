"""The wear that a disk reports through nvme-cli or smartctl."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dbbench import errors, process
from dbbench.model import WearFacts

# an NVMe "data unit": a thousand blocks of 512 bytes (NVM Express base specification, log 02h)
_UNIT: Final = 512_000
_KELVIN: Final = 273
_NO_ANSWER: Final = (
    errors.ProgramMissing,
    errors.CommandFailed,
    errors.DeadlinePassed,
    errors.AnswerUnknown,
    ValueError,
)


def wear(disks: Sequence[str]) -> WearFacts | None:
    """Return what the first disk reports through nvme-cli or smartctl; None if neither is installed
    or reports it.
    """
    if not disks or disks[0].startswith("loop"):
        return None
    path = f"/dev/{disks[0]}"
    for argv, read in (
        (["nvme", "smart-log", "--output-format=json", path], of_nvme),
        (["smartctl", "--json", "--attributes", "--info", path], of_smartctl),
    ):
        with contextlib.suppress(*_NO_ANSWER):
            # The status of smartctl is a set of flags; its JSON contains what it could read anyway.
            done = process.run(argv, timeout_s=20, ok=range(256), note=False)
            facts = read(json.loads(done.stdout))
            if facts is not None:
                return facts
    return None


@process.understood("nvme")
def of_nvme(document: Mapping[str, Any]) -> WearFacts | None:
    """Parse nvme-cli's smart-log: temperature in kelvin, use in per cent (it may exceed 100)."""
    units, used, kelvin = (
        document.get(key) for key in ("data_units_written", "percent_used", "temperature")
    )
    if units is None and used is None:
        return None
    return WearFacts(
        written_bytes=None if units is None else int(units) * _UNIT,
        used_share=None if used is None else float(used) / 100,
        temperature_c=None if kelvin is None else float(kelvin) - _KELVIN,
    )


@process.understood("smartctl")
def of_smartctl(document: Mapping[str, Any]) -> WearFacts | None:
    """Parse smartctl's JSON of NVMe and SATA disks; for SATA, most makers share only the name for
    bytes written.
    """
    log = document.get("nvme_smart_health_information_log") or {}
    units = log.get("data_units_written")
    used = log.get("percentage_used")
    written = None if units is None else int(units) * _UNIT
    for row in (document.get("ata_smart_attributes") or {}).get("table", ()):
        if row.get("name") == "Total_LBAs_Written":
            written = int(row["raw"]["value"]) * int(document.get("logical_block_size", 512))
    celsius = (document.get("temperature") or {}).get("current")
    if written is None and used is None and celsius is None:
        return None
    return WearFacts(
        written,
        None if used is None else float(used) / 100,
        None if celsius is None else float(celsius),
    )


def endurance_share(found: WearFacts | None, written_bytes: int) -> float | None:
    """Return the share of the disk's life that so many bytes use, by its use so far; None if that
    is unknown.
    """
    if found is None or not found.used_share or not found.written_bytes:
        return None
    return written_bytes / (found.written_bytes / found.used_share)
