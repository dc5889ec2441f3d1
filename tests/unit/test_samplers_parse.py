"""Parsers of sadf and iostat, on what the programs really printed (sysstat 12.6.1)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dbbench.samplers import iostat_parse, sar_parse
from dbbench.samplers.gaps import gap_warning, ranges
from dbbench.samplers.sysstat import Entry, ends, to_series

FIXTURES = Path(__file__).parent.parent / "fixtures/samplers"
LOOP = ("loop0", "dev7-0")


def recorded(name: str) -> str:
    """A recorded document."""
    return (FIXTURES / name).read_text()


def utc(clock: str) -> int:
    """Epoch seconds of a time on the day of the recordings."""
    return int(datetime.fromisoformat(f"2026-11-21T{clock}").replace(tzinfo=UTC).timestamp())


def test_sar_takes_only_the_device_under_test() -> None:
    """The disk's columns are those of the target, whatever other disks the recorder saw."""
    entries, whole = sar_parse.parse(recorded("sar.json"), LOOP)
    assert whole
    assert [utc(f"10:42:{second}") for second in (20, 21, 22, 23)] == [entry.stamp for entry in entries]
    assert [entry.values["disk_write_kb_per_s"] for entry in entries] == [0, 64, 12736, 0]
    assert [entry.values["total_write_kb_per_s"] for entry in entries] == [0, 68, 12796, 0]


def test_sar_units_are_those_of_the_name() -> None:
    """sadf prints memory in kB; a column called bytes holds bytes."""
    values = sar_parse.parse(recorded("sar.json"), LOOP)[0][0].values
    assert values["mem_free_bytes"] == 23466056 * 1024
    assert values["mem_dirty_bytes"] == 1948 * 1024
    assert (values["cpu_user_pct"], values["cpu_system_pct"], values["cpu_idle_pct"]) == (19.0, 11.0, 70.0)
    assert (values["procs_running"], values["load_1"]) == (2, 0.52)


def test_pressure_is_of_the_interval() -> None:
    """PSI comes from the counter's difference, not from the kernel's ten-second mean."""
    entries, _ = sar_parse.parse(recorded("sar.json"), LOOP)
    assert [entry.values["psi_cpu_some_pct"] for entry in entries[:2]] == [6.70, 6.04]
    assert entries[1].values["psi_io_full_pct"] == 0.07


def test_no_request_has_no_time() -> None:
    """A second without requests has 0 requests and an unknown time for each."""
    entries, _ = sar_parse.parse(recorded("sar.json"), LOOP)
    assert [entry.values["disk_tps"] for entry in entries] == [0, 1, 399, 0]
    assert [entry.values["disk_await_ms"] for entry in entries] == [None, 1.0, 0.16, None]


def test_a_disk_that_sysstat_does_not_list_is_a_gap() -> None:
    """A missing disk has no columns, so no zeros."""
    entries, _ = sar_parse.parse(recorded("sar.json"), ("nvme9n9",))
    assert len(entries) == 4
    assert not any(name.startswith("disk_") for entry in entries for name in entry.values)


def test_a_cut_sar_document_gives_its_whole_entries() -> None:
    """sadf gave up on a damaged file in the middle of its output: the entries that it closed count."""
    entries, whole = sar_parse.parse(recorded("sar_cut.json"), LOOP)
    assert not whole
    assert [entry.stamp for entry in entries] == [utc("10:42:20"), utc("10:42:21")]


@pytest.mark.parametrize("text", ["", "{", '{"sysstat": {"hosts": []}}', "Cannot open file", "[]"])
def test_what_is_no_document_has_no_entries(text: str) -> None:
    """Anything may stand in a file after a crash; nothing of it raises."""
    assert sar_parse.parse(text, LOOP) == ([], False)
    assert iostat_parse.parse(text, "loop0") == ([], False)


def test_a_mean_over_a_pause_is_of_no_second() -> None:
    """Where the recorder was away for five seconds, none of them gets their mean."""
    entries, _ = sar_parse.parse(recorded("sar_restarted.json"), LOOP)
    begin = utc("10:44:10")
    column = to_series(entries, begin, begin, 10)["load_1"]
    assert [second for second, value in enumerate(column) if value is not None] == [0, 1, 2, 8, 9]


def test_iostat_is_read_by_key() -> None:
    """Await of reads, writes and flushes; no request has no time."""
    entries, whole = iostat_parse.parse(recorded("iostat.json"), "loop0")
    assert whole
    assert [entry.values["w_per_s"] for entry in entries] == [0, 10, 390, 0]
    assert [entry.values["f_per_s"] for entry in entries] == [0, 10, 390, 0]
    assert [entry.values["w_await_ms"] for entry in entries] == [None, 0.30, 0.15, None]
    assert [entry.values["f_await_ms"] for entry in entries] == [None, 0.20, 0.09, None]
    assert [entry.values["r_await_ms"] for entry in entries] == [None] * 4
    assert [entry.values["w_kb_per_s"] for entry in entries] == [0, 320, 12480, 0]
    assert [entry.values["util_pct"] for entry in entries] == [0, 0.4, 6, 0]


def test_a_killed_iostat_gives_its_whole_entries() -> None:
    """A killed iostat does not close its document."""
    entries, whole = iostat_parse.parse(recorded("iostat_killed.json"), "vda")
    assert not whole
    assert len(entries) == recorded("iostat_killed.json").count('"timestamp"')


def test_iostat_cut_at_any_byte() -> None:
    """Wherever the file ends, the entries are a prefix of the whole ones."""
    text = recorded("iostat.json")
    all_of_them, _ = iostat_parse.parse(text, "loop0")
    for cut in range(0, len(text), 37):
        entries, _ = iostat_parse.parse(text[:cut], "loop0")
        assert entries == all_of_them[: len(entries)]


def test_iostat_in_local_time_is_refused() -> None:
    """A stamp without a zone says no time: better a gap than a shifted series."""
    local = recorded("iostat.json").replace("2026-11-21T10:42:20+0000", "11/21/26 10:42:20")
    assert len(iostat_parse.parse(local, "loop0")[0]) == 3


def stamps(*seconds: int) -> list[Entry]:
    """Intervals that end in these whole seconds; values 0, 1, 2, ..."""
    return [Entry(second, 1.0, {"x": float(index)}) for index, second in enumerate(seconds)]


def test_fractions_come_from_the_start() -> None:
    """The recorder began at .7: its intervals end at .7 though .0 is printed."""
    assert ends(stamps(101, 102, 103), 100.7) == pytest.approx([101.7, 102.7, 103.7])


def test_a_value_lands_on_its_second() -> None:
    """An interval belongs to the second that holds its middle, not to the one its printed end falls in."""
    begin = 100.6  # the load's second 0 is 100.6 to 101.6
    series = to_series(stamps(101, 102, 103), 100.7, begin, 3)
    assert series["x"] == [0.0, 1.0, 2.0]  # 100.7-101.7, ...


def test_drift_leaves_no_hole_and_no_double() -> None:
    """A recorder that takes 1.001 s a second skips a stamp in 1000 s; that moves values by a part of a second."""
    began = 100.5
    true_ends = [began + 1.001 * tick for tick in range(1, 1201)]
    found = ends(stamps(*(int(end) for end in true_ends)), began)
    assert max(abs(guess - end) for guess, end in zip(found, true_ends, strict=True)) < 1.0
    column = to_series(stamps(*(int(end) for end in true_ends)), began, began, 1200)["x"]
    assert sum(value is None for value in column) <= 1


def test_a_stall_is_taken_over() -> None:
    """A recorder that hung for three seconds: a gap, then its values at their own seconds again."""
    entries = stamps(101, 102, 106, 107)
    entries[2] = Entry(106, 4.0, {"x": 2.0})
    assert ends(entries, 100.0) == [101.0, 102.0, 106.5, 107.5]
    assert to_series(entries, 100.0, 100.0, 8)["x"] == [0.0, 1.0, None, None, None, None, None, 3.0]


def test_gaps_are_counted_and_named() -> None:
    """W014 says how many seconds and which; the last second alone may lie beyond the recorder's end."""
    warning = gap_warning("sar", [1.0, None, None, 4.0, None, 0.0])
    assert warning is not None
    assert (warning.id, warning.second, warning.suspect) == ("W014", 1, False)
    assert "3 of 6 seconds without data (second 1-2, 4)" in warning.text
    assert gap_warning("sar", [0.0, 0.0, None]) is None
    assert gap_warning("sar", [0.0, 0.0]) is None


def test_many_ranges_are_cut_short() -> None:
    """A warning stays readable."""
    assert ranges(list(range(0, 20, 2))) == "0, 2, 4, 6, 8 and 5 more"
