import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench import packages, plan
from dbbench.packages import TOOLS, Tool, missing, package_of

sys.path.insert(0, str(Path(packages.__file__).with_name("data") / "installer"))

import tools as installer

from tests.support.plans import SHIPPED

installer.packages = packages  # it imports the file alone, because it needs no dbbench

APT = Path(__file__).parents[1] / "fixtures" / "apt"


def refusal(capsys: pytest.CaptureFixture[str], action: Callable[[], object]) -> str:
    """The message with which the installer ends."""
    with pytest.raises(SystemExit) as caught:
        action()
    assert caught.value.code == 2
    return capsys.readouterr().err


def answer(name: str, returncode: int = 0) -> subprocess.CompletedProcess[str]:
    """What apt-get --simulate printed, recorded."""
    return subprocess.CompletedProcess(
        ["apt-get"],
        returncode,
        (APT / f"{name}.txt").read_text(),
        "",
    )


@pytest.mark.starts_processes
def test_it_needs_nothing_but_python() -> None:
    """It runs before anything is installed: without site-packages, and without dbbench beside
    it.
    """
    argv = [sys.executable, "-I", "-S", packages.__file__, "--help"]
    assert "run|test" in subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("program", "package"),
    [
        ("mkfs.xfs", "xfsprogs"),
        ("/usr/lib/sysstat/sadc", "sysstat"),
        ("mariadbd", "mariadb-server-core"),
        ("vi", None),
    ],
)
def test_the_package_of_a_program(program: str, package: str | None) -> None:
    """By name or path; an unknown program has none."""
    assert package_of(program) == package


def test_a_recorder_outside_path_is_found(tmp_path: Path) -> None:
    """sadc is found in each of the directories that releases have it in: Debian 12 and 13, Fedora,
    32 bit.
    """
    known = {"/usr/lib/sysstat", "/usr/libexec/sysstat", "/usr/lib64/sa", "/usr/lib/sa"}
    assert known <= {*packages.OUTSIDE_PATH["sadc"]}
    places = tuple(str(tmp_path / name) for name in ("sysstat", "sa"))
    assert packages.find("recorder", {"recorder": places}) is None
    for place in reversed(places):
        (path := Path(place, "recorder")).parent.mkdir()
        path.touch(0o755)
        assert packages.find("recorder", {"recorder": places}) == str(path)


def test_no_remedy_creates_a_cluster(programs: Path) -> None:
    """For PostgreSQL, apt-get would create one and start it: the remedy is the installer, in any
    directory. Where another program of a package is there, the remedy says where it was looked
    for, not to install.
    """
    (programs / "apt-get").touch(0o755)
    assert (
        packages.remedy(["fsck.f2fs", "mkfs.f2fs", "vi"])
        == "apt-get install --no-install-recommends f2fs-tools"
    )
    (programs / "dump.f2fs").touch(0o755)
    found = packages.remedy(["mkfs.f2fs", "mkfs.xfs"])
    assert found.startswith("apt-get install --no-install-recommends xfsprogs\n")
    assert f"mkfs.f2fs belongs to f2fs-tools, which is installed ({programs}/dump.f2fs)" in found
    assert "is not in PATH. Find it with  dpkg -L f2fs-tools" in found
    (programs / "dump.f2fs").unlink()
    command, rest = packages.remedy(["initdb", "sysbench", "mkfs.f2fs"]).split(" && ")
    assert command == f"python3 {Path(packages.__file__).resolve()} run"
    assert rest == "apt-get install --no-install-recommends f2fs-tools"


def test_without_a_known_package_manager_the_projects_are_named(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No command of apt-get is printed where there is none: dnf's with Fedora's names, else the
    names of projects.
    """
    assert package_of("compsize", "fedora") == "compsize" and all(tool.fedora for tool in TOOLS)
    wanted = ["mariadb-server-core", "mariadb-client-core", "btrfs-compsize", "fio", "python3-venv"]
    (dnf := programs / "dnf").touch(0o755)
    assert packages.install(wanted) == "dnf install mariadb-server mariadb compsize fio python3"
    dnf.unlink()
    assert packages.install(wanted).startswith(
        "install MariaDB, compsize, fio, Python with the module venv (names of"
    )
    assert packages.fix("postgresql").startswith("install PostgreSQL (")
    assert packages.remedy(["mkfs.xfs", "sysbench"]).startswith("install xfsprogs, sysbench (")
    told = refusal(capsys, lambda: installer._provide([tool("fio")], dry_run=False))
    assert told.startswith(
        "error E201: this machine has no apt-get\n  Nothing was changed. By hand:  install fio ("
    )


def test_what_is_missing_is_found_by_its_programs(programs: Path) -> None:
    """A tool is there when all of its programs are; an engine may be left out, with all of its
    packages, because they exclude those of MySQL.
    """
    f2fs = tool("f2fs-tools")
    for there, lacking in ((0, ["mkfs.f2fs", "dump.f2fs"]), (1, ["dump.f2fs"]), (2, [])):
        for name in f2fs.programs[:there]:
            (programs / name).touch(0o755)
        assert f2fs.missing() == lacking
        assert (f2fs in missing(["test"])) is bool(lacking) and f2fs not in missing(["run"])
    assert {*MARIADB} <= {*missing(["run", "test"])}
    assert not [
        each.debian
        for each in missing(["run", "test"], without=["mariadb"])
        if "mariadb" in each.debian
    ]


def test_a_simulation_distinguishes_new_from_upgraded_and_removed() -> None:
    """`Inst attr (new)` is installed, `Inst postgresql [old] (new)` would be upgraded; apt refuses
    to remove, and says what it would have had to.
    """
    found = installer.simulate(answer("installs-and-upgrades"))
    assert (found.new, found.removed, found.error) == (("attr",), (), "")
    assert "postgresql" in found.upgraded
    found = installer.simulate(answer("removes-mysql", 100))
    assert found.removed == ("mysql-server-core-8.0",)
    assert "remove is disabled" in found.error


def tool(package: str) -> Tool:
    """The tool of that package."""
    return next(tool for tool in TOOLS if tool.debian == package)


MARIADB = [tool(name) for name in ("mariadb-server-core", "mariadb-client", "mariadb-client-core")]
OTHERS = [tool("sysstat"), tool("attr")]


def program(folder: Path, name: str, script: str) -> None:
    """Put a program into the folder: a script of sh."""
    (folder / name).write_text(f"#!/bin/sh\n{script}")
    (folder / name).chmod(0o755)


# apt-get of a release with its MySQL server installed.
APT_GET = """
case " $* " in
*" --simulate sysbench ") name=sysbench ;;
*" mariadb-client "*) name=with-mariadb ;;
*" sysbench "*) name=without-mariadb ;;
*) name=without-sysbench ;;
esac
while IFS= read -r line; do
    echo "$line"
    case "$line" in E:*) status=100 ;; esac
done < {apt}/{release}-mysql-$name.txt
exit ${{status:-0}}
"""


@pytest.mark.starts_processes
@pytest.mark.parametrize(("release", "needs_mariadb"), [("ubuntu2404", ""), ("sid", " sysbench")])
def test_where_mysql_is_mariadb_is_left_out(
    release: str,
    needs_mariadb: str,
    programs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By itself, all of its packages, in one line that says why; the rest is installed and nothing
    removed. sysbench of Debian unstable needs MariaDB's library, which excludes its MySQL.
    """
    program(programs, "apt-get", APT_GET.format(apt=APT, release=release))
    chosen, plan = installer._possible([*MARIADB, tool("sysbench"), *OTHERS])
    assert chosen == [*([] if needs_mariadb else [tool("sysbench")]), *OTHERS]
    assert {*(each.debian for each in chosen)} <= {*plan.new} and plan.removed == ()
    (line,) = capsys.readouterr().out.splitlines()
    names = f"mariadb-server-core mariadb-client mariadb-client-core{needs_mariadb}"
    assert (
        line.startswith(f"left out: {names}, because apt-get would remove")
        and "mysql-server-core" in line
    )


@pytest.mark.starts_processes
def test_another_conflict_is_an_error_with_a_remedy(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is removed: the error says what stands in the way and what to do."""
    program(programs, "apt-get", f"/bin/cat {APT}/removes-mysql.txt; exit 100")
    told = refusal(capsys, lambda: installer._possible([*MARIADB, *OTHERS]))
    names = "mariadb-server-core mariadb-client mariadb-client-core sysstat attr"
    assert f"error E201: installing {names} would remove" in told and "Nothing was changed." in told


@pytest.mark.parametrize(
    ("there", "told", "engines", "workloads"),
    [
        ({"mariadbd", "sysbench"}, "", ["postgres", "mariadb"], 3),
        ({"mysqld", "sysbench"}, "PostgreSQL and MySQL", ["postgres", "mysql"], 3),
        ({"mysqld"}, "PostgreSQL alone, because sysbench is not installed", ["postgres"], 2),
        (
            set(),
            "PostgreSQL alone, because neither MariaDB nor MySQL is installed",
            ["postgres"],
            2,
        ),
    ],
)
def test_the_demo_uses_the_servers_that_are_there(
    there: set[str],
    told: str,
    engines: list[str],
    workloads: int,
    here: Path,
    programs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its plan is valid with each of them, and one line says which they are."""
    shipped = Path(__file__).parents[2] / "docs/plans/demo.toml"
    (here / ".venv").mkdir()
    for name in there:
        (programs / name).touch(0o755)
    chosen = installer.demo(shipped)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(told) and all(told in line for line in lines)
    assert (chosen == shipped) == (not told)
    loaded = plan.load(chosen, SHIPPED)
    assert [engine.name for engine in loaded.engine] == engines
    assert len(loaded.workload) == workloads


@pytest.fixture
def policies(
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    release: str,
) -> None:
    """apt-cache answers as on that release."""
    for name in ("apt-get", "apt-cache"):
        (programs / name).touch(0o755)
    monkeypatch.setattr(
        packages,
        "policy",
        lambda name: (APT / f"policy-{release}-{name}.txt").read_text(),
    )


@pytest.mark.parametrize(
    ("release", "package"), [("debian13", "libfuse3-4"), ("ubuntu2404", "libfuse3-3")]
)
@pytest.mark.usefixtures("policies")
def test_a_renamed_package_has_the_name_of_the_release(package: str) -> None:
    """The library of libfuse 3 is another package since Debian 13."""
    assert package_of(packages.FUSE) == package


@pytest.mark.parametrize(
    ("name", "version", "old"),
    [
        ("debian", "12", True),
        ("debian", "13", False),
        ("ubuntu", "24.04", True),
        ("ubuntu", "26.04", False),
        ("debian", "", False),
    ],
)
def test_without_lists_the_release_decides_the_name(name: str, version: str, old: bool) -> None:
    """A new server has no lists before apt-get update; sid has no version."""
    assert packages.has_old_names({"ID": name, "VERSION_ID": version}) == old


@pytest.mark.parametrize("release", ["debian13"])
@pytest.mark.usefixtures("policies")
def test_a_package_that_the_release_does_not_have_is_not_named_as_a_remedy() -> None:
    """Debian 13 has no bcachefs-tools: no command that fails is printed."""
    assert packages.fix("libfuse3-4") == "apt-get install libfuse3-4"
    assert packages.fix("bcachefs-tools") == (
        "bcachefs-tools is not in this machine's package lists; "
        "if that is still so after apt-get update, this release does not have it"
    )
    assert "apt-get install" not in packages.remedy(["mkfs.no-such"])


def test_a_server_in_use_is_not_upgraded_on_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    """An upgrade restarts a server: its owner decides when."""
    upgrading = installer.simulate(answer("installs-and-upgrades"))
    told = refusal(capsys, lambda: installer._judge(upgrading, ["attr", "postgresql"]))
    assert "would upgrade a database server: postgresql" in told
    installer._judge(installer.Simulation(("attr",), ("libpq5",), (), ""), ["attr"])


@pytest.mark.starts_processes
@pytest.mark.parametrize("outdated", [True, False])
def test_old_lists_are_read_again_before_anything_is_installed(
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outdated: bool,
) -> None:
    """A file of the old lists is gone: they are read again and the installation is judged anew. If
    it is still gone, that is an error, and nothing is installed.
    """
    calls = programs / "calls"
    program(
        programs,
        "apt-get",
        f"""
for word in "$@"; do case $word in --print-uris|--simulate|--yes|update) echo $word >> {calls} ;; esac; done
case "$*" in
*--print-uris*) echo "'http://d/a.deb' a.deb 9 X"; echo "'http://d/b.deb' b.deb 7 X" ;;
update*) echo 'W: a source failed' >&2; {f"echo > {programs}/new" if outdated else ":"} ;;
esac
""",
    )
    program(
        programs,
        "helper",
        f"for word in $@; do case $word in http*) echo $word >> {calls} ;; esac; done\n"
        f"[ -e {programs}/new ]",
    )
    monkeypatch.setattr(installer, "_HELPER", str(programs / "helper"))
    if outdated:
        installer._install(["a", "b"])
    else:
        told = refusal(capsys, lambda: installer._install(["a", "b"]))
        assert "error E201: http://d/b.deb cannot be downloaded: a source failed" in told
    tried = ["--print-uris", "http://d/b.deb"]
    assert calls.read_text().split() == [
        *tried,
        "update",
        "--simulate",
        *tried,
        *(["--yes"] if outdated else []),
    ]


def test_a_package_without_a_candidate_is_unknown() -> None:
    """`Candidate: (none)` and no answer at all mean that it cannot be installed."""
    assert packages.names_candidate((APT / "policy-known.txt").read_text())
    assert not packages.names_candidate((APT / "policy-none.txt").read_text())
    assert not packages.names_candidate("")


def test_of_several_packages_each_has_its_own_answer() -> None:
    """apt is asked once for all of them, and says nothing of those that it does not know."""
    known = (APT / "policy-known.txt").read_text()
    none = (APT / "policy-none.txt").read_text()
    answers = packages.sections(known + none)
    assert answers == {"attr": known, "mysql-server-core-8.0": none}
    assert packages.sections("") == {}


def test_services_and_clusters_are_forbidden_while_it_lives_only(tmp_path: Path) -> None:
    """policy-rc.d exists within the block and is removed after it, also after an error; a leftover
    is replaced, and an administrator's own file stays as it is. PostgreSQL's package reads a
    folder that is afterwards as before.
    """
    path = tmp_path / "policy-rc.d"
    path.write_text(f"#!/bin/sh\n# {installer._MARK}, process 1\nexit 101\n")
    with pytest.raises(KeyboardInterrupt), installer._no_services(path):
        assert f"kill -0 {os.getpid()}" in path.read_text()
        assert os.access(path, os.X_OK)
        raise KeyboardInterrupt
    assert not path.exists()
    path.write_text("#!/bin/sh\nexit 104\n")
    with installer._no_services(path):
        pass
    assert path.read_text() == "#!/bin/sh\nexit 104\n"
    path = tmp_path / "postgresql-common" / "createcluster.d" / "x.conf"
    with installer._no_cluster(path):
        assert "create_main_cluster = false" in path.read_text()
    assert not path.parent.parent.exists()


@pytest.mark.starts_processes
def test_a_lock_of_another_process_is_seen(tmp_path: Path) -> None:
    """Until that process has ended; without the file there is no lock."""
    lock = tmp_path / "lock"
    assert not installer.locked(lock)
    lock.touch()
    hold = (
        "import fcntl; file = open('lock', 'r+b'); fcntl.lockf(file, 2); print('held', "
        "flush=True); input()"
    )
    pipe = subprocess.PIPE
    holder = subprocess.Popen([sys.executable, "-c", hold], cwd=tmp_path, stdin=pipe, stdout=pipe)
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert installer.locked(lock)
    assert not installer.locked(lock)
