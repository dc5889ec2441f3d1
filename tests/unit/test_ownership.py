"""Programs, catalogues and runs that another account could change are not used as root."""

import os
from pathlib import Path

import pytest

from dbbench.errors import FileUnreadable, RunLocked
from dbbench.machine.ownership import other_writer, programs_in
from dbbench.plan.catalog import catalog
from dbbench.run.recover import must_be_trusted
from tests.support.plans import flaws_of, plan

pytestmark = pytest.mark.needs("root")

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory of root's with one program in it."""
    folder = tmp_path / "pg"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/postgres").write_text("#!/bin/false\n")
    folder.chmod(0o755)
    return folder


def test_files_of_root_have_no_other_writer(folder: Path) -> None:
    """A sticky directory above, such as /tmp, does not let others replace a file of root's."""
    assert other_writer(programs_in(folder)) is None


@pytest.mark.parametrize("part", ["", "bin", "bin/postgres"])
def test_the_owner_of_any_part_is_named(folder: Path, part: str) -> None:
    """The directory, a directory in it, and each program."""
    os.chown(folder / part, NOBODY, 0)
    expected = f"{(folder / part)} can be changed by the account nobody"
    assert other_writer(programs_in(folder)) == expected


def test_a_directory_above_counts(folder: Path) -> None:
    """Who may rename `pg` can put another directory in its place."""
    folder.parent.chmod(0o777)
    assert other_writer([folder]) == f"{folder.parent} can be changed by every account"
    folder.parent.chmod(0o1777)
    assert other_writer([folder]) is None


def test_a_group_counts(folder: Path) -> None:
    """Members of the group could write to the file."""
    program = folder / "bin/postgres"
    os.chown(program, 0, NOBODY)
    program.chmod(0o775)
    assert other_writer([program]) == f"{program} can be changed by the group nogroup"


def test_both_sides_of_a_link_count(folder: Path, tmp_path: Path) -> None:
    """The link could be replaced, and so could its target."""
    link = tmp_path / "current"
    link.symlink_to(folder)
    assert other_writer([link]) is None
    os.chown(link, NOBODY, 0, follow_symlinks=False)
    assert other_writer([link]) == f"{link} can be changed by the account nobody"
    os.chown(link, 0, 0, follow_symlinks=False)
    os.chown(folder, NOBODY, 0)
    assert other_writer([link]) == f"{folder} can be changed by the account nobody"


def test_the_account_that_called_sudo_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can become root anyway."""
    os.chown(folder / "bin/postgres", NOBODY, 0)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    assert other_writer(programs_in(folder)) is None


@pytest.mark.parametrize("name", ["", "run.json", "journal.jsonl", "scripts", "scripts/x.lua"])
def test_root_does_not_act_upon_the_run_of_another_account(tmp_path: Path, name: str) -> None:
    """Neither `run` nor `clean` believes its journal; a home of another account above is allowed."""
    folder = tmp_path / "results/r"
    (folder / "scripts").mkdir(parents=True)
    for file in ("run.json", "journal.jsonl", "scripts/x.lua"):
        (folder / file).write_text("")
    os.chown(tmp_path / "results", NOBODY, 0)
    must_be_trusted(folder)
    os.chown(folder / name, NOBODY, 0)
    with pytest.raises(RunLocked, match="can be changed by the account nobody, and root would act"):
        must_be_trusted(folder)


def test_a_link_in_place_of_a_run_is_not_followed(tmp_path: Path) -> None:
    """Its owner counts, and not that of the run to which it leads."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "r"
    link.symlink_to(tmp_path / "real")
    os.chown(link, NOBODY, 0, follow_symlinks=False)
    with pytest.raises(RunLocked, match="the account nobody"):
        must_be_trusted(link)


def test_a_plan_with_such_programs_is_refused(folder: Path, tmp_path: Path) -> None:
    """With the line of `bin`, before the program is asked for its version."""
    os.chown(folder / "bin/postgres", NOBODY, 0)
    flaws = flaws_of(tmp_path, plan(engine={"name": "postgres", "bin": str(folder)}))
    assert "postgres can be changed by the account nobody, and root would run it" in flaws


def test_a_catalogue_of_another_account_is_refused(tmp_path: Path) -> None:
    """Its setups name options of mkfs, which runs as root."""
    (tmp_path / "fs_setups").mkdir()
    setup = tmp_path / "fs_setups/mine.toml"
    setup.write_text('title = "x"\nmkfs = { family = "ext4" }\n')
    assert "mine" in catalog([tmp_path]).setups
    os.chown(setup, NOBODY, 0)
    with pytest.raises(FileUnreadable, match="can be changed by the account nobody"):
        catalog([tmp_path])
