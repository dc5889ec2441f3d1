"""The plan of a test: by default one block, a short window and a device of 512 MiB."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.errors import PlanInvalid
from dbbench.model import Plan
from dbbench.plan import load
from dbbench.plan.catalog import Catalog, catalog
from tests.conftest import engine_bin

Table = dict[str, Any]
Named = str | Table  # a name, or a table with a name and further keys

SHIPPED: Final = catalog([])

# Parameters of a workload whose name alone is given. With a rate it leaves the CPUs to tests in
# other lanes.
SMALL: Final[dict[str, Table]] = {
    "pgbench-tpcb": {"scale": 1, "clients": 1, "rate": 200},
    "sysbench-oltp-read-write": {"tables": 2, "table_size": 2000, "clients": 2},
}


def plan(
    fs: Named | list[Any] = "ext4",
    engine: Named | Iterable[Named] = "postgres",
    workload: Named | Iterable[Named] = "pgbench-tpcb",
    **keys: Any,
) -> str:
    """Return a plan as TOML. `fs`, `engine` and `workload` are a name, a table, or several of them;
    `keys` are other keys and tables of the plan, which replace the defaults. A key that is None
    is left out.
    """
    whole = {
        "name": "test",
        "fs_setups": fs if isinstance(fs, list) else [fs],
        "blocks": 1,
        "warmup": "1s",
        "measure": "3s",
        "repeat_suspect": False,
        "device": {"size": "512MiB"},
        **keys,
        "engine": [{"name": each} if isinstance(each, str) else each for each in _several(engine)],
        "workload": [
            {"name": each, **SMALL.get(each, {})} if isinstance(each, str) else each
            for each in _several(workload)
        ],
    }
    whole |= {
        key: f"{whole[key]}s"
        for key in ("warmup", "measure")
        if isinstance(whole[key], (int, float))
    }
    return "".join(
        f"{key} = {as_toml(value)}\n" for key, value in whole.items() if value is not None
    )


def _several(named: Named | Iterable[Named]) -> Iterable[Named]:
    return [named] if isinstance(named, (str, dict)) else named


def plan_of(folder: Path, text: str, known: Catalog = SHIPPED) -> Plan:
    """Return the plan of that text, from plan.toml in the folder."""
    path = folder / "plan.toml"
    path.write_text(text)
    return load(path, known)


def flaws_of(folder: Path, text: str, known: Catalog = SHIPPED) -> str:
    """Return the message about the errors of the plan of that text."""
    with pytest.raises(PlanInvalid) as caught:
        plan_of(folder, text, known)
    return caught.value.evidence


def as_toml(value: Any) -> str:
    """Return a value on one line, with inline tables. Strings, numbers and booleans are written as
    in JSON.
    """
    if isinstance(value, dict):
        pairs = (f"{key} = {as_toml(each)}" for key, each in value.items() if each is not None)
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value)


def installed(engine: str) -> Table:
    """Return an engine of a plan. MySQL may be in a directory outside PATH."""
    return {"name": engine, "bin": str(engine_bin(engine)) if engine == "mysql" else None}
