"""Operation `base-backup`: a physical backup of the running server, read cold, streamed to nowhere.

What is timed is reading the data directory through the engine's own program; a place for the backup would be measured
with it. The stream's bytes are counted as they come.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines.port import Server
from dbbench.errors import OperationFailed
from dbbench.model import OperationFacts
from dbbench.operations.port import Filled
from dbbench.operations.steps import cold, ended, impossible

_PIECE: Final = 1 << 20
_MARIADB: Final = ("mariadb-backup", "mariabackup")


def base_backup(filled: Filled) -> Iterator[OperationFacts]:
    """One step; its bytes are those of the stream."""
    said = cold(filled)
    with filled.serving(filled.datadir) as server:
        argv = _argv(server, filled.room)
        if isinstance(argv, str):
            yield impossible("base-backup", argv)
            return
        began = time.monotonic()
        size = _streamed(argv, filled.room)
        done = ended("base-backup", began, None, size)
    rate = size / 1e6 / (done.seconds or 1.0)
    yield replace(done, text=f"{rate:.0f} MB/s by {Path(argv[0]).name}, streamed and thrown away; {said}")


def _argv(server: Server, room: Path) -> list[str] | str:
    """The command that writes a whole backup to its standard output, or why there is none."""
    if server.engine == "postgres":
        # The log that the backup needs comes at its end; a checkpoint at once, which is not what is measured.
        return [str(server.bin / "pg_basebackup"), f"--host={server.socket_dir}", f"--username={server.user}",
                "--pgdata=-", "--format=tar", "--wal-method=fetch", "--checkpoint=fast"]  # fmt: skip
    if server.engine == "mariadb":
        program = next((name for name in _MARIADB if process.find(name)), None)
        if program is None:
            return "mariadb-backup is not installed"
        (work := room / "backup").mkdir(exist_ok=True)
        return [program, "--no-defaults", "--backup", "--stream=xbstream", f"--socket={server.socket}",
                f"--user={server.user}", f"--target-dir={work}"]  # fmt: skip
    return f"no program for a physical backup of {server.engine} is known here"


def _streamed(argv: list[str], room: Path) -> int:
    """Run it, count what it writes. OperationFailed with its last lines."""
    size = 0
    with tempfile.TemporaryDirectory(dir=room) as folder:
        said = Path(folder) / "stderr"
        with process.running(argv, stdout=subprocess.PIPE, stderr=said) as program:
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
