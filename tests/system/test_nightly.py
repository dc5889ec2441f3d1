"""Nightly runs on real filesystems: run, judged, exported; and their systemd units."""

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.support.plans import plan

UNITS = Path(__file__).parents[2] / "docs/systemd"


def watched(use: str = "ext4", **keys: Any) -> str:
    """A plan of nights that watch a setup beside ext4."""
    load = {"name": "pgbench-tpcb", "scale": 1, "clients": 1}
    # E604 if the machine stands still all the time
    keys = {"measure": "4s", "device": {"size": "400MiB"}, **keys}
    return plan(
        ["ext4", {"use": use, "label": "under-test"}],
        "postgres",
        load,
        name="watched",
        baseline="ext4",
        **keys,
    )


SLOW = """
title = "ext4, every write synchronous: the planted regression"
mkfs = { family = "ext4", options = ["-E", "lazy_itable_init=0,lazy_journal_init=0"] }
mount = ["noatime", "nodiscard", "sync", "data=journal"]
"""
needs_all = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")


@needs_all
def test_first_night_learns_and_is_written_for_other_programs(dbbench: Any) -> None:
    """Reference, guard and arm in one block; a line of history; three files; status is content."""
    dbbench.plan(watched())
    files = [
        word
        for name in ("junit", "openmetrics", "markdown")
        for word in (f"--{name}", f"{name}.out")
    ]
    night = ("nightly", "run", "plan.toml", "--progress", "none", "--json")
    done = dbbench(*night, *files, status=None)
    document = json.loads(done.stdout)
    # Other load on this machine may disturb its few trials.
    states = {f["key"]: f["state"] for f in document["findings"]}
    expected = {
        f["key"]: "inconclusive" if f["disturbed"] else "learning" for f in document["findings"]
    }
    assert list(states) == [
        "postgres pgbench-tpcb: ext4 itself",
        "postgres pgbench-tpcb: under-test",
    ]
    assert states == expected
    is_open = "inconclusive" in states.values()
    assert document["state"] == ("inconclusive" if is_open else "learning")
    assert done.returncode == (4 if is_open else 0)
    arms = [trial["fs_setup"] for trial in dbbench.trials(document["night"]["run"]).values()]
    assert sorted(arms) == ["ext4", "ext4-guard", "under-test"]
    folder = dbbench.folder
    assert ET.parse(folder / "junit.out").getroot().get("tests") == "3"
    assert (folder / "openmetrics.out").read_text().endswith("# EOF\n")
    assert "| ext4-guard |" in (folder / "markdown.out").read_text()
    assert len((folder / "results/nightly/watched.jsonl").read_text().splitlines()) == 1
    assert document["night"]["run"] in dbbench("nightly", "status", "plan.toml").stdout
    run = document["night"]["run"]
    assert "testcase" in dbbench("compare", run, "--format", "junit").stdout


def test_a_missing_run_is_an_alarm(dbbench: Any) -> None:
    """No night at all: E806, and its exit code."""
    dbbench.plan(watched())
    assert "E806" in dbbench("nightly", "status", "plan.toml", status=4).stderr


@pytest.mark.soak
@needs_all
def test_a_planted_regression_is_caught_and_confirmed(dbbench: Any) -> None:
    """A changed mount option: the first night is the baseline, the next one ends with 3; reported
    once; then accepted.
    """
    own = dbbench.folder / "own/fs_setups"
    own.mkdir(parents=True)
    shutil.copy(Path(__file__).parents[2] / "fs_setups/ext4.toml", own / "watched-setup.toml")
    # steal spoils a trial in ten
    dbbench.plan(watched("watched-setup", blocks=3, measure="3s", repeat_suspect=None))
    command = (
        "nightly",
        "run",
        "plan.toml",
        "--path",
        "own",
        "--progress",
        "none",
        "--json",
        "--notify",
        "tee -a told.txt",
    )

    def night(status: int) -> Any:
        return json.loads(dbbench(*command, status=status).stdout)

    first = night(0)
    dbbench("nightly", "baseline", first["night"]["run"])
    (own / "watched-setup.toml").write_text(SLOW)
    second = night(3)
    found = next(f for f in second["findings"] if f["key"].endswith("under-test"))
    assert (found["state"], found["since"]) == ("regression", second["night"]["night"])
    dbbench("report", second["night"]["run"])
    page = (dbbench.folder / "results" / second["night"]["run"] / "report.html").read_text()
    (line,) = re.findall(r'<li class="regression">(.*?)</li>', page, re.DOTALL)
    assert second["night"]["night"] in line and "under-test" in line and "from its level" in line
    assert page.index(line) < page.index('class="sentence')
    assert "-guard" not in page[page.index('class="sentence') : page.index('class="quality"')]
    dbbench("nightly", "accept", second["night"]["run"], "--reason", "journalled data is wanted")
    shown = json.loads(dbbench("nightly", "baseline", "--json").stdout)["baselines"]["watched"]
    assert [entry["reason"] for entry in shown][1] == "journalled data is wanted"


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.iterdir()))
def test_units_are_valid(unit: str, tmp_path: Path) -> None:
    """systemd-analyze verify finds nothing, except that versions before 254 ignore the line that
    they do not know; the program is one that is here.
    """
    for path in UNITS.iterdir():
        text = path.read_text().replace("/usr/local/bin/dbbench", sys.executable)
        (tmp_path / path.name).write_text(text)
    named = tmp_path / unit.replace("@.", "@plan.")
    shutil.copy(tmp_path / unit, named)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(named)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    ignored = "Unknown key 'DelegateSubgroup' in section [Service], ignoring."
    messages = [line for line in done.stderr.splitlines() if "dbbench" in line]
    assert done.returncode == 0
    assert [line for line in messages if not line.endswith(ignored)] == []
