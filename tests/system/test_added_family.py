"""The family that CONTRIBUTING.md shows, one module added to a copy of the package, in a trial.

This kernel has no jfs, so the module gets the programs of ext2, whose output has other words.
"""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import dbbench as package
from tests.support.plans import plan

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
OF_EXT2 = {
    "mkfs.jfs": "mkfs.ext2",
    "fsck.jfs": "fsck.ext2",
    "jfs_tune": "tune2fs",
    '"jfs"': '"ext2"',
    "File system UUID": "Filesystem UUID",
    "Aggregate block size": "Block size",
}
SETUP = """
title = "the example"
mkfs = { family = "ext2", options = ["-b", "2048"] }
mount = ["noatime"]
"""

pytestmark = pytest.mark.needs("root", "fs:ext2", "mkfs.ext2", "fsck.ext2", "tune2fs")


@pytest.fixture
def extended(dbbench: Any) -> Any:
    """The command line of a copy of this package with the module in the registry."""
    name, module = re.findall(
        r"```python\n# (dbbench/storage/filesystems/\w+\.py)\n(.*?)```",
        CONTRIBUTING.read_text(),
        re.DOTALL,
    )[0]
    for word, other in OF_EXT2.items():
        assert word in module
        module = module.replace(word, other)
    shutil.copytree(Path(package.__file__).parent, dbbench.folder / "dbbench")
    (dbbench.folder / name).write_text(module)
    registry = dbbench.folder / "dbbench/storage/filesystems/families.py"
    lines = registry.read_text().replace("f2fs, raw,", "f2fs, jfs, raw,")
    registry.write_text(lines.replace("    raw.FAMILY,\n", "    jfs.FAMILY,\n    raw.FAMILY,\n"))
    (dbbench.folder / "fs_setups").mkdir()
    (dbbench.folder / "fs_setups/example.toml").write_text(SETUP)
    return dataclasses.replace(dbbench, env={**dbbench.env, "PYTHONPATH": str(dbbench.folder)})


def test_a_filesystem_of_the_family_is_made_mounted_and_checked(extended: Any) -> None:
    """mkfs gets the options, the geometry is read back, and fsck finds no errors."""
    load = {"name": "small-files", "files": 100}
    extended.plan(plan("example", "files", load, operations=["fsck"]))
    extended("--path", ".", "run", "plan.toml", "--name", "r", "--progress", "plain")
    (trial,) = extended.trials().values()
    assert trial["error"] is None
    assert trial["filesystem"]["geometry"] == {"block_size": 2048}
    assert "noatime" in trial["filesystem"]["mount_options_effective"]
    assert [step["name"] for step in trial["operations"]] == ["fsck: fsck.ext2 -n"]
    assert trial["operations"][0]["text"] == "no errors"
