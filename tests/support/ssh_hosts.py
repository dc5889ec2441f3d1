"""Simulated machines that are reachable by ssh: a private network, and for each a hostname, an
address and root's home.

The ssh server is dropbear, whose package starts no service. Nothing is visible outside: network,
hostnames and the table of users belong to namespaces, which end with their processes.
"""

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

from dbbench import process

NETWORK: Final = "198.18.77"  # reserved for benchmarks of networks (RFC 2544) and not routed
NEEDS: Final = (
    "root",
    "dropbear",
    "dropbearkey",
    "ssh",
    "ssh-keygen",
    "unshare",
    "nsenter",
    "ip",
    "openssl",
)
_UP_S: Final = 120.0


@dataclass(frozen=True)
class Lan:
    """The machines: names -> addresses. `homes` are root's home folders; `bin` has an `ssh` with
    their names.
    """

    folder: Path
    holder: int  # pid of the process that keeps the network namespace
    addresses: Mapping[str, str]

    @property
    def homes(self) -> Mapping[str, Path]:
        return {name: self.folder / name / "home" for name in self.addresses}

    def tmp(self, name: str) -> Path:
        """Return the folder that is /tmp on that machine, if it has a separate one."""
        return self.folder / name / "tmp"

    def inside(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs `words` on that network."""
        return ["nsenter", f"--net=/proc/{self.holder}/ns/net", *words]

    def env(self, name: str) -> dict[str, str]:
        """Return the environment of a command on that machine."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**os.environ, "PATH": path, "HOME": str(self.homes[name])}


@contextlib.contextmanager
def lan(
    folder: Path,
    names: Sequence[str],
    *,
    private_tmp: bool = False,
) -> Iterator[Lan]:
    """Run machines with those names. Each knows the names of the others and accepts the same key.
    With `private_tmp` each has a separate /tmp that contains only the folder of the machines.
    """
    addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, 1)}
    up = " && ".join(
        ["ip link set lo up", *(f"ip addr add {one}/32 dev lo" for one in addresses.values())]
    )
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", f"{up} && exec sleep infinity"])
    servers: list[subprocess.Popen[bytes]] = []
    try:
        # Until then its network is that of the machine, and the addresses are not there.
        named = Path(f"/proc/{holder.pid}/comm")
        assert not process.wait_while(
            lambda: named.read_text() != "sleep\n" and holder.poll() is None, _UP_S
        )
        found = Lan(folder, holder.pid, addresses)
        _client(found)
        servers = [
            subprocess.Popen(
                _server(found, name, private_tmp), stderr=(folder / f"{name}.log").open("w")
            )
            for name in names
        ]
        for name in names:
            _answering(found, name)
        yield found
    finally:
        for pid in processes_on(holder.pid):  # shares outlive their ssh session by design
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        for child in (*servers, holder):
            child.kill()
            child.wait()


def _client(lan: Lan) -> None:
    """Write a key, and an `ssh` that uses it."""
    key = lan.folder / "key"
    bin_ = lan.folder / "bin"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = "".join(
        f"Host {name}\n  HostName {address}\n" for name, address in lan.addresses.items()
    )
    shared = (
        f"Host *\n  User root\n  IdentityFile {key}\n  StrictHostKeyChecking no\n  "
        "UserKnownHostsFile /dev/null\n"
    )
    (lan.folder / "ssh_config").write_text(config + shared)
    bin_.mkdir()
    script = bin_ / "ssh"
    script.write_text(
        f"#!/bin/sh\nexec {shutil.which('ssh')} -F {shlex.quote(str(lan.folder / 'ssh_config'))} "
        '"$@"\n'
    )
    script.chmod(0o755)


def _server(lan: Lan, name: str, private_tmp: bool) -> list[str]:
    """Return the command that runs dropbear as a machine; its tables of users and hosts differ from
    this machine's.
    """
    home = lan.homes[name]
    own = lan.folder / name
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / ".ssh/authorized_keys").write_text((lan.folder / "key.pub").read_text())
    (home / ".ssh/authorized_keys").chmod(0o600)
    users = [
        line
        for line in Path("/etc/passwd").read_text().splitlines()
        if not line.startswith("root:")
    ]
    (own / "passwd").write_text("\n".join([f"root:x:0:0:root:{home}:/bin/sh", *users, ""]))
    names = "".join(f"{address} {other}\n" for other, address in lan.addresses.items())
    (own / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    for kind in ("ed25519", "rsa"):  # without an RSA key it crashes if a client requests one
        subprocess.run(
            ["dropbearkey", "-t", kind, "-f", str(own / kind)],
            check=True,
            capture_output=True,
        )
    words = [
        f"hostname {name}",
        *(_hiding_tmp(lan, name) if private_tmp else ()),
        *(
            f"mount --bind {shlex.quote(str(own / file))} /etc/{file}"
            for file in ("passwd", "hosts")
        ),
        f"exec dropbear -F -E -s -r {own / 'ed25519'} -r {own / 'rsa'} -p "
        f"{lan.addresses[name]}:22 -P {own / 'pid'}",
    ]
    return lan.inside(["unshare", "--mount", "--uts", "sh", "-c", " && ".join(words)])


def _hiding_tmp(lan: Lan, name: str) -> list[str]:
    """Return commands after which /tmp contains only the folder of the machines, in this mount
    namespace.
    """
    own = lan.tmp(name)
    inner = (
        own / lan.folder.relative_to("/tmp")
        if lan.folder.is_relative_to("/tmp")
        else own / "unused"
    )
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
    raise AssertionError(
        f"{name} does not answer: {done.stderr}\n{(lan.folder / f'{name}.log').read_text()}"
    )


def processes_on(holder: int) -> list[int]:
    """Return all processes on that network except its holder."""
    network = Path(f"/proc/{holder}/ns/net").readlink()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "ns/net").readlink() == network and int(path.name) != holder:
                found.append(int(path.name))
    return found
