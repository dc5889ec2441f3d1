"""Every write of the results fails, once or permanently: an incomplete result is never
published.
"""

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import results
from dbbench.errors import DiskTooSmall, FilesystemFull, NotWritable
from dbbench.model import Status
from dbbench.results.journal import Journal
from dbbench.results.trials import damage
from dbbench.storage.devices import image
from tests.support.road import Road
from tests.support.runs import changed, small_run


class Failing:
    """Below a folder the `at`-th opening of a file, making of a folder, renaming or fsync fails, or
    all from it on do. Python has no way to take an audit hook off again: one for all tests, off
    between them.
    """

    folder = ""
    at = 0
    forever = False
    seen = 0

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
def failing(folder: Path, at: int, forever: bool) -> Iterator[None]:
    """That step fails while the block lasts."""
    real = os.fsync

    def fsync(fd: int) -> None:
        Failing.step(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", fsync)
        Failing.folder = str(folder)
        Failing.at = at
        Failing.forever = forever
        Failing.seen = 0
        try:
            yield
        finally:
            Failing.folder = ""


def test_every_write_that_fails_leaves_no_half_result(road: Road) -> None:
    """For every N, once and for ever: an error with its ID, or a result that is whole; then it is
    run again.
    """
    steps = at = 0
    while at <= steps:
        for forever in (False, True):
            folder = road.create(f"results-{at}-{forever}")
            with failing(folder, at, forever), contextlib.suppress(FilesystemFull, NotWritable):
                road.first(folder)
            steps = Failing.seen if at == 0 else steps
            assert road.calls.all_released(), at
            done = [path for path in (folder / "trials").iterdir() if not path.name.startswith(".")]
            assert all(damage(path) == [] for path in done), at
            if not done:
                assert road.first(folder) is not Status.FAILED, at
            assert len(results.load_run(folder).trials) == 1
        at += 1
    assert steps > 10


def test_every_write_of_a_run_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    """run.json that is written anew is the old or the new one, whole."""
    folder = results.create_run(tmp_path, small_run(), "")
    for at in range(1, 8):
        with failing(folder, at, False), contextlib.suppress(FilesystemFull, NotWritable):
            results.save_spec(folder, small_run())
        assert results.load_spec(folder) == small_run()
        assert [path for path in folder.iterdir() if path.name.endswith(".tmp")] == []


def test_every_write_of_a_new_run_that_fails_leaves_its_name_free(tmp_path: Path) -> None:
    """The folder of a run is there whole or not at all, and nothing else is."""
    (results_folder := tmp_path / "results").mkdir()
    steps = at = 0
    while at <= steps:
        for forever in (False, True):
            with failing(tmp_path, at, forever), contextlib.suppress(FilesystemFull, NotWritable):
                results.create_run(results_folder, small_run("new"), "# plan\n")
            steps = Failing.seen if at == 0 else steps
            found = [path.name for path in results_folder.iterdir()]
            assert found in ([], ["new"]), at
            folder = results_folder / "new"
            folder = (
                folder
                if found
                else results.create_run(results_folder, small_run("new"), "# plan\n")
            )
            assert (results.load_spec(folder).name, (folder / "plan.toml").read_text()) == (
                "new",
                "# plan\n",
            )
            shutil.rmtree(folder)
        at += 1
    assert steps > 8


def test_a_run_whose_making_was_killed_is_none_and_its_remains_go(tmp_path: Path) -> None:
    """It is not listed, and the next of its name takes it away; what a process that lives is making
    stays.
    """
    # no process has it
    left = results.create_run(tmp_path, small_run("new"), "").rename(tmp_path / ".new.5000000.new")
    others = results.create_run(tmp_path, small_run("new"), "").rename(tmp_path / ".new.1.new")
    assert results.find_open(tmp_path, small_run().plan_sha256) is None
    assert results.runs(tmp_path) == []
    results.create_run(tmp_path, small_run("new"), "")
    assert (left.exists(), others.exists()) == (False, True)


def test_every_failed_write_of_an_image_is_reported_as_such(tmp_path: Path) -> None:
    """A full disk is no fault of the program, and the image is made when there is room."""
    run = changed(small_run(), "plan.device.size_bytes", 2**20)
    steps = at = 0
    while at <= steps:
        (folder := tmp_path / str(at)).mkdir()
        journal = Journal(folder / "journal.jsonl")
        with failing(folder, at, False), contextlib.suppress(FilesystemFull, DiskTooSmall):
            image.make_images(run, folder, journal, lambda what, share: None)
        steps = Failing.seen if at == 0 else steps
        image.make_images(run, folder, journal, lambda what, share: None)
        found = image.images_of(run, folder)
        assert [path.stat().st_size for path in found["data"]] == [2**20], at
        assert list(folder.glob("*.partial")) == []
        at += 1
    assert steps > 3
