"""The process of a part on a host: its run's directory, and turns at the disk."""

import dataclasses
import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from dbbench import results
from dbbench.errors import RunLocked, RunNameTaken, Terminated
from dbbench.fleet import task
from dbbench.fleet.parts import Given
from dbbench.machine import namespaces
from dbbench.model import Run, TrialSpec
from dbbench.model.events import Event, ignore
from dbbench.run.children import Stop
from tests.support.runs import changed, small_run

# The facts of a host come from programs.
pytestmark = pytest.mark.starts_processes


def make_run(folder: Path, run: Run, scripts: dict[str, str] | None = None) -> Run:
    """Make the run of a part in a host's results folder; return it."""
    folder.mkdir(exist_ok=True)
    given = Given("# plan\n", scripts or {})
    named = dataclasses.replace(run, host={"hostname": "db1"})
    return task.make_run(named, given, folder / run.name).run


def part(run: Run, *blocks: int, attempt: int = 1) -> Run:
    """Return the run with the trials of those blocks only."""
    order = [spec for spec in run.order if spec.block in blocks]
    specs = tuple(
        dataclasses.replace(spec, attempt=attempt, id=spec.id.replace("-a1", f"-a{attempt}"))
        for spec in order
    )
    return dataclasses.replace(run, order=specs)


def test_run_of_a_host_has_its_name_and_facts(tmp_path: Path) -> None:
    """The name is that of the fleet, not what the machine calls itself."""
    run = make_run(tmp_path, small_run("f"))
    assert run.host["hostname"] == "db1" and run.host["kernel"]
    assert run.versions


def test_order_of_a_host_is_that_of_its_part(tmp_path: Path) -> None:
    """Blocks that were given to another host meanwhile are not run here; repeats that this host has
    added to its block are.
    """
    run = small_run("f")
    make_run(tmp_path, part(run, 1))
    assert [spec.block for spec in make_run(tmp_path, part(run, 2)).order] == [2]
    repeat = TrialSpec("ext4.postgres.w-b2-a2", run.cells[0].id, 2, 2, 3)
    stored = results.load_spec(tmp_path / "f")
    longer = dataclasses.replace(stored, order=(*stored.order, repeat))
    results.save_spec(tmp_path / "f", longer)
    assert [spec.attempt for spec in make_run(tmp_path, part(run, 2)).order] == [1, 2]
    assert [spec.attempt for spec in make_run(tmp_path, part(run, 2, attempt=2)).order] == [2]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("plan.device.at", "/etc"),
        ("cells[0].engine.bins", ("/tmp/evil",)),
        ("scripts/w.sql", "\\! id\n"),
    ],
)
def test_run_that_was_changed_on_a_host_is_refused(
    field: str,
    value: Any,
    tmp_path: Path,
) -> None:
    """A folder does not decide what root executes; the error names the key (E803)."""
    run = small_run("f")
    scripts = {"w.sql": "SELECT 1;\n"}
    make_run(tmp_path, run, scripts=scripts)
    if field.startswith("scripts"):
        (tmp_path / "f" / field).write_text(value)
    else:
        stored = results.load_spec(tmp_path / "f")
        results.save_spec(tmp_path / "f", changed(stored, field, value))
    with pytest.raises(RunLocked) as refused:
        make_run(tmp_path, run, scripts=scripts)
    assert refused.value.id == "E803" and field in refused.value.evidence


def test_another_plan_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """Its results are somebody's."""
    make_run(tmp_path, small_run("f"))
    with pytest.raises(RunNameTaken):
        make_run(tmp_path, dataclasses.replace(small_run("f"), plan_sha256="beef"))


def test_locks_of_disks_are_private(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
) -> None:
    """They lie in a directory that only this user can enter; one of another user, or a link, is
    refused.
    """
    monkeypatch.setattr(namespaces, "RUNTIME", tmp_path / "run")
    environ["HOME"] = str(tmp_path / "home")
    lock = task.lock_of(small_run("f"), tmp_path / "missing/f")
    assert lock.parent.stat().st_mode & 0o777 == 0o700
    lock.parent.chmod(0o755)  # as an earlier version made it
    assert namespaces.private_folder().stat().st_mode & 0o777 == 0o700
    (tmp_path / "victim").write_text("not of dbbench\n")
    lock.symlink_to(tmp_path / "victim")
    with (
        pytest.raises(OSError, match="symbolic link"),
        task.disk_turn(small_run("f"), tmp_path, ignore, Stop()),
    ):
        pass
    assert (tmp_path / "victim").read_text() == "not of dbbench\n"
    lock.parent.rename(tmp_path / "elsewhere")
    lock.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        task.lock_of(small_run("f"), tmp_path)


def test_parts_on_one_disk_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that waits names the run that uses the disk."""
    monkeypatch.setattr(task, "lock_of", lambda _run, _folder: tmp_path / "disk.lock")
    run = small_run("f")
    waits = threading.Event()
    events = list[Event]()
    order = list[str]()

    def emit(event: Event) -> None:
        events.append(event)
        waits.set()

    def other() -> None:
        with task.disk_turn(run, tmp_path / "second", emit, Stop()):
            order.append("second")

    with task.disk_turn(run, tmp_path / "first", ignore, Stop()):
        waiting = threading.Thread(target=other)
        waiting.start()
        assert waits.wait(30)
        order.append("first")
    waiting.join(30)
    assert order == ["first", "second"]
    assert str(tmp_path / "first") in json.dumps(events[0].data)


def test_part_that_waits_for_the_disk_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fleet stop` and the end of the worker do not wait for the run that has the disk."""
    monkeypatch.setattr(task, "lock_of", lambda _run, _folder: tmp_path / "disk.lock")
    run = small_run("f")
    stop = Stop()
    with pytest.raises(Terminated):
        stop(signal.SIGTERM, None)
    with (
        task.disk_turn(run, tmp_path / "first", ignore, Stop()),
        pytest.raises(Terminated),
        task.disk_turn(run, tmp_path / "second", ignore, stop),
    ):
        pytest.fail("both have the disk")


def test_work_without_a_process_ends_at_its_next_report() -> None:
    """Writing a large image is not a process that could be stopped."""
    events = list[Event]()
    stop = Stop()
    task.report(stop, events.append, Event("prepare"))
    with pytest.raises(Terminated):
        stop(signal.SIGTERM, None)
    with pytest.raises(Terminated):
        task.report(stop, events.append, Event("prepare"))
    assert events == [Event("prepare")]
