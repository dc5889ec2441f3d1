"""`dbbench init`: the plans, units and lines that it writes, and what it refuses."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli
from dbbench.plan.proposal import fitting_gib


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "engines", [("postgres",), ("mariadb",), ("mysql",), ("postgres", "mariadb", "mysql")]
)
def test_what_init_writes_is_a_good_plan(
    tmp_path: Path,
    printed: Any,
    engines: tuple[str, ...],
) -> None:
    """The plan can be expanded as it is, is commented, and `plan` does not object to its warm-up."""
    path = tmp_path / "my plan.toml"
    argv = [word for engine in engines for word in ("--engine", engine)]
    printed("init", *argv, "-o", str(path))
    document = json.loads(printed("plan", str(path), "--json", code=None))
    assert {trial["engine"] for trial in document["trials"]} == set(engines)
    assert "btrfs" in {
        trial["fs_setup"] for trial in document["trials"]
    } and "W001" not in json.dumps(document)
    assert path.read_text().count("#") > 15


@pytest.mark.starts_processes
def test_init_for_directories_writes_six_lines(here: Path, printed: Any) -> None:
    """Besides comments; the labels are the parts of the paths that differ. `plan` finds plan.toml
    by itself.
    """
    for name in ("a", "b"):
        (here / name / "pg").mkdir(parents=True)
    printed("init", "--dirs", "a/pg,b/pg", "--engine", "postgres", "--budget", "1h")
    lines = [
        line for line in Path("plan.toml").read_text().splitlines() if not line.startswith("#")
    ]
    assert len(lines) == 6 and 'budget = "1h"' in lines[-1]
    document = json.loads(printed("plan", "--json", code=None))
    assert document["plan"]["device"]["paths"] == {
        name: str(here / name / "pg") for name in ("a", "b")
    }


@pytest.mark.starts_processes
@pytest.mark.starts_processes
def test_init_says_at_once_what_is_wrong_with_directories(printed: Any, here: Path) -> None:
    """A plan that compares nothing is written, with a sentence."""
    (here / "a").mkdir()
    (here / "b").mkdir()
    single = ["init", "--engine", "postgres", "--dirs", "a", "-o", "one.toml"]
    said = " ".join(printed(*single).split())
    assert f"{here / 'a'} is the only directory, so nothing is compared." in said
    both = ["init", "--engine", "postgres", "--dirs", "a,b", "-o", "two.toml", "--json"]
    notes = json.loads(printed(*both))["notes"]
    assert f"{here / 'a'} and {here / 'b'} are on the same filesystem" in notes[0]


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("engines", "budget"),
    [(["postgres"], "30min"), (["postgres", "mariadb"], "60min")],
)
def test_directories_get_the_time_that_their_trials_need(
    engines: list[str],
    budget: str,
    here: Path,
    printed: Any,
) -> None:
    """With two servers installed, half an hour is not enough for three blocks (E001)."""
    (here / "a").mkdir()
    (here / "b").mkdir()
    argv = [word for engine in engines for word in ("--engine", engine)]
    printed("init", "--dirs", "a,b", *argv)
    assert f'budget = "{budget}"' in Path("plan.toml").read_text()
    document = json.loads(printed("plan", "--json", code=None))
    assert {trial["engine"] for trial in document["trials"]} == set(engines)


@pytest.mark.starts_processes
def test_init_takes_mount_options(printed: Any, here: Path) -> None:
    """As `--fs` of a run does: a word after options is another option. A plan that is there stays
    as it is.
    """
    command = ["init", "--engine", "postgres", "--fs", "ext4,ext4:commit=60,data=writeback,xfs"]
    printed(*command)
    document = json.loads(printed("plan", "--json", code=None))
    labels = {trial["fs_setup"] for trial in document["trials"]}
    assert labels == {"ext4", "ext4:commit=60+data=writeback", "xfs"}
    Path("plan.toml").write_text("mine")
    assert "E804" in printed(*command, code=2) and Path("plan.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("argv", "identifier", "text"),
    [
        (["--dirs", "missing"], "E101", "does not exist"),
        (["--dirs", "full"], "E101", "full/dbbench"),
        (["--dirs", "/etc"], "E101", "belongs to the operating system"),
        (["--dirs", "empty,empty"], "E001", "listed twice"),
        (["--fs", "xsf"], "E002", 'did you mean "xfs"?'),
        (["--fs", "btrfs-nodatacow:compress=lzo"], "E001", "exclude each other"),
        (["--workload", "pgbench-tpbc"], "E002", 'did you mean "pgbench-tpcb"?'),
        (["--budget", "soon"], "", "soon"),
        (["--dirs", "empty", "--fs", "ext4"], "", "--dirs cannot be combined"),
    ],
)
def test_init_refuses_bad_answers(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    here: Path,
    argv: list[str],
    identifier: str,
    text: str,
) -> None:
    """With the reason, and without writing a plan."""
    (tmp_path / "full/precious").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    assert cli.run(["init", "--engine", "postgres", *argv]) in (2, 5)
    error = capsys.readouterr().err
    assert identifier in error and text in error
    assert not Path("plan.toml").exists()


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("answer", "loads"), [("", ["pgbench-tpcb"]), ("scan, tpcc", ["scan", "tpcc"])]
)
def test_init_asks_on_a_terminal(
    answer: str,
    loads: list[str],
    tmp_path: Path,
) -> None:
    """Five questions, of which a wrong answer is asked again; in a pipe it asks nothing."""
    terminal, side = pty.openpty()
    command = [sys.executable, "-m", "dbbench", "init"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=side,
        stdout=side,
        stderr=side,
        env=environment,
    ) as process:
        os.write(terminal, f"/etc\n/dev/sdx\next4,xfs\npostgre\npostgres\n{answer}\n2h\n".encode())
        assert process.wait(timeout=120) == 0
    text = (tmp_path / "plan.toml").read_text()
    assert 'path = "/dev/sdx"' in text and '["ext4", "xfs"]' in text and 'budget = "2h"' in text
    assert 'engine = [{ name = "postgres" }]' in text
    assert re.findall(r'^name = "(.*)"', text, re.MULTILINE)[1:] == loads
    output = os.read(terminal, 65536).decode()
    os.close(terminal)
    os.close(side)
    assert (
        output.count("]: ") == 7
        and "postgre is not one of" in output
        and "operating system" in output
    )
    silent = subprocess.run(
        [*command, "-o", "other.toml"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=120,
        check=True,
        env=environment,
    )
    assert silent.stdout.startswith("Wrote other.toml")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_missing_plan_names_the_command_that_writes_one(
    printed: Any,
    here: Path,
    command: str,
) -> None:
    """Also without an argument."""
    assert (
        "plan.toml does not exist" in (error := printed(command, code=2))
        and "dbbench init" in error
    )


@pytest.mark.starts_processes
@pytest.mark.parametrize("name", ["demo", "tiny", "power-loss-mysql"])
def test_init_writes_the_example_plans(
    tmp_path: Path,
    printed: Any,
    name: str,
) -> None:
    """They are part of the program, and can be expanded as they are."""
    path = tmp_path / "plan.toml"
    printed("init", "--example", name, "-o", str(path))
    assert json.loads(printed("plan", str(path), "--json", code=None))["trials"]


@pytest.mark.parametrize(
    ("folder", "start"),
    [
        ("bin", "{}/bin/dbbench "),
        ("a 100%", '"{}/a 100%%/dbbench" '),
        # systemd executes no file whose name has quotes or backslashes
        ("a\"b'$c\\d", '/usr/bin/env "{}/a\\"b\\\'$$c\\\\d/dbbench" '),
    ],
)
def test_init_writes_the_units_of_this_program(
    tmp_path: Path,
    printed: Any,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    start: str,
) -> None:
    """With the path that it was started by, in quotes where systemd needs them, into a new folder;
    files that are there stay as they are.
    """
    program = tmp_path / folder / "dbbench"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    paths = [
        Path(path)
        for path in json.loads(printed("init", "--units", str(tmp_path / "new/units"), "--json"))[
            "paths"
        ]
    ]
    assert sorted({path.suffix for path in paths}) == [".service", ".timer"]
    started = [
        line
        for path in paths
        for line in path.read_text().splitlines()
        if line.startswith("ExecStart=")
    ]
    assert len(started) == 2 and all(
        line.startswith(f"ExecStart={start.format(tmp_path)}nightly ") for line in started
    )
    assert cli.run(["init", "--units", str(tmp_path / "new/units")]) == 2


@pytest.mark.parametrize("folder", ["a\nExecStartPre=x", "a\tb", "a\udcff"])
def test_a_program_with_a_line_feed_has_no_unit(
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of its name would be a line of the unit; nor one whose name is not UTF-8."""
    program = tmp_path / folder / "dbbench"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    assert cli.run(["init", "--units", str(tmp_path / "units")]) == 2
    assert not (tmp_path / "units").exists()


@pytest.mark.parametrize(
    ("free_gib", "engines", "expected"),
    [
        (100, ["postgres"], 8),
        (9, ["postgres"], 6),
        (5, ["postgres"], 4),
        (8, ["postgres", "mariadb"], 6),
    ],
)
def test_the_image_fits_on_a_small_disk(free_gib: int, engines: list[str], expected: int) -> None:
    """With golden copies and results beside it; not below what data and redo log take."""
    assert fitting_gib(free_gib * 2**30, engines) == expected
