"""A large table is dropped during a real load."""

import dataclasses
import json
from contextlib import closing
from typing import Any

import pytest

from dbbench.errors import DriverFailed
from dbbench.model import Dataset, Workload
from dbbench.plan import catalog

pytestmark = pytest.mark.needs("root", "sysbench")
DATASET = Dataset("sysbench", {"tables": 2, "table_size": 2000, "large_bytes": 24 * 2**20})
DROP = catalog.catalog().workload("drop-table")


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("postgres", marks=pytest.mark.needs("engine:postgres")),
        pytest.param("mariadb", marks=pytest.mark.needs("engine:mariadb")),
        # its start takes long
        pytest.param("mysql", marks=[pytest.mark.needs("engine:mysql"), pytest.mark.soak]),
    ],
)
def test_the_table_is_gone_and_the_others_went_on(
    engine: str,
    drive: Any,
    served: Any,
) -> None:
    """The statement begins at its share of the window; what it took and what the others noticed are
    figures. The dataset has the large table in its size. A load that a busy disk held before or
    after the statement is repeated.
    """
    for _ in range(3):
        with served(engine, DATASET) as server:
            size = _bytes(server)
            assert 20 * 2**20 < size < 40 * 2**20
            driven = drive(
                server,
                "sysbench",
                workload=DROP,
                dataset=DATASET,
                warmup_s=1,
                measure_s=6,
                clients=2,
                during_at=0.5,
            )
            assert _bytes(server) == 0
        said = json.loads((driven.raw / "during.json").read_text())
        figures = driven.outcome.figures
        if said["began_s"] < 7 and figures["during_tps_ratio"]:
            break
    assert 3.8 < said["began_s"] < 7 and said["ended_s"] - said["began_s"] == pytest.approx(
        figures["during_s"]
    )
    assert 0 < figures["during_s"] < 60
    assert (
        figures["during_tps_ratio"] > 0
        and figures["during_max_ms"] >= figures["during_p999_ms"] * 0.98
    )
    assert figures["during_max_ms"] <= figures["max_ms"]


@pytest.mark.needs("engine:postgres")
def test_a_statement_that_fails_fails_the_load(drive: Any, postgres: Any) -> None:
    """With the server's words: a load without what was to be beside it is another one."""
    workload: Workload = dataclasses.replace(DROP, during="DROP TABLE not_there")
    dataset = Dataset("sysbench", {"tables": 2, "table_size": 2000})
    with pytest.raises(DriverFailed, match="not_there"):
        drive(
            postgres,
            "sysbench",
            workload=workload,
            dataset=dataset,
            measure_s=2,
            clients=1,
            during_at=0.1,
        )


def _bytes(server: Any) -> int:
    """Return the size of the large table in the server's catalogue; 0 if it does not exist."""
    query = (
        "SELECT pg_table_size(oid) FROM pg_class WHERE relname = 'large_table'"
        if server.engine == "postgres"
        else "SELECT data_length FROM information_schema.tables WHERE table_name = 'large_table'"
    )
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(query)
        return sum(int(size) for (size,) in cursor.fetchall())
