"""Nights are dates of the machine's own time zone, also when its clock changes."""

import dataclasses
import datetime
import time
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import synthetic
from synthetic import Shape

from dbbench.nightly import history, judging
from dbbench.nightly.night import Night, local_date, night_of
from tests.support.nights import KEY


@pytest.fixture
def zone(environ: dict[str, str]) -> Callable[[str], ZoneInfo]:
    """A function that sets the local time zone for the test."""

    def setting(name: str) -> ZoneInfo:
        environ["TZ"] = name
        time.tzset()
        return ZoneInfo(name)

    return setting


@pytest.mark.parametrize("clock", ["00:15", "01:30", "02:30", "23:45"])
@pytest.mark.parametrize(
    "name",
    [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        "Asia/Kolkata",
        "UTC",
    ],
)
def test_no_night_is_missing_when_the_clock_changes(
    zone: Callable[[str], ZoneInfo],
    name: str,
    clock: str,
) -> None:
    """A year of nights by the local clock, with both changes of it (none in India): each has its
    own date. A night that is left out, one after the other, is the only missing one.
    """
    local = zone(name)
    first = datetime.date(2026, 3, 1)
    at = datetime.time.fromisoformat(clock)
    known = []
    for number in range(280):
        day = first + datetime.timedelta(number)
        # a time that is left out: the next
        began = datetime.datetime.combine(day, at, local).astimezone(datetime.UTC)
        known.append(
            Night(local_date(began.isoformat()).isoformat(), f"r{number}", began.isoformat())
        )
    assert len({one.night for one in known}) == len(known)
    assert history.missing_dates(known) == []
    for left_out in range(1, 279, 3):
        shorter = [*known[:left_out], *known[left_out + 1 :]]
        assert history.missing_dates(shorter) == [known[left_out].night]
        dates, _ = judging.series_of(KEY, shorter[left_out - 1 : left_out + 1])
        assert dates == [one.night for one in known[left_out - 1 : left_out + 2]]


def test_the_night_of_a_run_in_another_time_zone(
    zone: Callable[[str], ZoneInfo], tmp_path: Path
) -> None:
    """01:30 in summer is the day before in UTC; west of Greenwich, the evening is the day after. A
    container in UTC that is started at 01:30 in Central Europe, at the end of summer time, has
    no missing night; nor has a delayed start.
    """
    zone("UTC")
    starts = [
        "2026-10-23T23:30:04Z",
        "2026-10-24T23:30:04Z",
        "2026-10-26T00:30:04Z",
        "2026-10-27T00:30:04Z",
    ]
    nights = [Night(local_date(start).isoformat(), start, start) for start in starts]
    assert [one.night for one in nights] == ["2026-10-23", "2026-10-24", "2026-10-26", "2026-10-27"]
    assert history.missing_dates(nights) == []
    late = [
        Night("2026-11-01", "a", "2026-11-01T23:50:00Z"),
        Night("2026-11-03", "b", "2026-11-03T00:10:00Z"),
    ]
    assert history.missing_dates(late) == []
    loaded = synthetic.loaded(tmp_path, Shape())
    for name, created, expected in (
        ("Europe/Berlin", "2026-10-24T23:30:04.000Z", "2026-10-25"),
        ("Europe/Berlin", "2026-10-26T00:30:04.000Z", "2026-10-26"),
        ("America/New_York", "2026-10-26T02:30:04.000Z", "2026-10-25"),
    ):
        zone(name)
        run = dataclasses.replace(loaded, run=dataclasses.replace(loaded.run, created=created))
        assert night_of(run).night == expected
