"""Progress of a fleet: a line for each trial, and the rows of its hosts."""

import io

from dbbench.model.events import Event
from dbbench.report.progress import hosts
from dbbench.units import epoch

ROW = {
    "host": "db1",
    "connected": True,
    "trial": "xfs.postgres.w-b2-a1",
    "note": "",
    "since": "2026-11-21T18:00:00.000Z",
}
NOW = epoch("2026-11-21T18:01:02.000Z")
ALL = {"utc": "", "done": 3, "trials": 10, "hosts": [ROW]}


def test_a_host_is_a_line() -> None:
    """Its trial and the age of its last event; a dash for what is unknown."""
    assert hosts.host_cells(ROW, NOW) == ("db1", "xfs.postgres.w-b2-a1", "1:02 ago", "")
    new = {**ROW, "trial": "", "since": None, "note": "writing the image"}
    assert hosts.host_cells(new, NOW) == ("db1", "–", "–", "writing the image")
    assert hosts.host_cells({**new, "connected": False}, NOW)[3] == "not connected"


def test_all_hosts_are_a_line() -> None:
    """Finished trials of how many, and what each host does."""
    other = {**ROW, "host": "db2", "connected": False}
    line = hosts.standing({**ALL, "hosts": [ROW, other]}, NOW)
    assert line == "3/10 trials; db1: xfs.postgres.w-b2-a1, 1:02 ago; db2: not connected"


def test_plain_and_json_progress() -> None:
    """Plain: the beginning, each trial, notes, the end. JSON: each event as a line, hosts too."""
    trial_end = {
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
    }
    begin = {"name": "f", "mode": "spread", "hosts": ["a", "b"], "trials": 8, "done": 2}
    events = [
        Event("fleet_begin", begin),
        Event("hosts", ALL),
        Event("trial_end", trial_end),
        Event("note", {"text": "building a dataset", "host": "b"}),
        Event("note", {"text": "2 more trials: block-2-a2"}),
        Event("fleet_end", {"name": "f", "trials": 8, "lacking": []}),
    ]
    printed = {}
    for kind in ("plain", "json", "auto", "none"):
        stream = io.StringIO()
        with hosts.renderer(kind, stream) as emit:
            for event in events:
                emit(event)
        printed[kind] = stream.getvalue().splitlines()
    assert printed["plain"] == printed["auto"]
    assert printed["plain"] == [
        "fleet f: spread, 2 hosts, 8 trials, 2 already collected",
        "a: xfs postgres w #2: 1 912 tx/s",
        "b: building a dataset",
        "2 more trials: block-2-a2",
        "fleet f: 8 trials",
    ]
    assert (len(printed["json"]), printed["none"]) == (6, [])
