"""Addresses and certificates of a fleet, and the command that brings them to a host."""

import io
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from dbbench.errors import FileUnreadable, FleetInsecure, ImportRefused
from dbbench.fleet import security
from dbbench.machine import namespaces


@pytest.mark.parametrize(
    "address",
    [
        "tcp://0.0.0.0:8786",
        "tcp://127.0.0.1:8786",
        "tcp://localhost",
        "tcp://db1:8786",
        "ucx://127.0.0.1",
    ],
)
def test_without_tls_no_address_is_accepted(address: str, tmp_path: Path) -> None:
    """A scheduler speaks pickle to root, on loopback with every account of the machine: refused
    with exit code 5. An address without a protocol is TLS, which requires certificates.
    """
    with pytest.raises(FleetInsecure) as refused:
        security.whole(address)
    assert refused.value.exit_code == 5
    assert (security.whole("db1"), security.whole("127.0.0.1:9000")) == (
        "tls://db1:8786",
        "tls://127.0.0.1:9000",
    )
    with pytest.raises(FileUnreadable):
        security.of(tmp_path)


@pytest.mark.starts_processes
@pytest.mark.needs("openssl")
def test_certificates_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once, without the authority's key, in a directory of mode 0700. Their text is accepted
    in their place. A key that others can read is refused.
    """
    pytest.importorskip("distributed")
    folder = tmp_path / "config/fleet"
    assert security.make(folder) == folder
    files = security.files_of(folder)
    assert sorted(folder.iterdir()) == sorted(files)
    assert {path.stat().st_mode & 0o777 for path in (*files, folder)} == {0o600, 0o700}
    before = [path.read_text() for path in files]
    security.make(folder)
    assert [path.read_text() for path in files] == before
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(before)))
    for secured in (security.of(folder), security.of(security.STDIN)):
        context = secured.get_connection_args("worker")["ssl_context"]
        assert (context.verify_mode, context.minimum_version) == (
            ssl.CERT_REQUIRED,
            ssl.TLSVersion.TLSv1_3,
        )
    with pytest.raises(FileUnreadable):
        security.of(security.STDIN)  # nothing is left
    assert [path.name for path in folder.parent.iterdir()] == ["fleet"]
    (folder / security.KEY).chmod(0o640)
    with pytest.raises(FleetInsecure):
        security.of(folder)


def test_each_fleet_has_its_certificates(tmp_path: Path) -> None:
    """Fleets of the same name in other results, or of other names, do not share an authority."""
    folders = {
        security.folder_of_fleet(tmp_path / name)
        for name in ("a/.fleet/r", "b/.fleet/r", "b/.fleet/s")
    }
    assert len(folders) == 3
    assert {folder.parent for folder in folders} == {namespaces.private_folder()}
    assert security.folder_of_fleet(tmp_path / "a/.fleet/../.fleet/r") in folders


@pytest.mark.parametrize("name", ["", "a b", "../a", "a/b", ".a"])
def test_names_of_hosts_cannot_leave_a_folder(name: str) -> None:
    """They become names of folders and of resources."""
    with pytest.raises(ImportRefused):
        security.valid_name(name)


@pytest.mark.starts_processes
def test_commands_import_no_dask() -> None:
    """`dbbench` works without it, and its help is fast."""
    modules = "dbbench.cli, dbbench.commands.fleet, dbbench.commands.clean, dbbench.fleet.parts"
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"dask", "distributed"} & set(done.stdout.split())


def test_worker_by_ssh_is_one_command(tmp_path: Path, programs: Path) -> None:
    """The remote shell gets one quoted line; the host is named without the account; no password is
    requested. The certificates are in no argument.
    """
    pytest.importorskip("distributed")
    from dbbench.fleet import launch

    (programs / "ssh").touch(0o755)
    options = launch.HostOptions(
        None,
        "root@db1, db2",
        None,
        None,
        "sudo dbbench",
        "/my results",
        None,
    )
    workers = launch.worker_commands(options, tmp_path, Path("/x"))
    assert sorted(workers) == ["db1", "db2"]
    argv = workers["db1"]
    assert argv[0] == "ssh" and "BatchMode=yes" in argv and "host.key" not in str(argv)
    command = "sudo dbbench fleet worker --name db1 --results '/my results' --certs - --give-up 20"
    assert argv[-3:] == ["--", "root@db1", command]


def test_dask_keeps_its_files_in_a_private_folder() -> None:
    """By default they are below /tmp, where other accounts could plant links for root to write
    through.
    """
    pytest.importorskip("distributed")
    import dask

    from dbbench.fleet import daemons

    assert daemons.QUIET["temporary-directory"] == dask.config.get("temporary-directory")
    folder = Path(daemons.QUIET["temporary-directory"])
    assert folder.parent == namespaces.private_folder()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
