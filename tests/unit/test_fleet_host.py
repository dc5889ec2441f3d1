"""A fleet's host between two trials: transfer of results, its share of the blocks, turns at the
disk.
"""

import dataclasses
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import __version__, results
from dbbench.errors import CoordinatorGone
from dbbench.fleet import fleet_files, host, share
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.host_folder import HostFolder, Taken
from dbbench.fleet.messages import (
    BATCH,
    Assignment,
    Batch,
    FileRequest,
    HostReport,
    HostState,
    Refusal,
    ResultRequest,
)
from dbbench.fleet.share import DiskTurn, Share
from dbbench.machine import namespaces
from dbbench.model import Run
from dbbench.model.events import Event
from tests.support.runs import changed, small_run
from tests.support.trials import trial_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> host.Here:
    """This host; its results are in the test's directory, and no run was assigned to it."""
    found = host.Here(results=tmp_path, share=("false",))
    monkeypatch.setattr(host, "HERE", found)
    return found


@pytest.fixture
def at_host(tmp_path: Path, here: host.Here) -> HostFolder:
    """The folder of a run of two trials that were assigned to this host, the first of them
    finished.
    """
    run = small_run("f")
    here.tasks["f"] = host.HostTask(run, ())
    at_host = HostFolder(results.create_run(tmp_path, run, "# plan\n"))
    at_host.make()
    publish(at_host, run, 0)
    return at_host


@pytest.fixture
def at_work(at_host: HostFolder) -> Iterator[HostFolder]:
    """The same, with a share that runs trials."""
    with at_host.lock() as ours:
        assert ours
        yield at_host


def publish(at_host: HostFolder, run: Run, index: int) -> None:
    """Finish a trial."""
    results.Draft(at_host.folder, run.order[index].id).publish(trial_of(run, index), None, [], None)


def report(
    *, taken: tuple[str, ...] = (), patience_s: float = 0.0, coordinator: str = ""
) -> HostReport:
    """What the host answers."""
    answer = host.answer(ResultRequest("f", (1, 2), taken, patience_s, coordinator))
    assert isinstance(answer, HostReport)
    return answer


def test_nothing_travels_during_a_trial(at_work: HostFolder) -> None:
    """Also not what was finished before, when a coordinator comes back in the middle of a window."""
    first, second = (spec.id for spec in at_work.run().order)
    at_work.save_state(HostState(trial=second, phase="measure"))
    assert report().trial == ""
    at_work.save_state(HostState(trial=""))
    assert (report().trial, report(taken=(first,)).trial) == (first, "")


def test_finished_trials_of_a_dead_share_travel(at_host: HostFolder, here: host.Here) -> None:
    """Its state names a trial and an error, but no process runs it. A restarted worker starts
    nothing from the folder: it does not know which plan this is and what may be erased, so its
    blocks are assigned again.
    """
    here.tasks["f"].starts = 1
    at_host.save_state(
        HostState(
            trial=at_host.run().order[1].id, phase="measure", ended=True, error={"id": "E999"}
        )
    )
    assert report().trial == at_host.run().order[0].id
    here.tasks.clear()
    assert report() == HostReport(False)


@pytest.mark.starts_processes
def test_a_share_that_does_nothing_is_given_up(at_host: HostFolder) -> None:
    """After three starts without a trial the host refuses, and names the logs."""
    answer = host.answer(ResultRequest("f", (1, 2), (at_host.run().order[0].id,), 60.0))
    assert isinstance(answer, Refusal) and "3 times without a result" in str(
        answer.error["evidence"]
    )
    assert "share.log" in str(answer.error["remedy"])


@pytest.mark.starts_processes
def test_an_error_of_before_is_forgotten(
    at_host: HostFolder, here: host.Here, tmp_path: Path
) -> None:
    """Blocks that are assigned again are tried again; an error of a share that was started since
    ends the work.
    """
    seen = tmp_path / "seen"
    here.share = ("sh", "-c", f"cat $0/fleet/state.json >> {seen}; echo >> {seen}")
    at_host.save_state(HostState(ended=True, error={"id": "E999", "evidence": "no mkfs"}))
    report()
    assert '"note": "starting"' in seen.read_text()
    starts = [seen.read_text().count("starting")]
    for error in ({"id": "E999"}, {"id": CoordinatorGone.id}):
        at_host.save_state(HostState(ended=True, error=error))
        report()
        starts.append(seen.read_text().count("starting"))
    assert starts == [1, 1, 2]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("plan.device.at", "/etc"),
        ("cells[0].engine.bins", ("/tmp/evil",)),
        ("scripts/w.sql", "\\! id\n"),
    ],
)
def test_a_run_that_was_changed_on_a_host_is_refused(
    key: str, value: Any, tmp_path: Path, here: host.Here
) -> None:
    """The coordinator's plan decides; the error names the key (E803)."""
    scripts = {"w.sql": "SELECT 1;\n"}
    run = dataclasses.replace(small_run("f"), host={"hostname": here.name})
    results.create_run(tmp_path, run, "# plan\n")
    assignment = Assignment(
        "f", results.written_spec(run), "# plan\n", scripts, ("disk",), __version__
    )
    assert isinstance(host.answer(assignment), dict)
    assert (here.tasks["f"].wipe, here.tasks["f"].run.plan_sha256) == (("disk",), "cafe")
    if key.startswith("scripts"):
        (tmp_path / "f" / key).write_text(value)
    else:
        results.save_spec(tmp_path / "f", changed(run, key, value))
    refusal = host.answer(assignment)
    assert (
        isinstance(refusal, Refusal)
        and refusal.error["id"] == "E803"
        and key in str(refusal.error["evidence"])
    )


def test_end_of_a_trial_ends_the_waiting(at_work: HostFolder) -> None:
    """The question is answered with the result as soon as the trial has ended."""
    first, second = (spec.id for spec in at_work.run().order)
    share = Share(at_work.folder)
    answers = list[HostReport]()
    share.emit(Event("trial_begin", {"id": second}))
    share.emit(Event("phase_begin", {"phase": "measure"}))
    asking = threading.Thread(
        target=lambda: answers.append(report(taken=(first,), patience_s=60.0))
    )
    asking.start()
    while at_work.receipt() != Taken((first,)):
        time.sleep(0.01)
    publish(at_work, at_work.run(), 1)
    share.emit(Event("trial_end", {"id": second}))
    asking.join(30)
    assert [answer.trial for answer in answers] == [second]


def test_trials_go_on_as_soon_as_a_result_was_read(at_work: HostFolder) -> None:
    """They wait while a coordinator asks and does not have a finished trial, but not for its
    verification.
    """
    trial = at_work.run().order[0].id
    there = at_work.folder / "trials" / trial
    (there / "empty").touch()
    (there / "large").write_bytes(random.Random(1).randbytes(3 * BATCH + 1))
    assert not at_work.awaits_transfer()  # nobody has asked
    batches = [report().batch]
    while not batches[-1].last:
        assert at_work.awaits_transfer()
        batch = host.answer(FileRequest("f", trial, BATCH * len(batches)))
        assert isinstance(batch, Batch)
        batches.append(batch)
    assert not at_work.awaits_transfer()
    assert len(batches) > 3
    assert {sum(len(content) for _, content in batch.pieces) for batch in batches[:-1]} == {BATCH}
    came = dict[str, bytes]()
    for name, content in (piece for batch in batches for piece in batch.pieces):
        came[name] = came.get(name, b"") + content
    assert came == {
        str(path.relative_to(there)): path.read_bytes()
        for path in there.rglob("*")
        if path.is_file()
    }


def test_a_host_ends_without_its_coordinator(at_work: HostFolder, tmp_path: Path) -> None:
    """If the coordinator says so, and has ended; one that does not say it is not missed."""
    fleet_files.save(tmp_path, Fleet("f", "spread", "2026-01-01", "0", {"local-1": (1,)}))
    folder = fleet_files.folder_of(tmp_path, "f")
    share = Share(at_work.folder)
    share._check_demand()
    report(coordinator=str(folder))
    with fleet_files.coordinating(tmp_path, "f"):
        assert fleet_files.coordinator(folder) == os.getpid()
        share._check_demand()
    assert fleet_files.coordinator(folder) is None
    with pytest.raises(CoordinatorGone):
        share._check_demand()


def test_locks_of_disks_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """They lie in a directory that only this user can enter; one of another user, or a link, is
    refused.
    """
    monkeypatch.setattr(namespaces, "RUNTIME", tmp_path / "run")
    environ["HOME"] = str(tmp_path / "home")
    lock = share.lock_of(small_run("f"), tmp_path)
    assert lock.parent.stat().st_mode & 0o777 == 0o700
    lock.parent.chmod(0o755)  # as an earlier version made it
    assert namespaces.private_folder().stat().st_mode & 0o777 == 0o700
    (tmp_path / "victim").write_text("not of dbbench\n")
    lock.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"):
        DiskTurn(tmp_path, lambda _: None).take(small_run("f"), 1)
    assert (tmp_path / "victim").read_text() == "not of dbbench\n"
    lock.parent.rename(tmp_path / "elsewhere")
    lock.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        share.lock_of(small_run("f"), tmp_path)


@pytest.fixture
def one_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs are on the same disk."""
    monkeypatch.setattr(share, "lock_of", lambda _run, _folder: tmp_path / "disk.lock")


@pytest.mark.usefixtures("one_disk")
def test_who_waits_for_the_disk_says_for_whom(at_host: HostFolder, tmp_path: Path) -> None:
    """The folder of the run that has it, as text and as a value."""
    run = at_host.run()
    turn = DiskTurn(tmp_path / "first", lambda _: None)
    share = Share(at_host.folder)
    turn.take(run, 1)
    waiting = threading.Thread(target=share.run, args=(lambda _: None,))
    waiting.start()
    while not at_host.state().note:
        time.sleep(0.01)
    state = at_host.state()
    turn.release()
    waiting.join(30)
    assert state.waits_for == str(tmp_path / "first") and state.waits_for in state.note
    assert at_host.state().ended and at_host.state().error is None


@pytest.mark.usefixtures("one_disk")
def test_disk_goes_to_who_waited(tmp_path: Path) -> None:
    """Who gives it up after a block and wants it again is behind who waited for it."""
    run = small_run("f")
    order = list[str]()
    waits = threading.Event()

    def other() -> None:
        turn = DiskTurn(tmp_path, lambda _: waits.set())
        turn.take(run, 1)
        order.append("other")
        turn.release()

    turn = DiskTurn(tmp_path, lambda _: None)
    turn.take(run, 1)
    waiting = threading.Thread(target=other)
    waiting.start()
    assert waits.wait(30)
    turn.take(run, 1)  # not given up in the middle of a block
    assert order == []
    turn.take(run, 2)
    order.append("first again")
    waiting.join(30)
    assert order == ["other", "first again"]
