"""A stock Debian or Ubuntu server in qemu, for tests: systemd as PID 1, cgroup v2, udev, journald, AppArmor,
NVMe and SCSI disks, an account with sudo, and the distribution's own database servers.

qemu emulates the processor, so that no machine needs KVM: a command takes 10 to 50 times as long
as outside. It shows what happens on a user's machine, never a speed. The root filesystem is built
once per recipe and kept in the cache; each server runs on a copy, in which the .deb is installed
without emulation.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.server_roots import DEBIAN, UBUNTU, keys, mirror

FORMAT: Final = 1  # of what `_build` makes out of the packages
COMPLETE: Final = "complete"  # written last
NEEDED_BYTES: Final = 8 << 30
BUILD_S: Final = 1800.0
BOOT_S: Final = 2400.0  # one to two minutes on a quiet machine
ANSWER_S: Final = 900.0
NO_CONNECTION: Final = 255  # exit status of ssh
CLOSING_S: Final = 5.0  # from the end of qemu's connections to its own
ROOT_BYTES: Final = 12 << 30
DISK_BYTES: Final = 3 << 30
# Serial number of a disk -> options of its device; /dev/disk/by-id has them, as kernel names of
# NVMe disks change with each boot.
DISKS: Final = {
    "NVME0": "nvme,serial=NVME0,drive=NVME0",
    "NVME1": "nvme,serial=NVME1,drive=NVME1",
    "NVME4K": (
        "nvme,serial=NVME4K,id=four -device nvme-ns,bus=four,drive=NVME4K,"
        "logical_block_size=4096,physical_block_size=4096"
    ),
    "SCSI0": "virtio-scsi-pci,id=scsi -device scsi-hd,bus=scsi.0,drive=SCSI0,serial=SCSI0",
}
# Suites of Ubuntu; the others are of Debian.
OF_UBUNTU: Final = ("noble", "resolute")
# What Ubuntu has in place of these packages and units: MySQL is the server that it confines.
IN_UBUNTU: Final = {
    "linux-image-amd64": "linux-image-virtual",
    "mariadb-server mariadb-client": "mysql-server mysql-client",
    "postgresql mariadb": "postgresql mysql",
}
# Its sudo is written in Rust from 26.04 on, as its coreutils are.
MORE: Final = {"resolute": " sudo-rs"}
PACKAGES: Final = (  # of Debian, with spaces between
    # what a server has after its installation
    "systemd-sysv udev dbus dbus-user-session libpam-systemd systemd-oomd sudo openssh-server apt"
    " apparmor apparmor-utils linux-image-amd64 initramfs-tools zstd iproute2 procps less"
    " ca-certificates unattended-upgrades"
    # what dbbench is used with
    " postgresql mariadb-server mariadb-client sysbench sysstat fio xfsprogs btrfs-progs e2fsprogs"
    " mdadm lvm2 thin-provisioning-tools cryptsetup multipath-tools parted smartmontools nvme-cli"
    # what the .deb depends on, so that installing it needs no network
    " python3 python3-click python3-jinja2 python3-msgpack python3-numpy python3-packaging"
    " python3-psutil python3-psycopg2 python3-yaml python3-rich python3-scipy python3-tornado"
)
# The distribution's servers are stopped: they would take half of the emulated processors.
FURNISH: Final = """
useradd --create-home --shell /bin/bash --groups sudo,adm ops
cp -r /root/.ssh /home/ops/
chown -R ops: /home/ops/.ssh
echo 'ops ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ops
systemctl --quiet enable systemd-networkd systemd-oomd ssh
rm -f /etc/apt/apt.conf.d/99mmdebstrap /etc/systemd/system/timers.target.wants/apt-daily*
for unit in multipathd multipathd.socket postgresql mariadb; do
  systemctl --quiet disable $unit
done
"""
FILES: Final = {
    "etc/hostname": "server\n",
    "etc/hosts": "127.0.0.1 localhost server\n",
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    "etc/systemd/network/wired.network": (
        "[Match]\nName=en*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n"
    ),
}
# Units may take as long as an emulated machine needs.
KERNEL_WORDS: Final = (
    "root=/dev/vda rw console=ttyS0 mitigations=off panic=-1 quiet systemd.show_status=no"
    " systemd.default_timeout_start_sec=20min systemd.default_device_timeout_sec=20min"
)


class Unavailable(Exception):
    """This machine cannot make a stock server."""


class Ended(AssertionError):
    """The server has ended, and no test ended it."""


def cache() -> Path:
    """Return dbbench/machines in the XDG cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "dbbench" / "machines"


def image(suite: str) -> Path:
    """Return the folder with root.img, vmlinuz, initrd and the key of ssh; build it if it is
    missing or incomplete. Raises Unavailable.
    """
    recipe = [FORMAT, suite, _packages(suite), _for(suite, FURNISH), FILES]
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]
    folder = cache() / f"{suite}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes, one builds it
        if not (folder / COMPLETE).exists():
            if shutil.disk_usage(folder.parent).free < NEEDED_BYTES:
                raise Unavailable(f"{NEEDED_BYTES >> 30} GiB of space in {folder.parent}")
            for old in folder.parent.glob(f"{suite}-*/"):  # of earlier recipes
                shutil.rmtree(old)
            try:
                _build(suite, folder)
            except subprocess.CalledProcessError as error:
                shutil.rmtree(folder, ignore_errors=True)
                lines = (error.stderr or "").strip().splitlines()[-3:]
                raise Unavailable(f"packages of {suite} (network?): {'; '.join(lines)}") from error
    return folder


def _packages(suite: str) -> list[str]:
    return (_for(suite, PACKAGES) + MORE.get(suite, "")).split()


def _for(suite: str, text: str) -> str:
    """Return packages or commands for that suite."""
    if suite in OF_UBUNTU:
        for name, other in IN_UBUNTU.items():
            text = text.replace(name, other)
    return text


def _build(suite: str, folder: Path) -> None:
    distribution = DEBIAN
    options = list[str]()
    if suite in OF_UBUNTU:
        distribution = UBUNTU
        options = [f"--keyring={keys(UBUNTU)}", "--components=main,universe"]
    folder.mkdir(0o755)
    key = folder / "key"
    _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    with tempfile.TemporaryDirectory(prefix="dbbench-stock-", dir="/var/tmp") as work:
        root = Path(work) / "root"
        _do(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={','.join(_packages(suite))}",
            *options,
            '--aptopt=APT::Install-Recommends "false"',
            '--aptopt=Acquire::Check-Valid-Until "false"',
            suite,
            root,
            mirror(distribution),
        )
        for name, content in FILES.items():
            (root / name).unlink(missing_ok=True)
            (root / name).write_text(content)
        (root / "root/.ssh").mkdir(0o700, exist_ok=True)
        shutil.copy(key.with_suffix(".pub"), root / "root/.ssh/authorized_keys")
        _do("chroot", root, "sh", "-e", "-c", _for(suite, FURNISH))
        shutil.copy(next(iter((root / "boot").glob("vmlinuz-*"))), folder / "vmlinuz")
        shutil.copy(next(iter((root / "boot").glob("initrd.img-*"))), folder / "initrd")
        _sparse(folder / "root.img", ROOT_BYTES)
        _do("mke2fs", "-q", "-t", "ext4", "-d", root, folder / "root.img")
    (folder / COMPLETE).touch()


def _do(*argv: str | Path) -> str:
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*map(str, argv)],
        check=True,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        env=env,
    )
    return done.stdout


def _sparse(path: Path, size: int) -> None:
    path.touch(0o600)
    os.truncate(path, size)


def install(deb: Path, root_image: Path) -> None:
    """Install the package in the image, without emulation."""
    with tempfile.TemporaryDirectory(prefix="dbbench-stock-", dir="/var/tmp") as place:
        _do("mount", "-o", "loop", root_image, place)
        try:
            shutil.copy(deb, f"{place}/root")
            _do("mount", "-t", "proc", "proc", f"{place}/proc")
            _do("chroot", place, "dpkg", "--install", f"/root/{deb.name}")
        finally:
            _do("umount", "--recursive", place)


@dataclass
class Server:
    """A running stock server, on its own copies of the image and the disks in `folder`."""

    image: Path
    folder: Path
    memory: str = "4G"
    port: int = field(default_factory=lambda: _free_port())
    qemu: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Start it, and wait until it answers."""
        # Connections that ssh has kept lead to the server that was there before.
        for user in ("root", "ops"):
            (self.folder / f"ssh-{user}").unlink(missing_ok=True)
        drives = [("root", "virtio-blk-pci,drive=root"), *DISKS.items()]
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max"]
        argv += ["-smp", "2", "-m", self.memory, "-display", "none", "-nodefaults", "-no-reboot"]
        argv += ["-kernel", str(self.image / "vmlinuz"), "-initrd", str(self.image / "initrd")]
        argv += ["-append", KERNEL_WORDS, "-serial", f"file:{self.folder}/console.log"]
        argv += ["-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:22"]
        argv += ["-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]
        for name, device in drives:
            # The host keeps what a power cut of the server takes from it: only its memory is lost.
            file = f"file={self.folder}/{name}.img,format=raw,if=none,id={name}"
            argv += ["-drive", f"{file},cache=unsafe,discard=unmap", "-device", *device.split()]
        with (self.folder / "qemu.log").open("ab") as log:
            self.qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + BOOT_S
        while self.command("true", wait_s=60.0).returncode:
            assert time.monotonic() < until, f"the server does not answer:\n{self._last_words()}"
            time.sleep(2)

    def has_ended(self) -> bool:
        return self.qemu is not None and self.qemu.poll() is not None

    def _last_words(self) -> str:
        """Return the ends of what qemu and the kernel in it have printed."""
        files = [self.folder / "qemu.log", self.folder / "console.log"]
        return "\n".join(
            file.read_text(errors="replace")[-2000:] for file in files if file.exists()
        )

    def command(
        self,
        command: str,
        user: str = "root",
        stdin: str = "",
        wait_s: float = ANSWER_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the shell in the server, over ssh. Raises Ended."""
        done = self._ssh(command, user, stdin, wait_s)
        if done.returncode == NO_CONNECTION and self.qemu is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.qemu.wait(CLOSING_S)
                raise Ended(f"qemu ended with status {status}:\n{self._last_words()}")
        return done

    def _ssh(
        self,
        command: str,
        user: str,
        stdin: str,
        wait_s: float,
    ) -> subprocess.CompletedProcess[str]:
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "ConnectTimeout": "60",
            "ControlMaster": "auto",
            "ControlPath": f"{self.folder}/ssh-%r",
            "ControlPersist": "1h",
        }
        argv = ["ssh", "-q", "-p", str(self.port), "-i", str(self.image / "key")]
        argv += [f"-o{name}={value}" for name, value in options.items()]
        argv += [f"{user}@127.0.0.1", command]
        try:
            return subprocess.run(
                argv,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=wait_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            lack = f"no answer in {wait_s:.0f} s"
            return subprocess.CompletedProcess(argv, NO_CONNECTION, "", lack)

    def answer(self, command: str, user: str = "root", stdin: str = "") -> str:
        """Return what the command prints; fail if it fails."""
        done = self.command(command, user, stdin)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait_for(self, command: str, seconds: float = ANSWER_S) -> str:
        """Repeat the command until it succeeds; return what it prints."""
        until = time.monotonic() + seconds
        while (done := self.command(command)).returncode:
            lack = f"not within {seconds:.0f} s: {command}\n{done.stdout}{done.stderr}"
            assert time.monotonic() < until, lack
            time.sleep(1)
        return done.stdout

    def cut_power(self) -> None:
        """End it at once, as a power cut of the machine does."""
        assert self.qemu is not None
        self.qemu.send_signal(signal.SIGKILL)
        self._ended(BOOT_S)

    def shut_down(self) -> None:
        """End it in order, as `systemctl reboot` does."""
        self._ssh("systemctl reboot", "root", "", ANSWER_S)
        self._ended(BOOT_S)

    def _ended(self, within_s: float) -> None:
        assert self.qemu is not None
        self.qemu.wait(within_s)


@contextlib.contextmanager
def running(suite: str, debs: Sequence[Path]) -> Iterator[Server]:
    """Run a server with these packages within the block. Raises Unavailable."""
    made = image(suite)
    with tempfile.TemporaryDirectory(prefix="dbbench-stock-", dir="/var/tmp") as work:
        server = Server(made, Path(work))
        _do("cp", "--sparse=always", made / "root.img", server.folder)
        for deb in debs:
            install(deb, server.folder / "root.img")
        for name in DISKS:
            _sparse(server.folder / f"{name}.img", DISK_BYTES)
        try:
            server.boot()
            yield server
        finally:
            if server.qemu is not None:
                server.cut_power()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
