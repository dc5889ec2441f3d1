"""Commands with a plan: its errors and its JSON, a part of its cells, and the notice at the end."""

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import Shape

from dbbench.commands import run
from dbbench.errors import Interrupted
from dbbench.report.text import put_paragraph
from dbbench.results import RunFolder
from tests.support.files import write_file
from tests.support.plans import plan


def test_errors_of_a_plan_are_printed_below_each_other(tmp_path: Path, printed: Any) -> None:
    """One line an error, each with file:line; exit code 2."""
    path = write_file(
        tmp_path / "plan.toml",
        'name = "x"\nfs_setups = ["ext5"]\nblcks = 3\n[engine]\nname = "postgres"\n[workload]\n'
        'name = "scan"\n',
    )
    lines = printed("plan", str(path), code=2).splitlines()
    assert lines[0] == f"error E001: {path} has 2 errors:"
    assert lines[1].startswith(f'  {path}:2  unknown fs setup "ext5"')
    assert lines[2] == f'  {path}:3  unknown key "blcks"; did you mean "blocks"?'
    assert lines[3].startswith("  Nothing was changed. Correct the listed lines")


@pytest.mark.starts_processes
def test_the_contract_of_plan_json(tmp_path: Path, printed: Any) -> None:
    """Keys that other people's scripts rely on; numbers with their units in the name."""
    path = write_file(tmp_path / "plan.toml", plan(workload="scan"))
    document = json.loads(printed("plan", str(path), "--json", code=None))
    assert {"trials", "eta_s", "disk_bytes", "written_bytes", "commands"} <= set(document)
    assert document["trials"] == [
        {
            "id": "ext4.postgres.scan-b1-a1",
            "fs_setup": "ext4",
            "engine": "postgres",
            "workload": "scan",
            "block": 1,
            "attempt": 1,
            "position": 1,
            "variant": "",
            "durability_class": "full",
        }
    ]
    assert document["commands"][0]["argv"][0] == "mkfs.ext4"


def test_a_number_is_not_separated_from_its_percent_sign(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever the line ends, its last word is not a number whose unit begins the next line."""
    for length in range(90, 115):
        put_paragraph("x" * length + " \u221258.3 %, then \u221252.4 % and 1 234 tx/s")
        assert not re.search(r"\d\n *(%|\d)", capsys.readouterr().out)


@pytest.mark.starts_processes
def test_only_some_cells_of_a_plan(tmp_path: Path, printed: Any) -> None:
    """Patterns select cells; the first remaining setup is the baseline; an unknown cell is an error
    with a hint.
    """
    whole = plan(["ext4", "xfs"], workload=["scan", "pgbench-tpcb"], baseline="ext4")
    path = write_file(tmp_path / "plan.toml", whole)
    for only, names in (
        ("xfs.postgres.scan", ["xfs.postgres.scan"]),
        ("*.scan", ["ext4.postgres.scan", "xfs.postgres.scan"]),
    ):
        document = json.loads(printed("plan", str(path), "--json", "--only", only, code=None))
        assert sorted(trial["id"].removesuffix("-b1-a1") for trial in document["trials"]) == names
        assert document["plan"]["baseline"] == names[0].partition(".")[0]
    assert 'did you mean "xfs.postgres.scan"?' in printed(
        "plan",
        str(path),
        "--only",
        "xfs.postgres.scam",
        code=2,
    )


@pytest.mark.needs("root")
def test_a_folder_that_another_account_could_exchange_is_named(tmp_path: Path) -> None:
    """Whoever owns the folder above could rename the results."""
    folder = RunFolder(synthetic.write(tmp_path, Shape(work=(("postgres", "scan"),))))
    assert list(run.notes_of(folder)) == []
    os.chown(tmp_path, 65534, 0)
    (note,) = run.notes_of(folder)
    assert note.startswith(f"{tmp_path} can be changed by the account nobody, so ")


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("failed", "error", "state"),
    [
        ((), None, "ok"),
        (("xfs.postgres.scan-b1-a1",), None, "failed"),
        ((), Interrupted("stopped"), "stopped"),
    ],
)
def test_a_command_is_notified_of_the_end_of_a_run(
    tmp_path: Path,
    failed: tuple[str, ...],
    error: Exception | None,
    state: str,
) -> None:
    """It gets the state and the counts as JSON on its stdin, whatever ended the run."""
    folder = synthetic.write(tmp_path, Shape(work=(("postgres", "scan"),), failed=failed))
    with contextlib.suppress(Interrupted), run.notifying(f"tee {tmp_path}/told", folder, "shop"):
        if error is not None:
            raise error
    told = json.loads((tmp_path / "told").read_text())
    assert (told["state"], told["plan"], told["run"], told["failed"]) == (
        state,
        "shop",
        "demo",
        len(failed),
    )
    assert told["error"] == ({"id": "E902", "text": "stopped"} if error else None)
