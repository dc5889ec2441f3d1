import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli, packages, results
from dbbench.commands.doctor import Probe, of_plan, put_rows
from dbbench.commands.options import Options
from dbbench.commands.report import put_verdict
from dbbench.commands.resuming import resumable
from dbbench.errors import (
    DiskTooSmall,
    FilesystemFull,
    ImportRefused,
    KernelLacks,
    NotRoot,
    ProgramMissing,
    RunLocked,
    RunNameTaken,
)
from dbbench.model import Fault, Settings, Status, TrialWarning, WearFacts
from dbbench.plan.request import PlanRequest, load_request
from dbbench.report.trial_text import trial_cells
from dbbench.results import LoadedRun
from dbbench.results.fileio import try_lock
from dbbench.results.journal import Journal, tag_of
from dbbench.results.merging import keep_scripts
from dbbench.run import preflight, worker
from dbbench.run.create import (
    choose,
    create,
    free_name,
    is_complete,
    must_be_of,
    scripts_of,
    set_killed_aside,
)
from dbbench.storage import layers
from tests.support.files import write_file
from tests.support.plans import plan
from tests.support.runs import changed, small_run
from tests.support.terminal import WideStream
from tests.support.trials import trial_of

PLAN = (
    'name = "x"\nfs_setups = ["ext4", "xfs"]\nblocks = 1\n[engine]\nname = "postgres"\n'
    '[workload]\nname = "scan"\n'
)
INSERTS = {"name": "sysbench-oltp-insert", "tables": 1, "table_size": 1000}
OWN = (
    'title = "x"\ndriver = "pgbench"\nengines = ["postgres"]\nscript = "own.sql"\n'
    'dataset = { kind = "pgbench", scale = 1 }\n'
)


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    """A results folder with a run `demo` of three filesystems, three workloads and three blocks."""
    synthetic.write(tmp_path / "results", Shape())
    return tmp_path / "results"


def plan_asked(tmp_path: Path, text: str = PLAN) -> PlanRequest:
    """A plan as `run` reads it."""
    path = write_file(tmp_path / "plan.toml", text)
    return load_request(str(path), [])


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
    assert "postgres pgbench-tpcb: throughput, tx/s (higher is better)" in text
    assert "postgres scan: duration, s (lower is better)" in text
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
    """Blocks of a second run come after those of the first: pairs add up, none is made across runs."""
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
def test_wrong_names_are_told(told: Any, argv: tuple[str, ...], text: str) -> None:
    """An unknown name exits with 2 and suggests similar ones."""
    assert text in told(*argv, code=2)


def test_show_has_one_row_a_run(told: Any, results_folder: Path) -> None:
    """Finished, unfinished and damaged runs are all listed; a damaged one does not hide the others."""
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


def test_evidence_keeps_its_lines(told: Any, results_folder: Path) -> None:
    """Those of an error that `show` wraps for the terminal are not joined."""
    text = "/dev/sdb is in use:\n  mounted at /srv\n  opened by mariadbd and two other programs"
    folder = results.create_run(results_folder, run := small_run(), "")
    trial = trial_of(run, status=Status.FAILED, error=Fault("E104", "canary", text))
    results.Draft(folder, trial.id).publish(trial, None, [], None)
    with WideStream(80) as stdout, contextlib.redirect_stdout(stdout):
        told("show", run.name, trial.id)
        assert f"  error E104 in canary: {text}\n" in stdout.getvalue()


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


def test_report_writes_one_file(told: Any, results_folder: Path, tmp_path: Path) -> None:
    """The page is written to the given file, by default into the run's folder."""
    assert told("report", "demo").strip() == str(results_folder / "demo/report.html")
    out = tmp_path / "page.html"
    told("report", "demo", "-o", str(out))
    assert out.read_text().lower().startswith("<!doctype html")


def test_clean_removes_what_is_ours_and_no_result(told: Any, results_folder: Path) -> None:
    """Images of the journal and cut-off trials go; finished trials and other files stay."""
    run = results_folder / "demo"
    image = run / f".dbbench-demo-{tag_of(run)}.img"
    other = run / "other.img"
    partial = run / "trials/.partial-x"
    for path in (image, other):
        path.write_bytes(b"x" * 8192)
    partial.mkdir()
    Journal(run / "journal.jsonl").note("take", what="image", path=str(image))
    before = sorted(path.name for path in (run / "trials").iterdir() if path != partial)
    assert f"would remove image {image}" in told("clean", "--dry-run")
    assert image.exists()
    gone = json.loads(told("clean", "demo", "--json"))["removed"]
    assert {(left["what"], left["path"]) for left in gone} == {
        ("image", str(image)),
        ("unfinished trial", str(partial)),
    }
    assert not image.exists() and not partial.exists() and other.exists()
    assert before == sorted(path.name for path in (run / "trials").iterdir())
    assert told("clean").strip() == "nothing to remove"


def test_clean_says_removed_only_of_what_it_removed(
    told: Any, results_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not of an image that another process holds, that lies behind a link, or that no longer
    exists.
    """
    run = results_folder / "demo"
    journal = Journal(run / "journal.jsonl")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    held, behind, gone = (
        folder / f".dbbench-{name}-{journal.tag}.img"
        for folder, name in ((run, "held"), (tmp_path / "link", "behind"), (run, "gone"))
    )
    for image in (held, behind, gone):
        image.touch()
        journal.note("take", what="image", path=str(image))
    gone.unlink()
    with held.open() as file:
        assert try_lock(file.fileno())
        assert cli.run(["clean", "--results", str(results_folder)]) == 0
        out, err = capsys.readouterr()
    assert out.strip() == "nothing to remove"
    assert f"not removed: image {held}" in err and f"not removed: image {behind}" in err
    assert held.exists() and behind.exists() and str(gone) not in err
    assert json.loads(told("clean", "--json"))["removed"][0]["path"] == str(held)


def test_clean_does_not_claim_what_a_reboot_has_ended(
    told: Any, results_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two layers in the journal one still exists: only that one is listed as removed."""
    journal = Journal(results_folder / "demo/journal.jsonl")
    ended, existing = (f"md:dbbench-{journal.tag}{number}" for number in (1, 2))
    for path in (ended, existing):
        journal.note("take", what="layer", path=path)
    monkeypatch.setitem(layers.KINDS, "md", SimpleNamespace(end=lambda name: name.endswith("2")))
    assert told("clean").splitlines() == [f"removed layer {existing} (0 B)"]
    assert journal.outstanding("layer") == []


def test_clean_leaves_a_run_alone_that_is_worked_on(told: Any, results_folder: Path) -> None:
    """A locked run is skipped; if it is named in the command, the command is refused."""
    with results.lock(results_folder / "demo"):
        assert told("clean").strip() == "nothing to remove"
        assert "E803" in told("clean", "demo", code=5)


def test_golden_copies_go_only_when_asked(
    told: Any, tmp_path: Path, environ: dict[str, str]
) -> None:
    """They cost time to make: --golden is needed, and what is no golden copy stays."""
    cache = tmp_path / "cache"
    environ["DBBENCH_CACHE"] = str(cache)
    write_file(cache / "postgres-1/manifest.json", "{}")
    (cache / "precious").mkdir()
    told("clean")
    assert (cache / "postgres-1").exists()
    assert "removed golden copy" in told("clean", "--golden")
    assert not (cache / "postgres-1").exists() and (cache / "precious").exists()


def with_hash(results_folder: Path, name: str, sha256: str) -> Path:
    """Give a run of the folder the hash of a plan."""
    run = results.load_spec(results_folder / name)
    results.save_spec(results_folder / name, dataclasses.replace(run, plan_sha256=sha256))
    return results_folder / name


def path_of(folder: results.RunFolder | None) -> Path | None:
    """Return the path of the chosen run."""
    return None if folder is None else folder.path


def test_the_unfinished_run_of_the_same_plan_goes_on(results_folder: Path, tmp_path: Path) -> None:
    """Unfinished before finished; another plan's run is none; --new makes another."""
    wanted = plan_asked(tmp_path)
    assert choose(results_folder, wanted, new=False, name=None) is None
    done = with_hash(results_folder, "demo", wanted.sha256)
    assert path_of(choose(results_folder, wanted, new=False, name=None)) == done
    synthetic.write(results_folder, Shape(name="half", work=TPCB, missing=2))
    half = with_hash(results_folder, "half", wanted.sha256)
    assert path_of(choose(results_folder, wanted, new=False, name=None)) == half
    assert choose(results_folder, wanted, new=True, name=None) is None


def test_an_unfinished_run_of_other_cells_is_not_resumed(
    results_folder: Path, tmp_path: Path, printed: Any
) -> None:
    """It names the hash of the plan, but its cells are not those of the plan: E803, before anything
    is checked.
    """
    wanted = plan_asked(tmp_path)
    synthetic.write(results_folder, Shape(name="half", work=TPCB, missing=2))
    before = with_hash(results_folder, "half", wanted.sha256).joinpath("run.json").read_bytes()
    err = printed("run", str(tmp_path / "plan.toml"), "--results", str(results_folder), code=5)
    assert "E803" in err and "plan.workload[0].name" in err
    assert (results_folder / "half/run.json").read_bytes() == before


@pytest.mark.starts_processes
def test_a_run_is_that_of_its_plan(tmp_path: Path) -> None:
    """What `create` makes matches, with the script as it was then; each change of plan, cells or
    scripts is named.
    """
    write_file(tmp_path / "workloads/own.toml", OWN)
    script = write_file(tmp_path / "workloads/own.sql", "SELECT 1;\n")
    path = write_file(tmp_path / "plan.toml", PLAN.replace('"scan"', '"own"'))
    wanted = load_request(str(path), [str(tmp_path)])
    folder = create(tmp_path / "results", wanted, "r", "1")
    keep_scripts(folder, scripts_of(wanted))
    script.write_text("SELECT 2;\n")
    with pytest.raises(ImportRefused):
        keep_scripts(folder, scripts_of(wanted))
    assert (folder / "scripts/own.sql").read_text() == "SELECT 1;\n"
    script.write_text("SELECT 1;\n")
    must_be_of(results.RunFolder(folder), wanted)
    run = results.load_spec(folder)
    worker.must_be(run, wanted.sha256)

    for key, value in (
        ("plan.device.at", "/etc"),
        ("cells[0].engine.bins", ("/tmp/evil",)),
        ("cells[0].engine.settings.archive_command", "id"),
        ("cells[0].workload.script", str(script)),
    ):
        results.save_spec(folder, evil := changed(run, key, value))
        with pytest.raises(RunLocked, match=re.escape(key)):
            must_be_of(results.RunFolder(folder), wanted)
        if key != "cells[0].workload.script":  # the same content: a trial runs a copy of it
            with pytest.raises(RunLocked):
                worker.must_be(evil, wanted.sha256)
    results.save_spec(folder, run)
    (folder / "scripts/own.sql").write_text("\\! id\n")
    with pytest.raises(RunLocked, match=r"keys that differ: scripts/own\.sql"):
        must_be_of(results.RunFolder(folder), wanted)
    with pytest.raises(RunLocked):
        worker.must_be(run, wanted.sha256)


def test_a_name_belongs_to_one_plan(results_folder: Path, tmp_path: Path) -> None:
    """A fixed name resumes its own plan and refuses another; nothing is overwritten."""
    wanted = plan_asked(tmp_path)
    with pytest.raises(RunNameTaken, match="belongs to another plan"):
        choose(results_folder, wanted, new=False, name="demo")
    folder = with_hash(results_folder, "demo", wanted.sha256)
    assert path_of(choose(results_folder, wanted, new=False, name="demo")) == folder
    assert choose(results_folder, wanted, new=False, name="fresh") is None
    for bad in ("a/b", "..", ".hidden"):
        with pytest.raises(RunNameTaken, match="invalid name of a run"):
            choose(results_folder, wanted, new=False, name=bad)


def test_names_are_plan_date_and_letter(tmp_path: Path) -> None:
    """The first letter that is free; after z comes aa."""
    for letter in ["a", *"bcdefghijklmnopqrstuvwxyz", "aa"]:
        name = free_name(tmp_path, "p", "2026-11-21")
        assert name == f"p-2026-11-21-{letter}"
        (tmp_path / name).mkdir()


def test_a_finished_run_is_not_driven_again(
    results_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so on stderr, prints its verdict and page, and exits with 0; nothing is checked: no
    machine has the CPU of this plan.
    """
    wanted = plan_asked(tmp_path, PLAN.replace("[workload]", 'cpus_server = "900"\n[workload]'))
    with_hash(results_folder, "demo", wanted.sha256)
    assert cli.run(["run", str(tmp_path / "plan.toml"), "--results", str(results_folder)]) == 0
    out, err = capsys.readouterr()
    assert "is already finished; --new starts another" in err
    assert "throughput, tx/s" in out and str(results_folder / "demo/report.html") in out


@pytest.mark.parametrize(("error", "again"), [("E601", False), ("E348", True)])
def test_a_finished_run_with_a_failed_trial_exits_with_1_again(
    error: str, again: bool, tmp_path: Path
) -> None:
    """A trial whose process died (E348) is run again instead; no other one is."""
    folder = results.create_run(tmp_path, run := small_run(), "")
    trial = trial_of(run, status=Status.FAILED, error=Fault(error, "measure", "it failed"))
    for each in (trial, *(trial_of(run, index) for index in range(1, len(run.order)))):
        results.Draft(folder, each.id).publish(each, None, [], None)
    assert put_verdict(Options(), [results.load_run(folder)], folder / "report.html", {}) == 1
    assert is_complete(results.RunFolder(folder)) is not again
    assert set_killed_aside(results.RunFolder(folder)) == ([trial.id] if again else [])
    assert bool(results.load_run(folder).remaining) is again


@dataclasses.dataclass
class Machine:
    """What the checks find: everything and much space; tests take a thing away."""

    missing: list[str] = dataclasses.field(default_factory=list)
    does_not_work: dict[str, str] = dataclasses.field(default_factory=dict)  # setup: why
    free_bytes: int = 10**12
    memory_bytes: int = 8 * 2**30
    user: int = 0
    open_files: int = 20_000
    wear: WearFacts | None = None
    # settings that its servers do not have
    unknown: set[str] = dataclasses.field(default_factory=set)

    def refuse(self, settings: Settings) -> str:
        """What a server prints about settings that it does not have."""
        return "".join(
            f"no such setting: {name}" for name in sorted(self.unknown & settings.keys())
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine that preflight looks at."""
    found = Machine()
    for name, answer in (
        ("dbbench.run.preflight.missing_programs", lambda _expanded: found.missing),
        ("dbbench.storage.filesystems.missing_programs", lambda _setup: ()),
        ("dbbench.storage.filesystems.works", lambda setup: found.does_not_work.get(setup.name)),
        ("dbbench.run.disk_space.golden_bytes", lambda _expanded: 10**9),
        ("dbbench.engines.postgres.installed_version", lambda _bin=None: "15.18"),
        ("dbbench.engines.mariadb.ENGINE.installed_version", lambda _bin=None: "10.11.19"),
        ("dbbench.engines.postgres.refusal", lambda settings, _bin=None: found.refuse(settings)),
        (
            "dbbench.engines.mariadb.ENGINE.refusal",
            lambda settings, _bin=None: found.refuse(settings),
        ),
        ("dbbench.run.preflight.most_files", lambda: found.open_files),
        ("dbbench.run.disk_space.free_bytes", lambda _path: found.free_bytes),
        ("dbbench.machine.limits.cgroup.usable_bytes", lambda: found.memory_bytes),
        ("dbbench.storage.devices.smart.wear", lambda _disks: found.wear),
        ("os.geteuid", lambda: found.user),
    ):
        monkeypatch.setattr(name, answer)
    return found


def lacks(tmp_path: Path, text: str = PLAN) -> list[type[Exception]]:
    """The kinds of what is lacking for a plan."""
    wanted = plan_asked(tmp_path, text)
    return [
        type(error)
        for error in preflight.lacking(wanted.plan, wanted.expanded, tmp_path / "results")
    ]


@pytest.mark.usefixtures("machine")
def test_nothing_is_lacking_where_all_is_there(tmp_path: Path) -> None:
    """And the check makes no folder."""
    assert lacks(tmp_path) == []
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("fs", "device", "settings", "fits"),
    [
        ("f2fs", {"size": "400MiB"}, {}, False),
        ("f2fs", {"size": "2GiB"}, {}, True),
        ("btrfs-zstd", {"size": "400MiB"}, {}, True),  # compressed zeros take no space
        ("ext4", {"size": "400MiB"}, {"innodb_log_file_size": 2**26}, True),
        ("xfs", {"size": "2GiB", "wal": {"fs_setup": "ext4", "size": "400MiB"}}, {}, False),
        ("xfs", {"size": "2GiB", "wal": {"fs_setup": "ext4", "size": "1GiB"}}, {}, True),
    ],
)
def test_a_log_that_does_not_fit_is_told_before(
    fs: str, device: dict[str, Any], settings: dict[str, Any], fits: bool, tmp_path: Path
) -> None:
    """MariaDB allocates all of it when it starts, and waits for ever for space. It lies on
    [device.wal] if there is one.
    """
    text = plan(fs, {"name": "mariadb", "settings": settings}, INSERTS, device=device)
    assert lacks(tmp_path, text) == ([] if fits else [DiskTooSmall])


def test_missing_programs_are_told_together_with_their_packages(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error names all programs, and the one command that brings them."""
    # on no machine is a part of those packages there
    monkeypatch.setattr(packages, "find", lambda _name: None)
    machine.missing = ["sysbench", "/usr/lib/sysstat/sadc"]
    wanted = plan_asked(tmp_path)
    with pytest.raises(ProgramMissing) as caught:
        preflight.check(wanted.plan, wanted.expanded, tmp_path)
    assert caught.value.evidence == "not installed: sysbench, /usr/lib/sysstat/sadc"
    assert caught.value.remedy == "apt-get install --no-install-recommends sysbench sysstat"


def test_all_that_is_lacking_is_told_at_once(machine: Machine, tmp_path: Path) -> None:
    """The first gives ID and exit code, the others stand below it."""
    machine.user = 1000
    machine.free_bytes = 10**6
    machine.does_not_work = {"xfs": "no module"}
    assert lacks(tmp_path) == [KernelLacks, NotRoot, DiskTooSmall]
    wanted = plan_asked(tmp_path)
    with pytest.raises(KernelLacks) as caught:
        preflight.check(wanted.plan, wanted.expanded, tmp_path)
    assert "also E202" in caught.value.evidence and "also E203" in caught.value.evidence


@pytest.mark.usefixtures("machine")
def test_a_cache_that_cannot_be_written_is_told_before(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of an account whose home directory does not exist; only copies that are still to be
    built need it.
    """
    environ["DBBENCH_CACHE"] = "/proc/none/golden"
    wanted = plan_asked(tmp_path)
    (error,) = preflight.lacking(wanted.plan, wanted.expanded, tmp_path)
    assert error.evidence.startswith(
        "/proc/none/golden cannot be created: /proc is on a filesystem of the kernel"
    )
    assert error.remedy == "Name another folder with the environment variable DBBENCH_CACHE."
    monkeypatch.setattr("dbbench.run.disk_space.golden_bytes", lambda _expanded: 0)
    assert lacks(tmp_path) == []


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("memory", "cache", "expected"),
    [
        ("", "1GB", []),
        ("", "64GB", ["the cache of postgres has 64 GiB, but 8 GiB is the most"]),
        ('memory = "4GiB"', "1GB", []),
        ('memory = "4GiB"', "5GB", ["has 5 GiB, but 4 GiB is the most"]),
        (
            'memory = ["4GiB", "16GiB"]',
            "1GB",
            ["memory = 16 GiB, but only 8 GiB is available here"],
        ),
    ],
)
def test_memory_that_is_not_there(
    memory: str, cache: str, expected: list[str], tmp_path: Path
) -> None:
    """A limit above the machine's memory limits nothing, and a server with a larger cache would be
    killed.
    """
    text = f"{memory}\n" + PLAN.replace(
        "[workload]", f'settings = {{ shared_buffers = "{cache}" }}\n[workload]'
    )
    wanted = plan_asked(tmp_path, text)
    found = preflight.refusals(wanted, tmp_path / "results")
    assert [error.id for error in found] == ["E213"] * len(expected)
    assert all(part in error.evidence for part, error in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("engine", "settings", "hard", "expected"),
    [
        ("mariadb", "", 20_000, []),
        ("mariadb", "", 4332, []),
        ("mariadb", "", 4331, ["opens up to 4332 files"]),
        ("mariadb", "table_open_cache = 200, max_connections = 100", 1024, []),
        (
            "mariadb",
            "open_files_limit = 30000",
            20_000,
            ["and open_files_limit = 30000 opens up to 30000 files"],
        ),
        ("postgres", "", 256, []),
        ("postgres", "", 32, ["the load generator of pgbench-tpcb opens up to"]),
    ],
)
def test_a_limit_of_open_files_that_is_too_low(
    machine: Machine, engine: str, settings: str, hard: int, expected: list[str], tmp_path: Path
) -> None:
    """MariaDB would reduce its caches; the error names the limit and the command that raises it."""
    machine.open_files = hard
    workload = "sysbench-oltp-insert" if engine == "mariadb" else "pgbench-tpcb"
    text = PLAN.replace('"postgres"', f'"{engine}"').replace('"scan"', f'"{workload}"')
    wanted = plan_asked(
        tmp_path, text.replace("[workload]", f"settings = {{ {settings} }}\n[workload]")
    )
    found = preflight.refusals(wanted, tmp_path / "results")
    assert [error.id for error in found] == ["E213"] * len(expected)
    for part, error in zip(expected, found, strict=True):
        assert part in error.evidence and f"the hard limit is {hard} (ulimit -Hn)" in error.evidence
        assert "ulimit -Hn" in (error.remedy or "")


def test_a_misspelled_setting_is_refused_before_the_first_trial(
    machine: Machine, tmp_path: Path
) -> None:
    """Once, with the server's words and the setting that was probably meant."""
    machine.unknown = {"shared_bufers"}
    chosen = 'settings = { shared_bufers = "1GB", work_mem = ["4MB", "8MB"] }\n[workload]'
    wanted = plan_asked(tmp_path, PLAN.replace("[workload]", chosen))
    assert [
        (error.id, error.evidence.partition(" ")[2])
        for error in preflight.refusals(wanted, tmp_path)
    ] == [
        (
            "E001",
            "15.18 refuses shared_bufers = 1GB, set by the plan: no such setting: shared_bufers; "
            'did you mean "shared_buffers"?',
        )
    ]
    machine.unknown = {"work_mem", "hash_mem_multiplier"}
    assert not any(
        "refuses" in error.evidence for error in preflight.refusals(plan_asked(tmp_path), tmp_path)
    )


def test_plan_and_doctor_say_all_that_a_run_would_be_refused_for(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cores, memory, each device: `plan` says so first and fails. Arms that are skipped are not
    counted.
    """
    machine.does_not_work = {"xfs": "mkfs.xfs not installed; no xfs"}
    device = f'[device]\nkind = "block"\npaths = ["{tmp_path}/a", "{tmp_path}/b"]\n'
    prealloc = (
        '{ use = "ext4", label = "prealloc", tuning.mysql = { innodb_extend_and_initialize = '
        "false } }"
    )
    text = PLAN.replace('"xfs"]', f'"xfs", {prealloc}]')
    text = text.replace("[engine]", f'memory = "16GiB"\n{device}[engine]\ncpus_server = "900"')
    path = write_file(tmp_path / "plan.toml", text)
    assert cli.run(["plan", str(path), "--results", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert (
        said.startswith("`dbbench run` would refuse this plan")
        and "1 setup, 1 cell, 1 block, 1 trial" in said
    )
    assert [
        part
        for part in (
            "prealloc: with postgres it is the same as ext4",
            "xfs: mkfs.xfs not installed; no xfs",
            "E213",
            "E213",
            f"{tmp_path}/a is missing",
            f"{tmp_path}/b is missing",
        )
        if part not in said
    ] == []
    assert cli.run(["plan", str(path), "--results", str(tmp_path), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in document["refused"]] == ["E213", "E213", "E101", "E101"]
    assert set(document["skipped"]) == {"prealloc", "xfs"}
    rows = list(of_plan(str(path), [], tmp_path))
    # with E206: what could be installed
    assert [row.optional for row in rows] == [True] + [False] * 5


def test_doctor_fits_the_terminal() -> None:
    """What has no space next to its check is below it, indented; a wider terminal and a pipe have
    it on one line.
    """
    row = Probe(
        "measure",
        "space for golden copies",
        False,
        "0.2 GiB free at /home/someone/.cache/dbbench/golden",
        "8 GiB",
        "free some space, or use --results DIR and DBBENCH_CACHE",
    )
    for columns, lines in ((80, 4), (160, 3)):
        with WideStream(columns) as stdout, contextlib.redirect_stdout(stdout):
            put_rows([row])
            printed = stdout.getvalue().splitlines()
        assert max(map(len, printed)) <= columns and len(printed) == lines
        assert " ".join("".join(printed).split()).endswith("use --results DIR and DBBENCH_CACHE")
    fix = (
        "Release it (umount, swapoff, losetup -d, remove the line in fstab), or choose another "
        "device."
    )
    row = Probe(
        "this plan",
        "plan.toml: a device is in use",
        False,
        "/dev/sdb is in use:\n  opened by mariadbd",
        "this plan",
        fix,
    )
    with WideStream(80) as stdout, contextlib.redirect_stdout(stdout):
        put_rows([row._replace(purpose="measure"), row._replace(found=None, needed="")])
        printed = [line.strip() for line in stdout.getvalue().splitlines()]
    assert {"/dev/sdb is in use:", "opened by mariadbd; needed: this plan"} <= {
        *printed
    } and printed.count("") == 1


def test_plan_prints_the_share_of_the_rated_endurance(
    machine: Machine, tmp_path: Path, printed: Any
) -> None:
    """Of the disk below the image: 30 TB were 3 % of its life."""
    machine.wear = WearFacts(30 * 10**12, 0.03, None)
    path = write_file(tmp_path / "plan.toml", PLAN)
    command = "plan", str(path), "--results", str(tmp_path)
    assert "of the disk's rated endurance" in " ".join(printed(*command, code=None).split())
    document = json.loads(printed(*command, "--json", code=None))
    (device,) = document["devices"]
    assert device["written_bytes"] == document["written_bytes"]
    assert device["endurance_share"] == pytest.approx(document["written_bytes"] / 10**15)


def test_space_is_added_up_by_disk(
    machine: Machine, tmp_path: Path, environ: dict[str, str]
) -> None:
    """Image, golden copies and results on one disk must fit together: 8 GiB + 1 GB here. A dataset
    that is larger than its device is an error before it is built.
    """
    environ["DBBENCH_CACHE"] = str(tmp_path / "cache")
    for machine.free_bytes, expected in ((9_000_000_000, [DiskTooSmall]), (10_500_000_000, [])):
        assert lacks(tmp_path) == expected
    text = (
        PLAN.replace("[engine]", '[device]\nsize = "400MiB"\n[engine]') + 'table_bytes = "1GiB"\n'
    )
    assert lacks(tmp_path, text) == [DiskTooSmall]


def test_directories_need_space_but_not_root(machine: Machine, tmp_path: Path) -> None:
    """Neither root nor mkfs is asked for; the directory is looked at. It needs space for the
    dataset, with InnoDB's redo log of 512 MiB, of one trial at a time; here with the copy.
    """
    machine.user = 1000
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    device = {"kind": "dir", "paths": {"ext4": f"{tmp_path}/a", "xfs": f"{tmp_path}/b"}}
    text = plan(["ext4", "xfs"], "mariadb", INSERTS, device=device)
    for machine.free_bytes, lacking in ((600 * 10**6, [DiskTooSmall]), (1900 * 10**6, [])):
        assert lacks(tmp_path, text) == lacking
    assert [kind.id for kind in lacks(tmp_path, text.replace(f"{tmp_path}/b", "/usr"))] == ["E101"]


def test_a_full_results_disk_names_the_command_that_resumes() -> None:
    """The error has the remedy of this command line."""
    with pytest.raises(FilesystemFull) as full, resumable("dbbench run p"):
        raise FilesystemFull("no space left")
    assert (
        full.value.remedy
        == "Free some disk space or correct the cause, then resume with:  dbbench run p"
    )
