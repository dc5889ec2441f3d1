"""Loads on plain files: recorded output of bonnie++ 2.00a, fio 3.33 and dbbench's own program."""

import hashlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dbbench.drivers import bonnie, filework, filework_load, fio, tool
from dbbench.drivers.protocol import Live
from dbbench.errors import DriverFailed
from dbbench.machine.limits import cgroup
from dbbench.metrics.table import METRICS
from dbbench.model import Cell, Dataset, EngineSpec, Window
from dbbench.plan import catalog
from tests.support.plans import SHIPPED
from tests.support.runs import small_run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "drivers"
BONNIE = (FIXTURES / "bonnie.csv").read_text()
FIO = (FIXTURES / "fio.json").read_text()
COPY = (FIXTURES / "copy.out").read_text()
SMALL = (FIXTURES / "smallfiles.out").read_text()


def sum_of(file: Any) -> object:
    """Its checksum, as of a file of the results."""
    return hashlib.file_digest(file, "sha256")


def cell(workload: str, **parameters: Any) -> Cell:
    """A cell of a shipped workload."""
    found = SHIPPED.workload(workload)
    values = {**catalog.defaults(found), **parameters}
    found = replace(found, script=str(SHIPPED.script(found) or ""))
    return replace(
        small_run().cells[0],
        engine=EngineSpec("files"),
        workload=found,
        parameters=values,
        dataset=Dataset("none"),
        window=Window(found.window, 2.0, 5.0),
    )


def ended(text: str, lived_s: float = 3.0) -> Any:
    """A load that has printed `text` and ended."""
    task = SimpleNamespace(cell=SimpleNamespace(parameters={"clients": 1, "file_bytes": 4096}))
    return cast(Any, SimpleNamespace(text=lambda: text, begin_utc=0.0, lived_s=lived_s, task=task))


def test_bonnies_line_agrees_with_its_own_table() -> None:
    """Rates, shares of CPU and longest latencies are those of the table that it prints for
    people.
    """
    found = bonnie.parse(BONNIE)
    table = (FIXTURES / "bonnie.out").read_text()
    assert found["char_write_mb_per_s"] == pytest.approx(73 * 1024 / 1e6) and " 73k  24 " in table
    assert (
        found["block_write_mb_per_s"] == pytest.approx(57950 * 1024 / 1e6)
        and " 56.6m  20 " in table
    )
    assert (
        found["char_write_cpu_pct"],
        found["block_write_cpu_pct"],
        found["char_read_cpu_pct"],
    ) == (24, 20, 22)
    longest = [found[f"{stem}_max_ms"] for stem in bonnie.DATA]
    assert longest == pytest.approx([302, 24.23, 21.247, 64.606, 24.093, 159])
    assert [found[f"{stem}_max_ms"] for stem in bonnie.BONNIE[6:]] == pytest.approx(
        [9.361, 0.072, 24.329, 16.268, 0.032, 10.173]
    )


def test_a_test_without_a_rate() -> None:
    """One that ended too soon has plus signs, which are not 0. One that was not asked for (-f:
    single characters) has empty fields. All others can be compared: each has unit and direction,
    a rate up, CPU and latency down.
    """
    found = bonnie.parse(BONNIE)
    assert (
        found["rewrite_mb_per_s"] is None
        and found["rewrite_cpu_pct"] is None
        and found["creates_per_s"] is None
    )
    for name in found:
        assert METRICS[name].better == ("higher" if name.endswith("per_s") else "lower")
    found = bonnie.parse(BONNIE.replace(",73,24,", ",,,"))
    assert found["char_write_mb_per_s"] is None and found["block_write_mb_per_s"] is not None


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *(
            (bonnie.parse, text)
            for text in (
                "",
                "nothing\n",
                BONNIE.replace("1.98,", "1.99,"),
                BONNIE.replace(",57950", ""),
            )
        ),
        *((fio.parse, text) for text in ("", "fio: no jobs\n", "{", '{"jobs": []}')),
        (filework_load.parse_copy, "\n".join(COPY.splitlines()[:-1])),
        (filework_load.steps, SMALL.splitlines()[0]),
    ],
)
def test_output_that_is_incomplete_is_not_a_measurement(
    parse: Callable[[str], object], text: str
) -> None:
    """Another format, a field too few, or nothing at all; a program that was killed, or ended after
    its first step. Without the last line of a copy it is unknown whether it is on the device.
    """
    with pytest.raises(DriverFailed):
        parse(text)


def test_a_small_file_is_labelled_cached() -> None:
    """W116 where the file has less than twice the memory, and not where it has that; by default it
    has.
    """
    small = cell("bonnie", file_size=2**30)
    large = cell("bonnie")
    assert [w.id for w in bonnie._outcome(ended(BONNIE), small, 2**30).warnings] == ["W116"]
    assert not bonnie._outcome(ended(BONNIE), large, 2**30).warnings
    assert (
        bonnie.file_bytes(large, 2**30) == 2 * 2**30
        and tool.could_hold(large) == cgroup.usable_bytes()
    )
    argv = bonnie.command(Path("/d"), small, 7, 2**30)
    assert argv[argv.index("-s") + 1] == "1024" and argv[argv.index("-r") + 1] == "512"


def test_fios_summary_is_counted_whole() -> None:
    """Reads and writes of all jobs, bytes, and every latency bucket."""
    found = fio.parse(FIO)
    job = json.loads(FIO)["jobs"][0]
    assert found.ios == job["read"]["total_ios"] + job["write"]["total_ios"] == 5568 + 2348
    assert found.histogram.total == found.ios
    assert found.seconds == pytest.approx(3.005)
    assert (found.read_bytes, found.errors) == (45613056, 0)
    assert found.longest_ms == pytest.approx(19.606922)
    assert found.syncs == 504  # not `total_ios` of "sync", which is 0 after a warm-up


def test_what_a_load_left_is_read_only_if_it_is_a_regular_file(tmp_path: Path) -> None:
    """The load's account can put links and FIFOs into the scratch directory, where root reads."""
    secret = tmp_path / "shadow"
    secret.write_text("root:$y$")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "fio_bw.7.log").symlink_to(secret)
    os.mkfifo(scratch / "queue")
    scratch.chmod(0o777)
    os.link(secret, scratch / "link.log")
    (scratch / "fio.json").write_text("{}")
    assert tool.read_output(scratch / "fio.json") == "{}"
    for name in ("fio_bw.7.log", "queue", "link.log", "missing"):
        with pytest.raises(DriverFailed, match=rf"^{name}, a file of the load generator, cannot"):
            tool.read_output(scratch / name)
    with (
        pytest.raises(DriverFailed, match="cannot be read"),
        tool.open_output(scratch / "fio.json", most_bytes=1),
    ):
        pass


@pytest.mark.parametrize("read", [io.BufferedReader.read, sum_of, list])
def test_a_file_that_grows_while_it_is_read_ends(
    read: Callable[[Any], object],
    tmp_path: Path,
) -> None:
    """Each way of reading ends at the limit: the load's account may extend a file without end."""
    growing = tmp_path / "fio.json"
    growing.write_text("{}")
    with (
        pytest.raises(DriverFailed, match="larger than 1 KiB"),
        tool.open_output(growing, 1024) as file,
    ):
        os.truncate(growing, 2**40)
        read(file)


def test_percentiles_are_fios_own() -> None:
    """For a single direction, dbbench's histogram agrees with fio's within the width of their
    buckets.
    """
    document = json.loads(FIO)
    document["jobs"][0]["write"]["total_ios"] = 0
    document["jobs"][0]["write"]["clat_ns"]["bins"] = {}
    found = fio.parse(json.dumps(document))
    for percent, nanoseconds in document["jobs"][0]["read"]["clat_ns"]["percentile"].items():
        assert found.histogram.percentile_ms(float(percent)) == pytest.approx(
            nanoseconds / 1e6, rel=0.025
        )


# fio_iops.1.log of fio 3.33: its job was stopped from 1795617875.003 to 1795617877.503
STOPPED = (FIXTURES / "fio_job_stopped.log").read_text()
# 1000 I/Os a second; the process that takes the samples, and not the job, was stopped for 0.65 s
LATE = (FIXTURES / "fio_late.log").read_text()
# seven I/Os, with 1.5 s between them (thinktime)
PAUSES = (FIXTURES / "fio_pauses.log").read_text()
# 1000 I/Os a second; the job was stopped from 1795617849.294 to its end, four seconds later
STOPPED_AT_THE_END = (FIXTURES / "fio_stopped_at_the_end.log").read_text()


def test_rates_by_second_are_summed_over_jobs() -> None:
    """Half-second entries of a job are averaged, jobs added; a second before the first entry is a
    gap.
    """
    logs = [(FIXTURES / f"fio_iops.{job}.log").read_text() for job in (1, 2)]
    column = fio.by_second(logs, 1795281693.2, 5, fio.READ)
    assert column[0] is None and column[1] == pytest.approx(
        (689 + 579) / 2 + (736 + 649) / 2, rel=0.01
    )
    known = [value for value in column if value is not None]
    assert sum(known) == pytest.approx(5568, rel=0.02)


def test_a_stopped_job_of_fio_makes_no_progress() -> None:
    """A second that stood still is 0, one that stood still for half of its time has half the
    rate.
    """
    column = fio.by_second([STOPPED], 1795617872.989, 7, fio.WRITE)
    halves = [360655, 356020, 323731, 383522, 9344, 0, 0, 0, 0, 308939, 334298, 315748]  # as logged
    assert column[:6] == pytest.approx(
        [(a + b) / 2 for a, b in zip(halves[::2], halves[1::2], strict=True)], abs=1
    )
    assert column[3] == 0


def test_rates_by_second_add_up_to_fios_ios() -> None:
    """Also if most intervals have none, before the first and after the last of them."""
    running = 1795617845.433 - 9.0, 1795617845.433 - 1
    column = fio.by_second([PAUSES], 1795617836.419, 8, fio.WRITE, running)
    assert sum(value or 0 for value in column) == pytest.approx(7, rel=0.01)
    assert column == pytest.approx([2, 1, 0, 1, 1, 0, 1, 1], abs=0.01)


def test_a_late_entry_of_fio_is_longer() -> None:
    """An entry after 0.905 s is the mean over all of them, and no second has less for that."""
    column = fio.by_second([LATE], 1795617881.953, 7, fio.WRITE)
    assert column[:6] == pytest.approx([1000] * 6, rel=0.01)


def test_one_of_two_jobs_of_fio_is_stopped() -> None:
    """What is left is the other's rate. The stopped job's next entry is also late, by 0.067 s, and
    no longer than that.

    Both had to keep to 1000 reads a second, so the stopped one did in the second after it what
    it had missed.
    """
    logs = [(FIXTURES / f"fio_stopped_iops.{job}.log").read_text() for job in (1, 2)]
    column = fio.by_second(logs, 1795617855.33, 6, fio.READ)
    assert column[0] == pytest.approx(2000, rel=0.01) and column[3] == pytest.approx(1000, rel=0.1)
    assert sum(value or 0 for value in column) == pytest.approx(12000, rel=0.02)
    column = fio.by_second(logs, 1795617855.08, 6, fio.READ)
    # it was stopped after a quarter of this second
    assert column[2] == pytest.approx(812 / 4 + 1000, rel=0.05)


def test_a_direction_without_progress_is_zero() -> None:
    """Lines of writes show that the job ran; one that never reads has no rate of reads."""
    log = (FIXTURES / "fio_stopped_iops.2.log").read_text().splitlines(keepends=True)
    kept = "".join(line for line in log if line.split(", ")[2] == fio.WRITE or line < "17956178564")
    column = fio.by_second([kept], 1795617855.33, 4, fio.READ)
    assert column == pytest.approx([1000, 0, 0, 0], rel=0.01, abs=2)
    assert fio.by_second([STOPPED], 1795617872.989, 6, fio.READ) == [None] * 6


def test_fio_ran_after_its_last_entry() -> None:
    """The end of a job that was stopped is 0 if the summary says that it still ran, and a gap
    otherwise.
    """
    running = 1795617853.314 - 5.848, 1795617853.314 - 1
    given = [STOPPED_AT_THE_END], 1795617847.446, 6, fio.WRITE
    assert fio.by_second(*given) == [
        pytest.approx(1000, rel=0.01),
        pytest.approx(848, rel=0.01),
        *[None] * 4,
    ]
    assert fio.by_second(*given, running)[2:] == [0, 0, 0, None]
    assert fio.parse(FIO).running_utc == pytest.approx((1795281697.251 - 3.005, 1795281697.251 - 1))


def test_fios_progress_is_read() -> None:
    """A line that it writes over again and again; thousands have a letter."""
    said = [fio.live(line) for line in (FIXTURES / "fio.out").read_text().splitlines()]
    assert [one for one in said if one] == [Live(0, 1596 + 616, None), Live(0, 1949 + 806, None)]
    assert fio.live("[r=103MiB/s,w=103MiB/s][r=13.2k,w=13.2k IOPS][eta 00m:02s]") == Live(
        0,
        26400,
        None,
    )
    assert fio.live("Jobs: 2 (f=0)") is None
    assert fio.live("[r=13..2k IOPS]") is None  # damaged: no number


def test_the_trial_decides_where_and_how_long() -> None:
    """What is put before a job file has the folder, the window and the logs; parameters are its
    variables.
    """
    asked = cell("fio-randrw", clients=3)
    text = fio.before(Path("/mnt/data"), asked, 42, Path("/scratch/fio"))
    for line in (
        "directory=/mnt/data",
        "ramp_time=2",
        "runtime=5",
        "randseed=42",
        "write_bw_log=/scratch/fio",
    ):
        assert line in text.splitlines()
    given = fio._variables(asked)
    assert (given["CLIENTS"], given["DIRECT"], given["FILE_SIZE"]) == ("3", "0", str(256 * 2**20))


@pytest.mark.parametrize("name", [n for n in SHIPPED.workloads if n.startswith("fio-")])
def test_a_job_files_variables_are_parameters(name: str) -> None:
    """Each ${NAME} of a shipped job file is a parameter of its workload, and each parameter is
    used.
    """
    workload = SHIPPED.workload(name)
    script = SHIPPED.script(workload)
    assert script is not None
    used = {word.split("}")[0].lower() for word in script.read_text().split("${")[1:]}
    assert used == set(workload.parameters)


def test_a_copy_has_two_times() -> None:
    """Until it was written, and until it was on the device; the seconds' rates add up to the
    file.
    """
    found = filework_load.parse_copy(COPY)
    assert (found.seconds, found.synced_s, found.bytes) == (1.364019, 1.738535, 209715200)
    assert sum(value or 0 for value in found.by_second()) == pytest.approx(209.7152)
    outcome = filework_load.copy_outcome(ended(COPY), 0)
    assert outcome.figures["copy_mb_per_s"] == pytest.approx(209.7152 / 1.364019)
    assert outcome.figures["copy_synced_mb_per_s"] == pytest.approx(209.7152 / 1.738535)
    assert len(outcome.series["file_write_mb_per_s"]) == 2
    # which can hold the file, or not, or is unknown
    memory = (2**30, ["W116"]), (2**20, []), (0, [])
    for held, warnings in memory:
        assert [w.id for w in filework_load.copy_outcome(ended(COPY), held).warnings] == warnings


def test_the_copy_of_several_clients_is_one() -> None:
    """It ends with the last of them; the seconds' rates add up to all bytes, and a missing client
    is an error.
    """
    other = COPY.replace('{"t": 1.', '{"t": 2.').replace('"bytes"', '"client": 1, "bytes"')
    both = filework_load.parse_copy(COPY + other, clients=2)
    assert (both.seconds, both.synced_s, both.bytes) == (2.364019, 2.738535, 2 * 209715200)
    assert sum(value or 0 for value in both.by_second()) == pytest.approx(2 * 209.7152)
    with pytest.raises(DriverFailed, match="1 of 2 clients"):
        filework_load.parse_copy(COPY, clients=2)


def test_shares_of_clients_are_all_of_it() -> None:
    """Next to each other, equal but for one, nothing twice."""
    parts = [filework.share(1003, 4, client) for client in range(4)]
    assert parts[0][0] == 0 and parts[-1][1] == 1003
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(parts))
    assert {end - begin for begin, end in parts} == {250, 251}


def test_small_files_have_three_rates() -> None:
    """Files ÷ seconds of each step; W010 where the caches could not be emptied."""
    outcome = filework_load.smallfiles_outcome(ended(SMALL))
    assert outcome.figures["creates_per_s"] == pytest.approx(2000 / 0.2073231990034401)
    assert outcome.figures["reads_per_s"] == pytest.approx(2000 / 1.2250064389991167)
    assert outcome.figures["deletes_per_s"] == pytest.approx(2000 / 0.2043562379985815)
    why = "4096 bytes of the data files are still resident"
    warm = filework_load.smallfiles_outcome(ended(SMALL.replace('"why": ""', f'"why": "{why}"')))
    assert not outcome.warnings and [(w.id, w.text) for w in warm.warnings] == [("W010", why)]


def test_content_is_as_compressible_as_asked() -> None:
    """The share of zeros holds for every page, and the seed gives the bytes."""
    found = filework.content(2**20, 0.25, 5)
    assert len(found) == 2**20 and found == filework.content(2**20, 0.25, 5) != filework.content(
        2**20,
        0.25,
        6,
    )
    assert all(found[at + 3072 : at + 4096] == bytes(1024) for at in range(0, 2**20, 4096))
    assert found[:3072].count(0) < 100


@pytest.mark.starts_processes
def test_the_program_of_files_loads_only_what_it_needs() -> None:
    """The trial's control group counts its memory and CPU time, and plans are read elsewhere."""
    script = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sys.modules, sep='\\n')"
    argv = [sys.executable, "-P", "-c", script, filework.__file__]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert "dbbench.machine.libc" in loaded
    assert "pydantic" not in loaded
