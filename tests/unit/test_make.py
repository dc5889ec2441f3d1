"""The targets of the Makefile that users need: packages, demo, install."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dbbench import packages
from tests.unit.test_packages import installer


def test_nothing_missing_is_silent_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second `make demo` neither asks apt nor prints a word."""
    monkeypatch.setattr(packages, "missing", lambda *_: [])
    before = signal.getsignal(15)
    assert installer.main(["run", "test"]) == 0
    signal.signal(15, before)
    assert capsys.readouterr().out == ""


@pytest.mark.needs("make")
@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("target", "reason", "remedy"),
    [
        ("demo", "the demo makes and mounts filesystems", "As root:  make demo"),
        (
            "install",
            "/usr/local belongs to another user",
            'for yourself alone:  make install PREFIX="$HOME/.local"',
        ),
        ("uninstall", "/usr/local belongs to another user", "make uninstall PREFIX="),
    ],
)
def test_a_target_says_at_once_that_it_needs_root(
    tmp_path: Path,
    target: str,
    reason: str,
    remedy: str,
) -> None:
    """Without root and sudo, before a virtual environment is built."""
    make = shutil.which("make")
    assert make is not None
    argv = [
        make,
        "-C",
        Path(__file__).parents[2],
        target,
        "SUDO=sudo",
        f"VENV={tmp_path}/venv",
        "PYTHON=false",
    ]
    done = subprocess.run(
        argv,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"error E202: {reason}" in done.stderr and remedy in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("make")
@pytest.mark.starts_processes
def test_make_install_links_and_uninstall_removes_only_that(tmp_path: Path) -> None:
    """The links lead into the checkout's virtual environment. A file or link of another program
    stays.
    """
    link = tmp_path / "bin/dbbench"
    root = Path(__file__).parents[2]
    page = tmp_path / "share/man/man1/dbbench.1"

    def make(target: str) -> int:
        argv = [
            "make",
            "-C",
            root,
            "-o",
            ".venv/.done",
            target,
            f"PREFIX={tmp_path}",
            "SUDO=",
            "PYTHON=true",
        ]
        return subprocess.run(argv, capture_output=True, check=False).returncode

    assert make("uninstall") == 0
    assert make("install") == 0 == make("install")
    assert link.readlink() == root / ".venv/bin/dbbench"
    assert ".TH DBBENCH 1 " in page.read_text()
    assert ".TH DBBENCH\\-PLAN 5 " in (tmp_path / "share/man/man5/dbbench-plan.5").read_text()
    assert make("uninstall") == 0 and not link.is_symlink()
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
    for path in (page, link):
        path.write_text("mine")
        assert make("install") == 2 == make("uninstall")
        assert path.read_text() == "mine" and not link.is_symlink()
        path.unlink()
    link.symlink_to("/bin/true")
    assert make("install") == 2 == make("uninstall")
    assert link.readlink() == Path("/bin/true")


@pytest.mark.needs("make")
@pytest.mark.starts_processes
@pytest.mark.parametrize("status", [0, 130])
@pytest.mark.parametrize("installed", [False, True])
def test_the_demo_says_where_its_command_is(
    tmp_path: Path,
    status: int,
    installed: bool,
) -> None:
    """Messages name `dbbench`. At the end, also after Ctrl-C, a line says what that is if it is not
    in the PATH.
    """
    (binary := tmp_path / "venv/bin/dbbench").parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho ran $*; exit {status}\n")
    binary.chmod(0o755)
    root = Path(__file__).parents[2]
    path = f"{tmp_path}/venv/bin:" if installed else ""
    argv = [
        "make",
        "-C",
        root,
        "-o",
        f"{tmp_path}/venv/.done",
        "demo",
        f"VENV={tmp_path}/venv",
        "SUDO=",
        "PYTHON=echo",
    ]
    path += "/usr/sbin:/usr/bin:/sbin:/bin"
    done = subprocess.run(argv, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == (status != 0) and "ran run" in done.stdout
    assert (f"is {tmp_path}/venv/bin/dbbench; make install" in done.stderr) is not installed


def test_extras_are_installed_without_an_index_of_our_name() -> None:
    """The requirements themselves are named, so the command works from a checkout and from a wheel."""
    assert packages.extra("lab").startswith(f"{sys.executable} -m pip install 'mfusepy>")
    assert "distributed>" in packages.extra("fleet")
    assert packages.extra("nothing") == "install the extra nothing"


@pytest.mark.starts_processes
def test_apt_prints_nothing_unless_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    """Then its output stands above the error."""
    installer._checked(["sh", "-c", "echo Unpacking; echo warning >&2"])
    assert capfd.readouterr() == ("", "")
    with pytest.raises(SystemExit):
        installer._checked(["sh", "-c", "echo Unpacking; echo dpkg: error >&2; exit 100"])
    assert capfd.readouterr().err.startswith(
        "Unpacking\ndpkg: error\nerror E201: sh -c ended with status 100\n"
    )
