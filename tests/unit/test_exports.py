"""Export formats: complete, escaped, and with the right states."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import process
from dbbench.compare import Row
from dbbench.metrics.table import METRICS
from dbbench.report.exports import FORMATS
from dbbench.report.exports.entries import ArmFigures, Report, report_of
from dbbench.report.verdicts import gate, verdicts

HOSTILE = 'a"b\\c<d>&|`*\n\x00'


def entry(state: str, notes: tuple[str, ...] = (), **more: object) -> ArmFigures:
    """An arm with that state."""
    known = {
        "fs_setup": "xfs",
        "engine": "postgres",
        "workload": "tpcb",
        "value": 1900.5,
        "ratio": 0.8,
        "lo": 0.75,
        "hi": 0.85,
        "verdict": "slower",
        "n": 7,
        "wins": 0,
        "level": 0.95,
        "durability_class": "full",
        "mixed_durability": False,
        "variant": "clients=8",
    } | more
    return ArmFigures(Row(**known), METRICS["tps"], state, notes)  # type: ignore[arg-type]


def report(*entries: ArmFigures, problems: tuple[str, ...] = ()) -> Report:
    """A night of these."""
    begin = "2026-01-02T01:30:00.000Z"
    return Report(
        "p, night of 2026-01-02",
        "p-night",
        begin,
        entries,
        "regression",
        problems,
        host="db7",
    )


def test_junit_fails_what_regressed_and_skips_what_is_open() -> None:
    """Counts are those of the elements; problems of the whole are an error."""
    text = FORMATS["junit"](
        report(entry("regression"), entry("suspect"), entry("ok"), problems=("no night on x",))
    )
    suite = ET.fromstring(text)
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    assert counts == {"tests": "4", "failures": "1", "skipped": "1", "errors": "1"}
    assert "−20.0\u202f% (−25.0..−15.0\u202f%), 7 blocks" in str(
        suite.find(".//failure").get("message")
    )  # type: ignore[union-attr]


def test_openmetrics_is_well_formed() -> None:
    """A TYPE line before each family, samples of one family together, EOF last."""
    unknown = entry("ok", fs_setup="ext4", ratio=None, lo=None, hi=None)
    lines = (text := FORMATS["openmetrics"](report(entry("regression"), unknown))).splitlines()
    assert lines[-1] == "# EOF" and text.endswith("\n")
    sample = re.compile(r'^[a-z_]+(\{([a-z_]+="([^"\\\n]|\\.)*",?)+\})? [-+0-9.e]+$')
    family = ""
    for line in lines[:-1]:
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif not line.startswith("# HELP"):
            assert sample.match(line) and re.split(r"[{ ]", line)[0] == family
    labels = 'engine="postgres",workload="tpcb, clients=8",fs_setup="xfs",host="db7"'
    assert f"dbbench_tps_bad{{{labels}}} 1.0" in lines
    assert any(line.startswith('dbbench_last_run_timestamp_seconds{host="db7"} ') for line in lines)


def test_one_metric_covers_every_workload_and_no_label_changes_every_night() -> None:
    """A duration is inverted, with its bounds; the run's name is nowhere."""
    scan = entry("regression", workload="scan", variant="")
    scan = scan._replace(metric=METRICS["duration_s"])
    text = FORMATS["openmetrics"](report(entry("inconclusive"), scan))
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        labels, _, value = rest.partition("} ")
        if name.startswith(("dbbench_performance", "dbbench_undecided", "dbbench_run")):
            metric = re.search(r'metric="(\w+)"', labels)
            values[name, metric[1] if metric else ""] = float(value)
    assert values == {
        ("dbbench_performance_ratio", "tps"): 0.8,
        ("dbbench_performance_ratio_lower", "tps"): 0.75,
        ("dbbench_performance_ratio_upper", "tps"): 0.85,
        ("dbbench_performance_ratio", "duration_s"): 1.25,
        ("dbbench_performance_ratio_lower", "duration_s"): pytest.approx(1 / 0.85),
        ("dbbench_performance_ratio_upper", "duration_s"): pytest.approx(1 / 0.75),
        ("dbbench_undecided", "tps"): 1,
        ("dbbench_undecided", "duration_s"): 0,
        ("dbbench_run_bad", ""): 1,
        ("dbbench_run_undecided", ""): 0,
    }
    assert "p-night" not in text


@pytest.mark.needs("promtool")
@pytest.mark.starts_processes
def test_prometheus_accepts_the_name_of_every_metric() -> None:
    """promtool's lint has no remark: units are base units, and no family is written twice."""
    every = [entry("ok")._replace(metric=metric) for metric in METRICS.values()]
    text = FORMATS["openmetrics"](report(*every))
    assert process.run(["promtool", "check", "metrics"], stdin=text).stdout == ""
    assert re.search(r"^dbbench_p95_seconds\{.*\} 1\.9005$", text, re.MULTILINE)
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))


def test_markdown_alerts_and_escapes() -> None:
    """An alert on top; no label breaks the table or becomes mark-up."""
    text = FORMATS["markdown"](
        report(entry("regression", fs_setup=HOSTILE, notes=(HOSTILE,)), problems=("x",))
    )
    assert "> [!CAUTION]" in text
    row = text.splitlines()[-1] if text.endswith("|\n") else ""
    assert len(re.findall(r"(?<!\\)\|", row)) == 10
    assert "**regression**" in row and "\\<d\\>" in row


def test_hostile_labels_keep_every_format_whole() -> None:
    """Quotes, angle brackets, line ends and NUL."""
    hostile = report(entry("regression", fs_setup=HOSTILE, notes=(HOSTILE,)), problems=(HOSTILE,))
    ET.fromstring(FORMATS["junit"](hostile))
    assert all("\n" not in line for line in FORMATS["openmetrics"](hostile).splitlines())


def test_a_setup_that_may_be_slower_fails_no_gate(tmp_path: Path) -> None:
    """`expect` of the plan: the gate passes, JUnit has no failure, and another setup still fails
    both.
    """
    run = synthetic.loaded(tmp_path, Shape(work=TPCB, blocks=7))
    slow = [row.fs_setup for row in verdicts([run]).tables[0].rows if row.verdict == "slower"]
    assert slow and gate(verdicts([run])) == 3
    plan = dataclasses.replace(run.run.plan, expect=dict.fromkeys(slow, "slower"))
    expecting = dataclasses.replace(run, run=dataclasses.replace(run.run, plan=plan))
    assert gate(verdicts([expecting])) != 3
    cases = ET.fromstring(FORMATS["junit"](report_of(verdicts([expecting]))))
    assert cases.get("failures") == "0" and "slower, as expected" in ET.tostring(
        cases, encoding="unicode"
    )


def test_a_run_becomes_a_report(tmp_path: Path) -> None:
    """One entry an arm and workload, failed trials as problems; every format takes it."""
    shape = Shape(work=TPCB, failed=("xfs.postgres.pgbench-tpcb-b1-a1",))
    made = report_of(verdicts([synthetic.loaded(tmp_path, shape)]))
    assert [each.row.fs_setup for each in made.entries] == ["ext4", "xfs", "btrfs"]
    assert made.state == "failed" and "E402" in made.problems[0]
    assert all(FORMATS[form](made) for form in FORMATS)
