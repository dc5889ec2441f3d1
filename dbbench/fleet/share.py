"""A host's share of a fleet's run: a daemon that runs it as `dbbench run` does, started once by the
host's worker (`python -m dbbench.fleet.share FOLDER SHA256 ID...`) with the run's directory, the
identity of the user's plan, and the devices that may be erased. Between two trials it waits for
the transfer of results. It outlives the worker, the scheduler and the coordinator; its trials
end with it. If it is killed, the next question starts another one.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from dbbench import process, results
from dbbench.errors import CoordinatorGone, DbbenchError, Terminated
from dbbench.fleet import fleet_files
from dbbench.fleet.host_folder import HostFolder
from dbbench.fleet.messages import HostState
from dbbench.machine import namespaces
from dbbench.model import Run
from dbbench.model.events import Event
from dbbench.results.fileio import own_file, try_lock

# if the coordinator asks but does not collect results, the run continues without it
HANDOVER_S: Final = 120.0
_POLL_S: Final = 0.02  # only between two trials
_DISK_S: Final = 0.2  # between two looks at a disk that another run uses


class DiskTurn:
    """A lock of the disk that is kept for a whole block. A waiting process also holds a second
    lock, for which all others queue, so that the run that releases the disk does not get it back
    at once. `waits` is called again and again with the folder of the run that uses the disk;
    what it raises ends the waiting.
    """

    def __init__(self, folder: Path, waits: Callable[[str], None]) -> None:
        self._folder = folder
        self._waits = waits
        self._fd: int | None = None
        self._block: int | None = None

    def take(self, run: Run, block: int | None) -> None:
        """Wait until the disk belongs to this run, and keep it while the block is the same (None:
        preparations).
        """
        if self._fd is None or self._block not in (block, None):
            self.release()
            path = lock_of(run, self._folder)
            queue = self._lock(path.with_suffix(".queue"), path)
            try:
                self._fd = self._lock(path, path)
            finally:
                os.close(queue)
            os.ftruncate(self._fd, 0)
            # waiting processes read here which run uses the disk
            os.pwrite(self._fd, os.fsencode(self._folder), 0)
        self._block = block

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None

    def _lock(self, path: Path, disk: Path) -> int:
        """Lock the file `path`; return its descriptor, whose closing releases the lock."""
        fd = own_file(path, os.O_RDWR, 0o600)
        try:
            while not try_lock(fd):
                self._waits(disk.read_text(errors="replace") if disk.exists() else "")
                time.sleep(_DISK_S)
        except BaseException:
            os.close(fd)
            raise
        return fd


def lock_of(run: Run, folder: Path) -> Path:
    """Return the lock file of the disk that the run uses."""
    # imported here, because it imports all kinds of devices
    from dbbench.storage.devices import image

    device = run.plan.device
    named = [
        *map(str, image.folders_of_images(run, folder)),
        *device.directories.values(),
        *device.disks,
    ]
    path = Path(named[0] if named else device.path or folder)
    status = path.stat() if path.exists() else folder.stat()  # a missing path is refused later
    return namespaces.private_folder() / f"disk-{status.st_rdev or status.st_dev}.lock"


class Share:
    """Reports the state of the run; between trials it waits for the transfer of results, and for
    the disk.
    """

    def __init__(self, folder: Path) -> None:
        self.host, self.turn = HostFolder(folder), DiskTurn(folder, self._wait_for_disk)
        self._state = HostState(since=time.time())
        self._took_s: list[float] = []
        self._began = 0.0

    def run(self, drive: Callable[[Share], object]) -> None:
        """Call `drive`, which runs the trials. What stops it is recorded in the state."""
        error: DbbenchError | None = None
        try:
            self.turn.take(results.load_spec(self.host.folder), None)
            drive(self)
        except DbbenchError as cause:
            error = cause
        except BaseException as cause:
            error = DbbenchError(
                f"{type(cause).__name__}: {cause}", remedy=f"See {self.host.path / 'share.log'}."
            )
            raise
        finally:
            self.turn.release()
            self._report(
                trial="",
                phase="",
                note="",
                waits_for="",
                ended=True,
                error=error and error.as_data(),
            )

    def emit(self, event: Event) -> None:
        """Follow the run's events. During a phase the state is not written, because that would be
        load.
        """
        data = event.data
        match event.kind:
            case "trial_begin":
                self._began = time.monotonic()
                self._report(trial=str(data["id"]), phase="begin", note="", waits_for="")
            case "phase_begin":
                self._report(phase=str(data["phase"]))
            case "prepare" if str(data["what"]) != self._state.note:
                self._report(note=str(data["what"]), waits_for="")
            case "trial_end":
                self._took_s.append(time.monotonic() - self._began)
                self._report(trial="", phase="", mean_s=sum(self._took_s) / len(self._took_s))

    def between(self, run: Run) -> Run:
        """Let results be copied, and wait for the disk; `queue.execute` calls this before each
        trial.
        """
        process.wait_while(self.host.awaits_transfer, HANDOVER_S, _POLL_S)
        self._check_demand()
        self._report(used_s=run.budget.used_s if run.budget else 0.0)
        if left := results.pending(self.host.folder, run):
            self.turn.take(run, left[0].block)
        return run

    def _wait_for_disk(self, user: str) -> None:
        if user != self._state.waits_for or not self._state.note:
            self._report(
                note=f"waiting for the disk, which is used by {user or 'another run'}",
                waits_for=user,
            )
        self._check_demand()

    def _check_demand(self) -> None:
        """Raise CoordinatorGone if the run must not go on without its coordinator, and that has
        ended.
        """
        coordinator = self.host.receipt().coordinator
        if coordinator and fleet_files.coordinator(Path(coordinator)) is None:
            raise CoordinatorGone(
                f"no coordinator is running for fleet {Path(coordinator).name}",
                remedy="Run the same `dbbench fleet run` command again to resume. With --detach, hosts "
                "continue without it.",
            )

    def _report(self, **news: object) -> None:
        self._state = dataclasses.replace(self._state, since=time.time(), **news)  # type: ignore[arg-type]
        self.host.save_state(self._state)


def become_share(folder: Path, drive: Callable[[Share], object]) -> None:
    """Become a daemon and run the trials assigned to this host. Returns at once if another share
    already does.
    """
    host = HostFolder(folder)

    def stop(_number: int, _frame: object) -> NoReturn:
        raise Terminated("stopped on request")

    with host.lock() as held:
        if held:
            process.become_daemon(
                own_file(host.path / "share.log", os.O_WRONLY | os.O_APPEND, 0o644)
            )
            signal.signal(signal.SIGTERM, stop)  # handled also while waiting for the disk
            Share(folder).run(drive)


def main(folder: Path, sha256: str, wipe: tuple[str, ...]) -> None:
    """Run the real trials, if this machine can run them."""
    # imported here, because it imports everything that a runner needs
    from dbbench.plan import Expanded
    from dbbench.plan.request import PlanRequest
    from dbbench.run.preflight import check_run
    from dbbench.run.queue import execute
    from dbbench.run.worker import must_be

    def drive(share: Share) -> None:
        run_folder = results.RunFolder(folder)
        run = run_folder.run
        must_be(run, sha256)
        check_run(
            PlanRequest("", run.plan, Expanded(run.cells, run.order), sha256),
            "PLAN",
            folder.parent,
            run_folder,
            wipe,
        )
        execute(folder, sha256, wipe=wipe, emit=share.emit, between=share.between)

    become_share(folder, drive)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:]))
