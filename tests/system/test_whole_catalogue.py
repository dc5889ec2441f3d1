"""Every setup of the catalogue under PostgreSQL and MariaDB, for the soak. What this kernel lacks is carried by the
second one: test_rehearsal.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from dbbench import filesystems
from dbbench.model import FsSetup
from tests.setups import ALL, left

pytestmark = [pytest.mark.soak, pytest.mark.needs("root", "engine:postgres", "engine:mariadb", "sysbench", "sadf")]

PLAN: Final = """
name = "catalogue"
fs_setups = {setups}
blocks = 1
warmup = "0s"
measure = "2s"
repeat_suspect = false
[device]
size = "1GiB"
count = {count}
[[engine]]
name = "postgres"
[[engine]]
name = "mariadb"
settings = {{ innodb_log_file_size = 67108864 }}
[[workload]]
name = "pgbench-simple-update"
scale = 1
clients = 2
threads = 1
[[workload]]
name = "sysbench-oltp-update-index"
engines = ["mariadb"]
tables = 1
table_size = 1000
clients = 2
"""


def kind(setup: FsSetup) -> str:
    """What has to be there for it: the uppermost layer, or the filesystem."""
    return setup.layers[-1].kind if setup.layers else setup.mkfs.family


SETUPS: Final = [setup for name in ALL.setups if (setup := ALL.setup(name)).mkfs.family != "raw"]
KINDS: Final = sorted({kind(setup) for setup in SETUPS})


@pytest.mark.parametrize("wanted", KINDS)
def test_every_setup_carries_two_databases(wanted: str, dbbench: Any) -> None:
    """One run a kind: no trial fails, each has two, and nothing is left."""
    reasons = {setup.name: filesystems.works(setup) for setup in SETUPS if kind(setup) == wanted}
    working = [name for name, reason in reasons.items() if reason is None]
    if not working:
        pytest.skip("needs " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    dbbench.plan(PLAN.format(setups=working, count=max(ALL.setup(name).devices.min for name in working)))
    child = dbbench.start("run", "plan.toml", "--name", "r", "--progress", "none")
    child.communicate(timeout=600 + 180 * len(working))
    assert [(t["id"], t["error"]) for t in dbbench.trials().values() if t["status"] == "failed"] == []
    assert (child.returncode, len(dbbench.trials())) == (0, 2 * len(working))
    assert left(dbbench.folder) == []
