"""What `dbbench clean` finds of a fleet: in the results, and at hosts that were workers of this machine."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import store
from dbbench.fleet import record, remains
from dbbench.fleet.record import Fleet
from dbbench.journal import Journal
from dbbench.model import Run, Status, Trial
from dbbench.store import taking


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A command line takes SIGTERM for its life."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def results(tmp_path: Path, make_run: Callable[..., Run]) -> Path:
    """A results folder with a fleet `f` of one host of `--local`: one of its two trials is home."""
    results = tmp_path / "results"
    run = make_run("f")
    fleet = Fleet("f", "spread", run.created, run.plan_sha256, {"local-1": (1, 2)})
    record.save(results, fleet)
    record.create_runs(results, fleet, run, "# plan\n", {})
    theirs = store.create_run(host_of(results), run, "# plan\n")
    for spec in run.order:
        store.Draft(theirs, spec.id).publish(
            Trial(spec.id, "f", "local-1", "ext4", "postgres", "w", spec.block, 1, spec.position, Status.OK),
            None,
            [],
            None,
        )
    taking.take(theirs / "trials" / run.order[0].id, results / "f")
    return results


def host_of(results: Path) -> Path:
    """The results folder of the fleet's host."""
    return results / ".fleet/f/hosts/local-1"


def leave_behind(results: Path) -> list[Path]:
    """What kill -9 leaves: an image of a host, its cut-off trial, a transfer, a worker's scratch folder."""
    theirs = host_of(results) / "f"
    image = theirs / ".dbbench-f.img"
    image.write_bytes(b"x" * 8192)
    Journal(theirs / "journal.jsonl").note("take", what="image", path=str(image))
    left = [theirs / "trials/.partial-x", results / "f/trials/.partial-y", host_of(results) / remains.SCRATCH]
    for path in left:
        path.mkdir()
    return [image, *left]


def trials(run: Path) -> list[str]:
    """Finished trials of a run's folder."""
    return sorted(path.name for path in (run / "trials").glob("[!.]*"))


def test_what_killed_hosts_leave_is_given_back(told: Any, results: Path) -> None:
    """At the host and here; results stay, at the host too as long as the fleet is not finished."""
    left = leave_behind(results)
    before = [trials(results / "f"), trials(host_of(results) / "f")]
    listed = told("clean", "--dry-run")
    assert all(f" {path} (" in listed for path in left) and all(path.exists() for path in left)
    assert len(told("clean").splitlines()) == len(left)
    assert not any(path.exists() for path in left)
    assert [trials(results / "f"), trials(host_of(results) / "f")] == before
    assert told("clean", "f").strip() == "nothing to remove"


def test_copies_of_a_finished_fleet_go(told: Any, results: Path) -> None:
    """A host's trial that is home, the same and whole, stands twice; what is at the host only stays there."""
    first, second = trials(host_of(results) / "f")
    record.save(results, dataclasses.replace(record.load(results, "f"), finished=True))
    assert told("clean").splitlines()[0].startswith(f"removed copy of a result {host_of(results)}/f/trials/{first} ")
    assert (trials(results / "f"), trials(host_of(results) / "f")) == ([first], [second])
    assert [trial.id for trial in store.load_run(results / "f").trials] == [first]


def test_copy_stays_where_the_result_is_damaged(told: Any, results: Path) -> None:
    """It is then the only one that is whole."""
    first = trials(results / "f")[0]
    record.save(results, dataclasses.replace(record.load(results, "f"), finished=True))
    path = results / "f/trials" / first / "trial.json"
    path.write_text(path.read_text().replace('"ok"', '"suspect"'))
    assert told("clean").strip() == "nothing to remove"
    assert first in trials(host_of(results) / "f")


def test_fleet_that_is_worked_on_is_left_alone(told: Any, results: Path) -> None:
    """A coordinator: all of it, for what arrives is no leftover. A host or its worker: what is theirs."""
    left = leave_behind(results)
    with record.coordinating(results, "f"):
        assert told("clean").strip() == "nothing to remove"
        assert "E803" in told("clean", "f", code=5)
    with store.locked(host_of(results) / "f"), remains.worker_of(host_of(results)):
        assert told("clean").splitlines() == [f"removed unfinished trial {results}/f/trials/.partial-y (0 B)"]
    assert [path.exists() for path in left] == [True, True, False, True]
