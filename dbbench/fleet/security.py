"""Access to a fleet: every connection requires certificates on both sides, because a scheduler accepts pickle and its
workers run as root.

Loopback is not a boundary between accounts. For it, dbbench makes the certificates itself, in a directory that only
this user can enter."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from dbbench.errors import FileMissing, FileTaken, FleetInsecure
from dbbench.machine import namespaces
from dbbench.remote import network
from dbbench.remote.network import Pair

PORT: Final = 8786
CA, CERT, KEY, CA_KEY = "ca.pem", "host.pem", "host.key", "ca.key"
_RENEWED_S: Final = network.DAYS * 86400 / 2  # age of a certificate of this machine at which it is made again


def default_folder() -> Path:
    """Return the default directory of certificates: $XDG_CONFIG_HOME/dbbench/fleet."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dbbench" / "fleet"


def parts(address: str) -> tuple[str, str, int]:
    """Return (protocol, host, port) of an address. Raises FleetInsecure for every protocol except tls."""
    protocol, marked, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":") if rest.rpartition(":")[2].isdecimal() else (rest, "", str(PORT))
    host = host.strip("[]") or "127.0.0.1"
    protocol = protocol if marked else "tls"
    if protocol != "tls":
        raise FleetInsecure(
            f"{address} does not use TLS",
            effect="Nothing was started.",
            remedy=f"Write tls://{host}:{port}. On another machine, certificates are required: dbbench fleet certs",
        )
    return protocol, host, int(port)


def whole(address: str) -> str:
    """Return the address with protocol and port."""
    protocol, host, port = parts(address)
    return f"{protocol}://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether the address is only reachable on this machine."""
    return _local(parts(address)[1])


def _local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def of(address: str, certs: Path | None) -> Any:
    """Return the `security` of dask.distributed for that address. On loopback `certs` is by default a directory that
    dbbench makes.

    Raises FleetInsecure for an address without TLS, FileMissing without certificates, ProgramMissing without openssl.
    """
    folder = certs or (_of_this_machine() if is_loopback(address) else default_folder())
    files = {name: folder / name for name in (CA, CERT, KEY)}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        raise FileMissing(f"no certificates: {', '.join(missing)}", remedy="dbbench fleet certs --for NAME,..")
    if files[KEY].stat().st_mode & 0o077:
        raise FleetInsecure(f"{files[KEY]} is readable by other users", effect="Nothing was started.",
                            remedy=f"chmod 600 {files[KEY]}")  # fmt: skip
    from distributed.security import Security

    role_files = {f"tls_{role}_{what}": str(files[name])
           for role in ("scheduler", "worker", "client") for what, name in (("cert", CERT), ("key", KEY))}  # fmt: skip
    return Security(tls_ca_file=str(files[CA]), require_encryption=True, tls_min_version=_tls13(), **role_files)


def _of_this_machine() -> Path:
    """Return the directory of the certificate with which this user's processes on this machine recognise each other;
    make it if it is missing or old. The authority's key is not kept."""
    folder = namespaces.private_folder() / "fleet"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - (folder / CERT).stat().st_mtime < _RENEWED_S:
            return folder
        shutil.rmtree(folder)
    with network.private(), tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / folder.name
        made.mkdir()
        ca = Pair(made / CA, Path(scratch) / CA_KEY)
        network.make_authority(ca, "dbbench fleet")
        network.sign(ca, "localhost", Pair(made / CERT, made / KEY))
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(folder)
    return folder


def _tls13() -> int:
    import ssl

    return ssl.TLSVersion.TLSv1_3


def make(folder: Path, names: list[str]) -> list[Path]:
    """Make an authority (once) and a key and certificate for each name, in `folder`/NAME; all with mode 0600.

    A host needs a copy of `folder`/NAME. Raises FileTaken if a name already has one.
    """
    ca = Pair(folder / CA, folder / CA_KEY)
    with network.private():
        folder.mkdir(parents=True, exist_ok=True)
        if not ca.key.exists():
            network.make_authority(ca, "dbbench fleet")
        return [_host(ca, folder / name) for name in names]


def _host(ca: Pair, own: Path) -> Path:
    if (own / KEY).exists():
        raise FileTaken(f"{own / KEY} exists", effect="Nothing was changed.",
                        remedy=f"Remove {own} to create another certificate. The old one remains valid.")  # fmt: skip
    own.mkdir(exist_ok=True)
    network.sign(ca, own.name, Pair(own / CERT, own / KEY))
    (own / CA).write_bytes(ca.cert.read_bytes())
    return own
