"""`python -m dbbench.commands.supervising FOLDER`: drives a fleet host's trials; its worker starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from dbbench import process
from dbbench.commands.planning import Asked
from dbbench.commands.run import check_all
from dbbench.fleet import supervisor
from dbbench.fleet.room import Room
from dbbench.model import Run
from dbbench.plan import Expanded
from dbbench.runner import execute


def main(folder: Path) -> None:
    """Become a daemon and drive what is dealt to this host; at once done where one does so already."""
    room = Room(folder)

    def checked(run: Run) -> Run:
        wanted = Asked("", run.plan, Expanded(run.cells, run.order), run.plan_sha256)
        check_all(wanted, "PLAN", folder.parent, folder, room.dealt()[1])
        return run

    with supervisor.alone(folder) as held:
        if held:
            process.become_daemon(room.path / "supervisor.log")
            room.sign()
            supervisor.supervise(folder, execute, checked)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
