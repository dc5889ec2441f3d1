import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dbbench import packages, plan
from dbbench.packages import TOOLS, Tool, missing, package_of
from dbbench.plan.catalog import catalog

sys.path.insert(0, str(Path(packages.__file__).with_name("data") / "installer"))

import tools as installer

installer.packages = packages  # it imports the file alone, because it needs no dbbench

APT = Path(__file__).parents[1] / "fixtures" / "apt"


def answer(name: str, returncode: int = 0) -> subprocess.CompletedProcess[str]:
    """What apt-get --simulate printed, recorded."""
    return subprocess.CompletedProcess(["apt-get"], returncode, (APT / f"{name}.txt").read_text(), "")


@pytest.mark.starts_processes
def test_it_needs_nothing_but_python() -> None:
    """It runs before anything is installed: without site-packages, and without dbbench beside it."""
    argv = [sys.executable, "-I", "-S", packages.__file__, "--help"]
    assert "run|test" in subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("program", "package"),
    [("mkfs.xfs", "xfsprogs"), ("/usr/lib/sysstat/sadc", "sysstat"), ("mariadbd", "mariadb-server-core"), ("vi", None)],
)
def test_the_package_of_a_program(program: str, package: str | None) -> None:
    """By name or path; an unknown program has none."""
    assert package_of(program) == package


@pytest.mark.parametrize("folder", ["sysstat", "sa"])
def test_a_recorder_outside_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str) -> None:
    """sadc is found in each of the directories that releases have it in, and is not missing there."""
    places = tuple(str(tmp_path / name) for name in ("sysstat", "sa"))
    monkeypatch.setattr(packages, "OUTSIDE_PATH", {"sadc": places})
    assert packages.find("sadc") is None
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "sadc").touch(0o755)
    assert packages.find("sadc") == str(tmp_path / folder / "sadc")


def test_known_places_of_the_recorder() -> None:
    """Debian 12 and 13, Fedora, 32 bit, and a build of one's own."""
    assert {"/usr/lib/sysstat", "/usr/libexec/sysstat", "/usr/lib64/sa", "/usr/lib/sa"} <= {
        *packages.OUTSIDE_PATH["sadc"]
    }


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], tmp_path: Path) -> None:
    """A machine whose programs are those that the test puts into its folder."""
    monkeypatch.setattr(packages, "PATH", "")
    environ["PATH"] = str(tmp_path)
    monkeypatch.setattr(packages, "OUTSIDE_PATH", {"sadc": (str(tmp_path / "libexec"),)})


@pytest.mark.usefixtures("no_programs")
def test_an_installed_package_is_not_the_remedy(tmp_path: Path) -> None:
    """Where sysstat is there and its recorder is not found, the remedy says where it was looked for, not to install."""
    (tmp_path / "apt-get").touch(0o755)
    assert packages.remedy(["sadc", "vi"]) == "apt-get install --no-install-recommends sysstat"
    (tmp_path / "sadf").touch(0o755)
    found = packages.remedy(["sadc", "mkfs.xfs"])
    assert found.startswith("apt-get install --no-install-recommends xfsprogs\n")
    assert f"sadc belongs to sysstat, which is installed ({tmp_path}/sadf)" in found
    assert f"is not in PATH, {tmp_path}/libexec. Find it with  dpkg -L sysstat" in found


@pytest.mark.usefixtures("no_programs")
def test_no_remedy_creates_a_cluster(tmp_path: Path) -> None:
    """For PostgreSQL, apt-get would create one and start it: the remedy is the installer, in any directory."""
    (tmp_path / "apt-get").touch(0o755)
    command = packages.remedy(["initdb", "sadc", "mkfs.f2fs"])
    command_of_all, rest = command.split(" && ")
    assert command_of_all == f"python3 {Path(packages.__file__).resolve()} run"
    assert rest == "apt-get install --no-install-recommends f2fs-tools"


def test_fedora_has_names_of_its_own() -> None:
    """The same table has both."""
    assert package_of("compsize", "fedora") == "compsize"
    assert all(tool.fedora for tool in TOOLS)


@pytest.mark.usefixtures("no_programs")
def test_without_a_known_package_manager_the_projects_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No command of apt-get is printed where there is none: dnf's with Fedora's names, else the names of projects."""
    wanted = ["mariadb-server-core", "mariadb-client-core", "btrfs-compsize", "fio", "python3-venv"]
    (dnf := tmp_path / "dnf").touch(0o755)
    assert packages.install(wanted) == "dnf install mariadb-server mariadb compsize fio python3"
    dnf.unlink()
    assert packages.install(wanted).startswith("install MariaDB, compsize, fio, Python with the module venv (names of")
    assert packages.fix("postgresql").startswith("install PostgreSQL (")
    assert packages.remedy(["mkfs.xfs", "sysbench"]).startswith("install xfsprogs, sysbench (")
    with pytest.raises(SystemExit) as caught:
        installer._provide([tool("fio")], dry_run=False)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("error E201: this machine has no apt-get\n  Nothing was changed. By hand:  install fio (")


@pytest.mark.usefixtures("no_programs")
def test_what_is_missing_is_found_by_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tool is there when all of its programs are; an engine may be left out."""
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
    found = installer.simulate(answer("installs-and-upgrades"))
    assert found.new == ("attr",)
    assert "postgresql" in found.upgraded
    assert (found.removed, found.error) == ((), "")


def test_a_simulation_tells_what_would_be_removed() -> None:
    """apt refuses to remove, and says what it would have had to."""
    found = installer.simulate(answer("removes-mysql", 100))
    assert found.removed == ("mysql-server-core-8.0",)
    assert "remove is disabled" in found.error


def tool(package: str) -> Tool:
    """The tool of that package."""
    return next(tool for tool in TOOLS if tool.debian == package)


MARIADB = [tool(name) for name in ("mariadb-server-core", "mariadb-client", "mariadb-client-core")]
OTHERS = [tool("sysstat"), tool("attr")]


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """apt-get answers as it did on that release with its MySQL server installed."""

    def answered(words: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        assert words[0] == "--simulate" and not check
        if words[1:] == ["sysbench"]:
            return answer(f"{release}-mysql-sysbench", 100)
        with_mariadb, with_sysbench = "mariadb-client" in words, "sysbench" in words
        name = "with-mariadb" if with_mariadb else "without-mariadb" if with_sysbench else "without-sysbench"
        text = answer(f"{release}-mysql-{name}")
        return subprocess.CompletedProcess([], 100 if "remove is disabled" in text.stdout else 0, text.stdout, "")

    monkeypatch.setattr(installer, "_apt", answered)


@pytest.mark.parametrize("release", ["ubuntu2404"])
@pytest.mark.usefixtures("apt")
def test_where_mysql_is_mariadb_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """By itself, all of its packages, in one line that says why; the rest is installed and nothing removed."""
    chosen, plan = installer._possible([*MARIADB, tool("sysbench"), *OTHERS])
    assert chosen == [tool("sysbench"), *OTHERS]
    assert "sysbench" in plan.new and plan.removed == ()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "left out: mariadb-server-core mariadb-client mariadb-client-core, because apt-get would remove"
    )
    assert "mysql-server-core-8.0" in line


@pytest.mark.parametrize("release", ["sid"])
@pytest.mark.usefixtures("apt")
def test_what_mysql_excludes_with_mariadb_is_left_out_too(capsys: pytest.CaptureFixture[str]) -> None:
    """sysbench of Debian unstable needs MariaDB's library, which excludes its MySQL."""
    chosen, plan = installer._possible([*MARIADB, tool("sysbench"), *OTHERS])
    assert chosen == OTHERS
    assert "sysstat" in plan.new and plan.removed == ()
    assert (
        "left out: mariadb-server-core mariadb-client mariadb-client-core sysbench, because" in capsys.readouterr().out
    )


def test_without_mariadb_is_without_all_of_it() -> None:
    """None of its packages is asked for: they exclude MySQL's, each of them."""
    asked = {tool.debian for tool in TOOLS if tool.engine != "mariadb"}
    assert not [name for name in asked if "mariadb" in name]


def test_another_conflict_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is removed: the error says what stands in the way and what to do."""
    monkeypatch.setattr(installer, "_apt", lambda *_, **__: answer("removes-mysql", 100))
    with pytest.raises(SystemExit) as caught:
        installer._possible([*MARIADB, *OTHERS])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert (
        "error E201: installing mariadb-server-core mariadb-client mariadb-client-core sysstat attr would remove"
        in told
    )
    assert "Nothing was changed." in told


@pytest.mark.parametrize(
    ("there", "told", "engines", "workloads"),
    [
        ({"mariadbd", "sysbench"}, "", ["postgres", "mariadb"], 3),
        ({"mysqld", "sysbench"}, "PostgreSQL and MySQL", ["postgres", "mysql"], 3),
        ({"mysqld"}, "PostgreSQL alone, because sysbench is not installed", ["postgres"], 2),
        (set(), "PostgreSQL alone, because neither MariaDB nor MySQL is installed", ["postgres"], 2),
    ],
)
def test_the_demo_uses_the_servers_that_are_there(
    there: set[str], told: str, engines: list[str], workloads: int, here: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Its plan is valid with each of them, and one line says which they are."""
    shipped = Path(__file__).parents[2] / "docs/plans/demo.toml"
    (here / ".venv").mkdir()
    monkeypatch.setattr(packages, "find", lambda name: name if name in there else None)
    chosen = installer.demo(shipped)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(told) and all(told in line for line in lines)
    assert (chosen == shipped) == (not told)
    loaded = plan.load(chosen, catalog())
    assert [engine.name for engine in loaded.engine] == engines
    assert len(loaded.workload) == workloads


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """apt-cache answers as on that release."""
    monkeypatch.setattr(packages, "policy", lambda name: (APT / f"policy-{release}-{name}.txt").read_text())
    monkeypatch.setattr(packages.shutil, "which", lambda name, path=None: f"/usr/bin/{name}")


@pytest.mark.parametrize(("release", "package"), [("debian13", "libfuse3-4"), ("ubuntu2404", "libfuse3-3")])
@pytest.mark.usefixtures("policies")
def test_a_renamed_package_has_the_name_of_the_release(package: str) -> None:
    """The library of libfuse 3 is another package since Debian 13."""
    assert package_of(packages.FUSE) == package


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
    with pytest.raises(SystemExit):
        installer._judge(installer.simulate(answer("installs-and-upgrades")), ["attr", "postgresql"])
    assert "would upgrade a database server: postgresql" in capsys.readouterr().err
    installer._judge(installer.Simulation(("attr",), ("libpq5",), (), ""), ["attr"])


@pytest.mark.parametrize("outdated", [True, False])
def test_old_lists_are_read_again_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outdated: bool
) -> None:
    """A file of the old lists is gone: they are read again and the installation is judged anew. If it is still gone,
    that is an error, and nothing is installed."""
    calls: list[str] = []

    def apt(words: list[str], **_: bool) -> subprocess.CompletedProcess[str]:
        calls.append(words[0])
        uri = "'http://d/a.deb' a.deb 9 X\n'http://d/b.deb' b.deb 7 X\n" if words[0] == "--print-uris" else ""
        return subprocess.CompletedProcess([], 0, uri, "")

    def checked(argv: list[str], **_: bool) -> subprocess.CompletedProcess[str]:
        calls.append(argv[1] if argv[0] == "apt-get" else argv[-2])
        gone = argv[0] != "apt-get" and not (outdated and "update" in calls)
        return subprocess.CompletedProcess([], int(gone), "", "W: a source failed\n")

    monkeypatch.setattr(installer, "_apt", apt)
    monkeypatch.setattr(installer, "_checked", checked)
    tried = ["--print-uris", "http://d/b.deb"]
    if outdated:
        installer._install(["a", "b"])
    else:
        with pytest.raises(SystemExit):
            installer._install(["a", "b"])
        assert "error E201: http://d/b.deb cannot be downloaded: a source failed" in capsys.readouterr().err
    assert calls == [*tried, "update", "--simulate", *tried, *(["--yes"] if outdated else [])]


def test_a_package_without_a_candidate_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Candidate: (none)` and no answer at all mean that it cannot be installed."""
    answers = {"known": (APT / "policy-known.txt").read_text(), "none": (APT / "policy-none.txt").read_text(), "": ""}
    monkeypatch.setattr(packages, "policy", answers.__getitem__)
    assert [name for name in answers if packages.has_candidate(name)] == ["known"]


def test_services_are_forbidden_while_it_lives_only(tmp_path: Path) -> None:
    """policy-rc.d exists within the block and is removed after it, also after an error; a leftover is replaced."""
    path = tmp_path / "policy-rc.d"
    path.write_text(f"#!/bin/sh\n# {installer._MARK}, process 1\nexit 101\n")
    with pytest.raises(KeyboardInterrupt), installer._no_services(path):
        assert f"kill -0 {os.getpid()}" in path.read_text()
        assert os.access(path, os.X_OK)
        raise KeyboardInterrupt
    assert not path.exists()


def test_a_policy_of_the_machine_stays(tmp_path: Path) -> None:
    """An administrator's own file is neither changed nor removed."""
    path = tmp_path / "policy-rc.d"
    path.write_text("#!/bin/sh\nexit 104\n")
    with installer._no_services(path):
        pass
    assert path.read_text() == "#!/bin/sh\nexit 104\n"


@pytest.mark.starts_processes
def test_a_lock_of_another_process_is_seen(tmp_path: Path) -> None:
    """Until that process has ended; without the file there is no lock."""
    lock = tmp_path / "lock"
    assert not installer.locked(lock)
    lock.touch()
    hold = "import fcntl; file = open('lock', 'r+b'); fcntl.lockf(file, 2); print('held', flush=True); input()"
    pipe = subprocess.PIPE
    holder = subprocess.Popen([sys.executable, "-c", hold], cwd=tmp_path, stdin=pipe, stdout=pipe)
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert installer.locked(lock)
    assert not installer.locked(lock)


def test_no_cluster_is_created_meanwhile(tmp_path: Path) -> None:
    """PostgreSQL's package reads this folder; afterwards it is as before."""
    path = tmp_path / "postgresql-common" / "createcluster.d" / "x.conf"
    with installer._no_cluster(path):
        assert "create_main_cluster = false" in path.read_text()
    assert not path.parent.parent.exists()


def test_nothing_missing_is_silent_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
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
        ("install", "/usr/local belongs to another user", 'for yourself alone:  make install PREFIX="$HOME/.local"'),
        ("uninstall", "/usr/local belongs to another user", "make uninstall PREFIX="),
    ],
)
def test_a_target_says_at_once_that_it_needs_root(tmp_path: Path, target: str, reason: str, remedy: str) -> None:
    """Without root and sudo, before a virtual environment is built."""
    make = shutil.which("make")
    assert make is not None
    argv = [make, "-C", Path(__file__).parents[2], target, "SUDO=sudo", f"VENV={tmp_path}/venv", "PYTHON=false"]
    done = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"error E202: {reason}" in done.stderr and remedy in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("make")
@pytest.mark.starts_processes
def test_make_install_links_and_uninstall_removes_only_that(tmp_path: Path) -> None:
    """The links lead into the checkout's virtual environment. A file or link of another program stays."""
    link, root, page = tmp_path / "bin/dbbench", Path(__file__).parents[2], tmp_path / "share/man/man1/dbbench.1"

    def make(target: str) -> int:
        argv = ["make", "-C", root, "-o", ".venv/.done", target, f"PREFIX={tmp_path}", "SUDO=", "PYTHON=true"]
        return subprocess.run(argv, capture_output=True, check=False).returncode

    assert make("uninstall") == 0
    assert make("install") == 0 == make("install")
    assert link.readlink() == root / ".venv/bin/dbbench"
    assert ".TH DBBENCH 1 " in page.read_text()
    assert ".TH DBBENCH\\-PLAN 5 " in (tmp_path / "share/man/man5/dbbench-plan.5").read_text()
    assert make("uninstall") == 0 and not link.is_symlink()
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
    page.write_text("mine")
    assert make("install") == 2 == make("uninstall")
    assert page.read_text() == "mine" and not link.is_symlink()
    page.unlink()
    link.write_text("mine")
    assert make("install") == 2 == make("uninstall")
    assert link.read_text() == "mine"
    link.unlink()
    link.symlink_to("/bin/true")
    assert make("install") == 2 == make("uninstall")
    assert link.readlink() == Path("/bin/true")


@pytest.mark.needs("make")
@pytest.mark.starts_processes
@pytest.mark.parametrize("status", [0, 130])
@pytest.mark.parametrize("installed", [False, True])
def test_the_demo_says_where_its_command_is(tmp_path: Path, status: int, installed: bool) -> None:
    """Messages name `dbbench`. At the end, also after Ctrl-C, a line says what that is if it is not in the PATH."""
    (binary := tmp_path / "venv/bin/dbbench").parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho ran $*; exit {status}\n")
    binary.chmod(0o755)
    root, path = Path(__file__).parents[2], f"{tmp_path}/venv/bin:" if installed else ""
    argv = ["make", "-C", root, "-o", f"{tmp_path}/venv/.done", "demo", f"VENV={tmp_path}/venv", "SUDO=", "PYTHON=echo"]
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
    assert capfd.readouterr().err.startswith("Unpacking\ndpkg: error\nerror E201: sh -c ended with status 100\n")
