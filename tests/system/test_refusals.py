"""Runs that are refused leave nothing: files, folders and images are compared before and after."""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import cli
from dbbench.engines import ENGINES
from dbbench.errors import EXIT_USAGE
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.request import load_request
from dbbench.run.create import create
from tests.support.others import NOBODY, as_reader
from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf", "fio")

TABLE: Final = "CREATE TABLE t (a integer);\n"
HEAD: Final = f"-- PostgreSQL database dump\n-- Dumped from database version 15.1\n{TABLE}"
COPY: Final = "COPY public.t (a) FROM stdin;\n1\n"
END: Final = "-- PostgreSQL database dump complete\n"
MARIADB: Final = "-- MariaDB dump 10.19\nCREATE TABLE `t` (a int);\n-- Dump completed\n"


def dump(content: str | bytes, name: str = "d.sql") -> Callable[[Path], str]:
    """Return what writes a dump and the plan that loads it."""

    def written(folder: Path) -> str:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        source = path if path.parent == folder else path.parent
        return plan(workload={"name": "scan", "source": str(source)})

    return written


def keys(**given: Any) -> Callable[[Path], str]:
    """Return what gives the plan with these keys; DIR stands for the test's folder."""
    return lambda folder: plan(**given).replace("DIR", str(folder))


def directory(name: str) -> Callable[[Path], str]:
    """Return the plan that measures in that directory."""
    return keys(device={"kind": "dir", "paths": {"ext4": name}})


def full_directory(folder: Path) -> str:
    """Return the plan of a directory with a file in it."""
    (folder / "used").mkdir()
    (folder / "used/mine").write_text("x")
    return directory("DIR/used")(folder)


TRUNCATED: Final = gzip.compress((HEAD + COPY * 4000 + "\\.\n" + END).encode())[:-12]
ROWS: Final = f"{COPY}\\.\n{END}"
# Only the server sees what is wrong with these, while it loads them.
BUILDING: Final = {
    "column-missing": HEAD + ROWS.replace("(a)", "(b)"),
    "extension-missing": HEAD + "CREATE EXTENSION nothing;\n" + ROWS,
    "row-twice": HEAD + "ALTER TABLE t ADD PRIMARY KEY (a);\n" + ROWS.replace("1\n", "1\n1\n"),
}

CASES: Final = {
    "dump-cut-off": ("E323", dump(HEAD + COPY)),
    "dump-without-end": ("E323", dump(HEAD)),
    "dump-empty": ("E323", dump("")),
    "dump-of-mariadb": ("E323", dump(MARIADB)),
    "dump-gzip-cut-off": ("E323", dump(TRUNCATED, "d.sql.gz")),
    "dump-no-text": ("E323", dump(b"\x7fELF\0\0\0")),
    "archive-damaged": ("E323", dump(b"PGDMP\1\16\0garbage", "d.dump")),
    "archive-without-contents": ("E323", dump("1\n", "d/3001.dat")),
    "mydumper-without-metadata": ("E323", dump("INSERT INTO t VALUES (1);\n", "m/db.t.00000.sql")),
    "source-missing": ("E323", keys(workload={"name": "scan", "source": "DIR/none.sql"})),
    "setting-reserved": ("E001", keys(engine={"name": "postgres", "settings": {"port": 1}})),
    "setting-unknown": ("E001", keys(engine={"name": "postgres", "settings": {"wrk_mem": "1MB"}})),
    "programs-missing": ("E201", keys(engine={"name": "postgres", "bin": "DIR/none"})),
    "programs-of-another-folder": ("E201", keys(engine={"name": "postgres", "bin": "DIR"})),
    "cores-missing": ("E213", keys(engine={"name": "postgres", "cpus_server": "900"})),
    "image-too-large": ("E203", keys(device={"size": "900TiB"})),
    "setup-unknown": ("E001", keys(fs="XFS5")),
    "option-unknown-to-the-kernel": ("E206", keys(fs="ext4:nope")),
    "disk-missing": ("E101", keys(device={"kind": "block", "path": "DIR/none"})),
    "directory-missing": ("E101", directory("DIR/none")),
    "directory-in-use": ("E101", full_directory),
    "directory-of-the-kernel": ("E101", directory("/proc/sys")),
    **{name: ("E501", dump(text)) for name, text in BUILDING.items()},
}


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and blocks of all that is below the folder."""
    sizes = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        sizes[str(path)] = (status.st_size, status.st_blocks)
    return sizes


LAB_CASES: Final = (
    "programs-missing",
    "programs-of-another-folder",
    "setting-reserved",
    "setting-unknown",
    "setup-unknown",
    "option-unknown-to-the-kernel",
)


@pytest.mark.parametrize(
    ("command", "name"),
    [*(("run", name) for name in CASES), *(("powercut", name) for name in LAB_CASES)],
)
def test_a_refused_command_leaves_nothing(
    command: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    nothing_left: None,
) -> None:
    """The results, the cache, the home and the directory of the command are as before."""
    ident, text_of = CASES[name]
    isolate(tmp_path, monkeypatch)
    Path("plan.toml").write_text(text_of(tmp_path))
    before = everything(tmp_path)
    status = cli.run([command, "plan.toml"])
    said = capsys.readouterr().err
    assert (status in (2, 5), ident in said) == (True, True), said
    after = everything(tmp_path)
    assert {path for path in after if before.get(path) != after[path]} == set()


@pytest.mark.needs("setpriv")
@pytest.mark.parametrize(
    "command",
    ["run plan.toml", "powercut plan.toml", "study run claims", "study run harm --scale tiny"],
)
def test_an_account_without_rights_leaves_nothing(command: str) -> None:
    """A loop device and the power-loss lab need root; the plan of a study is removed again."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    (folder / "plan.toml").write_text(plan())
    os.chown(folder, NOBODY, NOBODY)
    done = subprocess.run(
        [*as_reader(NOBODY), sys.executable, "-m", "dbbench", *command.split()],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "DBBENCH_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    left = [path.name for path in folder.rglob("*")]
    shutil.rmtree(folder)
    assert (done.returncode, left) == (EXIT_USAGE, ["plan.toml"]), done.stderr
    assert "E202" in done.stderr


@pytest.mark.needs("engine:mariadb", "sysbench")
@pytest.mark.parametrize("command", ["run", "powercut"])
def test_the_mysqld_of_mariadb_is_no_mysql_server(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Debian's MariaDB installs a program of that name."""
    if not shutil.which("mysqld") or ENGINES["mysql"].installed_version():
        pytest.skip("needs the mysqld of MariaDB, and no MySQL")
    isolate(tmp_path, monkeypatch)
    Path("plan.toml").write_text(plan(engine="mysql", workload="sysbench-oltp-read-write"))
    status = cli.run([command, "plan.toml"])
    said = capsys.readouterr().err
    assert status == EXIT_USAGE
    assert "E201: no MySQL server is installed" in said
    assert "is another server" in said
    assert not Path("results").exists()


def test_a_run_that_existed_stays_when_it_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_left: None,
) -> None:
    """Resuming keeps the folder; --notify is told of both refusals, with and without a folder."""
    isolate(tmp_path, monkeypatch)
    Path("plan.toml").write_text(dump(BUILDING["row-twice"])(tmp_path))
    notified = Path("notified")
    notified.touch()
    told = Path("told")
    told.write_text(f"#!/bin/sh\ncat >>{notified.resolve()}\n")
    told.chmod(0o755)
    words = ["run", "plan.toml", "--notify", str(told.resolve())]
    assert cli.run(words) == EXIT_USAGE
    assert not Path("results").exists()
    request = load_request("plan.toml", [], Narrowing())
    folder = create(Path("results").resolve(), request, None)
    assert cli.run(words) == EXIT_USAGE
    assert (folder / "run.json").exists()
    assert notified.read_text().count('"id": "E501"') == 2


def isolate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the command a home, a cache and a directory below the folder."""
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("DBBENCH_CACHE", str(folder / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    monkeypatch.chdir(folder)
