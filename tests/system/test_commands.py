import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.storage.devices.port import Device
from tests.support.plans import plan
from tests.system.conftest import HANGS_S

SERVER: Final = {
    "name": "postgres",
    "settings": {"shared_buffers": "32MB", "max_wal_size": "200MB"},
}


def small(engine: dict[str, Any] = SERVER, **keys: Any) -> str:
    """A plan of two short trials."""
    load = {"name": "pgbench-tpcb", "scale": 1, "clients": 1}
    return plan(["ext4", "xfs"], engine, load, **{"device": {"size": "600MiB"}, **keys})


HEAVY: Final = (
    "pydantic",
    "rich",
    "numpy",
    "scipy",
    "plotly",
    "jinja2",
    "psutil",
    "psycopg2",
    "mysql",
)


def environment(**more: str) -> dict[str, str]:
    """What the command line needs; Python buffers as it does for everybody."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHONUNBUF", "DBBENCH_PATH"))
    }
    return {**kept, **more}


def dbbench(*argv: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "dbbench", *argv]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )


def importing(argv: list[str], folder: Path) -> tuple[str, set[str]]:
    """Return what a command prints, and the modules that it imports."""
    code = (
        f"import sys; from dbbench.cli import run; run({argv}); print(*sorted(sys.modules), "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("command", [(), ("run",), ("plan",)])
def test_help_imports_nothing_heavy(command: tuple[str, ...], tmp_path: Path) -> None:
    """Help is quick because it imports no other command and no library but click."""
    _, modules = importing([*command, "--help"], tmp_path)
    assert "click" in modules
    assert {name for name in modules if name.split(".")[0] in HEAVY} == set()
    commands = {name for name in modules if name.startswith("dbbench.commands.")}
    assert commands <= {
        "dbbench.commands.options",
        *(f"dbbench.commands.{name}" for name in command),
    }


def test_a_plan_of_one_block_imports_no_statistics(tmp_path: Path) -> None:
    """numpy and scipy would take a third of the time of the command, which has nothing to
    compute.
    """
    (tmp_path / "plan.toml").write_text(small())
    printed, modules = importing(["plan", "plan.toml"], tmp_path)
    assert "precision: unknown" in printed
    assert modules & {"numpy", "scipy"} == set()


def test_a_reader_that_has_gone_is_not_a_success(tmp_path: Path) -> None:
    """`dbbench plan P | head -1` says nothing on stderr and ends as the shell's tools do."""
    (tmp_path / "plan.toml").write_text(small(blocks=2000))  # more than a pipe holds
    command = [sys.executable, "-m", "dbbench", "plan", "plan.toml", "--json"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.read(1)
        child.stdout.close()
        assert (child.stderr.read(), child.wait(60)) == (b"", 141)


def test_doctor_names_tools_and_devices(tmp_path: Path) -> None:
    """One row a check with the keys of the contract; each disk with the identity to type."""
    done = dbbench("doctor", "--json", cwd=tmp_path)
    rows = json.loads(done.stdout)["checks"]
    assert done.returncode == 0
    assert all(
        set(row) == {"purpose", "check", "ok", "found", "needed", "fix", "packages", "optional"}
        for row in rows
    )
    checks = {row["check"]: row for row in rows}
    assert {"engine postgres", "sysbench", "mkfs.xfs", "root", "CPU governor", "other load"} <= set(
        checks
    )
    # a disk may be in use
    assert all(row["ok"] or row["fix"] or row["purpose"] == "devices" for row in rows)
    assert {"measure", "power-loss lab", "fleet"} <= {row["purpose"] for row in rows}
    disks = [row for check, row in checks.items() if check.startswith("device /dev/")]
    assert all("identity " in row["found"] for row in disks)


def test_catalogues_say_what_works_here(tmp_path: Path) -> None:
    """`fs` and `workload` have the keys of the contract; what does not work has its reason."""
    setups = json.loads(dbbench("fs", "--json", cwd=tmp_path).stdout)["fs_setups"]
    assert {
        "name",
        "family",
        "layers",
        "devices",
        "works",
        "reason",
        "install",
        "durability_class",
        "cow",
        "compresses",
        "snapshots",
    } == set(setups[0])
    workloads = json.loads(dbbench("workload", "--json", cwd=tmp_path).stdout)["workloads"]
    assert {"name", "driver", "engines", "works", "reason"} <= set(workloads[0])
    assert all(row["works"] == (row["reason"] is None) for row in [*setups, *workloads])
    classes = {row["name"]: row["durability_class"] for row in setups}
    assert (classes["ext4"], classes["ext4-nobarrier"]) == ("full", "no-barrier")


@pytest.mark.needs("mkfs.xfs")
def test_show_prints_file_and_commands(tmp_path: Path) -> None:
    """The catalogue's file as it is, and the commands that a trial would run."""
    text = dbbench("fs", "xfs", cwd=tmp_path).stdout
    assert 'family = "xfs"' in text
    assert "mkfs.xfs" in text and "mount -t xfs -o noatime" in text
    assert 'name = "pgbench-tpcb"' in dbbench("workload", "pgbench-tpcb", cwd=tmp_path).stdout


@pytest.fixture(scope="module")
def driven(
    tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> Iterator[tuple[Path, list[dict[str, Any]], int, str]]:
    """A small run, stopped by Ctrl-C after its first trial: folder, events, exit code, stderr's
    last line.
    """
    folder = tmp_path_factory.mktemp("driven")
    (folder / "plan.toml").write_text(small())
    command = [sys.executable, "-m", "dbbench", "run", "plan.toml", "--progress", "json"]
    events = []
    rest = ""
    stopped = False
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(DBBENCH_CACHE=str(cache)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if not line.startswith("{"):
                rest += line
                continue
            events.append(json.loads(line))
            second = events[-1]["kind"] == "second" and any(
                event["kind"] == "trial_end" for event in events
            )
            if second and not stopped:  # a second signal would kill the trial
                child.send_signal(signal.SIGINT)
                stopped = True
        code = child.wait(60)
    yield folder, events, code, rest


needs_all = pytest.mark.needs(
    "root",
    "mkfs.ext4",
    "mkfs.xfs",
    "fs:ext4",
    "fs:xfs",
    "engine:postgres",
    "sadf",
)


@needs_all
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_continue(driven: Any) -> None:
    """Exit code 130; the first trial is a result, the second is none; nothing stays attached."""
    folder, events, code, rest = driven
    assert code == 130
    assert "Resume it with:  dbbench run plan.toml --progress json" in rest
    assert "stopping cleanly; a second Ctrl-C stops at once" in [
        event["data"].get("text") for event in events
    ]
    run = next((folder / "results").iterdir())
    trials = [path.name for path in (run / "trials").iterdir() if not path.name.startswith(".")]
    assert trials == [event["data"]["id"] for event in events if event["kind"] == "trial_end"]
    assert len(trials) == 1
    images = subprocess.run(
        ["losetup", "--list", "--noheadings", "-O", "BACK-FILE"],
        capture_output=True,
        text=True,
    )
    assert str(folder) not in images.stdout


@needs_all
def test_the_same_command_resumes_then_re_runs_nothing(driven: Any, cache: Path) -> None:
    """The second start drives only what is left; the third drives nothing and exits with 0."""
    folder = driven[0]
    first = next((folder / "results").iterdir())
    kept = next(path for path in (first / "trials").iterdir() if not path.name.startswith("."))
    before = (kept / "trial.json").stat().st_mtime_ns
    done = dbbench(
        "run",
        "plan.toml",
        "--progress",
        "json",
        "--json",
        cwd=folder,
        DBBENCH_CACHE=str(cache),
    )
    document = json.loads(done.stdout)
    assert document["ok"] + document["suspect"] + document["failed"] == 2
    # a disk that stalls for seconds fails a short window
    assert done.returncode == (1 if document["failed"] else 0)
    begun = [
        json.loads(line)["data"]["id"]
        for line in done.stderr.splitlines()
        if '"trial_begin"' in line
    ]
    assert len(begun) == 1 and begun[0] != kept.name
    assert (kept / "trial.json").stat().st_mtime_ns == before
    assert Path(document["report"]).read_text().startswith("<!doctype html")
    again = dbbench("run", "plan.toml", cwd=folder, DBBENCH_CACHE=str(cache))
    assert again.returncode == done.returncode
    assert "already finished" in again.stderr
    assert "postgres pgbench-tpcb (many small writes): throughput" in again.stdout
    assert [path.name for path in (folder / "results").iterdir()] == [first.name]


@needs_all
def test_what_was_driven_is_listed_shown_and_cleaned(driven: Any) -> None:
    """`show` and `clean` agree on one real run; no image is left behind it."""
    folder = driven[0]
    row = json.loads(dbbench("show", "--json", cwd=folder).stdout)["runs"][0]
    shown = json.loads(dbbench("show", row["name"], "--json", cwd=folder).stdout)
    assert (row["state"], row["done"]) == ("finished", len(shown["trials"]))
    assert {trial["fs_setup"] for trial in shown["trials"]} == {"ext4", "xfs"}
    assert dbbench("clean", cwd=folder).stdout.splitlines()[0] == "nothing to remove"
    assert not list((folder / "results").rglob("*.img"))


def refused(folder: Path, text: str, code: int, told: str) -> None:
    """Run the plan of that text: it ends with `code`, prints `told`, and has made no folder."""
    (folder / "plan.toml").write_text(text)
    done = dbbench("run", "plan.toml", cwd=folder, DBBENCH_CACHE=str(folder / "cache"))
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert "Nothing was changed." in done.stderr
    assert sorted(path.name for path in folder.iterdir() if path.name != "image") == ["plan.toml"]


@needs_all
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"engine": {**SERVER, "bin": "/nonexistent"}}, "error E201"),
        ({"device": {"size": "900TiB"}}, "error E203"),
        ({"device": {"kind": "block", "path": "/dev/nonexistent"}}, "error E101"),
    ],
    ids=["program", "size", "device"],
)
def test_what_is_lacking_is_reported_before_anything_is_changed(
    tmp_path: Path,
    keys: dict[str, Any],
    told: str,
) -> None:
    """A missing program, too little disk space or a missing device: nothing was started."""
    refused(tmp_path, small(**keys), 5 if "E101" in told else 2, told)


@needs_all
def test_a_device_with_something_on_it_is_refused(tmp_path: Path, loop_device: Device) -> None:
    """A signature stops the run before its folder is made, and the identity to type is printed."""
    subprocess.run(["mkfs.ext4", "-q", "-F", str(loop_device.path)], check=True)
    text = small(device={"kind": "block", "path": str(loop_device.path)})
    refused(tmp_path, text, 5, "error E10")
