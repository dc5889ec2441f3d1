"""Preconditioning and wear of a device: steady state, and the share of its endurance that a run
uses.

The documents have only the keys that dbbench reads, as the manuals of nvme-cli and smartctl show
them, because no NVMe or SATA disk was available for a recording.
"""

import os
from pathlib import Path

import pytest

from dbbench.model import WearFacts
from dbbench.run.evaluate import device_rates
from dbbench.storage.devices import canary, precondition, smart


@pytest.mark.parametrize(
    ("rates", "steady"),
    [
        ([100, 100, 100, 100], False),  # four rounds
        ([900, 500, 300, 200, 150], False),  # still falling
        ([900, 500, 101, 99, 100, 102, 98], True),  # the last five
        ([100, 103, 106, 109, 112], False),  # within 20 %, but it climbs by more than 10 %
        ([100, 125, 100, 125, 100], False),  # no slope, but a range of more than 20 %
        ([0, 0, 0, 0, 0], False),  # nothing was written
    ],
)
def test_steady_is_five_rounds_in_a_narrow_band_without_a_slope(
    rates: list[float], steady: bool
) -> None:
    """Range within 20 % of the mean, the fitted line within 10 % of it."""
    assert precondition.is_steady(rates) is steady


def test_wear_by_nvme_and_by_smartctl_and_a_share_of_life_by_what_its_own_use_took() -> None:
    """nvme tells kelvin, per cent and thousands of 512-byte blocks; SATA's attribute counts logical
    blocks, and its use has no common name. 30 TB took 3 %: 1 TB takes a thousandth. A new disk
    does not tell yet, a loop device never.
    """
    document = {"temperature": 313, "percent_used": 3, "data_units_written": 2_000_000}
    assert smart.of_nvme(document) == WearFacts(1_024_000_000_000, 0.03, 40.0)
    assert (
        smart.of_nvme({"critical_warning": 0})
        is smart.of_smartctl({"smartctl": {"exit_status": 2}})
        is None
    )
    log = {"percentage_used": 3, "data_units_written": 2_000_000}
    nvme = {"temperature": {"current": 40}, "nvme_smart_health_information_log": log}
    assert smart.of_smartctl(nvme) == WearFacts(1_024_000_000_000, 0.03, 40.0)
    written = {"name": "Total_LBAs_Written", "raw": {"value": 2_000_000}}
    sata = {
        "logical_block_size": 512,
        "temperature": {"current": 31},
        "ata_smart_attributes": {"table": [written]},
    }
    assert smart.of_smartctl(sata) == WearFacts(1_024_000_000, None, 31.0)
    assert smart.endurance_share(WearFacts(30 * 10**12, 0.03), 10**12) == pytest.approx(0.001)
    assert (
        smart.endurance_share(WearFacts(10**12, 0.0), 10**12)
        is smart.endurance_share(None, 10**12)
        is None
    )
    assert smart.wear(("loop3",)) is smart.wear(()) is None


def test_probe_beside_its_block() -> None:
    """10 % off the median of three is suspect; of two it is unknown which one is wrong."""

    def told(*rates: float) -> list[tuple[str, bool]]:
        own, *others = ({"write_mb_per_s": rate} if rate else {} for rate in rates)
        return [(warning.id, warning.suspect) for warning in device_rates.canary(own, others)]

    assert told(80, 100, 101) == [("W040", True)]
    assert told(95, 100, 101) == told(50, 100) == told(0, 100, 100) == []


def test_probe_of_a_directory_has_a_name_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """btrfs and ZFS flush nothing of a file without a name, so that its flushes would cost nothing."""
    monkeypatch.setattr(os, "O_DIRECT", 0)  # a tmpfs has none
    monkeypatch.setattr(canary, "_write", lambda fd, _begin: {"names": os.fstat(fd).st_nlink})
    assert canary.measure(tmp_path)["names"] == 1
    assert list(tmp_path.iterdir()) == []
