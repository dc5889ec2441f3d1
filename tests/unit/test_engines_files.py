"""The engine `files`: code that asks for a server handles an engine without one."""

from pathlib import Path

import pytest

from dbbench.engines import ENGINES, SERVERS, files
from dbbench.engines.port import Place
from dbbench.errors import PlanInvalid, SettingRefused
from dbbench.model import Setting
from tests.support.plans import plan_of

PLAN = (
    'name = "p"\nfs_setups = ["ext4"]\n{}\n[[engine]]\nname = "files"\n[[workload]]\nname = "{}"\n'
)


def test_it_is_always_there_and_looks_at_every_file(tmp_path: Path) -> None:
    """Nothing has to be installed for it. How many files there are, and their bytes; folders that
    vanish meanwhile are no fault. There is no server that would read settings.
    """
    assert ENGINES["files"].installed_version() is not None and not ENGINES["files"].programs()
    assert set(ENGINES) - set(SERVERS) == {"files"}
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"12345")
    (tmp_path / "b").write_bytes(b"")
    place = Place(tmp_path, tmp_path)
    assert files.check(tmp_path, {}, place) == "2 files, 5 bytes"
    assert files.data_files(tmp_path / "gone") == []
    with (
        pytest.raises(SettingRefused),
        files.serving(tmp_path, {"fsync": Setting("off", "plan")}, place),
    ):
        pass


@pytest.mark.parametrize(
    ("more", "workload", "said"),
    [
        ('[device.wal]\nfs_setup = "ext4"', "copy", "has no write-ahead log"),
        ('operations = ["clone"]', "copy", 'operation "clone" requires a server'),
        ('operations = ["snapshot"]', "copy", 'operation "snapshot" requires a server'),
        ("", "scan", "supports none of the engines of this plan"),
    ],
)
def test_a_plan_that_wants_a_server_is_refused(
    tmp_path: Path,
    more: str,
    workload: str,
    said: str,
) -> None:
    """Parts of a plan and workloads that the engine `files` does not support are errors before
    anything is made; fsck is of the filesystem alone.
    """
    plan_of(tmp_path, PLAN.format('operations = ["fsck"]', "copy"))
    with pytest.raises(PlanInvalid, match=said):
        plan_of(tmp_path, PLAN.format(more, workload))
