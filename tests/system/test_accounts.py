"""A trial's servers cannot be reached by other accounts, nor by other processes of their user ID."""

import dataclasses
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import mysql.connector

# not later: the checkout may lie where other accounts cannot read
import mysql.connector.locales.eng.client_error
import mysql.connector.plugins.mysql_native_password
import psutil
import psycopg2
import pytest

from dbbench import process
from dbbench.commands.finding import folder_of
from dbbench.engines import accounts
from dbbench.storage.devices.directory import nearest
from tests.support.leftovers import below, started
from tests.support.others import NOBODY, as_reader, as_user
from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf")

CASES: dict[str, tuple[str, str, Any]] = {
    "postgres": ("postgres", "384MiB", {"name": "pgbench-tpcb", "clients": 2, "scale": 1}),
    "mariadb": ("mariadbd", "1GiB", "sysbench-oltp-read-write"),
}


def rights(pid: int) -> tuple[str, str]:
    """Return the capabilities that a process could use, and whether it can gain others."""
    lines = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":\t" in line
    )
    return lines["CapPrm"], lines["NoNewPrivs"]


def connect(
    engine: str,
    sockets: Path,
    user: str = "dbbench",
    password: str = "",
) -> None:
    """Log in through the socket."""
    if engine == "postgres":
        psycopg2.connect(host=str(sockets), user=user, dbname="postgres").close()
    else:
        mysql.connector.connect(
            unix_socket=str(sockets / "mariadb.sock"),
            user=user,
            password=password,
            ssl_disabled=True,
            use_pure=True,
            charset="utf8mb4",
            collation="utf8mb4_general_ci",
        ).close()


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}", *needs))
        for name, needs in (("postgres", ()), ("mariadb", ("sysbench",)))
    ],
)
def test_nobody_else_reaches_the_server(engine: str, dbbench: Any) -> None:
    """Not `nobody`, which cannot even enter its folders; not its own number as the server's `root`.
    The load generator has that number: it can log in and read the password. No other process has
    it. What trials are restored from belongs to root alone.
    """
    program, size, load = CASES[engine]
    client = "pgbench" if engine == "postgres" else "sysbench"
    # the attempts may take seconds
    dbbench.plan(plan("ext4", engine, load, measure="6s", device={"size": size}))
    found: dict[str, Any] = {}

    def attack(pid: int) -> None:
        server = below(pid, program)[0]
        root = Path(f"/proc/{server.pid}/root")
        uid = server.uids().real
        sockets = root / "run/dbbench/s"
        options = sockets / "sysbench.cnf"
        password = re.findall('"(.*)"', options.read_text())[0] if options.exists() else ""
        found["nobody enters"] = as_user(NOBODY, lambda: list(root.iterdir()))
        found["nobody"] = as_user(NOBODY, lambda: connect(engine, sockets))
        found["itself"] = as_user(uid, lambda: connect(engine, sockets, password=password))
        found["clients"] = {(p.uids().real, rights(p.pid)) for p in below(pid, client)}
        found["itself as root"] = as_user(uid, lambda: connect(engine, sockets, "root"))
        found["reads"] = as_user(uid, lambda: list(Path("/root").iterdir()))
        found["root"] = as_user(0, lambda: connect(engine, sockets, password=password))
        found["init"] = (sockets / "init.sql").exists()
        found["uid"] = uid
        # whoever has it
        argvs = [arg for p in psutil.process_iter(["cmdline"]) for arg in p.info["cmdline"] or ()]
        found["shown"] = bool(password) and any(password in arg for arg in argvs)

    status, said = dbbench.run_and("plan.toml", dbbench.in_window, attack)
    assert status == 0, said[-2000:]
    assert "PermissionError" in found["nobody enters"] and "rror" in found["nobody"]
    refused = (
        "Peer authentication failed|no pg_hba.conf entry"
        if engine == "postgres"
        else "1045|4151|1698|Access denied"
    )
    assert found["itself"] == "" and re.search(refused, found["itself as root"]), found
    assert found["clients"] == {(found["uid"], ("0" * 16, "1"))}, found
    assert "PermissionError" in found["reads"] and not found["init"] and not found["shown"], found
    assert found["root"] == "", found
    with pytest.raises(KeyError):
        pwd.getpwuid(found["uid"])
    assert found["uid"] not in {
        uid for process in started(["uids"]) for uid in process.info["uids"] or ()
    }
    kept = [path for path in (dbbench.folder / "results").rglob("*") if path.is_file()]
    assert not any(b"mysql-password=" in path.read_bytes() for path in kept)
    copies = list(Path(dbbench.env["DBBENCH_CACHE"]).glob(f"{engine}-*/data"))
    assert copies and not any(data.stat().st_mode & 0o077 for data in copies)
    owners = {
        (path.lstat().st_uid, path.lstat().st_gid)
        for data in copies
        for path in (data, *data.rglob("*"))
    }
    assert owners == {(0, 0)}


SCRIPTS: Final = {
    "postgres": (
        "shop.sql",
        "\\setshell a sh -c 'id -u >{0}/uid; cat /root/.dbbench-test >{0}/read; echo 1'\nSELECT "
        ":a;\n",
    ),
    "mariadb": (
        "shop.lua",
        "function thread_init() con = sysbench.sql.driver():connect()\n"
        "  os.execute('id -u >{0}/uid; cat /root/.dbbench-test >{0}/read') end\n"
        "function event() con:query('SELECT 1') end\nfunction thread_done() con:disconnect() end\n",
    ),
}
OWN: Final = """
title   = "Our shop"
driver  = "{driver}"
engines = ["{engine}"]
script  = "{script}"
dataset = {{ kind = "none" }}
parameters.clients = {{ type = "integer", default = 1 }}
"""


@pytest.mark.parametrize(
    "engine",
    [pytest.param(name, marks=pytest.mark.needs(f"engine:{name}", "sysbench")) for name in SCRIPTS],
)
def test_a_script_has_no_rights(engine: str, dbbench: Any) -> None:
    """A script of a workload can run commands; they do not run as root, and cannot read root's
    files.
    """
    (open_ := Path(tempfile.mkdtemp(dir="/var/tmp"))).chmod(0o777)
    secret = Path("/root/.dbbench-test")
    secret.touch(0o600)
    secret.write_text("secret")
    try:
        name, text = SCRIPTS[engine]
        (folder := dbbench.folder / "mine/workloads").mkdir(parents=True)
        (folder / name).write_text(text.replace("{0}", str(open_)))
        driver = "pgbench" if engine == "postgres" else "sysbench"
        (folder / "shop.toml").write_text(OWN.format(driver=driver, engine=engine, script=name))
        trial = dbbench.trial(
            plan("ext4", engine, {"name": "shop"}, blocks=1, measure="4s", device={"size": "1GiB"}),
            "--path",
            "mine",
        )
        assert trial["error"] is None, trial["error"]
        assert int((open_ / "uid").read_text()) in accounts.NUMBERS
        assert (open_ / "read").read_text() == ""
    finally:
        secret.unlink()
        shutil.rmtree(open_)


@pytest.mark.needs("engine:mariadb", "mariadb-binlog", "mariadb", "sysbench")
def test_generated_data_is_loaded_without_rights(dbbench: Any) -> None:
    """sysbench prepares the dataset, and writes the log of an archive, as the account of clients."""
    (folder := Path(tempfile.mkdtemp(dir="/var/tmp"))).chmod(0o777)
    try:
        (folder / "sysbench").write_text(
            f'#!/bin/sh\necho "$(id -u) $*" >> {folder}/log\nexec {shutil.which("sysbench")} "$@"\n'
        )
        (folder / "sysbench").chmod(0o755)
        (folder / "log").touch()
        (folder / "log").chmod(0o666)
        load = {"name": "archive-apply", "tables": 1, "table_size": 1000, "log_bytes": "1MiB"}
        dbbench.plan(
            plan(
                "ext4",
                "mariadb",
                load,
                blocks=1,
                device={"size": "1GiB"},
                warmup=None,
                measure=None,
            )
        )
        env = {
            **dbbench.env,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "DBBENCH_CACHE": str(folder / "cache"),
        }
        dataclasses.replace(dbbench, env=env)("run", "plan.toml", "--name", "r")
        lines = [line.split() for line in (folder / "log").read_text().splitlines()]
        loads = {words[1]: int(words[0]) for words in lines if words[1].startswith("oltp_")}
        assert loads.keys() == {"oltp_read_write", "oltp_write_only"}
        assert all(uid in accounts.NUMBERS for uid in loads.values()), lines
    finally:
        shutil.rmtree(folder)


@pytest.mark.needs("unshare")
def test_a_container_without_the_numbers_is_refused() -> None:
    """In a user namespace that has root alone no number can be taken: E202, and the server is not
    started as root.
    """
    script = (
        "import sys\n"
        "from dbbench.engines import accounts\n"
        "from dbbench.errors import NotRoot\n"
        "sys.path.append(sys.argv[1])\n"
        "from tests.support.private_mounts import apart\n"
        "with apart():\n"
        "    try:\n"
        "        print(accounts.of_server('postgres'))\n"
        "    except NotRoot as error:\n"
        "        print(error.id, error.evidence, error.remedy)\n"
    )
    enter = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces, which a chroot and some kernels refuse")
    argv = [*enter, sys.executable, "-c", script, str(Path(__file__).parents[2])]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.startswith("E202 no user ID between") and "uid_map" in said


def test_the_home_of_another_account_is_passed_over() -> None:
    """As after `sudo` or `setpriv` without a HOME of its own: the error names what cannot be
    written.
    """
    (folder := Path(tempfile.mkdtemp(dir="/var/tmp"))).chmod(0o755)
    try:
        (closed := folder / "home").mkdir(0o700)
        assert as_user(NOBODY, lambda: str(nearest(closed / ".cache/dbbench"))) == repr(str(closed))
    finally:
        shutil.rmtree(folder)


def test_a_run_of_another_account_is_not_missing() -> None:
    """Its directory may not be entered: the error is about permissions."""
    (folder := Path(tempfile.mkdtemp(dir="/var/tmp"))).chmod(0o755)
    try:
        (folder / "results").mkdir(0o700)
        assert "PermissionError" in as_user(NOBODY, lambda: folder_of(folder / "results", "demo"))
        assert "no run" in as_user(NOBODY, lambda: folder_of(folder, "demo"))
    finally:
        shutil.rmtree(folder)


def test_the_group_of_a_process_may_differ_from_that_of_its_account() -> None:
    """As in a container with runAsGroup: files are given to the group that the process has."""
    uid = pwd.getpwnam("games").pw_uid  # its group has another number
    assert as_user(uid, lambda: process.user().gid) == str(uid)


@pytest.mark.needs("setpriv")
def test_root_without_capabilities_is_refused_by_plan(tmp_path: Path) -> None:
    """Before an image is written."""
    (tmp_path / "plan.toml").write_text(plan("ext4", "postgres", "pgbench-tpcb"))
    drop = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    argv = [*drop, sys.executable, "-m", "dbbench", "plan", "plan.toml"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "E202 privileges are missing: root has no CAP_SYS_ADMIN" in done.stdout


@pytest.mark.needs("setpriv")
def test_an_account_without_a_name_is_refused_by_plan() -> None:
    """As in a container with runAsUser; with the right to read, for a checkout that is closed."""
    uid = 2_000_000_123
    with pytest.raises(KeyError):
        pwd.getpwuid(uid)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    data = folder / "data"
    data.mkdir()
    text = plan("ext4", "postgres", device={"kind": "dir", "paths": {"ext4": str(data)}})
    (folder / "plan.toml").write_text(text)
    for path in (folder, data):
        os.chown(path, uid, uid)
    argv = [*as_reader(uid), sys.executable, "-m", "dbbench", "plan", "plan.toml"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    assert done.returncode == 2
    assert f"user ID {uid} has no entry in /etc/passwd" in " ".join(done.stdout.split())
