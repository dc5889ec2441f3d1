"""The insert benchmark on real servers: its steps, its counts, and a rate that cannot be reached."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from dbbench.drivers.insert import INDEXES, TABLE
from dbbench.errors import DriverFailed, NoProgress
from dbbench.plan import catalog
from tests.support.servers import query

pytestmark = pytest.mark.needs("root", "sysbench")
SHIPPED: Final = catalog.catalog().workload("insert-benchmark")
ROWS: Final = 2500


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("postgres", "mariadb", "mysql")
    ],
)
def server(request: pytest.FixtureRequest, served: Any) -> Iterator[Any]:
    """An empty server."""
    with served(request.param) as running:
        yield running


def benchmark(drive: Any, server: Any, rate: int, measure_s: float = 2, **keys: Any) -> Any:
    """A load with two writers that insert `rate` rows per second.

    A busy disk can hold every commit for longer than the two seconds, and then no row is
    inserted in them. A load without such a row, or without a query, is repeated up to twice,
    which does not help a writer or a count that is wrong.
    """
    sizes = {"rows": ROWS, "clients": 2, "insert_rate": rate, "batch": 10, "writers": 2}
    for last in (False, False, True):
        try:
            driven = drive(
                server, "insert", workload=SHIPPED, warmup_s=1, measure_s=measure_s, **sizes, **keys
            )
        except NoProgress:
            if last:
                raise
            continue
        if driven.outcome.figures["insert_rows_per_s"]:
            break
    return driven


@pytest.mark.alone
def test_a_rate_that_is_reached(drive: Any, server: Any) -> None:
    """Rows are inserted when they are due, and as many of the oldest are gone; every step has its
    figure.

    With a busy disk W153 can be right. One of three attempts must reach the rate, which a wrong
    schedule never does.
    """
    for _ in range(3):
        driven = benchmark(drive, server, 20)
        if not driven.outcome.warnings:
            break
    figures = driven.outcome.figures
    outcome = driven.outcome
    assert not outcome.warnings
    assert figures["queries_per_s"] == outcome.transactions / 2 > 0
    assert 10 <= figures["insert_rows_per_s"] <= 30 and figures["required_rows_per_s"] == 20
    inserted = sum(value or 0 for value in outcome.series["insert_rows_per_s"])
    claims = {claim.count: claim.total for claim in outcome.claims}
    rows = int(claims["rows"]) - ROWS
    assert inserted <= rows <= 60
    ((count, oldest, newest),) = query(server, f"SELECT COUNT(*), MIN(id), MAX(id) FROM {TABLE}")
    assert count == ROWS and oldest > 10 and newest > ROWS + 10
    assert claims["statements"] >= outcome.transactions + 3 + 2 * rows / 10
    kept = json.loads((driven.raw / "insert.json").read_text())
    assert kept["seconds"].keys() == {"load", *(f"index_{name}" for name in INDEXES)}
    assert figures["load_rows_per_s"] == ROWS / kept["seconds"]["load"]
    view = (
        "indexname FROM pg_indexes"
        if server.engine == "postgres"
        else "index_name FROM information_schema.statistics"
    )
    assert {row[0] for row in query(server, f"SELECT {view}")} >= {
        f"{TABLE}_by_{name}" for name in INDEXES
    }


def test_a_rate_that_cannot_be_reached_fails_the_step(drive: Any, server: Any) -> None:
    """W153; the queries have no figure, load and indexes do, and both rates are values."""
    outcome = benchmark(drive, server, 50_000_000).outcome
    assert [warning.id for warning in outcome.warnings] == ["W153"] and not outcome.warnings[
        0
    ].suspect
    assert outcome.figures["queries_per_s"] is None and outcome.transactions > 0
    assert (
        0
        < outcome.figures["insert_rows_per_s"]
        < outcome.figures["required_rows_per_s"]
        == 50_000_000
    )
    assert outcome.figures["load_rows_per_s"] > 0
    assert query(server, f"SELECT COUNT(*) FROM {TABLE}") == [(ROWS,)]


def test_each_query_reads_one_index(drive: Any, server: Any) -> None:
    """By the server's plan: it neither sorts nor reads the whole table."""
    benchmark(drive, server, 10)
    for index, text in {
        "price": "price, customer FROM {0} WHERE price >= 500000 ORDER BY price, customer",
        "shop": "price, customer FROM {0} WHERE shop = 7 AND price >= 5 ORDER BY price, customer",
        "customer": "customer, price FROM {0} WHERE customer >= 50000 ORDER BY customer, price",
    }.items():
        plan = str(query(server, f"EXPLAIN SELECT {text.format(TABLE)} LIMIT 10"))
        assert f"{TABLE}_by_{index}" in plan and "sort" not in plan.lower(), plan


@pytest.mark.needs("engine:postgres")
def test_an_insert_that_fails_fails_the_load(drive: Any, postgres: Any) -> None:
    """With the server's words, while the queries go on."""

    def refuse(_load: Any) -> None:
        query(postgres, f"ALTER TABLE {TABLE} ADD CONSTRAINT refused CHECK (id < 1) NOT VALID")

    with pytest.raises(DriverFailed, match=r"(?s)inserting failed.*refused"):
        # it ends with the first INSERT that fails
        benchmark(drive, postgres, 200, measure_s=30, during=refuse)
    query(postgres, f"DROP TABLE {TABLE}")
