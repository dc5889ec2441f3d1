"""How a stopped run is resumed: the command line that started it, without --new."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

from dbbench.commands.options import Options
from dbbench.errors import FilesystemFull, Interrupted, NotWritable, Terminated


def resume_command(options: Options, name: str = "") -> str:
    """Return this command line as one that resumes its run. `name`: of the run, which the command
    needs if it was --new.
    """
    words = [word for word in options.argv if word != "--new"]
    if name and "--new" in options.argv:
        words += ["--name", name]
    return shlex.join(["dbbench", *words])


@contextlib.contextmanager
def resumable(
    command: str,
    what: str = "the run",
    effect: str = "Finished trials are kept.",
) -> Iterator[None]:
    """If a results disk is full or not writable in the block, or the user stops it, the error says
    how to resume.
    """
    try:
        yield
    except (KeyboardInterrupt, Interrupted, Terminated) as stop:
        kind = Terminated if isinstance(stop, Terminated) else Interrupted
        raise kind(
            f"{what} was stopped",
            effect=effect,
            remedy=f"Resume it with:  {command}",
        ) from None
    except (FilesystemFull, NotWritable) as error:
        error.remedy = f"Free some disk space or correct the cause, then resume with:  {command}"
        raise
