"""The engine `files`: code that asks for a server handles an engine without one."""

from pathlib import Path

import pytest

from dbbench import plan
from dbbench.engines import ENGINES, SERVERS, files
from dbbench.engines.port import Place
from dbbench.errors import PlanInvalid, SettingRefused
from dbbench.model import Setting
from dbbench.plan import catalog
from tests.support.plans import plan_of

PLAN = """
name = "p"
fs_setups = ["ext4"]
{more}
[[engine]]
name = "files"
{engine}
[[workload]]
name = "copy"
"""


def load(tmp_path: Path, more: str = "", engine: str = "") -> None:
    """Read a plan of files."""
    plan_of(tmp_path, PLAN.format(more=more, engine=engine), catalog.catalog())


def test_it_is_always_there() -> None:
    """Nothing has to be installed for it, and it is registered as what it is."""
    assert ENGINES["files"].installed_version() is not None and not ENGINES["files"].programs()
    assert set(ENGINES) - set(SERVERS) == {"files"}


def test_check_looks_at_every_file(tmp_path: Path) -> None:
    """How many there are, and their bytes; folders that vanish meanwhile are no fault."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"12345")
    (tmp_path / "b").write_bytes(b"")
    assert files.check(tmp_path, {}, Place(tmp_path, tmp_path)) == "2 files, 5 bytes"
    assert files.data_files(tmp_path / "gone") == []


def test_settings_are_refused(tmp_path: Path) -> None:
    """There is no server that would read them."""
    with (
        pytest.raises(SettingRefused),
        files.serving(tmp_path, {"fsync": Setting("off", "plan")}, Place(tmp_path, tmp_path)),
    ):
        pass


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('[device.wal]\nfs_setup = "ext4"', "has no write-ahead log"),
        ('operations = ["clone"]', 'operation "clone" requires a server'),
        ('operations = ["snapshot"]', 'operation "snapshot" requires a server'),
    ],
)
def test_a_plan_that_wants_a_server_is_refused(tmp_path: Path, more: str, said: str) -> None:
    """Parts of a plan that the engine `files` does not support are errors before anything is made."""
    with pytest.raises(PlanInvalid, match=said):
        load(tmp_path, more)


def test_what_needs_no_server_is_taken(tmp_path: Path) -> None:
    """fsck and another device are of the filesystem alone."""
    load(tmp_path, 'operations = ["fsck"]')


def test_a_dataset_of_tables_is_refused(tmp_path: Path) -> None:
    """Workloads of servers do not run on files."""
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(more="", engine="").replace('"copy"', '"scan"'))
    with pytest.raises(PlanInvalid, match="supports none of the engines of this plan"):
        plan.load(path, catalog.catalog())
