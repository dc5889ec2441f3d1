"""Machines to reach by ssh, on this one: a network of their own, and for each a hostname, an address and a root's home.

The ssh server is dropbear: its package starts no service. Nothing of it is seen outside: network, hostnames and the
table of users are those of namespaces, which go with their processes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NETWORK: Final = "198.18.77"  # kept for benchmarks of networks: nobody routes it
NEEDS: Final = ("root", "dropbear", "dropbearkey", "ssh", "ssh-keygen", "unshare", "nsenter", "ip", "openssl")
_UP_S: Final = 20.0


@dataclass(frozen=True)
class Lan:
    """The machines: names -> addresses. `homes` are their roots' home folders, `bin` has an `ssh` that knows them."""

    folder: Path
    holder: int  # the process that keeps the network
    addresses: Mapping[str, str]

    @property
    def homes(self) -> Mapping[str, Path]:
        return {name: self.folder / name / "home" for name in self.addresses}

    def tmp(self, name: str) -> Path:
        """What that machine sees as /tmp, where it has one of its own."""
        return self.folder / name / "tmp"

    def inside(self, words: Sequence[str]) -> list[str]:
        """The command on that network."""
        return ["nsenter", f"--net=/proc/{self.holder}/ns/net", *words]

    def env(self, name: str) -> dict[str, str]:
        """What a command has that is given on that machine."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**os.environ, "PATH": path, "HOME": str(self.homes[name])}


@contextlib.contextmanager
def lan(folder: Path, names: Sequence[str], *, private_tmp: bool = False) -> Iterator[Lan]:
    """Machines of those names. Each knows the others' names, lets the same key in and, where asked for, has a /tmp of
    its own in which nothing but the machines' folder is seen."""
    addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, 1)}
    up = " && ".join(["ip link set lo up", *(f"ip addr add {one}/32 dev lo" for one in addresses.values())])
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", f"{up} && exec sleep infinity"])
    servers: list[subprocess.Popen[bytes]] = []
    try:
        found = Lan(folder, holder.pid, addresses)
        _client(found)
        servers = [
            subprocess.Popen(_server(found, name, private_tmp), stderr=(folder / f"{name}.log").open("w"))
            for name in names
        ]
        for name in names:
            _answering(found, name)
        yield found
    finally:
        for pid in processes_on(holder.pid):  # supervisors outlive their ssh session, as they should
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        for child in (*servers, holder):
            child.kill()
            child.wait()


def _client(lan: Lan) -> None:
    """A key, and an `ssh` that uses it."""
    key, bin_ = lan.folder / "key", lan.folder / "bin"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = "".join(f"Host {name}\n  HostName {address}\n" for name, address in lan.addresses.items())
    shared = f"Host *\n  User root\n  IdentityFile {key}\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
    (lan.folder / "ssh_config").write_text(config + shared)
    bin_.mkdir()
    script = bin_ / "ssh"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {shlex.quote(str(lan.folder / "ssh_config"))} "$@"\n')
    script.chmod(0o755)


def _server(lan: Lan, name: str, private_tmp: bool) -> list[str]:
    """dropbear on a machine of its own; of the files of this one, the table of users and that of hosts are others."""
    home, own = lan.homes[name], lan.folder / name
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / ".ssh/authorized_keys").write_text((lan.folder / "key.pub").read_text())
    (home / ".ssh/authorized_keys").chmod(0o600)
    users = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")]
    (own / "passwd").write_text("\n".join([f"root:x:0:0:root:{home}:/bin/sh", *users, ""]))
    names = "".join(f"{address} {other}\n" for other, address in lan.addresses.items())
    (own / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    for kind in ("ed25519", "rsa"):  # without one of RSA it dies of clients that ask for it
        subprocess.run(["dropbearkey", "-t", kind, "-f", str(own / kind)], check=True, capture_output=True)
    words = [
        f"hostname {name}",
        *(_hiding_tmp(lan, name) if private_tmp else ()),
        *(f"mount --bind {shlex.quote(str(own / file))} /etc/{file}" for file in ("passwd", "hosts")),
        f"exec dropbear -F -E -s -r {own / 'ed25519'} -r {own / 'rsa'} -p {lan.addresses[name]}:22 -P {own / 'pid'}",
    ]
    return lan.inside(["unshare", "--mount", "--uts", "sh", "-c", " && ".join(words)])


def _hiding_tmp(lan: Lan, name: str) -> list[str]:
    """Commands after which /tmp has nothing but the machines' folder, in this mount namespace."""
    own = lan.tmp(name)
    inner = own / lan.folder.relative_to("/tmp") if lan.folder.is_relative_to("/tmp") else own / "unused"
    inner.mkdir(parents=True)
    return [f"mount --bind {lan.folder} {inner}", f"mount --rbind {own} /tmp"]


def _answering(lan: Lan, name: str) -> None:
    until = time.monotonic() + _UP_S
    words = lan.inside([str(lan.folder / "bin/ssh"), "-o", "BatchMode=yes", name, "hostname"])
    while time.monotonic() < until:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            assert done.stdout.strip() == name != socket.gethostname()
            return
        time.sleep(0.2)
    raise AssertionError(f"{name} does not answer: {done.stderr}\n{(lan.folder / f'{name}.log').read_text()}")


def processes_on(holder: int) -> list[int]:
    """All processes on that network but its holder."""
    network, found = Path(f"/proc/{holder}/ns/net").readlink(), []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "ns/net").readlink() == network and int(path.name) != holder:
                found.append(int(path.name))
    return found
