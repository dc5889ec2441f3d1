"""A fleet's host between two trials: transfer of results, waking the supervisor, turns at the disk."""

from __future__ import annotations

import dataclasses
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dbbench import __version__, results
from dbbench.fleet import host, ledger, supervisor
from dbbench.fleet.ledger import Fleet
from dbbench.fleet.room import Deal, Dealt, HostSeen, HostState, Refused, Room, See
from dbbench.fleet.supervisor import Keeper, Turn
from dbbench.machine import namespaces
from dbbench.model import Run, Status, Trial
from dbbench.model.events import Event


@pytest.fixture
def room(tmp_path: Path, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> Room:
    """The folder of a run of two trials that were dealt to this host, the first of them finished."""
    monkeypatch.setattr(host.HERE, "results", tmp_path)
    monkeypatch.setattr(host.HERE, "dealt", {"f": ("cafe",)})
    run = make_run("f")
    room = Room(results.create_run(tmp_path, run, "# plan\n"))
    room.make()
    room.deal(run.order)
    publish(room, run, 0)
    return room


@pytest.fixture
def supervised(room: Room) -> Iterator[Room]:
    """The same, with a supervisor alive."""
    with room.supervising() as ours:
        assert ours
        yield room


def publish(room: Room, run: Run, index: int) -> None:
    """Finish a trial."""
    spec = run.order[index]
    trial = Trial(spec.id, "f", "h", "ext4", "postgres", "w", spec.block, 1, spec.position, Status.OK)
    results.Draft(room.folder, spec.id).publish(trial, None, [], None)


def seen(*, taken: tuple[str, ...] = (), patience_s: float = 0.0, start: bool = True) -> HostSeen:
    """What the host answers."""
    answer = host.answer(See("f", (1, 2), taken, patience_s, start))
    assert isinstance(answer, HostSeen)
    return answer


def test_nothing_travels_during_a_trial(supervised: Room) -> None:
    """Also not what was finished before, when a coordinator comes back in the middle of a window."""
    first, second = (spec.id for spec in supervised.run().order)
    supervised.tell(HostState(trial=second, phase="measure"))
    assert (seen().trial, seen(start=False).trial) == ("", "")
    supervised.tell(HostState(trial=""))
    assert (seen().trial, seen(taken=(first,)).trial) == (first, "")


def test_finished_trials_of_a_dead_supervisor_travel(room: Room) -> None:
    """Its state names a running trial, but no process runs it."""
    room.tell(HostState(trial=room.run().order[1].id, phase="measure"))
    assert seen(start=False).trial == room.run().order[0].id


def test_a_restarted_worker_starts_nothing_from_the_folder(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not told which plan this is and what may be wiped, so it asks for its blocks; finished trials travel."""
    monkeypatch.setattr(host.HERE, "dealt", {})
    assert not seen().dealt
    assert seen(start=False).trial == room.run().order[0].id


@pytest.mark.parametrize("key", ["plan.device.at", "cells[0].engine.bins", "scripts/w.sql"])
def test_a_run_that_was_changed_on_a_host_is_refused(
    key: str, tmp_path: Path, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's plan decides; the error names the key (E803)."""
    monkeypatch.setattr(host.HERE, "results", tmp_path)
    monkeypatch.setattr(host.HERE, "dealt", {})
    scripts = {"w.sql": "SELECT 1;\n"}
    run = dataclasses.replace(make_run("f"), host={"hostname": host.HERE.name})
    results.create_run(tmp_path, run, "# plan\n")
    deal = Deal("f", results.written_spec(run), "# plan\n", scripts, ("disk",), __version__)
    assert isinstance(host.answer(deal), Dealt)
    assert host.HERE.dealt == {"f": ("cafe", "disk")}
    cell = run.cells[0]
    evil = dataclasses.replace(cell, engine=dataclasses.replace(cell.engine, bins=("/tmp/evil",)))
    if key.startswith("plan"):
        device = dataclasses.replace(run.plan.device, at="/etc")
        results.save_spec(tmp_path / "f", dataclasses.replace(run, plan=dataclasses.replace(run.plan, device=device)))
    elif key.startswith("cells"):
        results.save_spec(tmp_path / "f", dataclasses.replace(run, cells=(evil,)))
    else:
        (tmp_path / "f/scripts/w.sql").write_text("\\! id\n")
    refused = host.answer(deal)
    assert isinstance(refused, Refused) and refused.error["id"] == "E803" and key in str(refused.error["evidence"])


def test_end_of_a_trial_wakes_who_asks(supervised: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end does, and no phase: a worker that is woken in a window is load."""
    monkeypatch.setattr(host, "_WAKE_S", 60.0)
    first, second = (spec.id for spec in supervised.run().order)
    keeper, answers = Keeper(supervised), list[HostSeen]()
    with supervised.hearing("bell") as bell:
        keeper.emit(Event("trial_begin", {"id": second}))
        keeper.emit(Event("phase_begin", {"phase": "measure"}))
        assert select.select([bell.fd], [], [], 0.0)[0] == []
    asking = threading.Thread(target=lambda: answers.append(seen(taken=(first,), patience_s=60.0)))
    asking.start()
    while not supervised.listened():
        time.sleep(0.01)
    publish(supervised, supervised.run(), 1)
    keeper.emit(Event("trial_end", {"id": second}))
    asking.join(30)
    assert [answer.trial for answer in answers] == [second]


def test_a_host_is_abandoned_without_its_coordinator(tmp_path: Path) -> None:
    """Of `--local`, and not detached; a host that has its results elsewhere never is."""
    fleet = Fleet("f", "spread", "2026-01-01", "0", {"local-1": (1,)})
    ledger.save(tmp_path, fleet)
    ours, elsewhere = tmp_path / ".fleet/f/hosts/local-1/f", tmp_path / "results/f"
    assert (ledger.abandoned(ours), ledger.abandoned(elsewhere)) == (True, False)
    assert not ledger.abandoned(Path("/results/night"))  # as in a container
    with ledger.coordinating(tmp_path, "f"):
        assert (ledger.coordinator(tmp_path, "f"), ledger.abandoned(ours)) == (os.getpid(), False)
    assert ledger.coordinator(tmp_path, "f") is None
    ledger.save(tmp_path, dataclasses.replace(fleet, detached=True))
    assert not ledger.abandoned(ours)


def test_locks_of_disks_are_private(
    tmp_path: Path, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in a directory that only this user can enter; one of another user, or a link, is refused."""
    monkeypatch.setattr(namespaces, "RUNTIME", tmp_path / "run")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    lock = supervisor.lock_of(make_run("f"), tmp_path)
    assert lock.parent.stat().st_mode & 0o777 == 0o700
    lock.parent.chmod(0o755)  # as an earlier version made it
    assert namespaces.private_folder().stat().st_mode & 0o777 == 0o700
    (tmp_path / "victim").write_text("not of dbbench\n")
    lock.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"), Turn(tmp_path) as turn:
        turn.take(make_run("f"), 1, lambda *_: None)
    assert (tmp_path / "victim").read_text() == "not of dbbench\n"
    lock.parent.rename(tmp_path / "elsewhere")
    lock.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        supervisor.lock_of(make_run("f"), tmp_path)


@pytest.fixture
def one_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs are on the same disk."""
    monkeypatch.setattr(supervisor, "lock_of", lambda _run, _folder: tmp_path / "disk.lock")


@pytest.mark.usefixtures("one_disk")
def test_who_waits_for_the_disk_says_for_whom(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    """The folder of the run that has it, as text and as a value."""
    told, waits = list[tuple[str, str]](), threading.Event()

    def note(text: str, waits_for: str = "") -> None:
        told.append((text, waits_for))
        waits.set()

    def other() -> None:
        with Turn(tmp_path / "other") as turn:
            turn.take(make_run("f"), 1, note)

    with Turn(tmp_path / "first") as turn:
        turn.take(make_run("f"), 1, note)
        waiting = threading.Thread(target=other)
        waiting.start()
        assert waits.wait(30)
    waiting.join(30)
    assert told == [(f"waiting for the disk, which is used by {tmp_path / 'first'}", str(tmp_path / "first"))]


@pytest.mark.usefixtures("one_disk")
def test_disk_goes_to_who_waited(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    """Who gives it up after a block and wants it again is behind who waited for it."""
    run, order, waits = make_run("f"), list[str](), threading.Event()

    def other() -> None:
        with Turn(tmp_path) as turn:
            turn.take(run, 1, lambda *_: waits.set())
            order.append("other")

    with Turn(tmp_path) as turn:
        turn.take(run, 1, lambda *_: None)
        waiting = threading.Thread(target=other)
        waiting.start()
        assert waits.wait(30)
        turn.take(run, 1, lambda *_: order.append("not in the middle of a block"))
        turn.take(run, 2, lambda *_: None)
        order.append("first again")
    waiting.join(30)
    assert order == ["other", "first again"]
