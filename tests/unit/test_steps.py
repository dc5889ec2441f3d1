"""Every write of the results fails once, and for ever, with no-op parts: nothing half is a result."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import images, store
from dbbench.errors import DiskTooSmall, FilesystemFull, ResultsUnwritable
from dbbench.journal import Journal
from dbbench.model import Run, Status
from dbbench.record import Record
from dbbench.store import Draft
from dbbench.store.trials import damage
from dbbench.trial import run_trial

from .test_trial import NoOps

MakeRun = Callable[..., Run]


class Failing:
    """Below a folder the `at`-th opening of a file, making of a folder, renaming or fsync fails, or all from it on do.
    Python has no way to take an audit hook off again: one for all tests, off between them."""

    folder, at, forever, seen = "", 0, False, 0

    @classmethod
    def step(cls, path: object) -> None:
        if not cls.folder or not isinstance(path, str | bytes | os.PathLike):
            return
        if os.fsdecode(path).startswith(cls.folder):
            cls.seen += 1
            if cls.seen == cls.at or (cls.forever and cls.seen > cls.at > 0):
                raise OSError(errno.ENOSPC, "No space left on device (planted)")

    @classmethod
    def audit(cls, event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or event in ("os.rename", "os.mkdir"):
            cls.step(args[0])


sys.addaudithook(Failing.audit)


@contextlib.contextmanager
def failing(folder: Path, at: int, forever: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """That step fails while the block lasts."""
    real = os.fsync

    def fsync(fd: int) -> None:
        Failing.step(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        Failing.folder, Failing.at, Failing.forever, Failing.seen = str(folder), at, forever, 0
        try:
            yield
        finally:
            Failing.folder = ""


def a_trial(folder: Path, parts: NoOps) -> Status:
    """The first trial of the run in the folder."""
    run = store.load_spec(folder)
    record = Record(run, run.order[0], run.cells[0], Draft(folder, run.order[0].id), lambda _: None)
    return run_trial(record, parts.parts(), parts.room)


def test_every_write_that_fails_leaves_no_half_result(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every N, once and for ever: an error with its ID, or a result that is whole; then it is driven again."""
    steps = at = 0
    while at <= steps:
        for forever in (False, True):
            place = tmp_path / f"{at}-{forever}"
            for room in ("room", "again"):
                (place / room).mkdir(parents=True)
            parts = NoOps(place / "room")
            folder = store.create_run(place / "results", make_run(), "")
            with failing(folder, at, forever, monkeypatch), contextlib.suppress(FilesystemFull, ResultsUnwritable):
                a_trial(folder, parts)
            steps = Failing.seen if at == 0 else steps
            for name in ("device", "mount", "serve", "samplers", "load", "kernel"):
                assert parts.said.count(name) == parts.said.count(f"/{name}"), at
            done = [path for path in (folder / "trials").iterdir() if not path.name.startswith(".")]
            assert all(damage(path) == [] for path in done), at
            if not done:
                assert a_trial(folder, NoOps(place / "again")) is Status.OK, at
            assert len(store.load_run(folder).trials) == 1
        at += 1
    assert steps > 10


def test_every_write_of_a_run_that_fails_leaves_the_one_before(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run.json that is written anew is the old or the new one, whole."""
    folder = store.create_run(tmp_path, make_run(), "")
    for at in range(1, 8):
        with failing(folder, at, False, monkeypatch), contextlib.suppress(FilesystemFull, ResultsUnwritable):
            store.save_spec(folder, make_run())
        assert store.load_spec(folder) == make_run()
        assert [path for path in folder.iterdir() if path.name.endswith(".tmp")] == []


def test_every_write_of_a_new_run_that_fails_leaves_its_name_free(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a run is there whole or not at all, and nothing else is."""
    (results := tmp_path / "results").mkdir()
    steps = at = 0
    while at <= steps:
        for forever in (False, True):
            with failing(tmp_path, at, forever, monkeypatch), contextlib.suppress(FilesystemFull, ResultsUnwritable):
                store.create_run(results, make_run("new"), "# plan\n")
            steps = Failing.seen if at == 0 else steps
            found = [path.name for path in results.iterdir()]
            assert found in ([], ["new"]), at
            folder = results / "new" if found else store.create_run(results, make_run("new"), "# plan\n")
            assert (store.load_spec(folder).name, (folder / "plan.toml").read_text()) == ("new", "# plan\n")
            shutil.rmtree(folder)
        at += 1
    assert steps > 8


def test_a_run_whose_making_was_killed_is_none_and_its_remains_go(make_run: MakeRun, tmp_path: Path) -> None:
    """It is not listed, and the next of its name takes it away; what a process that lives is making stays."""
    left = store.create_run(tmp_path, make_run("new"), "").rename(tmp_path / ".new.5000000.new")  # no process has it
    others = store.create_run(tmp_path, make_run("new"), "").rename(tmp_path / ".new.1.new")
    assert store.find_unfinished(tmp_path, make_run().plan_sha256) is None
    assert store.runs(tmp_path) == []
    store.create_run(tmp_path, make_run("new"), "")
    assert (left.exists(), others.exists()) == (False, True)


def test_every_write_of_an_image_that_fails_is_said_as_such(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no fault of the program, and the image is made when there is room."""
    run = make_run()
    device = dataclasses.replace(run.plan.device, size_bytes=2**20)
    run = dataclasses.replace(run, plan=dataclasses.replace(run.plan, device=device))
    steps = at = 0
    while at <= steps:
        (folder := tmp_path / str(at)).mkdir()
        journal = Journal(folder / "journal.jsonl")
        with failing(folder, at, False, monkeypatch), contextlib.suppress(FilesystemFull, DiskTooSmall):
            images.make(run, folder, journal, lambda what, share: None)
        steps = Failing.seen if at == 0 else steps
        images.make(run, folder, journal, lambda what, share: None)
        found = images.of(run, folder)
        assert found is not None and [path.stat().st_size for path in found.all] == [2**20], at
        assert list(folder.glob("*.partial")) == []
        at += 1
    assert steps > 3
