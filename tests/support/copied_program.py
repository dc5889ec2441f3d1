"""A copy of the program, to which a test adds files as a contributor would."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def copy_program(to: Path) -> Path:
    """Copy the package into this folder, with a folder `mine` of a user beside it; return `to`."""
    shutil.copytree(
        ROOT / "dbbench",
        to / "dbbench",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("fs_setups", "workloads"):
        (to / "mine" / name).mkdir(parents=True)
    return to


def replace(path: Path, old: str, new: str) -> None:
    """Replace the only place of a text."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


def answer(program: Path, *words: str) -> str:
    """What that copy of dbbench prints."""
    argv = [sys.executable, "-m", "dbbench", "--path", str(program / "mine"), *words]
    done = subprocess.run(
        argv,
        cwd=program,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
