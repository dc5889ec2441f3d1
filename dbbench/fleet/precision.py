"""Further blocks over all hosts until each question is answered to an asked precision, as `runner.adaptive` decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dbbench import store
from dbbench.fleet import dealing
from dbbench.fleet.dealing import Dealing
from dbbench.model import Run
from dbbench.runner.adaptive import further


def dealt_further(run: Run, dealt: Dealing, folder: Path, hosts: Sequence[str]) -> tuple[Run, Dealing]:
    """The run, of which all that was dealt is in `folder`, with a further block of what is not settled for each host,
    15 blocks in all at most; and the dealing with them. Both as they were where all is settled.

    It is looked at once for as many blocks as there are hosts, so less often than on one machine.
    """
    left = dealing.more(dealt, run.order, hosts)
    if left != dealt:  # a coordinator was killed before it dealt them
        return run, left
    trials = {spec.id: store.load_trial(folder / "trials" / spec.id) for spec in run.order}
    for _ in hosts:
        run = further(run, trials)
    return run, dealing.more(dealt, run.order, hosts)
