"""Parsers of sadf and iostat, with recorded output of sysstat 12.6 (Debian 12) and 12.7 (Debian
13).
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dbbench.samplers import iostat, sar
from dbbench.samplers.sampler import gap_warning
from dbbench.samplers.sysstat import Interval, Recorder, SysstatDocument, ends, to_series

FIXTURES = Path(__file__).parent.parent / "fixtures/samplers"
LOOP = ("loop0", "dev7-0")


def recorded(name: str) -> str:
    """A recorded document."""
    return (FIXTURES / name).read_text()


def seconds(stamps: Sequence[int]) -> list[str]:
    """Epoch seconds as times of their day."""
    return [f"{datetime.fromtimestamp(stamp, UTC):%H:%M:%S}" for stamp in stamps]


class Sar(NamedTuple):
    """What a recording of sadf holds: second by second, and of its first entry."""

    ends: list[str]
    disk_kb: list[float]
    disk_tps: list[float]
    disk_await_ms: list[float | None]
    total_kb: list[float]
    psi_cpu: list[float]
    memory_free_kb: int
    cpu: tuple[float, float, float]  # user, system, idle


SAR = {
    "sar-12.6.1.json": Sar(
        ["10:42:20", "10:42:21", "10:42:22", "10:42:23"],
        [0, 64, 12736, 0],
        [0, 1, 399, 0],
        [None, 1.0, 0.16, None],
        [0, 68, 12796, 0],
        [6.70, 6.04, 5.90, 5.74],
        23466056,
        (19.0, 11.0, 70.0),
    ),
    "sar-12.7.5.json": Sar(
        ["21:11:10", "21:11:11", "21:11:12", "21:11:13"],
        [0, 6400, 0, 0],
        [0, 400, 50, 0],
        [None, 0.24, 0.06, None],
        [39188.0, 39308.0, 1000.0, 1588.0],
        [38.36, 30.21, 5.81, 0.22],
        23946524,
        (23.56, 42.41, 23.56),
    ),
}
IOSTAT = {  # w_per_s, f_per_s, w_kb_per_s, util_pct; w_await_ms, f_await_ms, r_await_ms
    "iostat-12.6.1.json": (
        [[0, 10, 390, 0], [0, 10, 390, 0], [0, 320, 12480, 0], [0, 0.4, 6, 0]],
        [[None, 0.30, 0.15, None], [None, 0.20, 0.09, None], [None] * 4],
    ),
    "iostat-12.7.5.json": (
        [[0, 400, 0, 0], [0, 400, 0, 0], [0, 6400, 0, 0], [0, 10, 0.4, 0]],
        [[None, 0.24, None, None], [None, 0.21, None, None], [None, None, 0.06, None]],
    ),
}


def column(document: SysstatDocument, name: str) -> list[float | None]:
    """One column of all entries."""
    return [entry.values[name] for entry in document.entries]


@pytest.mark.parametrize("name", SAR)
def test_sar_is_read_by_key(name: str) -> None:
    """The disk's columns are those of the target, whatever other disks the recorder saw; a second
    without requests has 0 requests and an unknown time for each. sadf prints memory in kB, a
    column called bytes holds bytes. PSI comes from the counter's difference, not from the
    kernel's ten-second mean. Nothing is unexpected, and no column is without a value in every
    second.
    """
    document = sar.parse(recorded(name), LOOP)
    expected = SAR[name]
    assert (document.whole, document.unexpected) == (True, "")
    assert seconds([entry.stamp for entry in document.entries]) == expected.ends
    assert column(document, "disk_write_kb_per_s") == expected.disk_kb
    assert column(document, "disk_tps") == expected.disk_tps
    assert column(document, "disk_await_ms") == expected.disk_await_ms
    assert column(document, "total_write_kb_per_s") == expected.total_kb
    assert column(document, "psi_cpu_some_pct") == expected.psi_cpu
    values = document.entries[0].values
    assert values["mem_free_bytes"] == expected.memory_free_kb * 1024
    assert (
        values["cpu_user_pct"],
        values["cpu_system_pct"],
        values["cpu_idle_pct"],
    ) == expected.cpu
    assert [key for key in values if not any(v is not None for v in column(document, key))] == []


def without(text: str, keys: set[str]) -> str:
    """A document of sysstat whose objects lack `keys`."""

    def kept(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: kept(value) for key, value in found.items() if key not in keys}
        return [kept(value) for value in found] if isinstance(found, list) else found

    return json.dumps(kept(json.loads(text)))


@pytest.mark.parametrize("name", SAR)
@pytest.mark.parametrize(
    "key",
    ["usr", "util-percent", "bread", "dirty", "pgpgin", "runq-sz", "some_avg", "psi", "queue"],
)
def test_a_key_that_sadf_no_longer_prints_is_named(name: str, key: str) -> None:
    """A column or section that a version dropped is reported by its key, with what is there
    instead.
    """
    document = sar.parse(without(recorded(name), {key}), LOOP)
    expected = {"psi": "some_avg", "queue": "runq-sz"}.get(key, key)
    assert len(document.entries) == 4
    assert f"expected {expected}" in document.unexpected or f", {expected}" in document.unexpected
    assert "read " in document.unexpected


def test_pressure_that_was_not_asked_for_is_not_missed() -> None:
    """A kernel without PSI has no such columns, and nothing is unexpected."""
    document = sar.parse(without(recorded("sar-12.7.5.json"), {"psi"}), LOOP, pressure=False)
    assert document.unexpected == ""
    assert not any(name.startswith("psi_") for name in document.entries[0].values)


@pytest.mark.parametrize("stamp", ['"utc": 0', '"tz": "CET"', '"zone": "UTC"'])
def test_sadf_in_another_time_zone_is_refused_and_reported(stamp: str) -> None:
    """Entries whose time is not known to be UTC are not used; the message has what was read and
    what was expected.
    """
    document = sar.parse(recorded("sar-12.6.1.json").replace('"utc": 1', stamp), LOOP)
    assert document.entries == []
    assert '"utc": 1 or "tz": "UTC"' in document.unexpected
    assert stamp in document.unexpected and "(4 entries)" in document.unexpected


def test_a_disk_that_sysstat_does_not_list_is_a_gap() -> None:
    """A missing disk has no columns, so no zeros, and is reported with those that were read."""
    document = sar.parse(recorded("sar-12.6.1.json"), ("nvme9n9", "dev259-9"))
    assert len(document.entries) == 4
    assert not any(name.startswith("disk_") for entry in document.entries for name in entry.values)
    assert "expected nvme9n9 or dev259-9" in document.unexpected
    document = iostat.parse(recorded("iostat-12.7.5.json"), "nvme0n1")
    assert (document.entries, document.unexpected) == ([], "expected the disk nvme0n1, read loop0")


def test_a_cut_document_gives_its_whole_entries() -> None:
    """sadf gave up on a damaged file in the middle of its output, and a killed iostat does not
    close its document: the entries that were closed count.
    """
    entries, whole, *_ = sar.parse(recorded("sar_cut.json"), LOOP)
    assert (seconds([entry.stamp for entry in entries]), whole) == (["10:42:20", "10:42:21"], False)
    entries, whole, *_ = iostat.parse(recorded("iostat_killed.json"), "vda")
    assert (len(entries), whole) == (recorded("iostat_killed.json").count('"timestamp"'), False)


@pytest.mark.parametrize("text", ["", "{", '{"sysstat": {"hosts": []}}', "Cannot open file", "[]"])
def test_what_is_not_a_document_has_no_entries(text: str) -> None:
    """Anything may stand in a file after a crash; nothing of it raises."""
    assert sar.parse(text, LOOP)[:2] == ([], False)
    assert iostat.parse(text, "loop0")[:2] == ([], False)


def test_a_mean_over_a_pause_is_of_no_second() -> None:
    """Where the recorder was away for five seconds, no second gets their mean."""
    entries = sar.parse(recorded("sar_restarted.json"), LOOP).entries
    begin = datetime(2026, 11, 21, 10, 44, 10, tzinfo=UTC).timestamp()
    load = to_series(entries, begin, begin, 10)["load_1"]
    assert [second for second, value in enumerate(load) if value is not None] == [0, 1, 2, 8, 9]


@pytest.mark.parametrize("name", IOSTAT)
def test_iostat_is_read_by_key(name: str) -> None:
    """Await of reads, writes and flushes; no request has no time; nothing is unexpected."""
    document, (rates, awaits) = iostat.parse(recorded(name), "loop0"), IOSTAT[name]
    assert (document.whole, document.unexpected) == (True, "")
    assert [
        column(document, key) for key in ("w_per_s", "f_per_s", "w_kb_per_s", "util_pct")
    ] == rates
    assert [column(document, key) for key in ("w_await_ms", "f_await_ms", "r_await_ms")] == awaits


@pytest.mark.parametrize("name", IOSTAT)
@pytest.mark.parametrize("key", ["r/s", "f/s", "rkB/s", "aqu-sz", "util", "r_await", "f_await"])
def test_a_key_that_iostat_no_longer_prints_is_named(name: str, key: str) -> None:
    """A column that a version dropped is reported by its key, with what is there instead."""
    document = iostat.parse(without(recorded(name), {key}), "loop0")
    assert document.unexpected.startswith(f"loop0: expected {key}, read disk_device, ")


@pytest.mark.parametrize("name", IOSTAT)
def test_iostat_cut_at_any_byte(name: str) -> None:
    """Wherever the file ends, the entries are a prefix of the whole ones."""
    text = recorded(name)
    all_of_them = iostat.parse(text, "loop0").entries
    for cut in range(0, len(text), 37):
        entries = iostat.parse(text[:cut], "loop0").entries
        assert entries == all_of_them[: len(entries)]


def test_iostat_in_local_time_is_refused_and_reported() -> None:
    """A stamp without a zone says no time: better a gap than a shifted series."""
    local = recorded("iostat-12.6.1.json").replace("2026-11-21T10:42:20+0000", "11/21/26 10:42:20")
    document = iostat.parse(local, "loop0")
    assert len(document.entries) == 3
    assert (
        document.unexpected
        == 'time stamp: expected an ISO time with its zone, read "11/21/26 10:42:20" (1 entries)'
    )


def judged(document: SysstatDocument, length: int = 3) -> list[tuple[str, bool, str]]:
    """The warnings of a recorder that wrote `document`, for a load that began with its first
    second.
    """
    recording = Recorder("sar", "x", 100.0, lambda: document)
    return [(found.id, found.suspect, found.text) for found in recording.read(100.0, length)[1]]


def test_a_sampler_without_usable_data_makes_the_trial_suspect() -> None:
    """A recorder that ran to its end and gave nothing is no gap: W140, with what was read and what
    was expected; so is a missing column, also where every second has an entry. Nothing is
    expected of one before its first interval.
    """
    (first, _) = judged(SysstatDocument())
    assert first == (
        "W140",
        True,
        "sar: expected an entry for each of 3 seconds, read none; 0 of 3 seconds have data",
    )
    ((_, suspect, text), _) = judged(SysstatDocument(stamps(7201, 7202)))
    assert suspect
    assert "read 2 entries from 1970-01-01T02:00:01Z to 1970-01-01T02:00:02Z" in text
    found = judged(
        SysstatDocument(stamps(101, 102, 103), unexpected="disk: expected util, read tps")
    )
    assert found == [("W140", True, "sar: disk: expected util, read tps; 3 of 3 seconds have data")]
    assert judged(SysstatDocument(), 1) == []


def stamps(*seconds: int) -> list[Interval]:
    """Intervals that end in these whole seconds; values 0, 1, 2, ..."""
    return [Interval(second, 1.0, {"x": float(index)}) for index, second in enumerate(seconds)]


def test_a_recorder_is_placed_on_the_trials_clock() -> None:
    """The recorder began at .7: its intervals end at .7 though .0 is printed. An interval belongs
    to the second that holds its middle, not to the one its printed end falls in. One that hung
    for three seconds: a gap, then its values at their own seconds again.
    """
    assert ends(stamps(101, 102, 103), 100.7) == pytest.approx([101.7, 102.7, 103.7])
    begin = 100.6  # the load's second 0 is 100.6 to 101.6
    # 100.7-101.7, ...
    assert to_series(stamps(101, 102, 103), 100.7, begin, 3)["x"] == [0.0, 1.0, 2.0]
    entries = stamps(101, 102, 106, 107)
    entries[2] = Interval(106, 4.0, {"x": 2.0})
    assert ends(entries, 100.0) == [101.0, 102.0, 106.5, 107.5]
    assert to_series(entries, 100.0, 100.0, 8)["x"] == [0.0, 1.0, None, None, None, None, None, 3.0]


def test_drift_leaves_no_hole_and_no_double() -> None:
    """A recorder that takes 1.001 s a second skips a stamp in 1000 s; that moves values by a part
    of a second.
    """
    began = 100.5
    true_ends = [began + 1.001 * tick for tick in range(1, 1201)]
    found = ends(stamps(*(int(end) for end in true_ends)), began)
    assert max(abs(guess - end) for guess, end in zip(found, true_ends, strict=True)) < 1.0
    column = to_series(stamps(*(int(end) for end in true_ends)), began, began, 1200)["x"]
    assert sum(value is None for value in column) <= 1


def test_gaps_are_counted_and_named() -> None:
    """W014 says how many seconds and which; the last second alone may lie beyond the recorder's
    end.
    """
    warning = gap_warning("sar", [1.0, None, None, 4.0, None, 0.0])
    assert warning is not None
    assert (warning.id, warning.second, warning.suspect) == ("W014", 1, False)
    assert "3 of 6 seconds without data (second 1-2, 4)" in warning.text
    assert gap_warning("sar", [0.0, 0.0, None]) is None
    assert gap_warning("sar", [0.0, 0.0]) is None
    many = gap_warning("sar", [None, 1.0] * 10)
    assert many is not None and "(second 0, 2, 4, 6, 8 and 5 more)" in many.text
