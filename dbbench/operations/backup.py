"""Operation `base-backup`: a physical backup of the running server, read cold, streamed to nowhere.

This times how the engine's own program reads the data directory; a target for the backup would be part of the
measurement. The bytes of the stream are counted.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines import ENGINES
from dbbench.errors import OperationFailed
from dbbench.model import OperationFacts
from dbbench.operations.steps import Filled, cold, ended, impossible

_PIECE: Final = 1 << 20


def base_backup(filled: Filled) -> Iterator[OperationFacts]:
    """Run one step; its bytes are those of the stream."""
    said = cold(filled)
    with filled.serving(filled.datadir) as server:
        argv = ENGINES[server.engine].backup(server, filled.room)
        if isinstance(argv, str):
            yield impossible("base-backup", argv)
            return
        began = time.monotonic()
        size = _streamed(argv, filled.room, server.env)
        done = ended("base-backup", began, None, size)
    rate = size / 1e6 / (done.seconds or 1.0)
    yield replace(done, text=f"{rate:.0f} MB/s by {Path(argv[0]).name}, streamed and thrown away; {said}")


def _streamed(argv: list[str], room: Path, env: Mapping[str, str]) -> int:
    """Run the command and count what it writes. Raises OperationFailed with its last lines."""
    size = 0
    with tempfile.TemporaryDirectory(dir=room) as folder:
        said = Path(folder) / "stderr"
        with process.running(argv, stdout=subprocess.PIPE, stderr=said, env=env) as program:
            if program.popen.stdout is None:
                raise AssertionError("a pipe was asked for")
            while piece := program.popen.stdout.read(_PIECE):
                size += len(piece)
            status = program.popen.wait()
        if status:
            lines = said.read_text(errors="replace").splitlines()
            raise OperationFailed(f"{argv[0]} ended with status {status}:\n  " + "\n  ".join(lines[-6:]))
    return size


__all__ = ["base_backup"]
