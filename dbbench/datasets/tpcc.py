"""The TPC-C-like dataset: nine tables, loaded warehouse by warehouse side by side, and what must hold of them.

Names, types and keys are those of the specification (TPC-C 5.11, 1.3). Foreign keys are not declared: no transaction
relies on them, and the consistency conditions see what they would. `workloads/tpcc.lua` drives it.
"""

from __future__ import annotations

import io
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from dbbench.datasets.tpcc_rows import NULL, Row, Rows, Scale
from dbbench.engines.asking import cursor_of, execute, rows
from dbbench.engines.port import Server
from dbbench.errors import DataInconsistent
from dbbench.model import Dataset, Scalar

PARAMETERS: Final[dict[str, Scalar]] = {
    "warehouses": 1, "districts": 10, "customers": 3000, "items": 100_000, "seed": 1,
}  # fmt: skip
BATCH_ROWS: Final = 2000  # of one COPY or INSERT: half a megabyte, below every server's largest packet

# Bytes on disk with indexes, measured as `generated`'s on the larger engine: a customer with its order, ten lines and
# payment; an item's row of stock; an item.
CUSTOMER_BYTES: Final = 2300
STOCK_BYTES: Final = 450
ITEM_BYTES: Final = 150

_ADDRESS: Final = (
    "{0}_street_1 varchar(20), {0}_street_2 varchar(20), {0}_city varchar(20), {0}_state char(2), {0}_zip char(9)"
)
TABLES: Final[dict[str, tuple[str, str]]] = {  # columns; primary key
    "item": ("i_id integer, i_im_id integer, i_name varchar(24), i_price numeric(5, 2), i_data varchar(50)", "i_id"),
    "warehouse": (
        f"w_id integer, w_name varchar(10), {_ADDRESS.format('w')}, w_tax numeric(4, 4), w_ytd numeric(12, 2)",
        "w_id",
    ),
    "stock": (
        "s_w_id integer, s_i_id integer, s_quantity integer, "
        + ", ".join(f"s_dist_{number:02} char(24)" for number in range(1, 11))
        + ", s_ytd numeric(8, 0), s_order_cnt integer, s_remote_cnt integer, s_data varchar(50)",
        "s_w_id, s_i_id",
    ),
    "district": (
        f"d_w_id integer, d_id integer, d_name varchar(10), {_ADDRESS.format('d')}, d_tax numeric(4, 4), "
        "d_ytd numeric(12, 2), d_next_o_id integer",
        "d_w_id, d_id",
    ),
    "customer": (
        "c_w_id integer, c_d_id integer, c_id integer, c_first varchar(16), c_middle char(2), c_last varchar(16), "
        f"{_ADDRESS.format('c')}, c_phone char(16), c_since {{time}}, c_credit char(2), c_credit_lim numeric(12, 2), "
        "c_discount numeric(4, 4), c_balance numeric(12, 2), c_ytd_payment numeric(12, 2), c_payment_cnt integer, "
        "c_delivery_cnt integer, c_data varchar(500)",
        "c_w_id, c_d_id, c_id",
    ),
    "history": (
        "h_c_id integer, h_c_d_id integer, h_c_w_id integer, h_d_id integer, h_w_id integer, h_date {time}, "
        "h_amount numeric(6, 2), h_data varchar(24)",
        "",
    ),
    "orders": (
        "o_w_id integer, o_d_id integer, o_id integer, o_c_id integer, o_entry_d {time}, o_carrier_id integer NULL, "
        "o_ol_cnt integer, o_all_local integer",
        "o_w_id, o_d_id, o_id",
    ),
    "new_order": ("no_w_id integer, no_d_id integer, no_o_id integer", "no_w_id, no_d_id, no_o_id"),
    "order_line": (
        "ol_w_id integer, ol_d_id integer, ol_o_id integer, ol_number integer, ol_i_id integer, "
        "ol_supply_w_id integer, ol_delivery_d {time} NULL, ol_quantity integer, ol_amount numeric(6, 2), "
        "ol_dist_info char(24)",
        "ol_w_id, ol_d_id, ol_o_id, ol_number",
    ),
}
INDEXES: Final = (
    "CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
)

# 3.3.2.1 to 3.3.2.4: each a query for what violates it. A district whose orders were all delivered has no new_order.
CONDITIONS: Final[tuple[tuple[str, str], ...]] = (
    (
        "1: w_ytd is the sum of its districts' d_ytd",
        "SELECT w_id, w_ytd, ytd FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) "
        "AS t ON d_w_id = w_id WHERE w_ytd <> ytd",
    ),
    (
        "2: d_next_o_id - 1 is the last order and the last new order",
        "SELECT d_w_id, d_id, d_next_o_id - 1, last_o, last_no FROM district "
        "LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last_o FROM orders GROUP BY o_w_id, o_d_id) AS o "
        "ON o_w_id = d_w_id AND o_d_id = d_id "
        "LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_no FROM new_order GROUP BY no_w_id, no_d_id) AS n "
        "ON no_w_id = d_w_id AND no_d_id = d_id "
        "WHERE last_o IS NULL OR d_next_o_id - 1 <> last_o OR d_next_o_id - 1 <> last_no",
    ),
    (
        "3: new orders of a district have no gaps",
        "SELECT no_w_id, no_d_id, max(no_o_id) - min(no_o_id) + 1, count(*) FROM new_order "
        "GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    ),
    (
        "4: o_ol_cnt of a district's orders sum up to its order lines",
        "SELECT o_w_id, o_d_id, told, found FROM "
        "(SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS told FROM orders GROUP BY o_w_id, o_d_id) AS o "
        "LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line GROUP BY ol_w_id, ol_d_id) AS l "
        "ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE found IS NULL OR told <> found",
    ),
)
NAMED: Final = 3  # violations that an error shows


def scale_of(parameters: dict[str, Scalar]) -> Scale:
    """The dataset's parameters, all of them given."""
    return Scale(**{name: int(parameters[name]) for name in PARAMETERS})


def loaded_bytes(parameters: dict[str, Scalar]) -> int:
    """About how many bytes its tables take."""
    scale = scale_of(parameters)
    own = scale.districts * scale.customers * CUSTOMER_BYTES + scale.items * STOCK_BYTES
    return scale.warehouses * own + scale.items * ITEM_BYTES


def build(server: Server, dataset: Dataset) -> None:
    """Make the tables, load items and warehouses side by side, then make the indexes. The server's own errors."""
    scale, postgres = scale_of(dataset.parameters), server.engine == "postgres"
    for table, (columns, key) in TABLES.items():
        keyed = f", PRIMARY KEY ({key})" if key and not postgres else ""
        columns = columns.format(time="timestamp" if postgres else "datetime")
        execute(server, f"CREATE TABLE {table} ({columns}{keyed}){'' if postgres else ' ENGINE=InnoDB'}")
    keys = [f"ALTER TABLE {table} ADD PRIMARY KEY ({key})" for table, (_, key) in TABLES.items() if key]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda number: _fill(server, Rows(scale, number)), range(scale.warehouses + 1)))
        list(pool.map(lambda statement: execute(server, statement), (*INDEXES, *(keys if postgres else ()))))
    if not postgres:
        execute(server, *(f"ANALYZE TABLE {table}" for table in TABLES))


def consistency(server: Server) -> str:
    """Hold the tables against conditions 1 to 4; what was checked. DataInconsistent with the first violations."""
    for said, query in CONDITIONS:
        if broken := rows(server, query):
            shown = "; ".join(", ".join(map(str, row)) for row in broken[:NAMED])
            raise DataInconsistent(
                f"TPC-C's condition {said}. Not so in {len(broken)} {'row' if len(broken) == 1 else 'rows'}: {shown}",
                effect="The trial is marked failed: a transaction was lost or done by half, or something else wrote.",
                remedy="Repeat it; if it comes again, filesystem, server or script lose what they acknowledged.",
            )
    return "TPC-C's conditions 1 to 4"


def _fill(server: Server, made: Rows) -> None:
    put = _copied if server.engine == "postgres" else _inserted
    with cursor_of(server) as cursor:
        for table, of_table in made.tables():
            while batch := list(itertools.islice(of_table, BATCH_ROWS)):
                put(cursor, table, batch)


def _copied(cursor: Any, table: str, batch: list[Row]) -> None:
    cursor.copy_expert(f"COPY {table} FROM STDIN", io.StringIO("".join("\t".join(row) + "\n" for row in batch)))


def _inserted(cursor: Any, table: str, batch: list[Row]) -> None:
    values = ",".join("('" + "','".join(row) + "')" for row in batch).replace(f"'{NULL}'", "NULL")
    cursor.execute(f"INSERT INTO {table} VALUES {values}")
