import os
from pathlib import Path

import pytest

from dbbench.errors import FileUnreadable, PlanInvalid, UnknownName
from dbbench.model import Parameter
from dbbench.plan.catalog import catalog, convert_value, dataset_of, defaults, parameters

WORKLOAD = """\
title = "own"
driver = "pgbench"
engines = ["postgres"]
dataset = { kind = "pgbench", scale = 3 }
script = "own.sql"
[parameters.pause]
type = "duration"
default = "90s"
"""


@pytest.fixture
def folder(tmp_path: Path, environ: dict[str, str]) -> Path:
    """A user's own folder with one workload, one setup and a script."""
    environ.pop("DBBENCH_PATH", None)
    (tmp_path / "workloads").mkdir()
    (tmp_path / "fs_setups").mkdir()
    (tmp_path / "workloads/own.toml").write_text(WORKLOAD)
    (tmp_path / "workloads/own.sql").write_text("SELECT 1;\n")
    (tmp_path / "fs_setups/mine.toml").write_text('title = "mine"\nmkfs = { family = "ext4" }\n')
    return tmp_path


def test_a_script_that_cannot_be_copied_is_refused(folder: Path) -> None:
    """Its name becomes that of the run's copy."""
    for line, text in (
        (5, WORKLOAD.replace("own.sql", "my own.sql")),
        (1, f'beside = ["my own.sql"]\n{WORKLOAD}'),
    ):
        (folder / "workloads/own.toml").write_text(text)
        with pytest.raises(
            PlanInvalid, match=rf'own\.toml:{line}  invalid name of a script "my own\.sql"'
        ):
            catalog([folder]).workload("own")


def test_own_folders_come_before_the_shipped_one(folder: Path, environ: dict[str, str]) -> None:
    """--path adds names, and overrides the catalogue's; so does DBBENCH_PATH. A wrong one is an
    error, and a file whose name could not be part of a folder's is no setup. A workload's script
    is the file next to it; otherwise it belongs to the driver.
    """
    (folder / "fs_setups/my ext4.toml").write_text('title = "x"\nmkfs = { family = "ext4" }\n')
    (folder / "fs_setups/ext4.toml").write_text('title = "my ext4"\nmkfs = { family = "ext4" }\n')
    assert catalog([folder]).setup("mine").name == "mine"
    known = catalog([folder])
    assert known.setup("ext4").title == "my ext4" and "my ext4" not in known.setups
    assert (folder / "workloads/own.sql").resolve() == known.script(known.workload("own"))
    assert known.script(known.workload("pgbench-tpcb")) is None
    with pytest.raises(FileUnreadable):
        catalog([folder / "none"])
    environ["DBBENCH_PATH"] = f"{folder}:"
    assert catalog().setup("ext4").title == "my ext4"
    assert "xfs" in catalog().setups


def test_unknown_names_say_what_was_meant() -> None:
    """A typing error in a name is answered with the nearest one."""
    with pytest.raises(UnknownName, match='did you mean "btrfs-zstd"'):
        catalog().setup("btrfs-zsdt")
    with pytest.raises(UnknownName, match='did you mean "pgbench-tpcb"'):
        catalog().workload("pgbench-tpbc")


def test_flaws_of_a_setup_are_reported_with_their_lines(folder: Path) -> None:
    """A data file is held to its schema: keys, types and words."""
    (folder / "fs_setups/bad.toml").write_text(
        'title = "x"\ndevices = { mim = 2 }\nmkfs = { family = "xfs", optoins = [] }\nmount = '
        '"noatime"\n'
        "tuning.postgress = { a = 1 }\n"
    )
    with pytest.raises(PlanInvalid) as caught:
        catalog([folder]).setup("bad")
    told = caught.value.evidence
    assert 'bad.toml:2  unknown key "mim"; did you mean "min"?' in told
    assert 'bad.toml:3  unknown key "optoins"; did you mean "options"?' in told
    assert 'bad.toml:4  "mount" must be a list' in told
    assert "bad.toml:5" in told and 'did you mean "postgres"?' in told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('["postgres"]', "[]", '"engines" must list at least one engine'),
        (
            'driver = "pgbench"',
            'driver = "pgbench"\nprimary = "tsp"',
            'unknown metric "tsp"; did you mean "tps"?',
        ),
        ('kind = "pgbench"', 'kind = "pgbanch"', "kind must be"),
        (
            'title = "own"',
            'title = "own"\nduring = "DROP TABLE a"\nwindow = "to-completion"',
            '"during" requires window =',
        ),
        ('"90s"', '"ninety"', 'default of "pause"'),
    ],
)
def test_flaws_of_a_workload(
    folder: Path,
    old: str,
    new: str,
    told: str,
) -> None:
    """What types alone do not say of a workload is checked too."""
    (folder / "workloads/own.toml").write_text(WORKLOAD.replace(old, new))
    with pytest.raises(PlanInvalid, match=r"own\.toml:\d+") as caught:
        catalog([folder]).workload("own")
    assert told in caught.value.evidence


def test_a_plan_may_set_the_datasets_sizes_too(folder: Path) -> None:
    """A dataset's own parameters need no second schema; durations come in seconds. The protocol of
    pgbench has no default here: pgbench has its own.
    """
    workload = catalog([folder]).workload("own")
    assert {"pause", "scale", "size", "protocol"} == set(parameters(workload))
    assert parameters(workload)["protocol"].choices == ("simple", "extended", "prepared")
    assert defaults(workload) == {"pause": 90.0, "scale": 3, "size": ""}
    assert dataset_of(workload, {"pause": 1.0, "scale": 7}).parameters == {"scale": 7}


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (Parameter("integer", min=1), 3, 3),
        (Parameter("number"), 3, 3),
        (Parameter("duration"), "2min", 120.0),
        (Parameter("size"), "64MiB", 64 * 2**20),
        (Parameter("boolean"), True, True),
        (Parameter("string", choices=("a", "b")), "b", "b"),
    ],
)
def test_values_are_taken_by_their_type(
    parameter: Parameter,
    value: object,
    expected: object,
) -> None:
    """A value with a unit becomes seconds or bytes; others stay what they are."""
    assert expected == convert_value(parameter, value)


@pytest.mark.parametrize(
    ("parameter", "value", "told"),
    [
        (Parameter("integer", min=1), 0, "at least 1"),
        (Parameter("integer", max=8), 9, "at most 8"),
        (Parameter("integer"), True, "must be a whole number"),
        (Parameter("integer"), 1.5, "must be a whole number"),
        (Parameter("integer"), [1, 2], "not a list"),
        (Parameter("string", choices=("a", "b")), "c", "one of a, b"),
        (Parameter("duration"), "3 parsecs", "a time"),
    ],
)
def test_values_of_another_kind_are_refused(
    parameter: Parameter,
    value: object,
    told: str,
) -> None:
    """true is no integer, a list is no value, and limits hold."""
    with pytest.raises(ValueError, match=told):
        convert_value(parameter, value)


def test_a_script_lies_beneath_the_workloads_directory(folder: Path, tmp_path: Path) -> None:
    """Root would copy any file of the machine into the results: by a path or through a link."""
    elsewhere = tmp_path / "elsewhere.sql"
    elsewhere.write_text("SELECT 'secret';\n")
    (folder / "workloads/link.sql").symlink_to(elsewhere)
    (folder / "workloads/below").mkdir()
    os.mkfifo(folder / "workloads/fifo.sql")
    (folder / "workloads/below/own.sql").write_text("SELECT 1;\n")
    for script, message in (
        (os.path.relpath(elsewhere, folder / "workloads"), "is not beneath the directory"),
        (str(elsewhere), "is not beneath the directory"),
        ("link.sql", "is not beneath the directory"),
        ("../missing.sql", "is not beneath the directory"),
        ("missing.sql", "is not a file"),
        ("fifo.sql", "is not a file"),
        ("below/own.sql", ""),
    ):
        (folder / "workloads/own.toml").write_text(WORKLOAD.replace("own.sql", script))
        if message:
            with pytest.raises(PlanInvalid, match=message):
                catalog([folder]).workload("own")
        else:
            assert catalog([folder]).workload("own").script == script


def test_a_fio_job_that_decides_what_the_trial_decides(folder: Path) -> None:
    """Each such line is named: the job would measure another filesystem under the name of the one
    under test.
    """
    text = WORKLOAD.replace('"pgbench"\nengines = ["postgres"]', '"fio"\nengines = ["files"]')
    text = text.replace("own.sql", "own.fio").replace(
        '{ kind = "pgbench", scale = 3 }', '{ kind = "none" }'
    )
    (folder / "workloads/own.toml").write_text(text)
    job = (
        "; directory=/x\n[global]\nioengine=psync # calls\nwrite_barrier=1\nfilesize=1m\n"
        "[db]\nrw=read\n"
    )
    (folder / "workloads/own.fio").write_text(job)
    assert catalog([folder]).workload("own").driver == "fio"
    for line in ("directory=/var/tmp", " filename = /dev/sdb", "time_based", "write_lat_log=x"):
        (folder / "workloads/own.fio").write_text(f"{job}{line}\n")
        option = line.partition("=")[0].strip()
        with pytest.raises(
            PlanInvalid, match=rf"workloads/own\.fio has .*; remove own\.fio:8 {option}$"
        ):
            catalog([folder]).workload("own")
    for line, content in (
        ("stonewall", "stonewall"),
        ("startdelay=5", "startdelay"),
        ("exec_prerun=ln -sf /etc/shadow fio_bw.7.log", "exec_prerun"),
        ("exec_postrun = id", "exec_postrun"),
        ("ioengine=external:/tmp/x.so", "ioengine"),
        ("ioengine = /tmp/x.so", "ioengine"),
        ("ioengine=./x.so", "ioengine"),
        ("ioengine=exec", "ioengine"),
        ("program=/bin/id", "program"),
        ("ioengine=null", "ioengine"),
        # they report bytes that no disk stores
        ("ioengine=ftruncate", "ioengine"),
        ("ioengine=falloc # psync", "ioengine"),
        ("ioengine=psync2", "ioengine"),
        # fio inserts variables into names of options, and splits long lines
        ("ioengine=${ENGINE}", "ioengine"),
        ("file${X}name=../x", r"file\$\{X\}name=\.\./x"),
        ("${X}=../x", r"\$\{X\}=\.\./x"),
        ("include_/tmp/x", "include_/tmp/x"),
        ("includes x", "includes"),
        (f"#{8190 * 'a'}exec_prerun=id", r"#a+\.\.\. \(longer than 4000 bytes\)"),
        ("[../../../../dev/shm/x]", r"\[\.\./\.\./\.\./\.\./dev/shm/x\]"),
        # fio does not need the bracket, and takes the last character away
        ("[../dev/shm/xy", r"\[\.\./dev/shm/xy\]"),
        ("[a]/../x]", r"\[a\]/\.\./x\]"),
        # fio's line does not end at a form feed
        ("[a\fx=/../../x]", r"\[a\fx=/\.\./\.\./x\]"),
    ):
        (folder / "workloads/own.fio").write_text(f"{job}{line}\n")
        with pytest.raises(PlanInvalid, match=rf"run programs .* remove own\.fio:8 {content}$"):
            catalog([folder]).workload("own")
    (folder / "workloads/own.fio").write_text("runtime=9\n" + job + "log_avg_msec=1\n")
    with pytest.raises(PlanInvalid, match=r"remove own\.fio:1 runtime, own\.fio:9 log_avg_msec$"):
        catalog([folder]).workload("own")
