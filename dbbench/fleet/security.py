"""Access to a fleet: every connection requires certificates on both sides, because a scheduler
accepts pickle and its workers run as root. Loopback is not a boundary between accounts. All
machines of a fleet have the same certificate and key, because whoever may connect may run
commands on all of them. Names of hosts are not compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from dbbench.errors import FileUnreadable, FleetInsecure, ImportRefused
from dbbench.machine import namespaces
from dbbench.model.base import NAME, NAME_RULE
from dbbench.remote import certificates
from dbbench.remote.certificates import KeyPair
from dbbench.results.fileio import writing

PROTOCOL: Final = "tls"
PORT: Final = 8786
CERT = "host.pem"
CA = "ca.pem"
KEY = "host.key"
# in place of a directory: the three files, one after the other, are read from standard input
STDIN: Final = Path("-")


def valid_name(name: str) -> str:
    """Return a host's name as used in results and resources. Raises ImportRefused if it is not
    valid.
    """
    if not NAME.fullmatch(name):
        raise ImportRefused(f"invalid host name {name!r}: {NAME_RULE}", effect="")
    return name


def default_folder() -> Path:
    """Return the default directory of certificates: $XDG_CONFIG_HOME/dbbench/fleet."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dbbench" / "fleet"


def folder_of_fleet(folder: Path) -> Path:
    """Return the certificates' directory of a fleet with its own scheduler; only its owner can
    enter it.
    """
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return namespaces.private_folder() / f"fleet-{name}"


def parts(address: str) -> tuple[str, int]:
    """Return host and port of an address. Raises FleetInsecure for every protocol except TLS."""
    try:
        url = urlsplit(address if "://" in address else f"{PROTOCOL}://{address}")
        port = PORT if url.port is None else url.port
    except ValueError as error:
        raise FleetInsecure(f"{address!r} is not an address: {error}") from None
    host = url.hostname or "127.0.0.1"
    if url.scheme != PROTOCOL:
        raise FleetInsecure(
            f"{address} does not use TLS",
            effect="Nothing was started.",
            remedy=f"Write {PROTOCOL}://{host}:{port}.",
        )
    return host, port


def whole(address: str) -> str:
    """Return the address with protocol and port."""
    host, port = parts(address)
    return f"{PROTOCOL}://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether the address is only reachable on this machine."""
    host = parts(address)[0]
    return host in ("localhost", "::1") or host.startswith("127.")


def of(certs: Path | None) -> Any:
    """Return dask's `security` with the certificates in `certs`. Raises FleetInsecure,
    FileUnreadable.
    """
    if certs == STDIN:
        # dask accepts the text too; the key is not stored on this machine
        ca = cert = key = sys.stdin.read()
        if "\n" not in ca:
            raise FileUnreadable("no certificates on standard input")
    else:
        cert, ca, key = map(str, files_of(certs))
    import ssl

    from distributed.security import Security

    role_files = {
        f"tls_{role}_{what}": value
        for role in ("scheduler", "worker", "client")
        for what, value in (("cert", cert), ("key", key))
    }
    return Security(
        tls_ca_file=ca,
        require_encryption=True,
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        **role_files,
    )


def files_of(certs: Path | None) -> list[Path]:
    """Return the files of a directory: certificate, authority, key. Raises FleetInsecure,
    FileUnreadable.
    """
    files = [(certs or default_folder()) / name for name in (CERT, CA, KEY)]
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise FileUnreadable(
            f"no certificates: {', '.join(missing)}",
            remedy="Copy them from the scheduler's machine: `dbbench fleet scheduler` makes them "
            "and prints how.",
        )
    if files[2].stat().st_mode & 0o077:
        raise FleetInsecure(
            f"{files[2]} is readable by other users",
            effect="Nothing was started.",
            remedy=f"chmod 600 {files[2]}",
        )
    return files


def make(certs: Path | None) -> Path:
    """Return the directory of a fleet's certificates; make it with mode 0700 if it does not exist.
    The authority's key is not kept. Raises ProgramMissing without openssl, NotWritable.
    """
    folder = certs or default_folder()
    with writing(folder):
        if folder.exists():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            new = Path(scratch) / "certificates"
            new.mkdir(0o700)
            with certificates.authority(new / CA, "dbbench fleet") as sign:
                sign("dbbench", KeyPair(new / CERT, new / KEY))
            with contextlib.suppress(OSError):  # another process was faster
                new.rename(folder)
    return folder
