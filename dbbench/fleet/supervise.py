"""`python -m dbbench.fleet.supervise FOLDER`: the process that runs a fleet host's trials; its worker starts it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from dbbench import process
from dbbench.errors import Terminated
from dbbench.fleet import supervisor
from dbbench.fleet.room import Room
from dbbench.model import Run
from dbbench.plan import Expanded
from dbbench.plan.request import Asked
from dbbench.run.preflight import check_run
from dbbench.run.queue import execute


def _stopped(_number: int, _frame: object) -> None:
    raise Terminated("stopped on request")


def main(folder: Path) -> None:
    """Become a daemon and run the trials assigned to this host. Returns at once if another supervisor already does."""
    room = Room(folder)

    def checked(run: Run) -> Run:
        request = Asked("", run.plan, Expanded(run.cells, run.order), run.plan_sha256)
        check_run(request, "PLAN", folder.parent, folder, room.dealt()[1])
        return run

    with supervisor.alone(folder) as held:
        if held:
            process.become_daemon(room.path / "supervisor.log")
            room.sign()
            signal.signal(signal.SIGTERM, _stopped)  # handled also while waiting for the disk
            supervisor.supervise(folder, execute, checked)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
