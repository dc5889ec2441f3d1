"""A slow log is converted into a script, which runs on the server that wrote the log."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli
from dbbench.engines import sql_of
from dbbench.engines.port import execute, rows
from dbbench.model import Dataset


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.needs("root", "sysbench", f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_a_slow_log_is_driven_again(
    drive: Any, served: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    """Statements of sysbench, with keys and texts of the log; utility statements are left out, and said. A second
    conversion writes over nothing."""
    with served(engine, Dataset("sysbench", {"tables": 1, "table_size": 500})) as server:
        log = server.socket_dir / "slow.log"
        execute(server, f"SET GLOBAL slow_query_log_file = '{log}'", "SET GLOBAL long_query_time = 0",
                "SET GLOBAL slow_query_log = 1")  # fmt: skip
        command = ["sysbench", "oltp_read_write", *sql_of(server).login(server), "--tables=1", "--table-size=500"]
        subprocess.run([*command, "--events=30", "--time=20", "run"], check=True, capture_output=True)
        execute(server, "SET GLOBAL slow_query_log = 0")
        convert = ["workload", "from-statements", str(log), "-o", str(tmp_path / "workloads/ours.toml"), "--data-of",
                   "sysbench-oltp-read-write"]  # fmt: skip
        assert cli.run(convert) == 0
        said = capsys.readouterr().out
        assert "of the calls" in said and "not a statement on rows (COMMIT)" in said
        script = tmp_path / "workloads/ours.lua"
        before = rows(server, "SELECT count(*) FROM sbtest1")[0][0]
        outcome = drive(server, "sysbench", str(script), measure_s=5, clients=2).outcome
        assert outcome.transactions > 10 and before == 500
        assert rows(server, "SELECT count(*) FROM sbtest1 WHERE id NOT BETWEEN 1 AND 500")[0][0] == 0
        assert cli.run(convert) == 2 and "E005" in capsys.readouterr().err
