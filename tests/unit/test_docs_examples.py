"""What the documents name exists, and the plans, data files and scripts that they show can be used."""

import ast
import importlib
import itertools
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from dbbench import plan
from dbbench.plan import catalog
from dbbench.plan.planned_conditions import sentences
from tests.support.files import write_file

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PLANS: Final = sorted((ROOT / "docs/plans").glob("*.toml"))
SHIPPED: Final = catalog.catalog()
TOP: Final = "dbbench|fs_setups|workloads|reports|tests|benchmarks|docs"
# Paths that are examples: what a reader is to write.
EXAMPLES: Final = re.compile(
    r"\b(NAME|RUN|DIR)\b|fs_setups/ext4-(journal|lazy)\.toml|workloads/orders\.toml"
)


def text(name: str) -> str:
    """A document of this project."""
    return (ROOT / name).read_text(encoding="utf-8")


def expanded(written: str) -> list[str]:
    """The names that braces stand for, as a shell expands them."""
    parts = [part.strip("{}").split(",") for part in re.findall(r"\{[^}]*\}|[^{}]+", written)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def anchors(document: Path) -> set[str]:
    """The fragments by which links reach a document's headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_headings_that_documents_name_exist(document: Path) -> None:
    """Links lead somewhere, a fragment to its heading, and paths in backticks are of this checkout;
    modules may be named without the package ("engines/port.py").
    """
    written = document.read_text(encoding="utf-8")
    fragments = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", written)
    assert not [
        to
        for to in fragments
        if to[1] not in anchors(document.parent / to[0] if to[0] else document)
    ]
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", written) if "://" not in link]
    paths = re.findall(rf"`((?:{TOP})/[\w./-]+)`", written) + re.findall(
        r"`([\w.-]+\.(?:cfg|ini|lock|md))`", written
    )
    assert not [link for link in links if not (document.parent / link).exists()]
    places = (ROOT, ROOT / "docs", ROOT / "dbbench")
    assert not [
        path
        for path in paths
        if not EXAMPLES.search(path) and not any((at / path).exists() for at in places)
    ]


def test_the_index_has_every_document() -> None:
    """docs/index.md links all others, and the README links it."""
    linked = {
        (ROOT / "docs" / link).resolve()
        for link in re.findall(r"\]\(([^)]+)\)", text("docs/index.md"))
    }
    assert {
        path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs") and path.name != "index.md"
    } <= linked
    assert "](docs/index.md)" in text("README.md")


@pytest.mark.parametrize("document", [*DOCUMENTS, *PLANS], ids=lambda path: path.name)
def test_documents_speak_of_the_project_alone(document: Path) -> None:
    """No number of a tracker, no folder of the machine that they were written on."""
    foreign = re.compile(
        r"#\d+\b|\bissue \d|\bshared/|(?<![\w.])/(work|tmp|root|home/\w+|var/tmp)/", re.IGNORECASE
    )
    assert not [
        line for line in document.read_text(encoding="utf-8").splitlines() if foreign.search(line)
    ]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_shipped_plans_load(path: Path) -> None:
    """The plans of docs/plans have no error, expand to trials, and no scan of theirs is a matter of
    chance.
    """
    shipped = plan.load(path, SHIPPED)
    assert shipped.name == path.stem
    assert (expanded := plan.expand(shipped, SHIPPED)).order
    assert not any(
        "is a matter of chance" in sentence for sentence in sentences(shipped, expanded.cells)
    )


def _blocks(kind: str) -> list[tuple[str, str]]:
    """(document, TOML block) of the documents: whole plans, fs setups or workloads."""
    found = []
    for document in DOCUMENTS:
        for block in re.findall(
            r"^```toml\n(.*?)^```",
            document.read_text(encoding="utf-8"),
            re.M | re.DOTALL,
        ):
            named = re.match(r"# (fs_setups|workloads)/", block)
            if block.startswith("# plan.toml\n"):
                continue  # of the tutorial, whose plan works on a dump: tests/unit/test_tutorial.py
            what = named[1] if named else "plan" if "fs_setups" in tomllib.loads(block) else "part"
            if what == kind:
                found.append((document.name, block))
    return found


@pytest.mark.parametrize(("document", "block"), _blocks("plan"))
def test_plans_in_documents_load(
    document: str,
    block: str,
    tmp_path: Path,
) -> None:
    """What a reader copies out of a document has no error."""
    path = write_file(tmp_path / "plan.toml", block)
    assert plan.expand(plan.load(path, SHIPPED), SHIPPED).order


def test_data_files_in_documents_load(tmp_path: Path) -> None:
    """The examples of an own fs setup and an own workload are found by --path and have no error."""
    setups = _blocks("fs_setups")
    workloads = _blocks("workloads")
    assert setups and workloads
    for _, block in (*setups, *workloads):
        name = re.match(r"# ([\w./-]+\.toml)", block)
        assert name is not None
        path = tmp_path / name[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(block, encoding="utf-8")
        for script in re.findall(r'^script += "(.+)"', block, re.MULTILINE):
            (path.parent / script).touch()
    own = catalog.catalog([tmp_path])
    for path in tmp_path.glob("fs_setups/*.toml"):
        assert own.setup(path.stem).name == path.stem
    for path in tmp_path.glob("workloads/*.toml"):
        assert own.workload(path.stem).name == path.stem


def test_scripts_in_documents_use_what_there_is() -> None:
    """Everything that the examples take from a module of dbbench exists."""
    used = list[tuple[str, str]]()
    for script in (ROOT / "docs/fleet").glob("*.py"):
        nodes = list(ast.walk(ast.parse(script.read_text())))
        places = {
            name.name: f"{node.module}.{name.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dbbench")
            for name in node.names
        }
        attributes = [
            node
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        ]
        used += [
            (places[node.value.id], node.attr) for node in attributes if node.value.id in places
        ]
    assert used
    assert [pair for pair in used if not hasattr(importlib.import_module(pair[0]), pair[1])] == []
