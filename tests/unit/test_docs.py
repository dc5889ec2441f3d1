"""The documents are complete and true: every command, ID, setup, workload, key and metric has its
entry.
"""

import configparser
import dataclasses
import html
import itertools
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from dbbench import errors, model
from dbbench.cli import group
from dbbench.commands.options import Chooser
from dbbench.errors import DbbenchError, all_errors, error_kinds, warning_kinds
from dbbench.metrics.table import COUNTS, METRICS
from dbbench.model.base import PRODUCTION
from dbbench.model.times import DEADLINES_S
from dbbench.plan import catalog
from dbbench.plan.promise import of_setup
from dbbench.plan.tomlfile import written_fields
from dbbench.units import bytes_of, seconds_of, share_of

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHIPPED: Final = catalog.catalog()


def text(name: str) -> str:
    """A document of this project."""
    return (ROOT / name).read_text(encoding="utf-8")


def section(name: str, heading: str, until: str = "#") -> str:
    """What stands under a heading, up to the next one: of any level, or of level two with comments
    of TOML blocks.
    """
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^{until}|\Z)",
        text(name),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None, f"{name} has no heading {heading!r}"
    return found[1]


def rows(part: str) -> dict[str, list[str]]:
    """Table rows by their first cell, without its backticks; the cell itself is not among the
    values.
    """
    found = {}
    for line in part.splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            found[cells[0].strip("`| ")] = [cell.strip() for cell in cells[1:]]
    return found


def definitions(part: str) -> dict[str, tuple[str, str]]:
    """Definition lists: key -> default ("" where there is none), paragraph."""
    found = {}
    for item in re.findall(
        r"^- \*\*`(\w+)`\*\*: (.*?)(?=^- |^\S|\Z)",
        part.replace("\n\n", "\n\n.\n"),
        re.M | re.S,
    ):
        words = " ".join(item[1].split())
        default = re.search(r"^[^.]*?, default `(.*?)`\.", words)
        found[item[0]] = (f"`{default[1]}`" if default else "", words)
    return found


def commands(parent: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command with its words: "run", "study", "study run"."""
    context = click.Context(parent)
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        if isinstance(command, Chooser):
            yield " ".join((*words, name))
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name))


@pytest.mark.parametrize("command", list(commands(group)))
def test_readme_has_every_command(command: str) -> None:
    """The README's list of commands leaves none out."""
    heads = re.findall(r"^- (`dbbench [^:]*):", section("README.md", "Commands", "## "), re.M)
    first = [line for head in heads for line in re.findall(r"`(dbbench [^`]*)`", head)]
    assert any(
        line == f"dbbench {command}" or line.startswith(f"dbbench {command} ") for line in first
    ), first


def test_the_list_of_errors_and_the_schema_are_made_from_the_code() -> None:
    """`make map` writes them again."""
    assert text("docs/errors.md") == runpy.run_path(str(ROOT / "docs/errors.py"))["page"]()
    assert (
        text("docs/workload.schema.json")
        == runpy.run_path(str(ROOT / "docs/schema.py"))["schema"]()
    )
    ids = error_kinds().keys() | warning_kinds().keys()
    assert set(re.findall(r"^### ([EW]\d{3}): ", text("docs/errors.md"), re.M)) == ids


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_ids_in_documents_exist(document: Path) -> None:
    """Also those of the page about published mistakes; the changelog names IDs that were removed."""
    named = set(re.findall(r"\b[EW]\d{3}\b", document.read_text(encoding="utf-8")))
    assert document.name == "CHANGELOG.md" or named <= error_kinds().keys() | warning_kinds().keys()


def test_errors_and_warnings_are_sorted() -> None:
    """The classes and the two tables are sorted by ID, and each class has its row."""
    ids = [
        kind.id
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, DbbenchError)
    ]
    assert list(dict.fromkeys(ids))[1:] == sorted(all_errors().keys() - {"E999"})
    assert list(error_kinds()) == list(all_errors())
    assert list(warning_kinds()) == sorted(warning_kinds())


@pytest.mark.parametrize("ident", warning_kinds())
def test_the_table_decides_which_warnings_make_a_trial_suspect(ident: str) -> None:
    """Unless the code says that this one does not."""
    assert model.TrialWarning(ident, "x").suspect == warning_kinds()[ident].suspect
    assert model.TrialWarning(ident, "x", suspect=False).suspect is False


@pytest.mark.parametrize("name", SHIPPED.setups)
def test_every_fs_setup_has_its_entry(name: str) -> None:
    """With the mkfs and mount options of its file, and its class with its own tuning, unless they
    are usual.
    """
    setup = SHIPPED.setup(name)
    entry = re.search(rf"^- \*\*`{name}`\*\*(?: \(([^)]*)\))?: \S", text("docs/fs-setups.md"), re.M)
    assert entry is not None
    made = f"`{' '.join(setup.mkfs.options)}`" if setup.mkfs.options else ""
    mount = "" if setup.mount == ("noatime",) else f"`{','.join(setup.mount)}`"
    made, mount = ("none", "none") if setup.mkfs.family == "raw" else (made, mount)
    promise = "" if of_setup(setup) == "full" else of_setup(setup)
    assert " ".join((entry[1] or "").split()) == "; ".join(filter(None, (made, mount, promise)))


@pytest.mark.parametrize("name", SHIPPED.workloads)
def test_every_workload_has_its_entry(name: str) -> None:
    """With its driver, and the engines, window and primary metric that are not the usual ones.
    `dbbench workload NAME` describes the parameters: each has a help text. Those that the
    document explains are parameters of a workload.
    """
    workload = SHIPPED.workload(name)
    entry = re.search(rf"^- \*\*`{name}`\*\* \(([^)]*)\): \S", text("docs/workloads.md"), re.M)
    assert entry is not None
    engines = "" if len(workload.engines) == 3 else ", ".join(workload.engines)
    window = "" if workload.window == "fixed" else workload.window
    primary = "" if workload.primary == "tps" else f"`{workload.primary}`"
    assert entry[1] == "; ".join(filter(None, (workload.driver, engines, window, primary)))
    for key, parameter in catalog.parameters(workload).items():
        assert len(parameter.help.split()) > 2, f"{key} of {name} has no help"
    explained = set(
        re.findall(r"^- \*\*`(\w+)`\*\*", section("docs/workloads.md", "Parameters"), re.M)
    )
    known = {
        key for each in SHIPPED.workloads for key in catalog.parameters(SHIPPED.workload(each))
    }
    assert explained and explained <= known


KEYS: Final = [
    ("docs/plan.md", "Keys of the plan", model.Plan),
    ("docs/plan.md", "An entry of `fs_setups`", model.Arm),
    ("docs/plan.md", "`[device]`", model.DeviceSpec),
    ("docs/plan.md", "`[client]`", model.ClientSpec),
    ("docs/plan.md", "`[snapshots]`", model.SnapshotSpec),
    ("docs/plan.md", "`[[engine]]`", model.EngineSpec),
    ("docs/plan.md", "`[[workload]]`", model.WorkloadSpec),
    ("docs/fs-setups.md", "Your own", model.FsSetup),
    ("docs/workloads.md", "Your own", model.Workload),
]


@pytest.mark.parametrize(("document", "heading", "noun"), KEYS)
def test_every_key_has_its_row(
    document: str,
    heading: str,
    noun: type[Any],
) -> None:
    """Each key that a person may write, and none that there is not; defaults are those of the code."""
    own = {"warmup_s": "warmup", "measure_s": "measure"}  # read by hand in plan/workloads.py
    read_by_hand = {model.WorkloadSpec: {"parameters", "sweeps"}, model.EngineSpec: {"sweeps"}}
    hidden = read_by_hand.get(noun, {"name"} if noun in (model.FsSetup, model.Workload) else set())
    part = section(document, heading, "## ")
    table = definitions(part) or rows(part)
    known = {own.get(key, key) for key in written_fields(noun)} - hidden
    assert known == table.keys() - {"key", "---", "---|---|---", "---|---|---|---"}
    fields = {
        field.name.removesuffix("_bytes").removesuffix("_s"): field
        for field in dataclasses.fields(noun)
    }
    for key in known:
        default = fields["bins" if key == "bin" else key].default
        # the default of results without it is another one
        if noun is model.EngineSpec and key == "profile":
            default = PRODUCTION
        if isinstance(default, bool | int | float | str) and default != "":
            shown = re.match(r"`(.*?)`", table[key][0])
            assert shown is not None, f"{key} has no default in {document}"
            assert _value(tomllib.loads(f"v = {shown[1]}")["v"], default) == default


def _value(shown: Any, default: Any) -> Any:
    if isinstance(shown, str) and isinstance(default, int | float):
        if shown.endswith("%"):
            return share_of(shown)
        return bytes_of(shown) if isinstance(default, int) else seconds_of(shown)
    return shown


@pytest.mark.parametrize(
    "heading", [heading for document, heading, _ in KEYS if document == "docs/plan.md"]
)
def test_every_key_has_an_example(heading: str) -> None:
    """A line of TOML that sets the key, unless a default shows it; keys that are tables have a
    section.
    """
    for key, (default, words) in definitions(section("docs/plan.md", heading, "## ")).items():
        example = re.search(r"Example: `(.*?)`\.", words)
        assert example or default or re.search(r"\(#\w+\)", words), key
        assert example is None or list(tomllib.loads(example[1])) == [key]


def test_every_deadline_has_its_default() -> None:
    """The phases of `[deadlines]` with their seconds."""
    shown = dict(re.findall(r"`(\w+)`\s`(\d+)`", section("docs/plan.md", "`[deadlines]`")))
    assert {name: float(seconds) for name, seconds in shown.items()} == {
        phase.value: float(seconds) for phase, seconds in DEADLINES_S.items()
    }


def test_every_key_of_a_trial_and_every_metric_is_explained() -> None:
    """Each field of trial.json has its entry in docs/results.md, and no entry is of something else;
    each key of a summary says how it is computed.
    """
    assert {field.name for field in dataclasses.fields(model.Trial)} == heads(
        "trial.json (schema 1)"
    )
    assert {*METRICS, *COUNTS} <= heads("How the metrics are computed")


def heads(heading: str) -> set[str]:
    """The keys that a definition list of docs/results.md explains; an entry may have several, also
    as {a,b}_ms.
    """
    key = r"\*\*`[\w{},]+`\*\*"
    items = re.findall(rf"^- ((?:{key},?\s+)*{key}):", section("docs/results.md", heading), re.M)
    return {
        name
        for item in items
        for written in re.findall(r"`([^`]+)`", item)
        for name in expanded(written)
    }


def expanded(written: str) -> list[str]:
    """The names that braces stand for, as a shell expands them."""
    parts = [part.strip("{}").split(",") for part in re.findall(r"\{[^}]*\}|[^{}]+", written)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def test_picture_of_the_report_is_small() -> None:
    """docs/report.png is a PNG of at most 300 KB, and the README shows it."""
    picture = (ROOT / "docs/report.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) <= 300_000
    assert "](docs/report.png)" in text("README.md")


def test_a_whole_page_can_be_looked_at_before_installing() -> None:
    """The README names it above the commands; it is the run of the README's sample."""
    page = html.unescape(text("docs/sample.html"))
    assert "](docs/sample.html)" in text("README.md").partition("## Two commands")[0]
    assert "connect-src 'none'" in page and len(page) < 2_000_000
    shown = section("README.md", "Two commands")
    changes = re.findall(r"[+−][\d.]+ %", shown)
    assert len(changes) == 4
    plain = re.sub(r"\s", " ", page)
    assert [change for change in changes if change not in plain] == []


def test_the_sample_of_the_readme_is_replaced_by_a_demo() -> None:
    """By the answer and the table that are printed; nothing else changes. Without that table it is
    an error.
    """
    sampled = runpy.run_path(str(ROOT / "docs/sample.py"))["sampled"]
    readme = text("README.md")
    (sample,) = re.findall(r"^```\n([^`]*^mariadb sysbench[^`]*)^```$", readme, re.MULTILINE)
    answer, table = sample.split("\n\n")
    assert sampled(readme, f"{answer}\n\npostgres x\n\n{table}\n! y\n\npostgres z\n") == readme
    changed = sampled(readme, f"xfs wins.\n\n{table}")
    assert f"```\nxfs wins.\n\n{table}```" in changed and answer not in changed
    with pytest.raises(ValueError, match="no table"):
        sampled(readme, "postgres x\n")


def test_the_map_is_drawn_from_the_code() -> None:
    """docs/map.svg has the packages of the import contract; `make map` draws it again."""
    drawing = runpy.run_path(str(ROOT / "docs/map.py"))
    assert text("docs/map.svg") == drawing["drawn"]()
    shown = re.findall(r'class="name"[^>]*>(\w+)<', text("docs/map.svg"))
    rooms = {
        path.name.removesuffix(".py")
        for path in (ROOT / "dbbench").iterdir()
        if not path.name.startswith("__")
    }
    assert set(shown) == rooms - {"data", "py.typed"}


def test_nothing_is_installed_from_an_index_by_our_name() -> None:
    """That name belongs to another project there, so extras are installed from the checkout."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("dbbench/**/*.py")]
    named = [
        path
        for path in files
        if re.search(r"pip install (-\S+ )*\W*dbbench", path.read_text(encoding="utf-8"))
    ]
    assert named == []
    extras = set(
        re.findall(r"pip install -e \W*\.\[(\w+)\]", "".join(path.read_text() for path in files))
    )
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert {"fleet", "lab"} <= extras <= config["options.extras_require"].keys()


def test_documents_are_short() -> None:
    """Most words of all documents together, without the generated list of errors. What is added
    replaces something. Lines of the README fit a terminal, and it names what both commands need:
    a bare system has neither git nor make.
    """
    counted = [path for path in DOCUMENTS if path.parent != ROOT and path.name != "errors.md"]
    words = sum(
        len(path.read_text(encoding="utf-8").split()) for path in (*counted, ROOT / "README.md")
    )
    assert words <= 30_000
    assert [line for line in text("README.md").splitlines() if len(line) > 120] == []
    assert "apt-get install git make python3" in section("README.md", "Two commands")
