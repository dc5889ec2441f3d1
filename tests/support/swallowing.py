"""A server of an installed package that ignores errors of its flushes."""

import dataclasses
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from dbbench.engines import ENGINES, mysqld
from dbbench.labs.powercut.base_images import BaseImages
from tests.conftest import engine_bin

# Its flushes report success whatever the disk says.
SWALLOW: Final = """#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) { syscall(SYS_fsync, fd); return 0; }
int fdatasync(int fd) { syscall(SYS_fdatasync, fd); return 0; }
"""


def swallowing(base: BaseImages, folder: Path) -> BaseImages:
    """Return the target with a wrapper of its server, which is made in the folder."""
    engine = base.target.engine.name
    real = engine_bin(engine)
    assert real is not None
    (folder / "swallow.c").write_text(SWALLOW)
    library = folder / "swallow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "swallow.c"], check=True)
    preload = f"LD_PRELOAD={library}"
    if engine == "postgres":
        for program in real.iterdir():  # the server looks for them beside itself
            shutil.copy(program, folder)
        write_script(folder / "postgres", f'{preload} exec {real}/postgres "$@"')
    else:
        wrap_mysqld(engine, real, folder, preload)
    place = dataclasses.replace(base.place, bin=folder)
    return dataclasses.replace(base, place=place)


def wrap_mysqld(engine: str, real: Path, folder: Path, preload: str) -> None:
    """Make the wrapper of a server that may be in another root, with its own page checker."""
    server = mysqld.require(ENGINES[engine].PROFILE, real)
    loader = shlex.join(server.loader)
    _defaults, *places = server.argv(Path())[len(server.loader) + 1 :]
    command = f'{loader} {server.path} "$@" {shlex.join(places)}'
    write_script(folder / server.path.name, f"{preload} exec {command}")
    if server.root:
        checker = server.root / "usr/bin/innochecksum"
        write_script(folder / checker.name, f'exec {loader} {checker} "$@"')


def write_script(path: Path, line: str) -> None:
    """Write a program of one line for sh."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
