"""The TPC-C-like dataset (`workloads/tpcc.sql`), loaded one warehouse per session. Rows follow the
specification's initial population (4.3.3), and depend only on the seed, separately for each
warehouse.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from dbbench.engines import sql_of
from dbbench.engines.port import Server
from dbbench.engines.sql import NULL, cursor_of, execute, rows
from dbbench.errors import DataCorrupt
from dbbench.model import Dataset, Scalars
from dbbench.model.base import data_folder

PARAMETERS: Final[Scalars] = {
    "warehouses": 1,
    "districts": 10,
    "customers": 3000,
    "items": 100_000,
    "seed": 1,
}
# rows per COPY or INSERT: half a megabyte, which is below every server's packet limit
BATCH_ROWS: Final = 2000

# Bytes on disk with indexes, measured on the engine that needs more: a customer with its order, ten
# order lines and payment; a row of stock; an item.
CUSTOMER_BYTES: Final = 2300
STOCK_BYTES: Final = 450
ITEM_BYTES: Final = 150

NAMED: Final = 3  # violations that an error message lists
Row = tuple[str, ...]
# 4.3.2.3
SYLLABLES: Final = (
    "BAR",
    "OUGHT",
    "ABLE",
    "PRI",
    "PRES",
    "ESE",
    "ANTI",
    "CALLY",
    "ATION",
    "EING",
)
NAMES: Final = 1000  # number of different last names, each of three syllables
# C of NURand for last names during the load; C of the run, in workloads/tpcc.lua, must differ by 65
# to 119 (2.1.6.1).
C_LOAD: Final = 157
# amount of each customer's single payment in history, of which c_ytd_payment, d_ytd, w_ytd are sums
PAID: Final = 10
DELIVERED: Final = 0.7  # share of the initial orders that are already delivered: 2100 of 3000
# date of all rows, so that the dataset does not depend on the day of its build
BEGAN: Final = "2020-01-01 00:00:00"
# length of the string that texts are cut from; larger than any filesystem's compression unit
_POOL: Final = 2**20
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def scale_of(parameters: Scalars) -> Scale:
    """Return the dataset's parameters; all of them must be given."""
    return Scale(**{name: int(parameters[name]) for name in PARAMETERS})


def loaded_bytes(parameters: Scalars) -> int:
    """Estimate the size of its tables in bytes."""
    scale = scale_of(parameters)
    per_warehouse = scale.districts * scale.customers * CUSTOMER_BYTES + scale.items * STOCK_BYTES
    return scale.warehouses * per_warehouse + scale.items * ITEM_BYTES


@functools.cache
def sections(kind: str) -> dict[str, str]:
    """Return the tables, the index or the conditions of tpcc.sql: heading -> text."""
    text = (data_folder() / "workloads/tpcc.sql").read_text()
    return {
        head.strip(): " ".join(body.split())
        for head, body in re.findall(rf"^-- {kind}(.*)\n((?:(?!-- ).*\n)+)", text, re.MULTILINE)
    }


def build(server: Server, dataset: Dataset) -> None:
    """Make the tables, load items and warehouses in parallel, then make the indexes. Raises the
    server's own errors.
    """
    scale = scale_of(dataset.parameters)
    sql = sql_of(server)
    tables = []
    indexes = list(sections("index").values())
    for head, columns in sections("table").items():  # "order_line (ol_w_id, ...)"
        table, _, key = head.removesuffix(")").partition("(")
        table = table.strip()
        tables.append(sql.create(table, columns.format(time=sql.time_type), key))
        if key:
            indexes += sql.add_key(table, key)
    execute(server, *tables)

    def fill(warehouse: int) -> None:
        _fill(server, Rows(scale, warehouse))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(fill, range(scale.warehouses + 1)))
        list(pool.map(functools.partial(execute, server), indexes))


def consistency(server: Server, dataset: Dataset) -> str:
    """Check conditions 1 to 12; return what was checked. Raises DataCorrupt with the first
    violations.
    """
    delivered = delivered_at_first(scale_of({**PARAMETERS, **dataset.parameters}))
    for condition, query in sections("condition").items():
        violations = rows(server, query.format(delivered=delivered))
        if violations:
            count = f"{len(violations)} {'row' if len(violations) == 1 else 'rows'}"
            first = [", ".join(map(str, row)) for row in violations[:NAMED]]
            raise DataCorrupt(
                f"TPC-C consistency condition {condition}: violated in {count}: {'; '.join(first)}",
                remedy="Repeat the trial without other sessions. If the error persists, the filesystem, "
                "the server or the script loses acknowledged data.",
            )
    return "TPC-C consistency conditions 1 to 12"


def _fill(server: Server, warehouse: Rows) -> None:
    sql = sql_of(server)
    with cursor_of(server) as cursor:
        for table, of_table in warehouse.tables():
            while batch := list(itertools.islice(of_table, BATCH_ROWS)):
                sql.put(cursor, table, batch)


@dataclass(frozen=True)
class Scale:
    """The numbers of rows; the defaults of the kind `tpcc` are those of the specification."""

    warehouses: int
    districts: int  # per warehouse
    customers: int  # per district, and orders per district
    items: int  # and rows of stock per warehouse
    seed: int


def delivered_at_first(scale: Scale) -> int:
    """Return the number of orders of a district that the first population has delivered."""
    return math.floor(scale.customers * DELIVERED)


def last_name(number: int) -> str:
    """Return the last name for that number, 0 to 999."""
    return SYLLABLES[number // 100] + SYLLABLES[number // 10 % 10] + SYLLABLES[number % 10]


class Rows:
    """The rows of one warehouse, or with warehouse 0 the items, which all warehouses share."""

    def __init__(self, scale: Scale, warehouse: int) -> None:
        self.scale = scale
        self.warehouse = warehouse
        self._rng = random.Random(f"{scale.seed} {warehouse}")
        self._pool = "".join(random.Random(scale.seed).choices(_LETTERS, k=_POOL))

    def tables(self) -> Iterator[tuple[str, Iterator[Row]]]:
        """Yield the tables with their rows, each in the order of its primary key."""
        if self.warehouse == 0:
            yield "item", self._items()
            return
        yield "warehouse", iter([self._warehouse()])
        yield "stock", self._stock()
        for district in range(1, self.scale.districts + 1):
            yield "district", iter([self._district(district)])
            yield "customer", self._customers(district)
            yield "history", self._history(district)
            orders, lines, waiting = self._orders(district)
            yield "orders", iter(orders)
            yield "new_order", iter(waiting)
            yield "order_line", iter(lines)

    def _items(self) -> Iterator[Row]:
        for number in range(1, self.scale.items + 1):
            price = f"{self._between(100, 10000) / 100:.2f}"
            yield str(number), str(self._between(1, 10000)), self._text(14, 24), price, self._data()

    def _warehouse(self) -> Row:
        ytd = PAID * self.scale.customers * self.scale.districts
        return (
            str(self.warehouse),
            self._text(6, 10),
            *self._address(),
            self._rate(2000),
            f"{ytd}.00",
        )

    def _district(self, district: int) -> Row:
        ytd = PAID * self.scale.customers
        following = self.scale.customers + 1
        row = (
            str(self.warehouse),
            str(district),
            self._text(6, 10),
            *self._address(),
            self._rate(2000),
        )
        return *row, f"{ytd}.00", str(following)

    def _stock(self) -> Iterator[Row]:
        warehouse = str(self.warehouse)
        for item in range(1, self.scale.items + 1):
            districts = [self._text(24, 24) for _ in range(10)]
            yield (
                warehouse,
                str(item),
                str(self._between(10, 100)),
                *districts,
                "0",
                "0",
                "0",
                self._data(),
            )

    def _customers(self, district: int) -> Iterator[Row]:
        key = (str(self.warehouse), str(district))
        names = min(NAMES, self.scale.customers)
        for number in range(1, self.scale.customers + 1):
            name = last_name(number - 1 if number <= names else self._non_uniform(255, names - 1))
            credit = "BC" if self._rng.random() < 0.1 else "GC"
            person = (
                self._text(8, 16),
                "OE",
                name,
                *self._address(),
                self._digits(16),
                BEGAN,
            )
            yield (
                *key,
                str(number),
                *person,
                credit,
                "50000.00",
                self._rate(5000),
                f"-{PAID}.00",
                f"{PAID}.00",
                "1",
                "0",
                self._text(300, 500),
            )

    def _history(self, district: int) -> Iterator[Row]:
        key = (str(district), str(self.warehouse))
        for number in range(1, self.scale.customers + 1):
            yield str(number), *key, *key, BEGAN, f"{PAID}.00", self._text(12, 24)

    def _orders(self, district: int) -> tuple[list[Row], list[Row], list[Row]]:
        """Return orders, their lines, and those waiting for delivery: one order of each customer,
        in random order.
        """
        key = (str(self.warehouse), str(district))
        count = self.scale.customers
        buyers = sorted(range(1, count + 1), key=lambda _: self._rng.random())
        orders = list[Row]()
        lines = list[Row]()
        waiting = list[Row]()
        delivered = delivered_at_first(self.scale)
        for number, buyer in enumerate(buyers, 1):
            done = number <= delivered
            many = self._between(5, 15)
            carrier = str(self._between(1, 10)) if done else NULL
            orders.append((*key, str(number), str(buyer), BEGAN, carrier, str(many), "1"))
            if not done:
                waiting.append((*key, str(number)))
            for line in range(1, many + 1):
                amount = "0.00" if done else f"{self._between(1, 999999) / 100:.2f}"
                lines.append(
                    (
                        *key,
                        str(number),
                        str(line),
                        str(self._between(1, self.scale.items)),
                        key[0],
                        BEGAN if done else NULL,
                        "5",
                        amount,
                        self._text(24, 24),
                    )
                )
        return orders, lines, waiting

    def _address(self) -> Row:
        streets = (self._text(10, 20), self._text(10, 20), self._text(10, 20))
        return *streets, self._text(2, 2), self._digits(4) + "11111"

    def _data(self) -> str:
        """Return 26 to 50 letters; one text in ten contains "ORIGINAL"."""
        text = self._text(26, 50)
        if self._rng.random() >= 0.1:
            return text
        offset = self._between(0, len(text) - 8)
        return text[:offset] + "ORIGINAL" + text[offset + 8 :]

    def _text(self, least: int, most: int) -> str:
        offset = int(self._rng.random() * (_POOL - most))
        return self._pool[
            offset : offset + (least if least == most else self._between(least, most))
        ]

    def _digits(self, count: int) -> str:
        return f"{int(self._rng.random() * 10**count):0{count}}"

    def _rate(self, most: int) -> str:
        return f"{self._between(0, most) / 10000:.4f}"

    def _between(self, least: int, most: int) -> int:
        return least + int(self._rng.random() * (most - least + 1))

    def _non_uniform(self, a: int, most: int) -> int:
        """Return NURand(a, 0, most) of 2.1.6."""
        return ((self._between(0, a) | self._between(0, most)) + C_LOAD) % (most + 1)
