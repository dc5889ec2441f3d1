"""The command lines that drivers start: which values of a cell are passed to the tool."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dbbench.drivers import DRIVERS, pgbench, sessions_of, sysbench
from dbbench.drivers.protocol import locate
from dbbench.errors import FileUnreadable
from dbbench.model import Cell, Dataset, Scalar, Window, Workload
from dbbench.plan import catalog
from tests.support.files import write_file
from tests.support.plans import SHIPPED
from tests.support.runs import small_run


@dataclass
class Address:
    """As much of a server as a command needs."""

    engine: str = "postgres"
    socket_dir: Path = Path("/run/s")
    socket: Path = Path("/run/s/.s.PGSQL.5432")
    user: str = "dbbench"
    database: str = "dbbench"
    bin: Path = Path("/opt/pg/bin")


def cell(
    workload: Workload, *, dataset: dict[str, Scalar] | None = None, **parameters: Scalar
) -> Cell:
    """A cell of that workload with 2.5 s of warm-up and 10 s of window."""
    given = Dataset(workload.dataset["kind"], dataset or {})  # type: ignore[arg-type]
    return replace(
        small_run().cells[0],
        workload=workload,
        parameters=parameters,
        dataset=given,
        window=Window("fixed", 2.5, 10),
    )


def workload(driver: Any, script: str, kind: str) -> Workload:
    """A workload of that driver."""
    return Workload("t", driver, ("postgres",), {"kind": kind}, script=script)


def of_pgbench(script: str = "tpcb-like", **parameters: Scalar) -> list[str]:
    """The argv for that script, with four clients where nothing else is asked."""
    given: dict[str, Any] = {"clients": 4, **parameters}
    asked = cell(workload("pgbench", script, "pgbench"), **given)
    return pgbench.command(Address(), asked, 42, Path("/scratch"))  # type: ignore[arg-type]


def of_sysbench(server: Address, **parameters: Scalar) -> list[str]:
    """The argv for oltp_read_write on that server, three tables in the dataset."""
    asked = cell(
        workload("sysbench", "oltp_read_write", "sysbench"),
        dataset={"tables": 3},
        clients=4,
        **parameters,
    )
    return sysbench.command(server, asked, 42)  # type: ignore[arg-type]


def test_the_command_of_pgbench() -> None:
    """It comes from the server's own folder, not from PATH, where another version or a wrapper may
    lie. It runs for warm-up and window in whole seconds: a second cannot be half in the window.
    With more threads than clients it would start fewer, and write fewer logs than dbbench
    expects. Rate zero is as fast as it goes. The built-in scripts are prepared.
    """
    assert of_pgbench()[0] == "/opt/pg/bin/pgbench"
    assert "--time=13" in of_pgbench()
    assert "--jobs=2" in of_pgbench(threads=8, clients=2)
    assert "--rate=500" in of_pgbench(rate=500)
    assert not any(word.startswith("--rate") for word in of_pgbench(rate=0))
    assert "--protocol=prepared" in of_pgbench() and "--protocol=simple" in of_pgbench(
        protocol="simple"
    )


def test_parameters_of_a_workload_with_an_own_script_are_its_variables(tmp_path: Path) -> None:
    """What the driver does not know itself is for the script. It may have statements that cannot be
    prepared.
    """
    # pgbench takes what follows the last @ for a weight
    (folder := tmp_path / "me@example.com").mkdir()
    script = write_file(folder / "own.sql", "SELECT :spread, current_date + 1;\n")
    argv = of_pgbench(str(script), spread=7, scale=5)
    assert {f"--file={script}@1", "--define=spread=7", "--scale=5"} <= set(argv)
    assert not any(word.startswith("--protocol") for word in argv)
    assert "--protocol=extended" in of_pgbench(str(script), protocol="extended")


def test_the_command_of_sysbench() -> None:
    """The server's socket, user and database; no password. A parameter of the workload is the
    dataset's of the same name: the table count that was loaded and is used. Truth is written as
    on and off, the rest as it is.
    """
    argv = of_sysbench(Address())
    assert {
        "--db-driver=pgsql",
        "--pgsql-host=/run/s",
        "--pgsql-port=5432",
        "--pgsql-user=dbbench",
    } <= set(argv)
    assert "--tables=3" in argv and not any("password" in word for word in argv)
    argv = of_sysbench(
        Address("mariadb", socket=Path("/run/s/sock")),
        tables=5,
        skip_trx=True,
        range_size=7,
    )
    assert {"--db-driver=mysql", "--mysql-socket=/run/s/sock", "--mysql-user=dbbench"} <= set(argv)
    assert {"--tables=5", "--skip_trx=on", "--range_size=7"} <= set(argv)


@pytest.mark.parametrize(("seed", "given"), [(42, 42), (2**31 - 1, 2**31 - 1), (2**31, 1)])
def test_sysbenchs_seed_is_never_the_time(seed: int, given: int) -> None:
    """It is an int of C, and 0 would mean the time."""
    asked = cell(workload("sysbench", "oltp_read_write", "sysbench"), clients=1)
    assert f"--rand-seed={given}" in sysbench.command(Address(), asked, seed)  # type: ignore[arg-type]


def test_a_script_that_is_nowhere_is_an_error() -> None:
    """Before anything is started."""
    with pytest.raises(FileUnreadable, match=r"nowhere\.sql"):
        locate("nowhere.sql")


def test_every_shipped_workload_names_a_driver_and_a_script_it_has() -> None:
    """A workload that is shipped can be driven; its parameters' defaults pass their own checks."""
    assert len(SHIPPED.workloads) >= 6
    for name in SHIPPED.workloads:
        found = SHIPPED.workload(name)
        assert found.driver in DRIVERS
        known = {
            "pgbench": pgbench.BUILT_IN,
            "sysbench": sysbench.BUNDLED,
            "fio": (),
            "statements": (),
        }.get(found.driver, ("",))
        assert found.script in known or locate(found.script)
        for parameter in catalog.parameters(found).values():
            if parameter.default is not None:
                catalog.convert_value(parameter, parameter.default)


@pytest.mark.parametrize(
    ("driver", "script", "parameters", "expected"),
    [
        ("pgbench", "tpcb-like", {"clients": 4}, 5),  # one more asks for the scale
        ("sysbench", "oltp_read_write", {"clients": 4}, 4),
        ("sysbench", "tpcc.lua", {}, 1),
        ("sysbench", "/home/me/own.lua", {"clients": 4}, None),
        ("sysbench", "oltp_read_write", {"script": "own.lua"}, None),
        ("apply", "", {}, 1),
        ("scan", "", {"clients": 4}, 0),
        ("insert", "", {"clients": 4, "writers": 2}, 4),  # those that insert are dbbench's own
    ],
)
def test_the_sessions_that_a_load_opens_are_known(
    driver: str,
    script: str,
    parameters: dict[str, Scalar],
    expected: int | None,
) -> None:
    """But for scripts of a user's own; dbbench's own sessions are not among them."""
    assert sessions_of(cell(workload(driver, script, "sysbench"), **parameters)) == expected


def test_an_own_script_gets_the_datasets_parameters_only_for_options_that_it_has(
    tmp_path: Path,
) -> None:
    """sysbench refuses an option that the script does not define; options of the workload are the
    author's choice.
    """
    script = write_file(tmp_path / "own.lua", "function event() end\n")
    loaded: dict[str, Scalar] = {"kind": "sysbench", "tables": 3, "table_size": 500, "seed": 9}
    own = Workload(
        "t",
        "sysbench",
        ("postgres",),
        loaded,
        script=str(script),
        options={"range": 7, "tables": 2},
    )
    asked = cell(own, dataset={"tables": 3, "table_size": 500}, clients=1, table_size=500, seed=9)
    argv = sysbench.command(Address(), asked, 42)  # type: ignore[arg-type]
    assert {"--range=7", "--tables=2"} <= set(argv)
    assert not any(word.startswith(("--table_size", "--seed")) for word in argv)
    env = sysbench._environment(asked, str(script), "/out")
    assert env["DBBENCH_OPTIONS"] == "seed=9 table_size=500"
    assert "DBBENCH_OPTIONS" not in sysbench._environment(
        cell(workload("sysbench", "oltp_insert", "sysbench"), dataset={"tables": 3}),
        "oltp_insert",
        "/out",
    )
