"""A TPC-C-like run through the command line: consistent, or failed with E403."""

import math
from pathlib import Path
from typing import Final

import pytest

from dbbench.model.base import data_folder
from tests.support.plans import plan
from tests.system.conftest import Dbbench

TABLES: Final = {"warehouses": 1, "districts": 2, "customers": 60, "items": 200}
# The shipped script, whose sessions each take a cent that no district has: condition 1 is broken.
LEAKING: Final = """\
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "tpcc.lua")
local whole = thread_init
function thread_init(thread)
   whole(thread)
   sysbench.sql.driver():connect():query("UPDATE warehouse SET w_ytd = w_ytd - 0.01")
end
"""
WORKLOAD: Final = """\
title = "a planted fault"
driver = "sysbench"
engines = ["postgres"]
script = "leaking.lua"
beside = ["tpcc.lua", "tpcc_transactions.lua"]
dataset = { kind = "tpcc", warehouses = 1, districts = 2, customers = 60, items = 200 }
[parameters.clients]
type = "integer"
default = 2
"""


@pytest.mark.needs("root", "engine:postgres", "sysbench")
def test_a_broken_condition_fails_the_trial(dbbench: Dbbench) -> None:
    """E403 with the rows, in the phase of checks; the unbroken load beside it says what was checked
    and has a tpmC.
    """
    builtin = data_folder() / "workloads"
    own = Path(dbbench.folder, "own/workloads")
    own.mkdir(parents=True)
    own.joinpath("leaking.toml").write_text(WORKLOAD)
    own.joinpath("leaking.lua").write_text(LEAKING)
    # beside it: the load runs as an account without our rights
    for script in ("tpcc.lua", "tpcc_transactions.lua"):
        own.joinpath(script).write_bytes((builtin / script).read_bytes())
    loads = [{"name": "tpcc", **TABLES, "clients": 2}, {"name": "leaking", "clients": 2}]
    text = plan("ext4", "postgres", loads, warmup=0, measure=5)
    dbbench("--path", "own", "run", dbbench.plan(text), "--name", "r", status=1)
    trials = {trial["workload"]: trial for trial in dbbench.trials().values()}
    good = trials["tpcc"]
    bad = trials["leaking"]
    assert (bad["status"], bad["error"]["id"], bad["error"]["phase"]) == ("failed", "E403", "check")
    assert "condition 1: w_ytd is the sum" in bad["error"]["text"]
    assert good["error"] is None and good["checked"].endswith(
        "; TPC-C consistency conditions 1 to 12"
    )
    assert good["summary"]["new_order_p50_ms"] > 0 and good["summary"]["fsync_ms"] > 0
    assert (
        good["summary"]["io_operations_per_tx"] > 0
        and good["summary"]["server_memory_bytes"] > 2**20
    )
    assert [row["call"] for row in good["filesystem"]["syncs"]] == ["fsync", "fdatasync"]
    share = good["summary"]["tpmc"] / good["summary"]["tps"] / 60
    # 45 % are new orders, drawn at random: five standard deviations, which are wide where a machine
    # is slow.
    assert 0 < share < 1 and abs(share - 0.45) < 5 * math.sqrt(
        0.45 * 0.55 / good["summary"]["transactions"]
    )
    assert {path.name for path in (dbbench.folder / "results/r/scripts").iterdir()} == {
        "tpcc.lua",
        "tpcc_transactions.lua",
        "leaking.lua",
    }
    assert '"tpmc"' in dbbench("compare", "r", "--metric", "tpmc", "--json").stdout
