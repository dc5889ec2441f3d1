from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dbbench import packages
from dbbench.packages import TOOLS, Simulation, Tool, has_candidate, missing, package_of, simulate

APT = Path(__file__).parents[1] / "fixtures" / "apt"


def answer(name: str, returncode: int = 0) -> subprocess.CompletedProcess[str]:
    """What apt-get --simulate printed, recorded."""
    return subprocess.CompletedProcess(["apt-get"], returncode, (APT / f"{name}.txt").read_text(), "")


def test_it_needs_nothing_but_python() -> None:
    """It runs before anything is installed: only modules of the standard library, none of dbbench's."""
    nodes = list(ast.walk(ast.parse(Path(packages.__file__).read_text())))
    names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    imported = {name.split(".")[0] for name in names}
    assert imported <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("program", "package"),
    [("mkfs.xfs", "xfsprogs"), ("/usr/lib/sysstat/sadc", "sysstat"), ("mariadbd", "mariadb-server-core"), ("vi", None)],
)
def test_the_package_of_a_program(program: str, package: str | None) -> None:
    """By name or path; a program that is not ours has none."""
    assert package_of(program) == package


def test_fedora_has_names_of_its_own() -> None:
    """The same table has both."""
    assert package_of("compsize", "fedora") == "compsize"
    assert all(tool.fedora for tool in TOOLS)


def test_what_is_missing_is_found_by_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tool is there when all of its programs are; an engine may be left out."""
    monkeypatch.setattr(packages, "SBIN", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(
        packages,
        "TOOLS",
        (
            Tool("run", ("one", "two"), "p", "p"),
            Tool("run", ("three",), "q", "q", engine="mariadb"),
            Tool("test", ("four",), "r", "r"),
        ),
    )
    (tmp_path / "one").touch(0o755)
    assert [tool.missing() for tool in missing(["run"])] == [["two"], ["three"]]
    assert [tool.debian for tool in missing(["run", "test"], without=["mariadb"])] == ["p", "r"]
    (tmp_path / "two").touch(0o755)
    assert missing(["run"], without=["mariadb"]) == []


def test_a_simulation_tells_new_from_upgraded() -> None:
    """`Inst attr (new)` is installed, `Inst postgresql [old] (new)` would be upgraded."""
    found = simulate(answer("installs-and-upgrades"))
    assert found.new == ("attr",)
    assert "postgresql" in found.upgraded
    assert (found.removed, found.error) == ((), "")


def test_a_simulation_tells_what_would_be_removed() -> None:
    """apt refuses to remove, and says what it would have had to."""
    found = simulate(answer("removes-mysql", 100))
    assert found.removed == ("mysql-server-core-8.0",)
    assert "remove is disabled" in found.error


def test_another_vendors_server_is_a_conflict_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is removed: the error says what stands in the way and what to do."""
    with pytest.raises(SystemExit) as caught:
        packages._judge(simulate(answer("removes-mysql", 100)), ["mariadb-server-core"])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "error E205: installing mariadb-server-core would remove mysql-server-core-8.0" in told
    assert "Nothing was changed." in told
    assert "packages.py run --without mariadb" in told


def test_a_server_in_use_is_not_upgraded_on_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    """An upgrade restarts a server: its owner decides when."""
    with pytest.raises(SystemExit):
        packages._judge(simulate(answer("installs-and-upgrades")), ["attr", "postgresql"])
    assert "would upgrade a database server: postgresql" in capsys.readouterr().err
    packages._judge(Simulation(("attr",), ("libpq5",), (), ""), ["attr"])


def test_a_package_without_a_candidate_is_unknown() -> None:
    """`Candidate: (none)` and no answer at all mean that it cannot be installed."""
    assert has_candidate((APT / "policy-known.txt").read_text())
    assert not has_candidate((APT / "policy-none.txt").read_text())
    assert not has_candidate("")


def test_services_are_forbidden_while_it_lives_only(tmp_path: Path) -> None:
    """policy-rc.d is there within the block, gone after it, also after an error; a leftover of ours is replaced."""
    path = tmp_path / "policy-rc.d"
    path.write_text(f"#!/bin/sh\n# {packages._MARK}, process 1\nexit 101\n")
    with pytest.raises(KeyboardInterrupt), packages._no_services(path):
        assert f"kill -0 {os.getpid()}" in path.read_text()
        assert os.access(path, os.X_OK)
        raise KeyboardInterrupt
    assert not path.exists()


def test_a_policy_of_the_machine_stays(tmp_path: Path) -> None:
    """An administrator's own file is neither changed nor removed."""
    path = tmp_path / "policy-rc.d"
    path.write_text("#!/bin/sh\nexit 104\n")
    with packages._no_services(path):
        pass
    assert path.read_text() == "#!/bin/sh\nexit 104\n"


def test_no_cluster_is_created_meanwhile(tmp_path: Path) -> None:
    """PostgreSQL's package reads this folder; afterwards it is as before."""
    path = tmp_path / "postgresql-common" / "createcluster.d" / "x.conf"
    with packages._no_cluster(path):
        assert "create_main_cluster = false" in path.read_text()
    assert not path.parent.parent.exists()


def test_nothing_missing_is_silent_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A second `make demo` neither asks apt nor prints a word."""
    monkeypatch.setattr(packages, "missing", lambda *_: [])
    before = signal.getsignal(15)
    assert packages.main(["run", "test"]) == 0
    signal.signal(15, before)
    assert capsys.readouterr().out == ""
