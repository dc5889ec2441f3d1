"""A fleet's host between two trials: when results travel, who is woken, whose turn at the disk it is."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dbbench import store
from dbbench.fleet import host, supervisor
from dbbench.fleet.room import Room
from dbbench.fleet.supervisor import Keeper, Turn
from dbbench.fleet.words import See, Seen, State
from dbbench.model import Run, Status, Trial
from dbbench.progress.events import Event


@pytest.fixture
def room(tmp_path: Path, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> Room:
    """The folder of a run of two trials that were dealt to this host, the first of them finished."""
    monkeypatch.setattr(host.HERE, "results", tmp_path)
    run = make_run("f")
    room = Room(store.create_run(tmp_path, run, "# plan\n"))
    room.make()
    room.deal(run.order, ())
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
    store.Draft(room.folder, spec.id).publish(trial, None, [], None)


def seen(*, taken: tuple[str, ...] = (), patience_s: float = 0.0, start: bool = True) -> Seen:
    """What the host answers."""
    answer = host.answer(See("f", (1, 2), taken, patience_s, start))
    assert isinstance(answer, Seen)
    return answer


def test_nothing_travels_during_a_trial(supervised: Room) -> None:
    """Also not what was finished before, when a coordinator comes back in the middle of a window."""
    first, second = (spec.id for spec in supervised.run().order)
    supervised.tell(State(trial=second, phase="measure"))
    assert (seen().trial, seen(start=False).trial) == ("", "")
    supervised.tell(State(trial=""))
    assert (seen().trial, seen(taken=(first,)).trial) == (first, "")


def test_finished_trials_of_a_dead_supervisor_travel(room: Room) -> None:
    """Its state says that it is in a trial, but nobody is."""
    room.tell(State(trial=room.run().order[1].id, phase="measure"))
    assert seen(start=False).trial == room.run().order[0].id


def test_end_of_a_trial_wakes_who_asks(supervised: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end does, and no phase: a worker that is woken in a window is load."""
    monkeypatch.setattr(host, "_WAKE_S", 60.0)
    first, second = (spec.id for spec in supervised.run().order)
    keeper, answers = Keeper(supervised), list[Seen]()
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


def test_disk_goes_to_who_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., Run]) -> None:
    """Who gives it up after a block and wants it again is behind who waited for it."""
    monkeypatch.setattr(supervisor, "lock_of", lambda _run, _folder: tmp_path / "disk.lock")
    run, order, waits = make_run("f"), list[str](), threading.Event()

    def other() -> None:
        with Turn(tmp_path) as turn:
            turn.take(run, 1, lambda _: waits.set())
            order.append("other")

    with Turn(tmp_path) as turn:
        turn.take(run, 1, lambda _: None)
        waiting = threading.Thread(target=other)
        waiting.start()
        assert waits.wait(30)
        turn.take(run, 1, lambda _: order.append("not in the middle of a block"))
        turn.take(run, 2, lambda _: None)
        order.append("first again")
    waiting.join(30)
    assert order == ["other", "first again"]
