"""A dump that is refused leaves no image, and a disk as it is."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.storage.devices import naming
from tests.support.plans import plan
from tests.support.planted import detach, mkfs, new_disk
from tests.system.test_dumps_postgres import NEEDS_POSTGRES

REFUSED_DUMP: Final = """-- PostgreSQL database dump
-- Dumped from database version 15.1
CREATE TABLE t (id int);
INSERT INTO t VALUES (1);
SELECT 1 / 0;
--
-- PostgreSQL database dump complete
--
"""


def building(event: dict[str, Any]) -> bool:
    """Whether the golden copy is being built."""
    return event["kind"] == "prepare" and event["what"].startswith("building the dataset")


def refuse_dump(
    dbbench: Any,
    *words: str,
    meanwhile: Callable[[int], None] = lambda _pid: None,
    **keys: Any,
) -> str:
    """Run a plan whose dump has a bad statement; return stderr. `meanwhile`: what happens while it
    is loaded. The cache is the test's own, so that all that is kept is seen: nothing larger than
    1 MiB.
    """
    dump = dbbench.folder / "shop.sql"
    if not dump.exists():  # a changed dump would be another plan
        dump.write_text(REFUSED_DUMP)
    dbbench.env["DBBENCH_CACHE"] = str(dbbench.folder / "cache")
    load = {"name": "scan", "source": str(dump)}
    text = plan("ext4", "postgres", load, **keys)
    status, said = dbbench.run_and(dbbench.plan(text), building, meanwhile, *words)
    assert status == 2, said
    assert "error E501" in said and "division by zero" in said
    kept = [
        path
        for folder in ("results", "cache")
        for path in (dbbench.folder / folder).rglob("*")
        if path.is_file() and path.stat().st_size > 2**20
    ]
    assert kept == []
    return str(said)


@pytest.mark.needs(*NEEDS_POSTGRES, "fs:ext4", "mkfs.ext4", "losetup", "fio")
def test_a_refused_dump_leaves_no_image(dbbench: Any, nothing_left: None) -> None:
    """The dump is loaded before the image is written, in the first run and in a resumed one."""
    for _ in range(2):
        said = refuse_dump(dbbench)
        assert "writing the disk image" not in said and "is kept" not in said


@pytest.mark.needs(*NEEDS_POSTGRES, "fs:ext4", "mkfs.ext4", "losetup", "fio")
def test_a_refused_dump_leaves_a_disk_as_it_is(dbbench: Any, tmp_path: Path) -> None:
    """Not even fio writes to it, although --wipe allows it; while the dump is loaded, no other
    program can make a filesystem on it.
    """

    refused: list[OSError] = []

    def make_filesystem(_pid: int) -> None:
        try:
            os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))  # as mkfs does
        except OSError as error:
            refused.append(error)

    disk = new_disk(tmp_path / "disk", 512 * 2**20)
    try:
        mkfs(disk)
        before = disk.digest()
        device = {"kind": "block", "path": str(disk.path)}
        said = refuse_dump(
            dbbench,
            "--wipe",
            naming.identity_of(disk.path.name),
            meanwhile=make_filesystem,
            device=device,
        )
        assert disk.digest() == before
        assert [error.errno for error in refused] == [errno.EBUSY]
        assert "has written to" not in said
    finally:
        detach(disk.path)
