"""Certificates of a private authority, for the machines of a fleet and for a server whose load
generator is on another host. The `openssl` program makes them; keys use elliptic curves and have
mode 0600.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from dbbench import process

_DAYS: Final = 825  # some libraries refuse certificates that are valid for longer
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_OPENSSL_S: Final = 60.0
# Extensions that RFC 5280 requires, and that Python checks from 3.13 on. They are listed here,
# because /etc/ssl/openssl.cnf differs between releases.
_CONFIG: Final = """\
[req]
distinguished_name = name
x509_extensions = extensions
[name]
[extensions]
subjectKeyIdentifier = hash
"""
_AUTHORITY: Final = """\
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
"""
_SIGNED: Final = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
authorityKeyIdentifier = keyid
subjectAltName = {kind}:{name}
"""


class KeyPair(NamedTuple):
    """A certificate and its key."""

    cert: Path
    key: Path


@contextlib.contextmanager
def authority(ca: Path, name: str) -> Iterator[Callable[[str, KeyPair], None]]:
    """Make a self-signed authority; yield `_sign` with its key, which is removed with the block, so
    that nothing else can be signed with it. All files are readable only by their owner. Raises
    CommandFailed, ProgramMissing.
    """
    pair = KeyPair(ca, ca.with_suffix(".key"))
    before = os.umask(0o077)
    try:
        _make(pair, name, _AUTHORITY)
        yield partial(_sign, pair)
    finally:
        pair.key.unlink(missing_ok=True)
        os.umask(before)


def _sign(ca: KeyPair, name: str, own: KeyPair) -> None:
    """Make a key and a certificate for `name`, a host's name or address, for both ends of a
    connection. The name is also the common name: libpq before version 15 looks for an address
    only there.
    """
    try:
        ipaddress.ip_address(name)
        kind = "IP"
    except ValueError:
        kind = "DNS"
    _make(own, name, _SIGNED.format(kind=kind, name=name), "-CA", ca.cert, "-CAkey", ca.key)


def _make(pair: KeyPair, name: str, extensions: str, *signer: str | Path) -> None:
    """Make a new key and its certificate, signed by itself if there is no signer."""
    config = pair.cert.parent / "openssl.cnf"
    config.write_text(_CONFIG + extensions)
    words = [
        "openssl",
        "req",
        "-x509",
        *_NEW_KEY,
        "-nodes",
        "-days",
        str(_DAYS),
        "-subj",
        f"/CN={name}",
        "-config",
        config,
        *signer,
        "-keyout",
        pair.key,
        "-out",
        pair.cert,
    ]
    process.run(words, timeout_s=_OPENSSL_S)
    config.unlink()
