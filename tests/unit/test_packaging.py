"""The parts of `make dist`, `make bundle` and `make release`; tests/system/test_packages.py
installs the packages.
"""

import configparser
import contextlib
import importlib.metadata
import re
import shutil
from datetime import date
from pathlib import Path
from typing import Final

import artifacts
import bundle
import click
import man
import pytest
import release
from packaging.requirements import Requirement

from dbbench import packages, process
from dbbench.cli import COMMANDS, group
from dbbench.packages import TOOLS

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = man.pages(date(2026, 1, 2))


def plain(page: str) -> str:
    """The words of a man page without the marks of groff."""
    return re.sub(r"\\f[BR]|\\&|\\e", "", PAGES[page]).replace("\\-", "-")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_manual_has_every_command_with_its_options(name: str) -> None:
    """Options of the command itself; shared ones are listed once, at the beginning."""
    page = plain("dbbench.1")
    context = click.Context(group, info_name="dbbench")
    part = page[page.index(f"\n.B dbbench {name}") :].split("\n.RE\n")[0]
    command = group.get_command(context, name)
    assert command is not None
    shared = {option.name for option in group.params}
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in shared:
            assert any(word in part for word in option.opts), option.opts


def test_the_manual_of_the_plan_has_every_key() -> None:
    """Keys of docs/plan.md, and the words of its links instead of their addresses."""
    text = (ROOT / "docs/plan.md").read_text()
    page = plain("dbbench-plan.5")
    keys = re.findall(r"^- \*\*`(\w+)`\*\*", text, re.MULTILINE)
    assert len(keys) > 40
    assert [key for key in keys if f"\n.B {key}\n" not in page] == []
    assert "](" not in page and "```" not in page


@pytest.mark.starts_processes
@pytest.mark.skipif(not shutil.which("man"), reason="needs man")
@pytest.mark.parametrize("page", PAGES)
def test_groff_has_nothing_to_say_of_a_page(tmp_path: Path, page: str) -> None:
    """No warning, and mandb finds its name and what it is for."""
    path = tmp_path / page
    path.write_text(PAGES[page])
    done = process.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", path],
        env={"MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == "" and len(done.stdout.splitlines()) > 100
    if shutil.which("lexgrog"):
        assert f'"{Path(page).stem} - ' in process.run(["lexgrog", path]).stdout


def test_the_deb_has_or_needs_every_package_of_python() -> None:
    """Each one that the wheel requires is Debian's or in the .deb, in a locked version."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = (
        config["options"]["install_requires"].split()
        + config["options.extras_require"]["fleet"].split()
    )
    required = {re.split(r"\W*[><=]", line)[0] for line in lines}
    for name in artifacts.VENDORED:  # with what it needs itself in any version of Python
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # not needed by this one
            needs = map(Requirement, importlib.metadata.requires(name) or [])
            required |= {
                need.name.lower().replace("_", "-")
                for need in needs
                if "extra" not in str(need.marker)
            }
    assert required <= {*artifacts.DEBIAN, *artifacts.VENDORED} and not {*artifacts.DEBIAN} & {
        *artifacts.VENDORED
    }
    for name in artifacts.VENDORED:
        assert re.match(
            rf"{name}==\S+.*\n    --hash=sha256:", artifacts.locked(name, artifacts.locks(ROOT))
        )


def test_the_control_file_recommends_the_tools() -> None:
    """No field is left open; each tool of the table is recommended by its package. mfusepy is in a
    bundle for the power-loss lab, so the library that it loads is one of the packages. There is
    one file for each shell that `dbbench completion` knows.
    """
    assert packages.FUSE in {
        name for tool in TOOLS if tool.group == "run" for name in tool.programs
    }
    text = artifacts.control("amd64", 7)
    fields = dict(re.findall(r"^([\w-]+): (.*)$", text, re.MULTILINE))
    assert "@" not in text.replace(fields["Maintainer"], "")
    assert fields["Architecture"] == "amd64" and fields["Installed-Size"] == "7"
    for tool in TOOLS:
        if artifacts.recommended(tool):
            assert tool.debian in fields["Recommends"].split(", ")
    command = group.get_command(click.Context(group), "completion")
    assert command is not None
    (argument,) = (each for each in command.params if isinstance(each, click.Argument))
    assert isinstance(argument.type, click.Choice) and sorted(argument.type.choices) == sorted(
        artifacts.COMPLETIONS
    )


@pytest.mark.starts_processes
@pytest.mark.parametrize("programs", [("cat", "dirname", "dpkg"), ("cat", "dirname", "uname")])
def test_a_bundle_of_another_release_is_rejected(tmp_path: Path, programs: tuple[str, ...]) -> None:
    """Before anything else, with both names; also by a machine without dpkg."""
    for name in programs:
        if (path := shutil.which(name)) is None:
            pytest.skip(f"needs {name}")
        (tmp_path / name).symlink_to(path)
    shutil.copy(ROOT / "packaging/install.sh", tmp_path)
    (tmp_path / "RELEASE").write_text("ubuntu 4.10 amd64\n")
    done = process.run(["env", f"PATH={tmp_path}", "/bin/sh", tmp_path / "install.sh"], ok=(2,))
    values = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    assert "is for ubuntu 4.10 amd64" in done.stderr
    assert f"this machine is {values['ID']}" in done.stderr and "Nothing was changed" in done.stderr


def test_a_bundle_requires_debootstrap(programs: Path) -> None:
    """Without it, an error names the program and the command that installs it, and nothing is
    written.
    """
    for name in {"apt-get", *bundle.PROGRAMS} - {"debootstrap"}:
        (programs / name).touch(0o755)
    said = r"error E201: debootstrap not installed\n  Nothing was changed. .*debootstrap"
    with pytest.raises(SystemExit, match=said):
        bundle.main(["debian12"])


def test_the_checklist_stops_at_the_first_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """What comes after it is not checked, and it is named. It ends with the tag; every target that
    it makes is one of the Makefile's.
    """
    seen: list[str] = []

    def item(title: str, problem: str) -> release.Item:
        return release.Item(title, lambda: seen.append(title) or problem)  # type: ignore[func-returns-value]

    assert release.checked([item("one", ""), item("two", "no tag"), item("three", "")]) == 1
    assert seen == ["one", "two"]
    assert "FAILED: two: no tag" in capsys.readouterr().out
    assert release.checked([item("one", "")]) == 0
    assert release.ITEMS[-1].title == "tag"
    targets = re.findall(
        r'command\("make", "([\w-]+)"\)', (ROOT / "packaging/release.py").read_text()
    )
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("## 1.0 (2026-01-02)\n\n- new\n", ""),
        ("## Unreleased\n\n## 1.0 (2026-01-02)\n\n- new\n", ""),
        ("## Unreleased\n\n- newer\n\n## 1.0 (2026-01-02)\n\n- new\n", "Unreleased"),
        ("## 1.0 (not released)\n\n- new\n", "not released"),
        ("## 1.0 (2026-01-02)\n\n## 0.9 (2025-01-02)\n\n- old\n", "no entries"),
        ("## 0.9 (2025-01-02)\n\n- old\n", "no section 1.0"),
    ],
)
def test_a_release_has_its_section_of_the_changelog(text: str, problem: str) -> None:
    """With a date and entries, and nothing left under Unreleased."""
    said = release.changelog(text, "1.0")
    assert problem in said if problem else said == ""


def test_the_table_of_packages_is_that_of_the_program() -> None:
    """docs/install.md has each tool that benchmarks need, with its package in Debian and in Fedora."""
    text = (ROOT / "docs/install.md").read_text().replace("\n  ", " ")
    shown = re.findall(r"^- (.*?): `(.*?)`; `(.*?)`$", text, re.MULTILINE)
    known = {
        (tool.debian.replace(" | ", "` or `"), tool.fedora) for tool in TOOLS if tool.group == "run"
    }
    assert {(debian, fedora) for _, debian, fedora in shown} == known
