"""A server of an installed package that ignores errors of its flushes."""

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Final

from dbbench.labs.powercut.recovery import BaseImages
from tests.conftest import engine_bin

# Its flushes report success whatever the disk says.
SWALLOW: Final = """#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) { syscall(SYS_fsync, fd); return 0; }
int fdatasync(int fd) { syscall(SYS_fdatasync, fd); return 0; }
"""
PROGRAMS: Final = {"postgres": "postgres", "mariadb": "mariadbd"}


def swallowing(base: BaseImages, folder: Path) -> BaseImages:
    """Return the target with a wrapper of its server, which is made in the folder."""
    engine = base.target.engine.name
    name = PROGRAMS[engine]
    real = engine_bin(engine)
    assert real is not None
    if engine == "postgres":  # which looks for its other programs beside itself
        for program in real.iterdir():
            shutil.copy(program, folder)
    (folder / "swallow.c").write_text(SWALLOW)
    library = folder / "swallow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "swallow.c"], check=True)
    server = folder / name
    server.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {real}/{name} "$@"\n')
    server.chmod(0o755)
    place = dataclasses.replace(base.place, bin=folder)
    return dataclasses.replace(base, place=place)
