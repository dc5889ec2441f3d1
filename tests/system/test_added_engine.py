"""The engine that CONTRIBUTING.md shows, one module added to a copy of the package, runs a
trial.
"""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import dbbench as package
from dbbench.model.base import data_folder
from tests.support.plans import plan

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
IMPORT = "from dbbench.engines import files, "

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres")


def worked_example() -> tuple[str, str]:
    """The module and the line of the section "Example: adding an engine"."""
    section = (
        CONTRIBUTING.read_text()
        .partition("## Example: adding an engine\n")[2]
        .partition("\n## ")[0]
    )
    module, line = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return module, line


@pytest.fixture
def extended(dbbench: Any) -> Any:
    """The command line of a copy of this package with the module, its line and its import."""
    module, line = worked_example()
    name = line.strip().partition(":")[0].strip('"')
    # what its links name comes with it
    shutil.copytree(Path(package.__file__).parent, dbbench.folder / "dbbench")
    engines = dbbench.folder / "dbbench/engines"
    (engines / f"{name}.py").write_text(module)
    registry = (engines / "__init__.py").read_text()
    assert IMPORT in registry and '    "files": files,\n' in registry
    registry = registry.replace('    "files": files,\n', f'    "files": files,\n{line}')
    (engines / "__init__.py").write_text(registry.replace(IMPORT, f"{IMPORT}{name}, "))
    workloads = dbbench.folder / "workloads"
    workloads.mkdir()
    tpcb = (data_folder() / "workloads/pgbench-tpcb.toml").read_text()
    (workloads / "own-tpcb.toml").write_text(
        tpcb.replace('engines  = ["postgres"]', f'engines = ["{name}"]')
    )
    return dataclasses.replace(dbbench, env={**dbbench.env, "PYTHONPATH": str(dbbench.folder)})


def test_the_worked_example_runs_a_trial(extended: Any) -> None:
    """One file and one line: the engine is known to plans, builds its dataset, runs with its own
    settings and is shown by its own name.
    """
    workload = {"name": "own-tpcb", "scale": 1, "clients": 2, "threads": 2}
    extended.plan(plan("ext4", "compressing", workload))
    extended("--path", ".", "run", "plan.toml", "--name", "r", "--progress", "plain")
    (trial,) = extended.trials().values()
    assert (trial["engine"], trial["error"]) == ("compressing", None)
    assert trial["summary"]["transactions"] > 0
    assert trial["engine_features"]["wal_compression"] == "pglz"
    extended("report", "r", "-o", "page.html")
    assert "Compressing PostgreSQL" in (extended.folder / "page.html").read_text()


def test_without_its_line_it_is_not_an_engine(dbbench: Any) -> None:
    """The package as it is refuses the name."""
    dbbench.plan(plan("ext4", "compressing"))
    done = dbbench("plan", "plan.toml", status=2)
    assert "must be one of postgres, mariadb, mysql, files, not 'compressing'" in done.stderr
