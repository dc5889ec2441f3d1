"""The commands of the tutorial run, and their output is written into the page."""

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.needs(
    "root",
    "engine:postgres",
    "createdb",
    "psql",
    "pg_dump",
    "pg_restore",
    "fs:xfs",
    "fs:btrfs",
)
def test_the_tutorial_works() -> None:
    """Every command succeeds, and the output has the verdict of both loads; the text around it is
    unchanged.
    """
    script = runpy.run_path(str(ROOT / "docs/tutorial.py"))
    before = script["TUTORIAL"].read_text(encoding="utf-8")
    with script["workplace"]() as folder:
        after = script["regenerated"](before, folder)
        assert (folder / "results/shop/report.html").is_file()
    loads = (r"orders.*: throughput", r"scan.*: rate", r"orders.*: p99 latency")
    for load in loads:
        assert re.search(
            rf"^postgres {load}.*\n(?:.*\n)*?ext4 .* baseline$",
            after,
            re.MULTILINE,
        ), load
    assert script["BLOCK"].sub("", before) == script["BLOCK"].sub("", after)
    assert script["commands"](before) == script["commands"](after)
