"""Nothing of a plan reaches a shell, and programs start in one file: read off the code itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dbbench

ROOT = Path(dbbench.__file__).parent
STARTS = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "system", "popen"}
# process.py starts everything; packages.py runs before anything is installed; the first program within the
# second kernel becomes the command that it was booted for; the agent runs on another host, where process.py is not
ALLOWED = {"process.py", "packages.py", "rehearsal/inside.py", "remote/agent.py"}


def calls(path: Path) -> Iterator[tuple[int, str]]:
    """(line, "module.function") of every call of a module's function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            yield called.lineno, f"{called.value.id}.{called.attr}"


def test_programs_start_in_one_file() -> None:
    """subprocess and os start nothing anywhere else."""
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in ROOT.rglob("*.py")
        for line, name in calls(path)
        if name.split(".")[0] in ("subprocess", "os")
        and (name.split(".")[1] in STARTS or name.split(".")[1].startswith(("exec", "spawn", "posix_spawn")))
        and str(path.relative_to(ROOT)) not in ALLOWED
    ]
    assert found == []


def test_no_shell_is_ever_asked() -> None:
    """No shell=True, and no program of that kind gets a command line as one word."""
    for path in ROOT.rglob("*.py"):
        if "rehearsal" in path.parts:  # boots a machine of its own, whose first program is a shell
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                raise AssertionError(f"{path}:{node.value.lineno} has shell=")
            if isinstance(node, ast.List) and len(node.elts) > 1:
                words = [each.value for each in node.elts[:2] if isinstance(each, ast.Constant)]
                assert not (words and words[0] in ("sh", "bash", "/bin/sh") and "-c" in words), f"{path}:{node.lineno}"
