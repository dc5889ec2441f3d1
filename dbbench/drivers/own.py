"""The loads of our own program `filework`, started beside the trial and judged by what they print."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.clock import Clock
from dbbench.drivers import filework_output
from dbbench.drivers.port import Load, Outcome
from dbbench.drivers.tool import ToolLoad, write_command
from dbbench.engines import files
from dbbench.engines.port import Server

_KEPT: Final = ("PYTHONPATH",)  # without it a checkout that is not installed would not be found


@contextlib.contextmanager
def working(
    work: str, server: Server, asked: dict[str, Any], clock: Clock, raw: Path, judged: Callable[[ToolLoad], Outcome]
) -> Iterator[Load]:
    """Run `filework` to its end. It runs as this process does: an interpreter in a closed home is out of reach of
    others, and dropping caches is root's."""
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    argv = [sys.executable, "-m", "dbbench.drivers.filework", work, str(files.folder_of(server)), json.dumps(asked)]
    write_command(raw / f"{work}.command", argv, env)
    stdout, stderr = raw / f"{work}.out", raw / f"{work}.err"
    begin_utc = clock.now_utc()
    with process.running(argv, stdout=stdout, stderr=stderr, env=env, role="server") as program:
        yield ToolLoad(
            program=program,
            server=server,
            clock=clock,
            begin_utc=begin_utc,
            seconds=0,  # it ends when it is done
            printed=(stdout, stderr),
            live=filework_output.live,
            aborted=lambda line: False,
            judged=judged,
        )
