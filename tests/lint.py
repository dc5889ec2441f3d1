"""Rules for the source that ruff cannot express: `.venv/bin/tox run -e lint` runs this file.

- Messages, public docstrings, documents and catalogues do not contain phrases for which there
  are plainer ones.
- dbbench starts no shell with a command line as one word. That nothing but dbbench/process.py
  starts programs, and none with shell=True, is a rule of ruff.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
AVOIDED: Final = {
    r"stands? (?:twice|beside|flat)": "is listed twice, is next to, is constant",
    r"held against|hold (?:it|them) against": "compared with",
    r"\bheed(?:s|ed)?\b": "exceed, obey",
    r"to be had\b|could be had\b|had not the": "is available",
    r"(?<!`)\b(?:[Nn]obody|[Ss]omebody)\b(?!`)": "name the process or the user",
    r"\bof (?:ours|theirs)\b": "dbbench's",
    r"\b(?:is|are) no (?:folder|file|label|name for|such|device|block device|socket)\b": "is not a ...",
    r"\b(?:is|are) no (?:share|size|operation|engine)\b": "is not a ...",
    r"\b(?:is|are) none of\b": "is not listed in",
    r"says? nothing (?:for|of|without)\b": "has no effect with",
    r"tells? nothing of": "does not describe",
    r"\b(?:says|proves|shows) nothing\b": "is not evidence, does not describe",
    r"\b(?:is|are|was|were) said\b(?! to)": "is reported",
    r"\bwhat (?:becomes?|became|must become) of\b": "the outcome of",
    r"\bcannot be told from\b": "cannot be distinguished from",
    r"\bst(?:and|ands|ood|anding) still\b": "stops, does not run",
    r"\bgiv(?:e|es|en|ing) back\b|\bgave back\b": "release",
    r"\bin the place of\b": "instead of",
    r"\b(?:of|from) nothing\b": "from a bare machine, empty",
    r"\bwithout end\b": "endless, too large",
    r"\bbetween two looks\b": "between two samples",
    r"\bworth knowing\b": "important",
    r"\b[Bb]esides? (?:its|the|their) ratio": "next to its ratio",
    r"went bad|gone bad": "filesystem error during the trial",
    r"other than it was": "changed",
    r"\bdriv(?:e|es|en|ing) (?:a|the|its|one|that) (?:trial|block|run)|\bdriven again\b": "run a trial",
    r"what of it survives": "which data survives",
    r"power[- ]cut lab": "power-loss lab",
    r"[Tt]ype (?:it|the same command) again|typed again": "run the same command again",
    r"\bput it right\b": "correct the cause",
    r"\bthere (?:is|was) no night lately": "there is no recent nightly run",
    r"[Bb]esides? (?:the|a|its) load\b": "during the load",
    r"(?<!are )\bwe\b": "dbbench",
    r"(?<![\w=])wants? (?:a|an|the|--)": "requires",
    r"\w(?:n't|'re|'ve|'ll)\b": "no contraction",
    r"\b(?:is|are) not there\b": "does not exist, is missing",
    r"\b(?:to be seen|cannot be (?:looked (?:at|into)|found out))\b": "is not visible, cannot be determined",
    r"\b(?:go|goes|went|going) on\b(?! [\d/])": "continues",
    r"\b(?:trials?|blocks?|lines?|devices?) more\b(?! than)": "N more trials",
    r"\b(?:is|are) (?:no longer )?known here\b": "dbbench knows no ...",
    r"\bwas asked\b(?! to)": "expected",
    r"\bsays more\b": "for details",
    r"\b(?:died|dies) of\b": "died during",
    r"\bthrown away\b": "discarded, removed",
    r"\bwhat is finished\b": "finished trials",
    r"\bother(?:s|wise)? than (?:its|the|their) own\b": "name the thing",
    r"\bthe trial does not count\b": "the trial is marked failed",
    r"\bsomething else than\b": "something other than",
    r"\b(?:come|came) (?:up|home)\b|\b(?:is|are) home\b": "started, collected",
    r"\bgives? back\b|\bgiven back\b": "releases",
    r"\btaken? (?:apart|away)\b": "removed",
    r"\bone's own\b": "name the owner",
}
TEXTS: Final = (
    "*.md",
    "docs/**/*.md",
    "fs_setups/*.toml",
    "workloads/*.toml",
    "dbbench/plan/studies/*.toml",
    "reports/*.jinja",
    "reports/*.html",
    "reports/*/*.jinja",
    "reports/*/*.html",
    "dbbench/**/*.py",
)
SHELLS: Final = ("sh", "bash", "/bin/sh")


def strings(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of each string literal and public docstring; an expression in an f-string
    is a field.
    """
    tree = ast.parse(source)
    private = set[int]()
    inner = set[int]()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.ClassDef)
            and node.name.startswith("_")
            and node.body
        ):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                private.add(id(first.value))
        if isinstance(node, ast.JoinedStr):
            inner.update(id(part) for part in ast.walk(node) if part is not node)
    for node in ast.walk(tree):
        if id(node) in private | inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
            yield node.lineno, "".join(parts)


def avoided(name: str, source: str) -> list[str]:
    """Return each avoided phrase of a file with its line and what to write instead."""
    texts = strings(source) if name.endswith(".py") else enumerate(source.splitlines(), 1)
    texts = ((line, text) for line, text in texts if text != "nobody")  # the name of an account
    return [
        f"{name}:{line}: {match[0]!r}; prefer: {better}"
        for line, text in texts
        for pattern, better in AVOIDED.items()
        for match in [re.search(pattern, " ".join(text.split()))]
        if match
    ]


def shells(name: str, source: str) -> list[str]:
    """Return each list of words in a Python file that begins with a shell and -c, with its line."""
    lists = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.List)]
    words = [
        (node.lineno, [word.value for word in node.elts[:2] if isinstance(word, ast.Constant)])
        for node in lists
    ]
    return [
        f"{name}:{line}: a shell"
        for line, first in words
        if first[:1] and first[0] in SHELLS and "-c" in first
    ]


def main() -> int:
    """Print what breaks a rule; return 1 if anything does."""
    findings = []
    for path in sorted(path for pattern in TEXTS for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text(encoding="utf-8")
        findings += avoided(name, source)
        if path.suffix == ".py":
            findings += shells(name, source)
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
