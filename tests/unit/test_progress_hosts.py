"""Progress of a fleet: a line for each trial, and the rows of its hosts."""

import io

from dbbench.model.events import Event
from dbbench.report.progress import hosts
from dbbench.units import epoch

ROW = {
    "host": "db1",
    "run": "f",
    "trial": "xfs.postgres.w-b2-a1",
    "phase": "measure",
    "phase_s": 61.0,
    "done": 3,
    "trials": 10,
    "blocks": [2],
    "eta_s": 750.0,
    "heard": "2026-11-21T18:00:00.000Z",
    "note": "",
}


def test_hosts_are_lines() -> None:
    """Of a host: trial, phase and its time, what is home, time of the last answer; a dash for
    unknown values. Of all: what is home of how many, how many hosts are in which phase, and the
    slowest host's time.
    """
    now = epoch("2026-11-21T18:00:05.000Z")
    shown = dict(zip(hosts.HOST_HEADER, hosts.host_cells(ROW, now), strict=True))
    assert (shown["host"], shown["phase"], shown["for"], shown["done"]) == (
        "db1",
        "measure",
        "1:01",
        "3/10",
    )
    assert shown["last answer"] == "0:05 ago"
    waiting = hosts.host_cells({**ROW, "trial": "", "phase_s": None, "eta_s": None}, now)
    assert [waiting[index] for index in (1, 3, 5)] == ["–", "–", "–"]
    other = {**ROW, "host": "db2", "phase": "restore", "done": 2, "eta_s": 30.0}
    words = hosts.standing([ROW, other])
    assert words.startswith(
        "5/20 trials collected; 1 measure, 1 restore; about 12 min left, until "
    )


def test_plain_and_json_progress() -> None:
    """Plain: the beginning, each trial, notes, the end. JSON: each event as a line, hosts too."""
    events = [
        Event(
            "fleet_begin",
            {"name": "f", "mode": "spread", "hosts": ["a", "b"], "trials": 8, "done": 2},
        ),
        Event("hosts", {"utc": "", "hosts": [ROW]}),
        Event(
            "trial_end",
            {
                "host": "a",
                "arm": "xfs",
                "engine": "postgres",
                "workload": "w",
                "block": 2,
                "attempt": 1,
                "status": "ok",
                "metric": "tps",
                "value": 1912.0,
                "error": None,
            },
        ),
        Event("fleet_end", {"name": "f", "trials": 8, "lacking": []}),
    ]
    told = {}
    for kind in ("plain", "json", "auto", "none"):
        stream = io.StringIO()
        with hosts.renderer(kind, stream) as emit:
            for event in events:
                emit(event)
        told[kind] = stream.getvalue().splitlines()
    assert (
        told["plain"]
        == told["auto"]
        == [
            "fleet f: spread, 2 hosts, 8 trials, 2 already collected",
            "a: xfs postgres w #2: 1 912 tx/s",
            "fleet f: 8 trials collected",
        ]
    )
    assert (len(told["json"]), told["none"]) == (4, [])
