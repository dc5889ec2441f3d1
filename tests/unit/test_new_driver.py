"""A load generator is one new file and its places in the registries, an error a table and a name, as
CONTRIBUTING.md says.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.support.copied_program import answer, copy_program, replace

DRIVER: Final = '''
"""bonnie++, but never beside another copy of itself."""

from contextlib import AbstractContextManager

from dbbench.drivers import bonnie
from dbbench.drivers.protocol import Load, LoadTask
from dbbench.errors import CopyRuns


def driving(task: LoadTask) -> AbstractContextManager[Load]:
    """Run bonnie++. Raises CopyRuns if another copy runs."""
    if (task.scratch / "running").exists():
        raise CopyRuns(str(task.scratch))
    return bonnie.driving(task)
'''
WORKLOAD: Final = """
title = "bonnie++ alone"
plain_name = "a benchmark of files"
driver = "alone"
engines = ["files"]
window = "to-completion"
primary = "block_write_mb_per_s"
dataset = { kind = "none" }
"""
ERROR: Final = """
[E605]
exit_code = 1
title = "another copy of the load generator runs"
meaning = "Two copies would measure each other."
remedy = "Stop the other one."
"""
PLAN: Final = """
name = "p"
fs_setups = ["ext4"]
device = { size = "1GiB" }
[[engine]]
name = "files"
[[workload]]
name = "alone"
"""


@pytest.mark.starts_processes
def test_a_driver_and_an_error_are_added_where_contributing_says(tmp_path: Path) -> None:
    """A plan can name a workload of the driver, and `explain` has the error."""
    program = copy_program(tmp_path)
    package = program / "dbbench"
    (package / "drivers/alone.py").write_text(DRIVER)
    registry = package / "drivers/__init__.py"
    replace(registry, "    apply,\n", "    alone,\n    apply,\n")
    replace(registry, '    "apply": apply,\n', '    "alone": alone,\n    "apply": apply,\n')
    replace(
        package / "model/catalog_files.py",
        '        "bonnie",\n',
        '        "alone",\n        "bonnie",\n',
    )
    with (package / "errors/errors.toml").open("a", encoding="utf-8") as table:
        table.write(ERROR)
    named = 'NoProgress: Final = _error("E604")\n'
    replace(package / "errors/__init__.py", named, named + 'CopyRuns: Final = _error("E605")\n')
    (program / "mine/workloads/alone.toml").write_text(WORKLOAD)
    (program / "p.toml").write_text(PLAN)
    assert "another copy of the load generator runs" in answer(program, "explain", "E605")
    assert "bonnie++ alone" in answer(program, "workload", "alone")
    assert "ext4 files alone" in " ".join(answer(program, "plan", "p.toml").split())
