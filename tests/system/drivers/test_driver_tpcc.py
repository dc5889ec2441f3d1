"""The TPC-C-like load on real servers: the mix of transactions, the consistency conditions and the
waits.
"""

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.datasets import tpcc
from dbbench.engines.sql import execute, rows
from dbbench.errors import DataCorrupt, NoProgress
from dbbench.metrics.summary import types
from dbbench.model import Dataset
from dbbench.model.base import data_folder
from tests.support.kept_counts import kept_counts

pytestmark = pytest.mark.needs("root", "sysbench")
SCALE: Final[dict[str, Any]] = {"warehouses": 2, "districts": 2, "customers": 60, "items": 200}
DATASET: Final = Dataset("tpcc", {**SCALE, "seed": 1})
SCRIPT: Final = str(data_folder() / "workloads/tpcc.lua")
REMOTE: Final = "history WHERE h_w_id <> h_c_w_id"
COUNTED: Final = ("orders", "history", REMOTE)
# What breaks each condition, and how it is undone.
FAULTS: Final = {
    1: ("UPDATE warehouse SET w_ytd = w_ytd + 1", "UPDATE warehouse SET w_ytd = w_ytd - 1"),
    2: (
        "UPDATE district SET d_next_o_id = d_next_o_id + 1",
        "UPDATE district SET d_next_o_id = d_next_o_id - 1",
    ),
    3: (
        "UPDATE new_order SET no_o_id = 0 WHERE no_o_id = 43",
        "UPDATE new_order SET no_o_id = 43 WHERE no_o_id = 0",
    ),
    4: (
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_id = 7 AND o_d_id = 2",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_id = 7 AND o_d_id = 2",
    ),
    5: (
        "UPDATE orders SET o_carrier_id = NULL WHERE o_id = 1",
        "UPDATE orders SET o_carrier_id = 3 WHERE o_id = 1",
    ),
    6: (
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 15 - 2 * o_id WHERE o_id IN (7, 8)",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt - 15 + 2 * o_id WHERE o_id IN (7, 8)",
    ),
    7: (
        "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_o_id = 1 AND ol_number = 2",
        f"UPDATE order_line SET ol_delivery_d = '{tpcc.BEGAN}' WHERE ol_o_id = 1 AND ol_number = 2",
    ),
    8: (
        "UPDATE history SET h_w_id = 2 WHERE h_c_id = 1",
        "UPDATE history SET h_w_id = h_c_w_id WHERE h_c_id = 1",
    ),
    9: (
        "UPDATE history SET h_d_id = 2 WHERE h_c_id = 1",
        "UPDATE history SET h_d_id = h_c_d_id WHERE h_c_id = 1",
    ),
    10: (
        "UPDATE customer SET c_balance = c_balance + 1 WHERE c_id = 5",
        "UPDATE customer SET c_balance = c_balance - 1 WHERE c_id = 5",
    ),
    11: (
        "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE c_id = 5",
        "UPDATE customer SET c_delivery_cnt = c_delivery_cnt - 1 WHERE c_id = 5",
    ),
    12: (
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_id = 5",
        "UPDATE customer SET c_ytd_payment = c_ytd_payment - 1 WHERE c_id = 5",
    ),
}


def kinds(raw: Path, seconds: float = math.inf) -> Counter[int]:
    """Events by kind in the first seconds of the load, from the kept counts."""
    found = Counter[int]()
    for second, what, events in kept_counts(raw):
        if -10_000 < what < -10 and second < seconds:
            found[-10 - what] += events
    return found


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql", "postgres")
    ],
)
def test_transactions_leave_the_tables_consistent(
    drive: Any,
    served: Any,
    engine: str,
) -> None:
    """More sessions than districts, so that they meet: all kinds are done in their mix, every new
    order but the rolled back ones left an order, every payment a line of history, and conditions
    1 to 12 hold. Each planted fault is caught.
    """
    with served(engine, DATASET) as server:
        for condition, (fault, cure) in FAULTS.items():
            execute(server, fault)
            with pytest.raises(DataCorrupt, match=f"condition {condition}: "):
                tpcc.consistency(server, DATASET)
            execute(server, cure)
        for measure_s in (5, 10, 30):  # a busy disk lets few transactions end, and a mix needs some
            before = {
                table: rows(server, f"SELECT count(*) FROM {table}")[0][0] for table in COUNTED
            }
            driven = drive(
                server, "sysbench", SCRIPT, measure_s=measure_s, clients=8, dataset=DATASET, **SCALE
            )
            within = kinds(driven.raw, measure_s)  # sysbench ends later on a busy machine
            if min(within[1], within[2]) >= 20:
                break
        assert tpcc.consistency(server, DATASET) == "TPC-C consistency conditions 1 to 12"
        grown = {
            table: rows(server, f"SELECT count(*) FROM {table}")[0][0] - had
            for table, had in before.items()
        }
    done = kinds(driven.raw)
    assert grown["history"] == done[2] and 0 <= done[1] - grown["orders"] <= 0.05 * done[1] + 3
    drawn = [
        (done[kind], done.total(), share)
        for kind, share in enumerate((0.45, 0.43, 0.04, 0.04, 0.04), 1)
    ]
    for count, of, share in (*drawn, (grown[REMOTE], done[2], 0.15)):
        # Five standard deviations, and five more because few are not distributed normally: once in
        # a million times.
        assert abs(count - of * share) < 5 + 5 * math.sqrt(of * share * (1 - share))
    assert driven.outcome.figures["tpmc"] == within[1] * 60 / measure_s
    assert driven.outcome.transactions <= done.total()
    figures = driven.outcome.figures
    assert 0 < figures["payment_p50_ms"] <= figures["max_ms"] * 1.01
    # The columns have the values of the table of types: none where too few lie above.
    for row in types(driven.outcome):
        of_columns = [figures[f"{row.type}_p{percent}_ms"] for percent in (50, 95, 99)]
        assert of_columns == [row.p50_ms, row.p95_ms, row.p99_ms]


@pytest.mark.needs("engine:postgres")
def test_think_times_end_with_the_load(drive: Any, served: Any) -> None:
    """Keying takes 2 s at least, thinking 10 on average: the load ends in time and waited more than
    it worked.
    """
    with served("postgres", DATASET) as server:
        began = time.monotonic()
        try:
            done = drive(
                server, "sysbench", SCRIPT, measure_s=4, clients=8, think_times=True, **SCALE
            ).outcome.transactions
        except NoProgress:
            done = 0
        # the longest of eight takes 27 s on average
        assert done < 8 and time.monotonic() - began < 20
        assert "think_times=on" in (drive.raw / "sysbench.command").read_text()


@pytest.mark.alone
@pytest.mark.needs("engine:mariadb")
def test_a_scripts_pause_is_none_of_its_latency(
    drive: Any,
    mariadb: Any,
    tmp_path: Path,
) -> None:
    """dbbench_pause() is waited for before the clock of the event begins."""
    script = tmp_path / "paused.lua"
    script.write_text(
        'require("oltp_common")\nfunction prepare_statements() end\nfunction dbbench_pause() '
        "return 0.2 end\n"
        'function event() con:query("SELECT 1") end\n'
    )
    outcome = drive(mariadb, "sysbench", str(script), measure_s=4, clients=2).outcome
    assert 10 <= outcome.transactions <= 40
    assert outcome.histogram.percentile_ms(50) < 100  # a pause takes 200, and each event has one
