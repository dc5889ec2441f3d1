"""Write docs/workload.schema.json, the JSON Schema of a workload's file, from dbbench/model/.

Run `make map` after a key of a workload was added or changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from dbbench.model import Workload

FILE: Final = Path(__file__).with_name("workload.schema.json")


def schema() -> str:
    """Return the text of docs/workload.schema.json."""
    return json.dumps(_keys(TypeAdapter(Workload).json_schema()), indent=1) + "\n"


def _keys(content: Any) -> Any:
    """Return the schema without the docstrings of classes, which describe the code."""
    if isinstance(content, list):
        return [_keys(each) for each in content]
    if not isinstance(content, dict):
        return content
    return {
        name: _keys(each)
        for name, each in content.items()
        if not ("properties" in content and name == "description")
    }


if __name__ == "__main__":
    FILE.write_text(schema(), encoding="utf-8")
