"""Copies of files that a server is writing: does each have what the server had written before? Read
by cp as a backup does, cloned, by copy_file_range(2), and in a snapshot of the filesystem. Files that
are copied one after the other are no database, so pieces of rows are sought in them: of those that
were acknowledged before in the log, and of those before a checkpoint in the other files. What is on
the disk afterwards must be in the copy. A server is started on a snapshot. The control is a copy
after the server has stopped.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines.port import log_files_of
from dbbench.errors import DbbenchError
from dbbench.labs.harm.attempts import repeat
from dbbench.labs.harm.rows import MARK, RowWriter, create_table
from dbbench.labs.powercut.base_images import BaseImages, Lab, attach
from dbbench.labs.powercut.conclusions import single, worst
from dbbench.labs.powercut.recovery import mount, mounted, serving
from dbbench.model import HarmCount, HarmOutcome
from dbbench.operations.copies import without_vanishing
from dbbench.storage.filesystems import Stored
from dbbench.storage.filesystems.volumes import snapshots_of

# Column of the harm table -> what cp does. With "auto" it calls copy_file_range(2) where it cannot
# clone.
COLUMNS: Final = {
    "copy by read": "never",
    "copy by clone": "always",
    "copy by copy_file_range": "auto",
}
SNAPSHOT: Final = "copy by snapshot"
ROW_BYTES: Final = 6_000
WORK_S: Final = 1.0  # before the checkpoint, and from there to the copy


def copy_running(lab: Lab, base: BaseImages, rounds: int) -> list[HarmCount]:
    """Copy the files of a running server so many times by each means; return the counts of each
    outcome.
    """
    counts = list[HarmCount]()
    for column, how in COLUMNS.items():
        counts += repeat(column, partial(copy_once, column, how), lab, base, rounds)
    return counts + repeat(SNAPSHOT, _take_snapshot, lab, base, rounds)


def copy_once(column: str, how: str, lab: Lab, base: BaseImages, seed: str) -> list[HarmCount]:
    """Copy the files of a running server with `cp --reflink=HOW`, and again when it has ended. Raises
    DbbenchError.
    """
    if base.place.log_dir is not None:
        raise DbbenchError("the log has a disk of its own")
    writer = RowWriter(seed, ROW_BYTES)
    images = base.copy(lab, "copied")
    with mounted(lab, base, images) as datadir:
        with serving(lab, base, datadir) as server:
            create_table(server)
            effective = server.effective_settings()
            with writer.writing(server):
                time.sleep(WORK_S)
            of_tables = writer.pieces()
            server.checkpoint()
            with writer.writing(server):
                time.sleep(WORK_S)
                of_log = writer.pieces()
                messages = _copy(how, datadir, datadir.with_name("copy"))
        messages += _copy(how, datadir, datadir.with_name("control"))
    # Not earlier: an error within the block above kills the server.
    if messages:
        raise DbbenchError(messages[0])

    def files_in(folder: Path) -> tuple[set[Path], set[Path]]:
        """Return the files of the log, and the others."""
        log = set(log_files_of(base.engine, folder, effective))
        files = {path for path in folder.rglob("*") if path.is_file()}
        return log, files - log

    # What is on the disk is known after another mount.
    with mounted(lab, base, images) as datadir:
        log, others = files_in(datadir)
        on_disk = [_present(of_log, log), _present(of_tables, others)]
        lost = {}
        for name in ("control", "copy"):
            log, others = files_in(datadir.with_name(name))
            lost[name] = [
                len(on_disk[0] - _present(on_disk[0], log)),
                len(on_disk[1] - _present(on_disk[1], others)),
            ]
    if not all(on_disk) or any(lost["control"]):
        raise DbbenchError(f"a copy of the stopped server lacks {lost['control']} of {on_disk}")
    in_log, in_tables = lost["copy"]
    text = (
        f"{in_log} of {len(on_disk[0])} pieces of acknowledged rows are missing in the log, "
        f"{in_tables} of {len(on_disk[1])} in other files"
    )
    word = HarmOutcome.LOST if any(lost["copy"]) else HarmOutcome.UNHARMED
    return [single(column, word, text)]


def _copy(how: str, source: Path, target: Path) -> list[str]:
    """Return the messages of cp, without those about files that the server removes meanwhile."""
    done = process.run(["cp", "-a", f"--reflink={how}", source, target], ok=(0, 1))
    return without_vanishing(done.stderr)


def _present(pieces: Collection[bytes], files: Iterable[Path]) -> set[bytes]:
    """Return the pieces that are in these files."""
    present = set[bytes]()
    for path in files:
        content = path.read_bytes()
        if MARK.encode() in content:
            present.update(piece for piece in pieces if piece in content)
    return present


def _take_snapshot(lab: Lab, base: BaseImages, seed: str) -> list[HarmCount]:
    """Start a server on a snapshot of the filesystem below a running one. Raises DbbenchError."""
    writer = RowWriter(seed, ROW_BYTES)
    snapshots = snapshots_of(base.target.setup)
    if snapshots is None or base.place.log_dir is not None:
        raise DbbenchError("the filesystem has no snapshots, or not of the log too")
    images = base.copy(lab, "copied")
    with attach(images) as volumes, mount(lab, base.target, volumes) as datadir:
        stored = Stored(
            base.target.setup,
            volumes["data"],
            base.fs,
            datadir,
            lab.scratch,
            journal=lab.journal,
        )
        with serving(lab, base, datadir) as server:
            create_table(server)
            with writer.writing(server):
                time.sleep(WORK_S)
                before = writer.snapshot()
                snapshots.snapshot(stored)
        with snapshots.clone(stored) as copy, serving(lab, base, copy) as server:
            harms = before.harms(server)
        snapshots.drop(stored)
    word = worst(harms)
    text = harms.get(word, f"{before.count} acknowledged commits are present")
    return [single(SNAPSHOT, word, text)]
