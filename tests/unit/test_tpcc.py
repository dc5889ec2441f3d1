"""The TPC-C-like dataset: its rows by the specification's counts, its script's constants, its size."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from dbbench.datasets import generated, tpcc
from dbbench.datasets.tpcc import C_LOAD, NULL, Row, Rows, Scale, last_name
from dbbench.drivers import sysbench_events
from dbbench.errors import DriverFailed, PlanInvalid
from dbbench.model import Dataset
from dbbench.model.base import data_folder
from dbbench.plan.workloads import resize

SMALL: Final = Scale(warehouses=2, districts=2, customers=1200, items=300, seed=1)
LUA: Final = (data_folder() / "workloads/tpcc.lua").read_text()


def made(warehouse: int, scale: Scale = SMALL) -> dict[str, list[Row]]:
    """All rows of a warehouse by table."""
    found: dict[str, list[Row]] = {}
    for table, rows in Rows(scale, warehouse).tables():
        found.setdefault(table, []).extend(rows)
    return found


def test_rows_follow_the_scale_and_fit_their_tables() -> None:
    """As many orders as customers, 5 to 15 lines each, three of ten not delivered; items are loaded
    once. Rows have as many values as their table has columns, and no text is longer than
    declared.
    """
    own = made(1)
    counts = {table: len(rows) for table, rows in own.items()}
    lines = counts.pop("order_line")
    assert counts == {
        "warehouse": 1,
        "district": 2,
        "stock": 300,
        "customer": 2400,
        "history": 2400,
        "orders": 2400,
        "new_order": 720,
    }
    assert lines == sum(int(order[6]) for order in own["orders"]) and 9 < lines / 2400 < 11
    items = made(0)
    assert {table: len(rows) for table, rows in items.items()} == {"item": 300}
    tables = {head.partition(" ")[0]: columns for head, columns in tpcc.sections("table").items()}
    for table, rows in {**items, **own}.items():
        columns = re.findall(
            r"(\w+) (integer|numeric\([^)]*\)|varchar\(\d+\)|char\(\d+\)|\{time\})", tables[table]
        )
        assert {len(row) for row in rows} == {len(columns)}
        for (name, kind), values in zip(columns, zip(*rows, strict=True), strict=True):
            if longest := re.fullmatch(r"(?:var)?char\((\d+)\)", kind):
                assert max(map(len, values)) <= int(longest[1]), name


def test_first_population_is_consistent() -> None:
    """Conditions 1 to 4 by hand: money of districts and warehouse, numbers of orders, their lines."""
    own = made(2)
    assert (
        sum(float(row[9]) for row in own["district"])
        == float(own["warehouse"][0][8])
        == 10 * 2 * 1200
    )
    assert {row[10] for row in own["district"]} == {"1201"}
    for district in ("1", "2"):
        waiting = [int(row[2]) for row in own["new_order"] if row[1] == district]
        assert waiting == list(range(841, 1201))
        orders = [row for row in own["orders"] if row[1] == district]
        assert sorted(int(row[3]) for row in orders) == list(range(1, 1201))  # each customer once
        assert {row[5] == NULL for row in orders if int(row[2]) > 840} == {True}


def test_names_are_the_specifications() -> None:
    """Three syllables; the first thousand customers have each once, the others by NURand. Rows
    follow from the seed and the warehouse.
    """
    assert made(1) == made(1)
    assert made(1)["stock"][0][2:] != made(2)["stock"][0][2:]
    assert made(1, Scale(2, 2, 1200, 300, seed=2))["customer"] != made(1)["customer"]
    assert (last_name(0), last_name(371), last_name(999)) == (
        "BARBARBAR",
        "PRICALLYOUGHT",
        "EINGEINGEING",
    )
    names = Counter(row[5] for row in made(1)["customer"] if row[1] == "1")
    assert len(names) == 1000 and names.total() == 1200


def test_the_scripts_constants_are_the_specifications() -> None:
    """2.1.6.1: 65 to 119 apart, but not 96 or 112. The mix is 45, 43, 4, 4, 4; new orders first,
    which tpmC counts.
    """
    shares = re.findall(r'name = "(\w+)", share = (\d+)', LUA)
    assert shares == [
        ("new_order", "45"),
        ("payment", "43"),
        ("order_status", "4"),
        ("delivery", "4"),
        ("stock_level", "4"),
    ]
    found = re.search(r"C_LAST, C_CUSTOMER, C_ITEM = (\d+), (\d+), (\d+)", LUA)
    assert found is not None
    apart = abs(int(found[1]) - C_LOAD)
    assert 65 <= apart <= 119 and apart not in (96, 112)
    assert (int(found[1]) <= 255, int(found[2]) <= 1023, int(found[3]) <= 8191) == (
        True,
        True,
        True,
    )


def test_a_warehouse_of_full_scale_takes_the_bytes_that_were_measured() -> None:
    """130 MB and the items; `size` counts in warehouses."""
    whole = Dataset("tpcc", {"warehouses": 2})
    assert 220e6 < tpcc.loaded_bytes(generated.fill_in(whole, "postgres").parameters) < 290e6
    assert resize("tpcc", {"size": "io-bound", "warehouses": 1}, 2**30)["warehouses"] == 25
    with pytest.raises(PlanInvalid, match='"districts" of the dataset must be 1 or more'):
        generated.fill_in(Dataset("tpcc", {"districts": 0}), "mariadb")


def test_kinds_of_events_and_their_latencies_are_counted_by_second(tmp_path: Path) -> None:
    """Lines below -10 are the script's own kinds, and from -10000 on buckets of a kind; neither is
    a transaction.
    """
    (tmp_path / "events.0").write_text(
        "0 700 3\n0 -11 2\n0 -12 1\n1 710 1\n1 -11 1\n5 700 1\n5 -11 1\n"
    )
    counts = sysbench_events.parse([tmp_path / "events.0"], 2)
    assert counts.all_transactions == 5
    assert {kind: list(np.asarray(each)) for kind, each in counts.kinds.items()} == {
        1: [2, 1],
        2: [1, 0],
    }
    assert counts.measure(1, 2).kinds == {1: 1, 2: 0}
    (tmp_path / "events.0").write_text(
        "0 700 3\n0 -11 2\n0 -10700 2\n0 -20700 1\n1 0 1\n1 -11 1\n1 -10000 1\n"
    )
    counts = sysbench_events.parse([tmp_path / "events.0"], 2)
    assert counts.all_transactions == 4 and set(counts.kinds) == {1}
    histograms = counts.measure(0, 2).kind_histograms
    assert {kind: each.counts for kind, each in histograms.items()} == {
        1: {0: 1, 700: 2},
        2: {700: 1},
    }
    assert counts.measure(1, 2).kind_histograms[1].counts == {0: 1}


@pytest.mark.parametrize("line", ["0 -100700 1", "0 -12500 1", f"0 {-(2**63)} 1"])
def test_a_kind_or_bucket_that_does_not_exist(line: str, tmp_path: Path) -> None:
    """A damaged file is an error of its own, whatever its numbers."""
    (tmp_path / "events.0").write_text(line + "\n")
    with pytest.raises(DriverFailed, match=r"events\.0 is not a file of the event counter"):
        sysbench_events.parse([tmp_path / "events.0"], 2)
