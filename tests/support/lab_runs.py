"""Whole runs of the power-loss lab, and what is counted in their results."""

import json
import shutil
from collections.abc import Callable
from typing import Any

from dbbench.commands.powercut import folder_of_lab
from dbbench.labs.powercut import Order, examine
from dbbench.model.events import Event
from dbbench.plan.request import load_request
from dbbench.run.children import Overdue
from tests.conftest import engine_bin
from tests.support import plans
from tests.system.conftest import Dbbench

INVALID = 0.02  # of the cuts, at most, for those that are to be valid
CONTROLS = {
    "postgres": ["lying disk", "nobarrier", "fsync=off", "full_page_writes=off"],
    "mariadb": ["lying disk", "innodb_doublewrite=off"],
    "mysql": ["lying disk", "innodb_doublewrite=off"],
}


def plan(engine: str, setups: list[Any], **device: Any) -> str:
    """A plan of that engine on those setups, with everything else as dbbench has it; `device`: keys
    of its table.
    """
    server = {"name": engine, "bin": str(engine_bin(engine))}
    load = {"name": "pgbench-tpcb" if engine == "postgres" else "sysbench-oltp-write-only"}
    unset = dict.fromkeys(("warmup", "measure", "repeat_suspect"))
    return plans.plan(
        setups, server, load, name="cut", device={"size": "512MiB", **device}, **unset
    )


def lab(
    dbbench: Dbbench,
    text: str,
    order: Order,
    emit: Callable[[Event], None] = lambda _: None,
    *overdue: Overdue,
) -> dict[str, Any]:
    """Examine the plan; the content of powercut.json."""
    wanted = load_request(str(dbbench.folder / dbbench.plan(text)), [])
    folder = folder_of_lab(dbbench.folder / "results", wanted, None)
    examine(folder, wanted.sha256, order, emit, *overdue)
    found: dict[str, Any] = json.loads((folder / "powercut.json").read_text())
    assert found["complete"]
    return found


def undisturbed(
    dbbench: Dbbench,
    least: int,
    examine: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """What `examine` finds; examined up to five times while a control is blind or a row has fewer
    than `least` valid cuts. A machine that stands still writes nothing that a cut could lose.
    Harm is final.
    """
    for _ in range(5):
        shutil.rmtree(dbbench.folder / "results", ignore_errors=True)
        found = examine()
        blind = any(one["blind"] for one in found["controls"])
        if any(by_rows(row) for row in found["rows"]) or not (
            blind or any(r["valid"] < least for r in found["rows"])
        ):
            break
    return found


def invalid(row: dict[str, Any]) -> list[str]:
    """Why cuts of a row say nothing, and what became of the row."""
    return [*(cut["invalid"] for cut in row["cuts"] if cut["invalid"]), row["statement"]]


def plain(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The valid power losses without a kill before them."""
    return [
        cut
        for cut in row["cuts"]
        if cut["unit_bytes"] and not cut["after_kill"] and not cut["invalid"]
    ]


def by_rows(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The harmed cuts of recordings without schema changes."""
    return [cut for cut in row["cuts"] if cut["harms"] and not cut["changes"]]


def torn(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Cuts in sectors of 512 bytes that tear a block of metadata of 4096, so that nothing can be
    mounted (docs/durability.md): 1 was seen in 310 of xfs, and 1 in 76 of btrfs.
    """
    error = {"xfs": "Metadata CRC error", "btrfs": "superblock checksum mismatch"}.get(
        row["fs_setup"]
    )
    return [
        cut
        for cut in row["cuts"]
        if error and cut["unit_bytes"] == 512 and error in cut["harms"].get("unrecovered", "")
    ]
