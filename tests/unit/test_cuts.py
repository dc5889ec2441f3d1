"""The results folder after a power loss at any point of publishing a trial, on a model of a
filesystem.

The model is a journalling filesystem: data that was fsynced survives; any part of other names
and contents may. Each step of publishing a run of three trials is recorded. Then the power is
cut at random points, and each disk that is possible after it is built and read. DBBENCH_CUTS is
the number of cuts (`make soak`: 500).
"""

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dbbench import results
from dbbench.errors import ResultDamaged, RunMissing
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.series import Series
from dbbench.model import Run
from dbbench.results.journal import Journal
from dbbench.results.trials import damage, leftovers
from tests.support.runs import small_run

from .test_store import a_trial

CUTS = int(os.environ.get("DBBENCH_CUTS", "60"))
SEED = int(os.environ.get("DBBENCH_SOAK_SEED", "1"))


Names = dict[tuple[int, str], int]  # (inode of the folder, name in it) -> inode


@dataclass
class Moment:
    """The folder as programs see it, and what of it is durable."""

    label: str
    names: Names
    contents: dict[int, bytes]  # of files, by inode
    durable_names: Names
    durable_contents: dict[int, bytes]
    published: frozenset[str]  # trials whose publishing had returned


@dataclass
class Recorder:
    """Takes a moment before and after each fsync, and at each rename."""

    root: Path
    moments: list[Moment] = field(default_factory=list)
    durable_names: Names = field(default_factory=dict)
    durable_contents: dict[int, bytes] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    # inode -> descriptor, so that no number is given twice
    held: dict[int, int] = field(default_factory=dict)
    ignored: Path | None = None  # an fsync below it has no effect

    def take(self, label: str) -> None:
        names = Names()
        contents = dict[int, bytes]()
        for path in self.root.rglob("*"):
            inode = path.stat().st_ino
            if inode not in self.held:
                self.held[inode] = os.open(path, os.O_PATH)
            names[path.parent.stat().st_ino, path.name] = inode
            if path.is_file():
                contents[inode] = path.read_bytes()
        self.moments.append(
            Moment(
                label,
                names,
                contents,
                dict(self.durable_names),
                dict(self.durable_contents),
                frozenset(self.published),
            )
        )

    def begun(self, path: Path) -> None:
        """An fsync that is not carried out yet: there is most to lose."""
        if path.is_relative_to(self.root):
            self.take(f"before fsync {path.relative_to(self.root)}")

    def synced(self, path: Path) -> None:
        """An fsync: of a file its content, of a folder the names in it."""
        if not path.is_relative_to(self.root) or (
            self.ignored and path.is_relative_to(self.ignored)
        ):
            return
        inode = path.stat().st_ino
        if path.is_dir():
            self.durable_names = {
                key: value for key, value in self.durable_names.items() if key[0] != inode
            }
            self.durable_names |= {
                (inode, entry.name): entry.stat().st_ino for entry in path.iterdir()
            }
        else:
            self.durable_contents[inode] = path.read_bytes()
        self.take(f"fsync {path.relative_to(self.root)}")


_recording: list[Recorder] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _recording and event in ("os.rename", "os.mkdir"):
        _recording[0].take(event)


sys.addaudithook(_audit)


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Record what happens below `root` while the block lasts."""
    recorder = Recorder(root)
    fsync = os.fsync
    fdatasync = os.fdatasync

    def noted(real: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            path = Path(f"/proc/self/fd/{fd}").readlink()
            recorder.begun(path)
            real(fd)
            recorder.synced(path)

        return call

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", noted(fsync))
        monkeypatch.setattr(os, "fdatasync", noted(fdatasync))
        _recording.append(recorder)
        try:
            yield recorder
        finally:
            _recording.clear()
            for fd in recorder.held.values():
                os.close(fd)


def publish(folder: Path, run: Run, recorder: Recorder) -> None:
    """A run with its trials, as the runner and the trials write it."""
    journal = Journal(folder / "journal.jsonl")
    for index, spec in enumerate(run.order):
        journal.note("take", what="image", path=f"/.dbbench-{index}.img")
        draft = results.Draft(folder, spec.id)
        (draft.raw / "pgbench.out").write_text("tps = 9.5\n" * 50)
        draft.publish(
            a_trial(run, index),
            Series(3, {"tps": [1.0, 0.0, None]}),
            ["m"] * 3,
            Histogram({500: 3}),
        )
        recorder.published.add(spec.id)
        results.save_spec(folder, run)
        recorder.take(f"published {spec.id}")


def after_the_cut(
    moment: Moment,
    source: int,
    root: Path,
    draw: random.Random,
) -> None:
    """What the disk may hold of the folder with the inode `source`: what is durable; of other names
    some, and of other contents the new, a part of it, zeros, or none.
    """
    names = dict(moment.durable_names)
    # names that reached the disk by themselves; a rename is one step
    for key, inode in moment.names.items():
        if names.get(key) != inode and draw.random() < 0.5:
            for old in [
                known
                for known, number in names.items()
                if number == inode and known not in moment.names
            ]:
                del names[old]
            names[key] = inode
    shutil.rmtree(root, ignore_errors=True)
    _built(moment, names, source, root, draw)


def _built(
    moment: Moment,
    names: Names,
    folder: int,
    at: Path,
    draw: random.Random,
) -> None:
    at.mkdir()
    for (_, name), inode in [item for item in names.items() if item[0][0] == folder]:
        content = moment.durable_contents.get(inode)
        written = moment.contents.get(inode)
        if content is None and written is None:
            _built(moment, names, inode, at / name, draw)
            continue
        if written is not None and written != content:
            part = written[: draw.randint(0, len(written))]
            content = draw.choice([written, part, bytes(len(written)), content or b""])
        (at / name).write_bytes(content or b"")


def record(results_folder: Path, run: Run, ignored: str = "") -> list[Moment]:
    """Return the moments of publishing a run, from where its folder is known. An fsync below the
    folder `ignored` of the run does nothing.
    """
    results_folder.mkdir()
    with recorded(results_folder) as recorder:
        folder = results.create_run(results_folder, run, "# plan\n")
        recorder.synced(results_folder)  # the folder's own name: from here on the run is known
        recorder.ignored = folder / ignored if ignored else None
        begun = len(recorder.moments)
        publish(folder, run, recorder)
    return recorder.moments[begun:]


def cuts(
    moments: list[Moment],
    results_folder: Path,
    after: Path,
) -> Iterator[tuple[int, Moment]]:
    """Cut the power at random moments; each time `after` has what a disk may hold then."""
    draw = random.Random(SEED)
    for number in range(CUTS):
        moment = draw.choice(moments)
        after_the_cut(moment, results_folder.stat().st_ino, after, draw)
        yield number, moment


def test_what_was_finished_before_a_cut_is_there_after_it(tmp_path: Path) -> None:
    """Published trials are whole, an unfinished one is never a result, the run is read and can go
    on.
    """
    results_folder = tmp_path / "results"
    run = small_run()
    after = tmp_path / "after"
    for number, moment in cuts(record(results_folder, run), results_folder, after):
        said = f"cut {number} after {moment.label}"
        found = results.load_run(after / run.name)
        assert {trial.id for trial in found.trials} >= moment.published, said
        for spec in run.order:
            trial = after / run.name / "trials" / spec.id
            assert not trial.is_dir() or damage(trial) == [], said
        leftovers(after / run.name)
        list(Journal(after / run.name / "journal.jsonl").entries())


def test_without_fsync_the_model_loses_results(tmp_path: Path) -> None:
    """A control: the same cuts damage results that were not fsynced, so the model can detect a
    loss.
    """
    results_folder = tmp_path / "results"
    run = small_run()
    after = tmp_path / "after"
    harmed = 0
    for _, moment in cuts(record(results_folder, run, "trials"), results_folder, after):
        try:
            found = {trial.id for trial in results.load_run(after / run.name).trials}
            harmed += not found >= moment.published
        except (ResultDamaged, RunMissing):
            harmed += 1
    assert harmed
