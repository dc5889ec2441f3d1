"""Certificates of an authority of our own: for the machines of a fleet, and for the server of a trial whose load
generator is on another host. Made by the `openssl` program; keys are of elliptic curves, of mode 0600."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from dbbench import process

DAYS: Final = 825  # longer ones are refused by some libraries
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_OPENSSL_S: Final = 60.0


class Pair(NamedTuple):
    """A certificate and its key."""

    cert: Path
    key: Path


@contextlib.contextmanager
def private() -> Iterator[None]:
    """What is made in the block can be read by its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_authority(ca: Pair, name: str) -> None:
    """An authority that signs with itself. CommandFailed, ProgramMissing."""
    _openssl("req", "-x509", *_NEW_KEY, "-nodes", "-days", str(DAYS), "-subj", f"/CN={name}",
             "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", ca.key, "-out", ca.cert)  # fmt: skip


def sign(ca: Pair, name: str, own: Pair) -> None:
    """A key, and a certificate of the authority for `name`, a host's name or address, for both ends of a connection.

    The name stands as the common name too: libpq below version 15 looks for an address there alone.
    """
    folder = own.cert.parent
    request, extension = folder / "request.pem", folder / "extension.cnf"
    kind = "IP" if is_address(name) else "DNS"
    extension.write_text(f"subjectAltName={kind}:{name}\nextendedKeyUsage=serverAuth,clientAuth\n")
    _openssl("req", "-new", *_NEW_KEY, "-nodes", "-subj", f"/CN={name}", "-keyout", own.key, "-out", request)
    _openssl("x509", "-req", "-in", request, "-CA", ca.cert, "-CAkey", ca.key, "-CAcreateserial",
             "-days", str(DAYS), "-extfile", extension, "-out", own.cert)  # fmt: skip
    request.unlink()
    extension.unlink()


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _openssl(*words: str | Path) -> None:
    process.run(["openssl", *words], timeout_s=_OPENSSL_S)
