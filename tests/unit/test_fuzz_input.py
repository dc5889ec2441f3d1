"""Damaged plans and results, and inputs that are not files, are read or refused with a remedy."""

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbbench import plan
from dbbench.errors import DbbenchError, FileUnreadable, PlanInvalid
from dbbench.introspect import recordings
from dbbench.plan import catalog
from dbbench.results import load_trial
from dbbench.results.runs import load_spec
from tests.support.files import write_file
from tests.support.fuzz import CASES, ROOT, SHIPPED, SLOWEST_S, case
from tests.support.runs import small_run

PLANS: Final = [path.read_text() for path in sorted((ROOT / "docs/plans").glob("*.toml"))]


def test_a_damaged_plan_is_read_or_refused(tmp_path: Path) -> None:
    """Every plan loads, or is refused with its flaws and exit code 2."""
    path = tmp_path / "plan.toml"

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.one_of(
            st.tuples(st.sampled_from(PLANS), st.integers(0, 2**40)).map(lambda made: case(*made)),
            st.text(max_size=300),
        )
    )
    def each(text: str) -> None:
        path.write_bytes(text.encode(errors="replace"))
        began = time.process_time()
        try:
            plan.expand(plan.load(path, SHIPPED), SHIPPED)
        except DbbenchError as error:
            assert error.exit_code == 2, error
        assert time.process_time() - began < SLOWEST_S

    each()


PLAN: Final = """name = "x"
fs_setups = ["ext4", "xfs"]
blocks = 3
[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
"""
MANY: Final = list(range(1, 151))
ENDLESS: Final = {  # what is in the plan, and what is said of it
    "blocks": (PLAN.replace("3", "10000000000"), r"plan.toml:3  \"blocks\" must be 20000 or less"),
    "infinite": (PLAN.replace("3", "inf"), 'plan.toml:3  "blocks" is not a number'),
    "digits": (PLAN.replace("3", "9" * 100_000), "plan.toml:3  a number has too many digits"),
    "64 bits": (PLAN.replace("3", "9" * 20), 'plan.toml:3  "blocks" is a number beyond 64 bits'),
    "date": (PLAN.replace("3", "1979-05-27"), 'plan.toml:3  "blocks" is a date'),
    "nul": (PLAN.replace('"x"', r'"x\u0000"'), 'plan.toml:1  "name" has a NUL'),
    "string": (PLAN.replace('"x"', f'"{"x" * 10**6}"'), "larger than 256 KiB"),
    "name": (PLAN.replace('"x"', f'"{"x" * 10**5}"'), 'plan.toml:1  "name" must be at most 240'),
    "nested": (PLAN + f"y = {'[' * 10**5}", "plan.toml:8  values are nested too deeply"),
    "inline": (PLAN + f"y = {'{a=' * 300}1{'}' * 300}", "plan.toml:8 .* nested too deeply"),
    "tables": (
        PLAN + "".join(f"[{'a.' * n}a]\n" for n in range(400)),
        "a key has more than 16 parts",
    ),
    "dotted": (PLAN + "a." * 100_000 + "a = 1", "plan.toml:8  a key has more than 16 parts"),
    "quoted": (PLAN + '"a" . ' * 40_000 + "a = 1", "plan.toml:8  a key has more than 16 parts"),
    "keys": ("".join(f"k{n}=1\n" for n in range(25_000)), "100 errors or more"),
    "many keys": ("".join(f"k{n}=1\n" for n in range(10**6)), "larger than 256 KiB"),
    "long key": (PLAN + "k" * 200_000 + " = 1", r"plan.toml:8 .*k\.\.\."),
    "setups": (
        PLAN.replace('["ext4", "xfs"]', str(["ext4"] * 20_000)),
        "20000 entries, but the limit is 200",
    ),
    "workloads": (
        PLAN + '[[workload]]\nname = "scan"\n' * 5000,
        "5001 entries, but the limit is 200",
    ),
    "sweep": (PLAN + f"clients = {list(range(1, 10_001))}", "10000 values, but the limit is 200"),
    "product": (PLAN + f"clients = {MANY}\nscale = {MANY}", "45000 combinations"),
    "trials": (PLAN.replace("3", "10001"), "20002 trials; at most 20000"),
    "clients": (PLAN + "clients = 1000000000", 'plan.toml:8  "clients" must be at most 10000'),
    "size": (
        PLAN + '[device]\nsize = "99999999999GiB"',
        'plan.toml:9  "size" must be less than 8 EiB',
    ),
    "less": (PLAN + '[device]\nsize = "-1GiB"', "plan.toml:9 .* not '-1GiB'"),
    "devices": (PLAN + "[device]\ncount = 1000000000", 'plan.toml:9  "count" must be 256 or less'),
    "time": (
        PLAN.replace("blocks = 3", "measure = 1e300"),
        'plan.toml:3  "measure" must be at most a year',
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_plan_without_end_is_refused(case: str, tmp_path: Path) -> None:
    """With the line that is at fault, at once; its values are never multiplied out."""
    text, told = ENDLESS[case]
    path = write_file(tmp_path / "plan.toml", text)
    began = time.process_time()
    with pytest.raises((PlanInvalid, FileUnreadable), match=told) as refused:
        plan.expand(plan.load(path, SHIPPED), SHIPPED)
    assert refused.value.exit_code == 2 and len(refused.value.evidence) < 50_000
    assert time.process_time() - began < SLOWEST_S


@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_an_input_that_is_not_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    """A FIFO would be waited for, /dev/zero never ends: plans, setups, workloads, scripts and
    recordings alike.
    """
    path = tmp_path / "x.toml"
    {"fifo": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "directory": os.mkdir}[
        kind
    ](path)
    for read in (lambda: plan.load(path, SHIPPED), lambda: recordings.read(path)):
        with pytest.raises(FileUnreadable):
            read()
    for folder in ("fs_setups", "workloads"):
        (tmp_path / folder).mkdir()
        path.rename(tmp_path / folder / "x.toml") if kind != "device" else (
            tmp_path / folder / "x.toml"
        ).symlink_to("/dev/zero")
        own = catalog.catalog([tmp_path])
        with pytest.raises(FileUnreadable):
            own.setup("x") if folder == "fs_setups" else own.workload("x")
        path = tmp_path / folder / "x.toml"


@pytest.mark.parametrize(("name", "load"), [("run.json", load_spec), ("trial.json", load_trial)])
def test_a_damaged_result_is_read_or_named(
    name: str,
    load: Callable[[Path], object],
    tmp_path: Path,
) -> None:
    """Bent by one value, or cut: damage with its name, also where its checksum was left out."""
    from dbbench import results

    from .test_store import publish

    folder = results.create_run(tmp_path, small_run(), "")
    where = publish(folder) if name == "trial.json" else folder
    recorded = re.sub(r',\n "sha256": "\w+"', "", (where / name).read_text())

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**40))
    def each(seed: int) -> None:
        (where / name).write_text(case(recorded, seed), errors="replace")
        with contextlib.suppress(DbbenchError):
            load(where)

    each()
