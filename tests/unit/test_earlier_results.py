"""Results folders that an earlier version wrote are read, shown and compared as they were.

`tests/fixtures/results` is a results folder of real, tiny runs (raw output is stripped): `plain`; `precise`, by
--until-precision; `shared`, of two hosts, merged; two nights of the plan `night`; `lab`, of the power-loss lab. Its
folder `golden` has the output of that version for them. After an intended change, DBBENCH_GOLDEN=write writes these
files again.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import cli
from dbbench.nightly import analysis
from dbbench.report.page.html import build
from dbbench.results import load_run

RESULTS: Final = Path(__file__).parents[1] / "fixtures/results"
RUNS: Final = ("plain", "precise", "shared", "night-night-2026-11-23-a", "night-night-2026-11-23-b", "lab")


def output(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit status and what is printed."""
    status = cli.run([*words, "--results", str(RESULTS)])
    return status, capsys.readouterr().out


def same(before: Any, now: Any) -> bool:
    """Whether all that was there is there as it was; objects may have further keys."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(key in now and same(value, now[key]) for key, value in before.items())
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(same, before, now))
    if isinstance(before, float) and isinstance(now, int | float):
        return math.isclose(before, now, rel_tol=1e-9)  # other releases of scipy
    return bool(before == now)


def as_golden(name: str, now: Any) -> None:
    """Hold it against the file of that name."""
    path = RESULTS / "golden" / f"{name}.json"
    now = json.loads(json.dumps(now))
    if os.environ.get("DBBENCH_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(now, ensure_ascii=False, indent=1) + "\n")
    before = json.loads(path.read_text())
    assert same(before, now), {
        key: (before[key], now.get(key)) for key in before if not same(before[key], now.get(key))
    }


@pytest.mark.parametrize("name", RUNS)
def test_compare_says_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures, verdicts and notes as a document; what is printed; the exit status of the gate."""
    document = json.loads(output(capsys, "compare", name, "--json")[1])
    status, text = output(capsys, "compare", name, "--gate")
    as_golden(f"{name}.compare", {"document": document, "gate": status, "text": text.splitlines()})


def test_compare_of_two_runs_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """With the notes about what differs between the runs."""
    both = RUNS[3:5]
    as_golden("nights.compare", json.loads(output(capsys, "compare", *both, "--json")[1]))


@pytest.mark.parametrize("name", RUNS)
def test_show_has_all_that_lies_in_the_folder(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`show --json` is run.json and each trial.json, without keys of earlier versions: whether the device was the limit
    is decided when the run is read."""
    document = json.loads(output(capsys, "show", name, "--json")[1])
    written = json.loads((RESULTS / name / "run.json").read_text())
    assert same({key: value for key, value in written.items() if key != "sha256"}, document["run"])
    trials = {path.parent.name: json.loads(path.read_text()) for path in (RESULTS / name).glob("trials/*/trial.json")}
    for trial in trials.values():
        trial["ceiling"] = {
            k: v for k, v in (trial["ceiling"] or {}).items() if k not in ("limited", "tps_share")
        } or None
    assert same(trials, {trial["id"]: trial for trial in document["trials"]})
    assert document["damaged"] == {}


@pytest.mark.parametrize("name", RUNS)
def test_page_has_the_same_figures(name: str) -> None:
    """What can be downloaded from it, the tables that it shows, and the courses of the nights."""
    run = load_run(RESULTS / name)
    page = build([run], courses=analysis.courses_of(RESULTS, [name]))
    downloaded = {key: value for key, value in page.results.items() if key != "trials"}
    as_golden(f"{name}.page", {
        "downloaded": downloaded,
        "used": {trial["id"]: trial["used"] for trial in page.results["trials"]},
        "tables": [comparison.table.raw() for comparison in page.comparisons],
        "notes": [[[arm, list(notes)] for arm, notes in comparison.table.notes()] for comparison in page.comparisons],
        "notices": [["".join(text for text, _ in notice.parts), notice.kind] for notice in page.verdict.notices],
        "findings": [[finding.ident, len(finding.places), finding.grave] for finding in page.findings],
        "nights": [[step.text for step in plot.steps] + [dot.label for dot in plot.dots] for plot in page.nights],
        "power_cuts": len(page.power_cuts),
    })  # fmt: skip
