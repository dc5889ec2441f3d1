import contextlib
import csv
import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import results
from dbbench.model import Fault, Status, TrialWarning
from dbbench.report.trial_text import trial_cells
from dbbench.results import LoadedRun
from tests.support.files import write_file
from tests.support.runs import small_run
from tests.support.terminal import WideStream
from tests.support.trials import trial_of


def test_the_contract_of_compare_json(told: Any) -> None:
    """The keys of the document and of its rows; the baseline's row is there, first in its table."""
    document = json.loads(told("compare", "demo", "--json"))
    assert set(document) == {
        "schema",
        "baseline",
        "answer",
        "caveats",
        "metric",
        "rows",
        "findings",
        "recommendation",
        "trials",
    }
    assert (document["schema"], document["baseline"], document["metric"]) == (1, "ext4", "primary")
    keys = {
        "fs_setup",
        "engine",
        "workload",
        "value",
        "ratio",
        "lo",
        "hi",
        "verdict",
        "n",
        "wins",
        "level",
        "durability_class",
        "mixed_durability",
        "notes",
        "variant",
        "df",
        "df_shared",
        "trials",
        "metric",
    }
    assert all(set(row) == keys for row in document["rows"])
    assert [row["verdict"] for row in document["rows"] if row["fs_setup"] == "ext4"] == [
        "baseline"
    ] * 3
    assert {row["metric"] for row in document["rows"]} == {"tps", "duration_s"}


def test_each_workload_is_judged_by_its_own_metric(told: Any) -> None:
    """Tables of different metrics have their own headings; one metric can be asked for."""
    text = told("compare", "demo")
    assert "postgres pgbench-tpcb (many small writes): throughput, tx/s (higher is better)" in text
    assert "postgres scan (reads whole tables): duration, s (lower is better)" in text
    only = json.loads(told("compare", "demo", "--metric", "p95_ms", "--json"))
    assert only["metric"] == "p95_ms"
    assert {row["workload"] for row in only["rows"]} == {"pgbench-tpcb", "oltp_read_write"}


def test_another_baseline_turns_the_ratios(told: Any) -> None:
    """ext4 ÷ btrfs is the inverse of btrfs ÷ ext4."""
    rows = [
        json.loads(told("compare", "demo", "--json", "--baseline", b))["rows"]
        for b in ("ext4", "btrfs")
    ]

    def ratio(table: list[dict[str, Any]], arm: str) -> float:
        return next(
            row["ratio"]
            for row in table
            if (row["fs_setup"], row["workload"]) == (arm, "pgbench-tpcb")
        )

    assert ratio(rows[0], "btrfs") == pytest.approx(1 / ratio(rows[1], "ext4"))


def test_csv_and_markdown_hold_the_same_rows(told: Any) -> None:
    """Every format has one line a row of the JSON."""
    rows = json.loads(told("compare", "demo", "--json"))["rows"]
    table = list(csv.DictReader(io.StringIO(told("compare", "demo", "--format", "csv"))))
    assert [row["fs_setup"] for row in table] == [row["fs_setup"] for row in rows]
    assert [float(row["value"]) for row in table] == [row["value"] for row in rows]
    lines = [
        line
        for line in told("compare", "demo", "--format", "markdown").splitlines()
        if line.startswith("| ")
    ]
    assert len([line for line in lines if " --- " not in line and "| setup |" not in line]) == len(
        rows
    )


def test_a_run_is_found_and_counted_by_its_folder(told: Any, results_folder: Path) -> None:
    """A path with ".." leads to sound trials. A run that is named twice, and its copy, have no more
    blocks than it has; it cannot be compared with its copy.
    """
    once = json.loads(told("compare", "demo", "--json"))
    assert json.loads(told("compare", "demo", f"../{results_folder.name}/demo", "--json")) == once
    shutil.copytree(results_folder / "demo", results_folder / "earlier")
    shutil.rmtree(max((results_folder / "earlier/trials").iterdir()))
    assert json.loads(told("compare", "earlier", "demo", "--json")) == once
    shutil.copytree(results_folder / "demo", results_folder / "copy")
    assert json.loads(told("compare", "demo", "copy", "--json")) == once
    assert "at least two are needed" in told("compare", "copy", "--against", "demo", code=2)


def test_two_runs_are_paired_within_their_own_blocks(told: Any, results_folder: Path) -> None:
    """Blocks of a second run come after those of the first: pairs add up, none is made across
    runs.
    """
    synthetic.write(results_folder, Shape(name="again", work=TPCB, blocks=2))
    rows = json.loads(told("compare", "demo", "again", "--json"))["rows"]
    assert {row["n"] for row in rows if row["workload"] == "pgbench-tpcb"} == {5}


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("compare", "demp"), 'no run "demp"; did you mean "demo"?'),
        (("compare", "demo", "--metric", "tsp"), 'did you mean "tps"?'),
        (("compare", "demo", "--baseline", "xf"), 'did you mean "xfs"?'),
        (("show", "demo", "nothing"), 'has no finished trial "nothing"'),
        (("run", "plan.toml", "--new", "--name", "x"), "cannot be combined"),
    ],
)
def test_wrong_names_are_reported(
    told: Any,
    argv: tuple[str, ...],
    text: str,
) -> None:
    """An unknown name exits with 2 and suggests similar ones."""
    assert text in told(*argv, code=2)


def test_show_has_one_row_a_run(told: Any, results_folder: Path) -> None:
    """Finished, unfinished and damaged runs are all listed; a damaged one does not hide the
    others.
    """
    synthetic.write(results_folder, Shape(name="half", work=TPCB, missing=4))
    write_file(results_folder / "bad/run.json", "{")
    rows = {row["name"]: row for row in json.loads(told("show", "--json"))["runs"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "bad": "damaged",
        "demo": "finished",
        "half": "unfinished",
    }
    assert (rows["half"]["done"], rows["half"]["trials"]) == (5, 9)
    assert (rows["demo"]["ok"], rows["demo"]["failed"]) == (27, 0)
    assert "damaged" in told("show")


def test_a_run_of_another_schema_names_the_remedy(told: Any, results_folder: Path) -> None:
    """Nothing is damaged: the version that wrote it reads it."""
    whole = json.loads((results_folder / "demo/run.json").read_text())
    del whole["sha256"]
    write_file(results_folder / "demo/run.json", json.dumps({**whole, "schema": 0}))
    assert "reads schema 1 only; use the version that wrote it" in told("show")


def test_show_of_nothing(printed: Any, here: Path) -> None:
    """Before the first run there is an empty list."""
    assert json.loads(printed("show", "--json")) == {"schema": 1, "runs": []}


def test_show_has_a_run_and_a_trial(told: Any, results_folder: Path) -> None:
    """JSON is run.json and trial.json as they are stored; the text names errors and warnings."""
    synthetic.write(
        results_folder, Shape(name="ill", work=TPCB, failed=("xfs.postgres.pgbench-tpcb-b1-a1",))
    )
    document = json.loads(told("show", "ill", "--json"))
    stored = json.loads((results_folder / "ill/run.json").read_text())
    assert stored.pop("sha256")
    assert document["run"] == stored
    trial = json.loads(told("show", "ill", "xfs.postgres.pgbench-tpcb-b1-a1", "--json"))
    assert trial["error"]["id"] == "E402"
    assert "E402 in measure" in told("show", "ill")
    with WideStream(80) as stdout, contextlib.redirect_stdout(stdout):
        told("show", "demo", "xfs.postgres.scan-b1-a1")
        lines = stdout.getvalue().splitlines()
    assert lines and all(len(line) <= 80 or " " not in line.strip() for line in lines)  # a path
    run = small_run()
    twice = trial_of(
        run, warnings=(TrialWarning("W001", "window"), TrialWarning("W001", "warm-up"))
    )
    assert trial_cells(twice, LoadedRun(results_folder, run, (twice,)))[-1] == "W001"
    whole = told("show", "ill", "ext4.postgres.pgbench-tpcb-b1-a1")
    assert (
        "! W021" in whole
        and "cold cache by drop_caches: verified" in whole
        and "throughput" in whole
    )


def test_layers_are_shown_in_three_forms(told: Any) -> None:
    """For people, as JSON and as CSV, which is refused for anything else."""
    assert "ms per transaction" in told("show", "demo", "--layers")
    setups = json.loads(told("show", "demo", "--layers", "--json"))["setups"]
    lines = told("show", "demo", "--layers", "--csv").splitlines()
    assert lines[0].startswith("fs_setup,engine,workload,variant,layer,share")
    assert len(lines) == 1 + sum(len(setup["layers"]) for setup in setups)
    assert "--csv needs --layers" in told("show", "demo", "--csv", code=2)


def test_evidence_keeps_its_lines(told: Any, results_folder: Path) -> None:
    """Those of an error that `show` wraps for the terminal are not joined; they are indented more
    than dbbench's own lines, so that none can be forged.
    """
    text = "/dev/sdb is in use:\n  mounted at /srv\n  opened by mariadbd and two other programs"
    folder = results.create_run(results_folder, run := small_run(), "")
    trial = trial_of(run, status=Status.FAILED, error=Fault("E104", "canary", text))
    results.Draft(folder, trial.id).publish(trial, None, [], None)
    with WideStream(80) as stdout, contextlib.redirect_stdout(stdout):
        told("show", run.name, trial.id)
        indented = text.replace("\n  ", "\n      ")
        assert f"  error E104 in canary: {indented}\n" in stdout.getvalue()


def test_json_of_a_trial_reads_no_histogram(told: Any, results_folder: Path) -> None:
    """Latencies that cannot be read, with the right checksum, hide trial.json from no program; the
    text names them.
    """
    trial = next((results_folder / "demo/trials").iterdir())
    before = (trial / "histogram.json").read_bytes()
    after = b'{"counts": 3}'
    (trial / "histogram.json").write_bytes(after)
    old, new = (hashlib.sha256(content).hexdigest() for content in (before, after))
    sums = (trial / "SHA256SUMS").read_text()
    assert old in sums
    (trial / "SHA256SUMS").write_text(sums.replace(old, new))
    assert json.loads(told("show", "demo", trial.name, "--json"))["id"] == trial.name
    assert "histogram.json" in told("show", "demo", trial.name, code=1)


def test_report_writes_one_file(
    told: Any,
    results_folder: Path,
    tmp_path: Path,
) -> None:
    """The page is written to the given file, by default into the run's folder."""
    assert told("report", "demo").strip() == str(results_folder / "demo/report.html")
    out = tmp_path / "page.html"
    told("report", "demo", "-o", str(out))
    assert out.read_text().lower().startswith("<!doctype html")
