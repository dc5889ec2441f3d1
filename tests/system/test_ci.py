"""The recipes of docs/ci.md: their shell commands run with a tiny plan, and their files are what
the programs read.
"""

import os
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import process
from dbbench.errors import CommandFailed
from tests.support.plans import plan

PAGE: Final = (Path(__file__).parents[2] / "docs/ci.md").read_text(encoding="utf-8")
# What the CI system sets; the same number everywhere, so that the second recipe finds the run of
# the first.
SET: Final = {
    "GITHUB_RUN_ID": "7",
    "CI_PIPELINE_ID": "7",
    "NAME": "ci-7",
    "DATE": "7",
    "TEXTFILES": ".",
}
RUNNABLE: Final = ("root", "mkfs.ext4", "mkfs.xfs", "fs:xfs", "engine:postgres", "sadf")


def recipe(heading: str) -> tuple[str, str]:
    """Return language and text of the recipe below a heading."""
    found = re.search(rf"^## {heading}\n.*?^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1], found[2]


def shell_lines(heading: str) -> list[str]:
    """Return the shell commands of a recipe as its CI system reads them."""
    language, text = recipe(heading)
    if language == "sh":
        return text.splitlines()
    if language == "groovy":
        return re.findall(r"^ *sh '([^']*)'$", text, re.MULTILINE)
    jobs = pytest.importorskip("yaml").safe_load(text)
    if heading == "GitLab":
        job = jobs["filesystems"]
        return [*job["script"], *job["after_script"]]
    return [step["run"] for step in jobs["jobs"]["compare"]["steps"] if "run" in step]


def start(folder: Path, lines: list[str], **more: str) -> None:
    """Run lines in a workspace as a CI system does: each must succeed. What runs as root leaves no
    file there: the runner's account could not remove it before the next checkout.
    """
    environment = {
        **more,
        **SET,
        "GITHUB_STEP_SUMMARY": "../summary.md",
        "RESULTS": str(folder.parent / "ci"),
        "PATH": f"{folder.parent}/bin:{os.environ['PATH']}",
    }
    for line in lines:
        before = sorted(folder.rglob("*"))
        process.run(["bash", "-e", "-c", line], cwd=folder, env=environment, timeout_s=600)
        if line.startswith("sudo "):
            assert sorted(folder.rglob("*")) == before


@pytest.mark.needs(*RUNNABLE)
def test_the_recipes_of_the_ci_page_work(dbbench: Any) -> None:
    """All commands of each recipe succeed on a run of one block, which is inconclusive; JUnit and
    Markdown are read.
    """
    load = {"name": "pgbench-tpcb", "scale": 1, "clients": 1}
    dbbench.plan(
        plan(
            ["ext4", "xfs"],
            "postgres",
            load,
            measure="3s",
            device={"size": "400MiB"},
            baseline="ext4",
        )
    )
    commands = dbbench.folder / "bin"
    commands.mkdir()
    (commands / "dbbench").symlink_to(Path(sys.executable).parent / "dbbench")
    # As root, sudo is not needed and may be missing.
    (commands / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (commands / "sudo").chmod(0o755)
    # Every job begins with an empty workspace that has the plan.
    workspace = dbbench.folder / "workspace"
    for heading, count in (("GitHub Actions", 3), ("GitLab", 4), ("Jenkins", 4), ("Prometheus", 3)):
        shutil.rmtree(workspace, ignore_errors=True)
        workspace.mkdir()
        shutil.copy(dbbench.folder / "plan.toml", workspace)
        lines = shell_lines(heading)
        assert "dbbench run" in lines[0] and len(lines) == count
        start(workspace, lines, **dbbench.env)
        if count == 4:
            cases = ET.parse(workspace / "junit.xml").getroot()
            assert "xfs tps" in [case.get("name") for case in cases.iter("testcase")]
            assert "</html>" in (workspace / "report.html").read_text()
    assert "| xfs |" in (dbbench.folder / "summary.md").read_text()
    text = (workspace / "dbbench.prom").read_text()
    assert "dbbench_last_run_timestamp_seconds" in text and re.search(
        r"^dbbench_tps_ratio\{.*xfs",
        text,
        re.MULTILINE,
    )
    assert list(dbbench.folder.glob("ci/*/report.html")) == [dbbench.folder / "ci/ci-7/report.html"]
    if shutil.which("promtool"):
        process.run(["promtool", "check", "metrics"], stdin=text)


def test_the_gate_fails_a_recipe_only_on_a_regression(tmp_path: Path) -> None:
    """With a dbbench that exits with 3, 4 or 0 in place of the real one."""
    (tmp_path / "bin").mkdir()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    program = tmp_path / "bin/dbbench"
    for heading in ("GitHub Actions", "GitLab", "Jenkins"):
        (line,) = [line for line in shell_lines(heading) if "--gate" in line]
        for status in (0, 4):
            program.write_text(f"#!/bin/sh\nexit {status}\n")
            program.chmod(0o755)
            start(workspace, [line])
        program.write_text("#!/bin/sh\nexit 3\n")
        with pytest.raises(CommandFailed):
            start(workspace, [line])
