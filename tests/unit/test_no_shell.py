"""Nothing of a plan reaches a shell. That nothing else starts programs, and none with shell=True, is a rule of ruff."""

from __future__ import annotations

import ast
from pathlib import Path

import dbbench

ROOT = Path(dbbench.__file__).parent


def test_no_shell_is_ever_asked() -> None:
    """No program of that kind gets a command line as one word."""
    for path in ROOT.rglob("*.py"):
        if "second_kernel" in path.parts:  # boots a machine of its own, whose first program is a shell
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List) and len(node.elts) > 1:
                words = [each.value for each in node.elts[:2] if isinstance(each, ast.Constant)]
                assert not (words and words[0] in ("sh", "bash", "/bin/sh") and "-c" in words), f"{path}:{node.lineno}"
