"""Every setup of the catalogue under PostgreSQL and MariaDB, for the soak. What this kernel lacks
is carried by the second one: test_second_kernel.
"""

from typing import Any, Final

import pytest

from dbbench.model import FsSetup
from tests.support.setups import ALL, left, two_databases, working

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("root", "engine:postgres", "engine:mariadb", "sysbench", "sadf"),
]


def kind(setup: FsSetup) -> str:
    """What has to be there for it: the uppermost layer, or the filesystem."""
    return setup.layers[-1].kind if setup.layers else setup.mkfs.family


SETUPS: Final = [setup for name in ALL.setups if (setup := ALL.setup(name)).mkfs.family != "raw"]
LOG_BYTES: Final = 67108864  # of MariaDB: what a snapshot leaves of a GiB is room for it
KINDS: Final = sorted({kind(setup) for setup in SETUPS})


@pytest.mark.parametrize("wanted", KINDS)
def test_every_setup_carries_two_databases(wanted: str, dbbench: Any) -> None:
    """One run a kind: no trial fails, each has two, except with an engine that its tuning is not
    for, and nothing is left.
    """
    names = working(setup.name for setup in SETUPS if kind(setup) == wanted)
    dbbench.plan(
        two_databases(
            names,
            max(ALL.setup(name).devices.min for name in names),
            innodb_log_file_size=LOG_BYTES,
        )
    )
    limit_s = 600 + 180 * len(names)
    done = dbbench(
        "run",
        "plan.toml",
        "--name",
        "r",
        "--progress",
        "none",
        status=None,
        timeout_s=limit_s,
    )
    failed = [(t["id"], t["error"]) for t in dbbench.trials().values() if t["status"] == "failed"]
    # E604: a machine that stalls for 2 s leaves the window without a transaction, which is not the
    # setup's fault.
    assert [one for one in failed if one[1]["id"] != "E604"] == []
    run = dbbench.spec()
    assert len(run["cells"]) == 2 * len(names) - sum(
        len(why.split("; ")) for why in run["skipped"].values()
    )
    assert (done.returncode, len(dbbench.trials())) == (bool(failed), len(run["cells"]))
    assert left(dbbench.folder) == []
