"""Load generators that report too much work, and flushes that are discarded: no such trial is
marked ok.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import engine_bin
from tests.support.leftovers import GONE_S, left_of
from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf")

# without a rate, whose log has another column
TPCB = {"name": "pgbench-tpcb", "scale": 1, "clients": 2, "threads": 2}
SYSBENCH = {"name": "sysbench-oltp-read-write", "tables": 1, "table_size": 1000}
FIO = {"name": "fio-seqwrite", "file_size": "32MiB"}

# Prints what pgbench prints and logs 2000 transactions a second, without a connection. The tables
# are the real one's.
FAKE_PGBENCH = """#!/usr/bin/python3
import os, sys, time
option = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if "--log-prefix" not in option:
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
end, done = time.time() + int(option["--time"]), 0
with open(option["--log-prefix"] + ".1", "w") as first, open(option["--log-prefix"] + ".1.1", "w") as second:
    while (now := time.time()) < end:
        for log in (first, second):
            for _ in range(10):
                done += 1
                print(0, done, 900, 0, int(now), int(now % 1 * 1e6), file=log)
        time.sleep(0.01)
print("number of transactions actually processed:", done)
"""
# Runs the real pgbench, then reports each of its transactions twice.
DOUBLED_PGBENCH = """#!/usr/bin/python3
import glob, re, subprocess, sys
done = subprocess.run([{real!r}, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
option = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
for path in glob.glob(option.get("--log-prefix", "/nonexistent/") + ".*"):
    with open(path, "r+") as log:
        log.write(log.read())
print(re.sub(r"(processed: )(\\d+)", lambda found: found[1] + str(2 * int(found[2])), done.stdout))
sys.exit(done.returncode)
"""
# The same of sysbench: its report, and the counts of our script.
DOUBLED_SYSBENCH = """#!/usr/bin/python3
import glob, os, re, subprocess, sys
done = subprocess.run([{real!r}, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
for path in glob.glob(os.environ.get("DBBENCH_OUT", "/nonexistent") + "/events.*"):
    with open(path, "r+") as log:
        log.write(log.read())
print(re.sub(r"((?:transactions|queries|ignored errors): +)(\\d+)", lambda m: m[1] + str(2 * int(m[2])), done.stdout))
sys.exit(done.returncode)
"""
# The real fio reports three times as many bytes.
TRIPLED_FIO = """#!/usr/bin/python3
import re, subprocess, sys
done = subprocess.run([{real!r}, *sys.argv[1:]])
for path in [word.split("=", 1)[1] for word in sys.argv[1:] if word.startswith("--output=")]:
    with open(path, "r+") as report:
        text = report.read()
        report.seek(0)
        report.write(re.sub(r'("io_bytes" : )(\\d+)', lambda found: found[1] + str(3 * int(found[2])), text))
sys.exit(done.returncode)
"""
# The real fio lays out its files, and then works on others.
DISTANT_FIO = """#!/bin/sh
for job; do :; done
case "$*" in *create_only*) exec {real} "$@" ;; esac
sed -i 's|^directory=.*|directory={place}|' "$job"
{remove}
exec {real} "$@"
"""
REMOVING = "(for i in $(seq 60); do rm -f /dev/shm/load*; sleep 0.1; done) &"
DISTANT = [("8MiB", "", "E355"), ("32MiB", REMOVING, "E352")]
# The real pgbench with another script than the one it was asked for; it reports what that script
# did.
LIGHTER_PGBENCH = """#!/bin/bash
words=()
for word in "$@"; do
  case $word in --builtin=*) words+=({script}) ;; *) words+=("$word") ;; esac
done
exec {real} "${{words[@]}}"
"""
HOT_ROW = """\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = 1;
SELECT abalance FROM pgbench_accounts WHERE aid = 1;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = 1;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, 1, :delta, CURRENT_TIMESTAMP);
END;
"""
INSERTS = """INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, 1, 7, CURRENT_TIMESTAMP);
"""
LIGHTER = {  # words in place of `--builtin=tpcb-like`, and the count that shows it
    "reads": (["--builtin=select-only@4", "--builtin=tpcb-like@1"], "updated"),
    "inserts": (["--file={folder}/inserts.sql"], "updated"),
    "hot-row": (["--file={folder}/hot.sql"], "pages"),
    "simple-update": (["--builtin=simple-update"], "updated"),
}
# The real sysbench without most of the statements of its transactions.
LIGHTER_SYSBENCH = """#!/bin/bash
exec {real} --index-updates=0 --delete-inserts=0 "$@"
"""
NO_SYNC = (
    "int fsync(int fd) { (void)fd; return 0; }\nint fdatasync(int fd) { (void)fd; return 0; }\n"
)
OWN = """
title = "own script"
driver = "{driver}"
engines = ["postgres", "mariadb"]
script = "own.sql"
dataset = {{ {dataset} }}
[parameters.clients]
type = "integer"
default = 16
[parameters.rate]
type = "integer"
default = 0
"""
LAZY = "SET synchronous_commit = off;\nINSERT INTO pgbench_history (tid) VALUES (1);\n"
MYISAM = "-- step a\nCREATE TABLE t1 ENGINE=MyISAM SELECT seq FROM seq_1_to_99;\n"
DISTANT_TABLE = """-- step a
CREATE TABLE t1 (i int) ENGINE=InnoDB DATA DIRECTORY='/dev/shm';
INSERT INTO t1 SELECT seq FROM seq_1_to_99999;
"""
UNSYNCED_POSTGRES = '#!/bin/sh\nLD_PRELOAD={library} exec {real} "$@"\n'


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every account can enter."""
    path = Path(tempfile.mkdtemp(prefix="dbbench-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def program(path: Path, text: str) -> None:
    """Write an executable file."""
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def server_folder(folder: Path) -> Path:
    """A copy of PostgreSQL's programs, of which single ones can be replaced; the folder of the
    originals.
    """
    real = engine_bin("postgres")
    assert real is not None
    for path in real.iterdir():
        shutil.copy(path, folder)
    return real


def of(folder: Path) -> dict[str, Any]:
    """The small PostgreSQL whose programs lie in that folder."""
    return {"name": "postgres", "bin": str(folder), "settings": {"shared_buffers": "16MB"}}


def ended(dbbench: Any, size: str = "384MiB", **cell: Any) -> dict[str, Any]:
    """The only trial of a run whose trial must fail."""
    # Long enough for many transactions even if the machine stands still for two seconds.
    trial = dbbench.trial(
        plan(**{"workload": TPCB, **cell}, measure="6s", device={"size": size}), status=1
    )
    assert trial["status"] == "failed"
    assert left_of(dbbench.folder, within_s=GONE_S) == []
    return dict(trial)


def counted(trial: dict[str, Any], name: str) -> dict[str, int]:
    """The comparison of one count."""
    return next(fact for fact in trial["work"] if fact["count"] == name)


@pytest.mark.needs("engine:postgres")
def test_a_pgbench_that_only_prints_is_found(dbbench: Any, folder: Path) -> None:
    """A plausible log and report without a transaction in the server fail the trial (E352)."""
    real = server_folder(folder)
    program(folder / "pgbench", FAKE_PGBENCH.format(real=str(real / "pgbench")))
    trial = ended(dbbench, engine=of(folder))
    work = counted(trial, "transactions")
    assert trial["error"]["id"] == "E352", trial["error"]
    assert work["counted"] < 500 < 1000 < work["least"]
    assert (
        str(work["counted"]) in trial["error"]["text"]
        and str(work["least"]) in trial["error"]["text"]
    )


@pytest.mark.soak  # sysbench does the same beside it
@pytest.mark.needs("engine:postgres")
def test_a_pgbench_that_reports_everything_twice_is_found(dbbench: Any, folder: Path) -> None:
    """Half of the transactions are missing in the server (E352)."""
    real = server_folder(folder)
    program(folder / "pgbench", DOUBLED_PGBENCH.format(real=str(real / "pgbench")))
    trial = ended(dbbench, engine=of(folder))
    work = counted(trial, "transactions")
    assert trial["error"]["id"] == "E352", trial["error"]
    assert 0.4 < work["counted"] / work["claimed"] < 0.95


@pytest.mark.needs("engine:mariadb", "sysbench")
def test_a_sysbench_that_reports_everything_twice_is_found(dbbench: Any, folder: Path) -> None:
    """Half of the transactions are missing in MariaDB (E352)."""
    program(folder / "sysbench", DOUBLED_SYSBENCH.format(real=shutil.which("sysbench")))
    dbbench.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    trial = ended(dbbench, "1GiB", engine="mariadb", workload=SYSBENCH)
    work = counted(trial, "transactions")
    assert trial["error"]["id"] == "E352", trial["error"]
    # half, and what dbbench itself did: much of few
    assert 0.4 < work["counted"] / work["claimed"] < 0.9


@pytest.mark.needs("engine:postgres")
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("reads", "hot-row") else pytest.param(name, marks=pytest.mark.long)
        for name in LIGHTER
    ],
)
def test_a_lighter_load_of_as_many_transactions_is_found(
    name: str,
    dbbench: Any,
    folder: Path,
) -> None:
    """The number of transactions is right, but not what they do: E352, which names the kind."""
    words, count = LIGHTER[name]
    real = server_folder(folder)
    (folder / "hot.sql").write_text(HOT_ROW)
    (folder / "inserts.sql").write_text(INSERTS)
    script = " ".join(word.format(folder=folder) for word in words)
    program(folder / "pgbench", LIGHTER_PGBENCH.format(real=real / "pgbench", script=script))
    trial = ended(dbbench, engine=of(folder))
    assert trial["error"]["id"] == "E352", trial["error"]
    transactions = counted(trial, "transactions")
    assert transactions["least"] <= transactions["counted"] <= transactions["most"]
    assert counted(trial, count)["counted"] < counted(trial, count)["least"]


@pytest.mark.needs("engine:mariadb", "sysbench")
def test_a_sysbench_without_most_of_its_writes_is_found(dbbench: Any, folder: Path) -> None:
    """MariaDB deletes no row, and updates half as many as the script says (E352)."""
    text = LIGHTER_SYSBENCH.format(real=shutil.which("sysbench"))
    program(folder / "sysbench", text)
    dbbench.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    trial = ended(dbbench, "1GiB", engine="mariadb", workload={**SYSBENCH, "rate": 100})
    assert trial["error"]["id"] == "E352", trial["error"]
    assert counted(trial, "deleted")["counted"] < counted(trial, "deleted")["least"]
    assert counted(trial, "updated")["counted"] < counted(trial, "updated")["least"]


@pytest.mark.needs("fio")
def test_bytes_that_were_never_written_are_found(dbbench: Any, folder: Path) -> None:
    """fio reports more bytes than its processes wrote by system calls (E352)."""
    program(folder / "fio", TRIPLED_FIO.format(real=shutil.which("fio")))
    dbbench.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    # the warm-up is counted, but not claimed
    trial = ended(dbbench, engine="files", workload=FIO, warmup="0s")
    work = counted(trial, "write_bytes")
    assert trial["error"]["id"] == "E352", trial["error"]
    assert 0.2 < work["counted"] / work["claimed"] < 0.95


@pytest.mark.needs("fio")
@pytest.mark.parametrize(("size", "remove", "error"), DISTANT)
def test_files_in_memory_are_found(
    size: str,
    remove: str,
    error: str,
    dbbench: Any,
    folder: Path,
) -> None:
    """fio works in /dev/shm: its open files are elsewhere (E355). If they are removed, its system
    calls are right, and the device wrote nothing (E352).
    """
    text = DISTANT_FIO.format(real=shutil.which("fio"), place="/dev/shm", remove=remove)
    program(folder / "fio", text)
    dbbench.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    load = {**FIO, "file_size": size}
    trial = ended(dbbench, engine="files", workload=load, warmup="0s")
    assert trial["error"]["id"] == error, trial["error"]
    if error == "E355":
        assert "/dev/shm/" in trial["error"]["text"]
    else:
        work = counted(trial, "dirtied_bytes")
        assert work["counted"] < work["least"]


@pytest.mark.needs("engine:postgres", "cc")
def test_a_swallowed_fsync_is_found(dbbench: Any, folder: Path) -> None:
    """A server whose fsync does nothing leaves too few device flushes for its commits (E352), or
    none (E352).
    """
    real = server_folder(folder)
    library = folder / "nosync.so"
    (folder / "nosync.c").write_text(NO_SYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "nosync.c"], check=True)
    program(folder / "postgres", UNSYNCED_POSTGRES.format(library=library, real=real / "postgres"))
    trial = ended(dbbench, engine=of(folder))
    assert trial["error"]["id"] in ("E352", "E352"), trial["error"]
    assert counted(trial, "transactions")["counted"] > 200


def of_script(dbbench: Any, driver: str, dataset: str, script: str) -> tuple[str, ...]:
    """Write a workload "own" with that script; return the command that runs the plan."""
    own = dbbench.folder / "own/workloads"
    own.mkdir(parents=True)
    (own / "own.toml").write_text(OWN.format(driver=driver, dataset=dataset))
    (own / "own.sql").write_text(script)
    return ("--path", "own", "run", "plan.toml", "--name", "r")


@pytest.mark.needs("engine:postgres")
def test_a_script_that_does_not_wait_for_its_flushes_is_named(dbbench: Any) -> None:
    """At a fixed rate, the log writer's five flushes a second must not pass for sixteen clients'."""
    command = of_script(dbbench, "pgbench", 'kind = "pgbench", scale = 1', LAZY)
    dbbench.plan(plan(workload={"name": "own", "rate": 200}, measure="5s"))
    dbbench(*command)
    (trial,) = dbbench.trials().values()
    flushes = counted(trial, "flushes")
    assert flushes["claimed"] > 500 and flushes["counted"] < flushes["least"]
    (warning,) = [each for each in trial["warnings"] if each["id"] == "W151"]
    assert f"{flushes['counted']} device flushes for" in warning["text"]
    assert trial["status"] == "suspect"


@pytest.mark.needs("engine:mariadb")
def test_a_table_without_a_log_is_named(dbbench: Any) -> None:
    """MyISAM flushes nothing, and no count of InnoDB's shows it."""
    command = of_script(dbbench, "statements", 'kind = "none"', MYISAM)
    dbbench.plan(plan(engine="mariadb", workload="own", device={"size": "1GiB"}))
    dbbench(*command)
    (trial,) = dbbench.trials().values()
    (warning,) = [each for each in trial["warnings"] if each["id"] == "W151"]
    assert "t1 (MyISAM)" in warning["text"] and trial["status"] == "suspect"


@pytest.mark.needs("engine:mariadb")
def test_a_table_in_memory_fails(dbbench: Any) -> None:
    """The load may end before the second look at the server's files."""
    command = of_script(dbbench, "statements", 'kind = "none"', DISTANT_TABLE)
    dbbench.plan(plan(engine="mariadb", workload="own", device={"size": "1GiB"}))
    dbbench(*command, status=1)
    (trial,) = dbbench.trials().values()
    assert trial["error"]["id"] == "E355" and "/dev/shm/" in trial["error"]["text"]
