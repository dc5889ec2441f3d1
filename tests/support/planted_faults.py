"""Faults in dbbench's own processes: a `sitecustomize`, which each of them imports first because of
PYTHONPATH.
"""

import os
from pathlib import Path

_STEPS = """
import errno, fcntl, os, sys
_COUNTING = {counters!r}
def _number(kind):
    fd = os.open(_COUNTING + kind, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 20, 0) or b"0") + 1
        os.pwrite(fd, str(number).encode(), 0)
        return number
    finally:
        os.close(fd)
def _kind(event, args):
    if event in ("subprocess.Popen", "os.fork"):
        return "start"
    if event == "open":
        path, writes = args[0], (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    elif event in ("os.rename", "os.mkdir"):
        path, writes = args[0], True
    else:
        return ""
    if not writes or not isinstance(path, (str, bytes, os.PathLike)):
        return ""
    return next((kind for kind, folder in {folders!r}.items() if os.fsdecode(path).startswith(folder)), "")
def _hook(event, args):
    kind = _kind(event, args)
    if not kind:
        return
    number = _number(kind)
    if kind == {failing!r} and (number == {at} or (number > {at} and {forever})):
        code = errno.EAGAIN if kind == "start" else errno.ENOSPC
        raise OSError(code, os.strerror(code) + " (planted)")
sys.addaudithook(_hook)
"""
_CLOCK = """
import os, time
_real = time.time
time.time = lambda: _real() - (3600 if os.path.exists({flag!r}) else 0)
"""

_THREAD = """
import os, sys, threading
def _hook(event, args):
    if event == "open" and os.fsdecode(args[0] if isinstance(args[0], (str, bytes)) else "").endswith({file!r}):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("planted")
sys.addaudithook(_hook)
"""


def counted(folder: Path) -> dict[str, int]:
    """Return the number of steps of each kind, after `failing_step`."""
    return {
        path.name.removeprefix("counted-"): int(path.read_text())
        for path in folder.glob("counted-*")
    }


def failing_step(
    folder: Path,
    folders: dict[str, Path],
    failing: str = "",
    at: int = 0,
    forever: bool = False,
) -> dict[str, str]:
    """Count the process starts ("start") and the writes to these folders (by their kinds) of all
    processes of a command. The `at`-th step of kind `failing` fails; with `forever` also all
    later ones. Return variables for the environment.
    """
    folder.mkdir(exist_ok=True)
    for left in folder.glob("counted-*"):
        left.unlink()
    text = _STEPS.format(
        counters=str(folder / "counted-"),
        failing=failing,
        at=at,
        forever=forever,
        folders={kind: str(path) for kind, path in folders.items()},
    )
    return _planted(folder, text)


def clock_an_hour_back(folder: Path) -> tuple[Path, dict[str, str]]:
    """Set dbbench's clock back by an hour while a file exists. Return the file, and variables for
    the environment.
    """
    folder.mkdir(exist_ok=True)
    flag = folder / "back"
    return flag, _planted(folder, _CLOCK.format(flag=str(flag)))


def dying_thread(folder: Path, file: str) -> dict[str, str]:
    """End every thread, except the main one, that opens a file of that name. Return variables for
    the environment.
    """
    folder.mkdir(exist_ok=True)
    return _planted(folder, _THREAD.format(file=file))


def _planted(folder: Path, text: str) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(text)
    before = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{folder}:{before}" if before else str(folder)}


def without_column(programs: Path, folder: Path) -> Path:
    """Return the `bin` of a PostgreSQL whose databases have a pg_stat_wal without wal_bytes. It has
    the programs of `programs`, and an initdb that replaces the view in the template of all
    databases.
    """
    folder.mkdir(mode=0o755)
    for program in programs.iterdir():
        (folder / program.name).symlink_to(program)
    (script := folder / "initdb").unlink()
    view = (
        "CREATE VIEW pg_catalog.pg_stat_wal AS SELECT wal_records, wal_fpi FROM pg_stat_get_wal()"
    )
    script.write_text(
        f"""#!/bin/sh -e
for option; do case "$option" in --pgdata=*) data=${{option#--pgdata=}};; esac; done
{programs}/initdb "$@"
echo 'DROP VIEW pg_stat_wal; {view};' | {programs}/postgres --single -O -j -D "$data" template1
"""
    )
    script.chmod(0o755)
    return folder
