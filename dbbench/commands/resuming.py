"""How a stopped run is resumed: the command line that started it, without --new."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

from dbbench.commands.options import Options
from dbbench.errors import FilesystemFull, NotWritable


def resume_command(options: Options, name: str = "") -> str:
    """Return this command line as one that resumes its run. `name`: of the run, which the command
    needs if it was --new.
    """
    words = [word for word in options.argv if word != "--new"]
    if name and "--new" in options.argv:
        words += ["--name", name]
    return shlex.join(["dbbench", *words])


@contextlib.contextmanager
def resumable(command: str) -> Iterator[None]:
    """If a results disk is full or not writable in the block, the error says how to resume."""
    try:
        yield
    except (FilesystemFull, NotWritable) as error:
        error.remedy = f"Free some disk space or correct the cause, then resume with:  {command}"
        raise
