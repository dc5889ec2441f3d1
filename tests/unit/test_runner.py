"""A run apart from its trials: repeated blocks, pending trials, and leftovers of a killed run."""

import dataclasses
import fcntl
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil
import pytest

from dbbench import process, results
from dbbench.errors import (
    DatasetBuildFailed,
    DeadlinePassed,
    NotWritable,
    ProgramMissing,
    TrialStuck,
)
from dbbench.model import Phase, Run, Status, TrialSpec
from dbbench.model.events import Event
from dbbench.results import RunFolder
from dbbench.results.journal import Journal
from dbbench.run.adaptive import extend
from dbbench.run.children import Launcher, Overdue, Stop, stoppable
from dbbench.run.queue import name_writes
from dbbench.run.record import Record
from dbbench.run.recover import give_back
from dbbench.storage.devices.image import give_back_images, images_of, make_images
from tests.support.runs import changed, small_run


@pytest.fixture
def run() -> Run:
    """Two filesystems under two workloads in four blocks: 16 trials."""
    one = small_run()
    cells = []
    order = []
    for arm in ("ext4", "xfs"):
        for name in ("w", "v"):
            workload = dataclasses.replace(one.cells[0].workload, name=name)
            cells.append(
                dataclasses.replace(
                    one.cells[0],
                    id=f"{arm}.postgres.{name}",
                    arm=arm,
                    workload=workload,
                )
            )
    for block in (1, 2, 3, 4):
        for cell in cells:
            order.append(TrialSpec(f"{cell.id}-b{block}-a1", cell.id, block, 1, len(order) + 1))
    return dataclasses.replace(one, cells=tuple(cells), order=tuple(order))


def suspects(*ids: str) -> Callable[[TrialSpec], Status]:
    """Those trials are suspect, all others ok."""
    return lambda spec: Status.SUSPECT if spec.id in ids else Status.OK


def test_block_with_a_suspect_trial_is_repeated_whole(run: Run) -> None:
    """Both arms of that workload and block get a second attempt at the end, other workloads do not;
    a repeat that is suspect again is not repeated. All blocks suspect: 8 further trials of 16,
    never half a block. What fails for a cause of its own fails again, and the plan may forbid
    repeats.
    """
    status = suspects("xfs.postgres.w-b2-a1", "xfs.postgres.w-b2-a2")
    longer = extend(run, status)
    new = longer.order[len(run.order) :]
    assert {"ext4.postgres.w-b2-a2", "xfs.postgres.w-b2-a2"} == {spec.id for spec in new}
    assert [(spec.position, spec.attempt) for spec in new] == [(17, 2), (18, 2)]
    assert extend(longer, status) is longer
    longer = extend(run, lambda _: Status.SUSPECT)
    assert len(longer.order) == 24
    assert extend(longer, lambda _: Status.SUSPECT) is longer
    assert extend(run, lambda _: Status.FAILED) is run
    quiet = changed(run, "plan.repeat_suspect", False)
    assert extend(quiet, lambda _: Status.SUSPECT) is quiet


def test_what_a_killed_run_has_left_is_given_back(tmp_path: Path) -> None:
    """Cut-off trials, which are pending, and journalled temporary folders go; finished trials and
    other folders stay.
    """
    folder = results.create_run(tmp_path, small_run(), "")
    spec = results.load_spec(folder)
    journal = Journal(folder / "journal.jsonl")
    (folder / "trials" / spec.order[0].id).mkdir()
    results.Draft(folder, spec.order[1].id)
    assert [spec.order[1]] == results.pending(folder, spec)
    (tmp_path / "other/deep").mkdir(parents=True)
    # as the worker makes it
    taken = Path(tempfile.mkdtemp(prefix=f"dbbench-{journal.tag}-", dir="/tmp"))
    journal.note("take", what="runtime", path=str(taken))
    give_back(folder, journal)
    assert [spec.order[0].id] == [path.name for path in (folder / "trials").iterdir()]
    assert not taken.exists()
    assert (tmp_path / "other/deep").is_dir()
    assert journal.outstanding("runtime") == []


def test_image_is_made_once_and_given_back(tmp_path: Path) -> None:
    """Fully written, used again by a resumed run, removed at the end; the journal knows it before
    it is there.
    """
    run = changed(small_run(), "plan.device.size_bytes", 2 * 2**20)
    journal = Journal(tmp_path / "j")
    told = list[float]()
    make_images(run, tmp_path, journal, lambda _, share: told.append(share))
    (image,) = images_of(run, tmp_path)["data"]
    assert (image.stat().st_size, told[-1]) == (2 * 2**20, 1.0)
    assert image.stat().st_blocks * 512 >= image.stat().st_size
    written = image.stat().st_mtime_ns
    make_images(run, tmp_path, journal, lambda *_: None)
    assert written == image.stat().st_mtime_ns
    assert [image] == give_back_images(journal)
    assert not image.exists() and give_back_images(journal) == []


def test_image_of_a_killed_trial_is_waited_for(tmp_path: Path) -> None:
    """The kernel lets go of what a killed trial had a moment later; one that stays held stays
    noted.
    """
    journal = Journal(tmp_path / "journal.jsonl")
    image = tmp_path / f".dbbench-r-{journal.tag}.img"
    image.touch()
    journal.note("take", what="image", path=str(image))
    with image.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert give_back_images(journal) == [] and image.exists()
        release = threading.Timer(0.2, lambda: fcntl.flock(held, fcntl.LOCK_UN))
        release.start()
        assert give_back_images(journal, 10.0) == [image]
        release.join()


DEAF: Final = """import json, signal, time
from dbbench.run.children import serve
def tell(kind, **data): print(json.dumps({"kind": kind, "data": data}), flush=True)
def main(argv):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell("phase_begin", phase="settle", deadline_s=0.2)
    %s
    time.sleep(60)
serve(main)
"""
SLOW: Final = """import os, time
from dbbench.machine import namespaces
from dbbench.run.children import serve
def main(argv):
    namespaces.die_with_parent()
    os.write(1, b'{"kind": "note", "data'); time.sleep(0.3); os.write(1, b'": {"text": "a"}}\\n')
    time.sleep(60 if "stay" in argv else 0)
    os.write(1, b'{"kind": "note", "data": {"text": "b"}}')
    return argv["status"]
serve(main)
"""


LauncherOf = Callable[[str, list[Event], Stop], Launcher]


@pytest.fixture
def launcher_of(tmp_path: Path, environ: dict[str, str]) -> LauncherOf:
    """Return a function that returns a launcher of a module in `tmp_path`."""
    environ["PYTHONPATH"] = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    return lambda module, told, stop: Launcher(module, tmp_path / "log", told.append, stop)


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("pass", "phase settle was still running 0 s after its deadline of 0 s"),
        (
            'tell("phase_end", phase="settle")',
            "the trial reported nothing for 0 s after phase settle",
        ),
    ],
)
def test_a_trial_that_ignores_every_signal_is_killed(
    then: str,
    said: str,
    launcher_of: LauncherOf,
    tmp_path: Path,
) -> None:
    """Some time after its deadline, where it ignores what asks it to end; what it reported before
    is passed on.
    """
    (tmp_path / "deaf.py").write_text(DEAF % then)
    told = list[Event]()
    began = time.monotonic()
    with (
        pytest.raises(TrialStuck, match=said),
        stoppable() as stop,
        launcher_of("deaf", told, stop) as launcher,
    ):
        launcher.run({}, Overdue(grace_s=0.2, between_s=0.3))
    assert time.monotonic() - began < 20  # of its 60
    assert told[0].data["phase"] == "settle"
    assert not [child for child in psutil.Process().children() if "deaf" in child.cmdline()]


@pytest.mark.starts_processes
def test_a_fork_server_makes_one_process_after_the_other(
    launcher_of: LauncherOf, tmp_path: Path
) -> None:
    """Each has its own status. Lines that come in pieces, and a last one without its end, are
    whole; a trial that tells no deadline is waited for. A server that was killed ends its
    process, which counts as killed; the next request starts another one.
    """
    (tmp_path / "slow.py").write_text(SLOW)
    told = list[Event]()
    with stoppable() as stop, launcher_of("slow", told, stop) as launcher:
        assert launcher.run({"status": 3}, Overdue(grace_s=0.0, between_s=0.0)) == 3
        assert [event.data["text"] for event in told] == ["a", "b"]
        assert [launcher.run({"status": status}) for status in (0, 4)] == [0, 4]
        (server,) = (child for child in psutil.Process().children() if "slow" in child.cmdline())
        launcher.emit = lambda event: server.kill()
        assert launcher.run({"status": 0, "stay": True}) == -signal.SIGKILL
        launcher.emit = told.append
        assert launcher.run({"status": 5}) == 5
    assert not [child for child in psutil.Process().children() if "slow" in child.cmdline()]


def test_each_phase_reports_its_deadline(tmp_path: Path) -> None:
    """The table's, or the plan's own word, so that the parent knows when to give up."""
    run = changed(small_run(), "plan.deadlines", {Phase.SETTLE: 7.0})
    told = list[Event]()
    folder = results.RunFolder(results.create_run(tmp_path, run, ""))
    record = Record(folder, run.order[0], told.append)
    for phase in (Phase.SETTLE, Phase.MOUNT):
        with record.stage(phase):
            pass
    assert [event.data["deadline_s"] for event in told if event.kind == "phase_begin"] == [7.0, 300]


@pytest.mark.starts_processes
def test_a_module_that_cannot_be_imported_is_not_a_process(
    launcher_of: LauncherOf, tmp_path: Path
) -> None:
    """The status is that of the fork server, and the reason is in the log; if that cannot be
    opened, nothing is started.
    """
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    with stoppable() as stop, launcher_of("broken", [], stop) as launcher:
        assert launcher.run({}) == 1
    assert "no_such_module" in (tmp_path / "log").read_text()
    (tmp_path / "log").unlink()
    (tmp_path / "log").mkdir()
    with pytest.raises(NotWritable, match="log cannot be written"), stoppable() as stop:
        launcher_of("broken", [], stop).__enter__().run({})


@pytest.mark.parametrize(
    ("status", "words"),
    [(-9, "signal SIGKILL"), (137, "signal SIGKILL"), (2, "status 2"), (255, "status 255")],
)
def test_the_end_of_a_program_is_put_into_words(status: int, words: str) -> None:
    """Also of one that reports the signal of another."""
    assert process.ending(status) == words


@pytest.mark.starts_processes
def test_the_end_of_a_program_is_noticed_at_once_or_forced() -> None:
    """Also if it has ended before; at intervals of up to 50 ms the end would be noticed 0.11 s
    after the start. A program that does not end is killed after its grace: a wait for it ends at
    its deadline, and the status is that of SIGKILL.
    """
    noticed_s = []
    for _ in range(5):
        began = time.monotonic()
        with process.running(["sleep", "0.08"]) as program:
            assert (program.wait(5.0), program.wait(5.0)) == (0, 0)
        noticed_s.append(time.monotonic() - began)
    assert min(noticed_s) < 0.1
    ignoring = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]
    with process.running(ignoring, stdout=subprocess.PIPE, grace_s=0.2) as program:
        assert program.popen.stdout is not None and program.popen.stdout.readline() == b"ready\n"
        with pytest.raises(DeadlinePassed):
            program.wait(0.1)
    assert program.poll() == -signal.SIGKILL


def test_a_late_refusal_names_what_was_written(tmp_path: Path) -> None:
    """The image with its size and the command that removes it, and the disk. Where nothing was
    written, the text of the table stays.
    """
    run = small_run()
    folder = RunFolder(results.create_run(tmp_path, run, ""))
    early = ProgramMissing("not installed: fio")
    name_writes(early, folder, [])
    assert early.effect == "Nothing was changed."

    (image,) = images_of(run, folder.path)["data"]
    folder.journal.note("take", what="image", path=str(image))
    image.write_bytes(bytes(2 * 2**20))
    folder.journal.note("had", device="disk-1")
    late = ProgramMissing("not installed: fio")
    name_writes(late, folder, [])
    assert late.effect == (
        f"{image} (2 MiB) is kept; `dbbench clean {folder.path}` removes it. "
        "This run has written to disk-1."
    )
    other = DatasetBuildFailed("bad", effect="The copy was removed.")
    name_writes(other, folder, ["postgres-15.1-pgbench-0"])
    assert other.effect.startswith(f"{image} (2 MiB) is kept;")
    assert "The golden copy postgres-15.1-pgbench-0 (0 B) is kept;" in other.effect
