"""Access to a fleet. A scheduler accepts pickle and its workers run as root, so connections beyond this machine require
certificates on both sides; without certificates only loopback is allowed."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any, Final

from dbbench.errors import FileMissing, FileTaken, FleetInsecure
from dbbench.remote import network
from dbbench.remote.network import Pair

PORT: Final = 8786
CA, CERT, KEY, CA_KEY = "ca.pem", "host.pem", "host.key", "ca.key"


def default_folder() -> Path:
    """Return the default directory of certificates: $XDG_CONFIG_HOME/dbbench/fleet."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dbbench" / "fleet"


def parts(address: str) -> tuple[str, str, int]:
    """Return (protocol, host, port) of an address; the default is tls, but tcp on loopback. Raises FleetInsecure."""
    protocol, marked, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":") if rest.rpartition(":")[2].isdecimal() else (rest, "", str(PORT))
    host = host.strip("[]") or "127.0.0.1"
    protocol = protocol if marked else "tcp" if _local(host) else "tls"
    if protocol not in ("tcp", "tls"):
        raise FleetInsecure(f"{address}: {protocol} is neither tcp nor tls", remedy="Write tls://HOST:PORT.")
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
    """Return the `security` of dask.distributed for that address: None for tcp on loopback.

    Raises FleetInsecure for any other address without TLS, FileMissing without certificates.
    """
    protocol, host, _ = parts(address)
    if protocol == "tcp":
        if not _local(host):
            raise FleetInsecure(
                f"{address} is on another machine and does not use TLS",
                effect="Nothing was started.",
                remedy=f"Create certificates with dbbench fleet certs --for NAME,.. and use tls://{host}",
            )
        return None
    folder = certs or default_folder()
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
