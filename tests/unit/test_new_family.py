"""A family of filesystems is one new file and its place in the registry, as CONTRIBUTING.md says."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.copied_program import ROOT, answer, copy_program, replace

REGISTRY: Final = "dbbench/storage/filesystems/families.py"
SETUP: Final = """
title = "jfs"
mkfs = { family = "jfs" }
mount = ["noatime"]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the program with the file of CONTRIBUTING's example, and its place in the registry."""
    program = copy_program(tmp_path)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    name, code = re.findall(
        r"```python\n# (dbbench/storage/filesystems/\w+\.py)\n(.*?)```",
        text,
        re.DOTALL,
    )[0]
    assert not (program / name).exists()
    (program / name).write_text(code)
    registry = program / REGISTRY
    replace(registry, "f2fs, raw,", "f2fs, jfs, raw,")
    replace(registry, "    raw.FAMILY,\n", "    jfs.FAMILY,\n    raw.FAMILY,\n")
    (program / "mine/fs_setups/jfs.toml").write_text(SETUP)
    return program


@pytest.mark.starts_processes
def test_a_family_is_one_new_file(checkout: Path) -> None:
    """The commands of a setup of it are shown; no other file has changed."""
    shown = answer(checkout, "fs", "jfs")
    assert (
        "\nmkfs.jfs -q DEVICE\n" in shown
        and "\nmount -t jfs -o noatime,nodiscard DEVICE /" in shown
    )


@pytest.mark.starts_processes
def test_mypy_accepts_the_file(checkout: Path) -> None:
    """Its functions and attributes have the types of `Family`."""
    argv = [
        *(sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-incremental"),
        *("--config-file", str(ROOT / "setup.cfg"), "-m", "dbbench.storage.filesystems.jfs"),
    ]
    done = subprocess.run(
        argv,
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
