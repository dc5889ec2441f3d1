"""dbbench, installed from its .deb, on a stock server, as its administrator uses it. It is Debian 13,
or the release in DBBENCH_RELEASE (`make machine RELEASE=ubuntu2404`).

Runs are of PostgreSQL: ext4, xfs and btrfs on NVMe. The soak adds dm-crypt on SCSI with the log on
xfs on a disk with sectors of 4096 bytes, after SIGKILL, and md RAID1, md RAID0 with delayed
flushes, LVM with a snapshot and btrfs RAID1, each with the end of the machine in mid-trial. The
second kernel tests layers without udev, and tests/system the other engines and refusals. Not tried
anywhere: multipath, iSCSI, SELinux.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import artifacts
import pytest

from tests.machine import stock_server
from tests.machine.stock_server import Server
from tests.releases import RELEASES

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs(
        "root",
        "qemu-system-x86_64",
        "mmdebstrap",
        "ssh",
        "ssh-keygen",
        "mke2fs",
        "dpkg-deb",
        "git",
    ),
]
SUITE: Final = RELEASES[os.environ.get("DBBENCH_RELEASE") or "debian13"].suite
DISK: Final = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{}_1"
SCSI: Final = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_SCSI0"
# Tiny, with deadlines for a machine that is emulated.
PLAN: Final = """
name = "stock"
fs_setups = ["{setup}"]
blocks = {blocks}
seed = 1
warmup = "1s"
measure = "{window:.0f}s"
{more}
repeat_suspect = false
[device]
kind = "{kind}"
{device}
[[engine]]
name = "postgres"
[[workload]]
name = "pgbench-tpcb"
scale = 1
clients = 1
[deadlines]
canary = "1h"
mkfs = "1h"
mount = "1h"
restore = "6h"
start = "1h"
warmup = "1h"
measure = "1h"
stop = "1h"
space = "1h"
"""


def plan(
    device: str,
    setup: str = "ext4",
    blocks: int = 1,
    more: str = "",
    kind: str = "block",
) -> str:
    """A plan for these disks. Its window is longer on a busy machine, where an emulated server may
    stand still for seconds.
    """
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return PLAN.format(
        kind=kind,
        device=device,
        setup=setup,
        blocks=blocks,
        more=more,
        window=5 * min(max(1.0, busy), 12.0),
    )


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    assert artifacts.main(["deb", "--dist", str(folder), "--level", "1"]) == 0
    (made,) = folder.glob("*.deb")
    return made


@pytest.fixture(scope="module")
def machine(deb: Path) -> Iterator[Server]:
    """A server for all tests of this file, in their order."""
    try:
        with stock_server.running(SUITE, [deb]) as started:
            yield started
    except stock_server.Unavailable as lack:
        pytest.skip(f"needs {lack}")


@pytest.fixture
def server(machine: Server) -> Server:
    """The server, started again if it has ended in the test before."""
    if machine.has_ended():
        machine.boot()
    return machine


def trials(server: Server, run: str) -> list[dict[str, Any]]:
    """The trials of a run below /root/results."""
    text = server.answer(f"cd /root/results/{run}/trials && cat */trial.json | tr -d '\\n'")
    decoder = json.JSONDecoder()
    found = []
    while text:
        trial, end = decoder.raw_decode(text)
        found.append(trial)
        text = text[end:].lstrip()
    return found


@pytest.mark.parametrize(("user", "sudo"), [("root", ""), ("ops", "sudo ")])
def test_doctor_finds_nothing_missing(
    server: Server,
    user: str,
    sudo: str,
) -> None:
    """Also what it tries: both limits, below systemd. It lists the disks that are not in use."""
    document = json.loads(server.answer(f"{sudo}dbbench doctor --json", user))
    rows = {row["check"]: row for row in document["checks"]}
    assert rows["control groups: memory"]["ok"] and rows["control groups: io"]["ok"]
    assert rows["waits of threads"]["ok"]  # a slow machine needs a second to start `sleep`
    for serial in stock_server.DISKS:
        assert serial in json.dumps(document)
    assert server.answer("systemctl list-units --all --no-legend 'dbbench*'") == ""


# While the run lasts, the limits of all groups of dbbench, each line once.
WATCH: Final = """
systemctl reset-failed
systemd-run --quiet --unit=limited -p MemoryMax=2G --working-directory=/root \
  -p StandardOutput=file:/root/log -p StandardError=file:/root/log \
  dbbench run plan.toml --wipe NVME0 --name limited --progress plain
while systemctl is-active --quiet limited; do
  grep -H . $(find /sys/fs/cgroup/system.slice -path '*/dbbench-*' \
    \\( -name memory.max -o -name io.max \\)) 2>/dev/null
  sleep 1
done | sort -u
systemctl is-failed limited >/dev/null && cat /root/log && exit 1
exit 0
"""


def test_limits_in_a_service_are_enforced_and_read_back(server: Server) -> None:
    """systemd enables the controller io for nobody. The unit's MemoryMax= also holds for the
    server, although a unit has no HOME. Nothing is left.
    """
    device = f'path = "{DISK.format("NVME0")}"\nlimit = {{ iops = 2000 }}'
    server.answer("cat >/root/plan.toml", stdin=plan(device, more='memory = "256MiB"'))
    limits = server.answer(WATCH)
    assert f".service/memory.max:{2 << 30}" in limits
    assert f"/memory.max:{256 << 20}" in limits
    assert limits.count("riops=2000 wiops=2000") >= 2  # of the server's group, and of the others
    (trial,) = trials(server, "limited")
    assert trial["error"] is None
    assert trial["memory"]["enforced"] == trial["limit"]["enforced"] == "cgroup v2"
    assert trial["memory"]["limit_bytes"] == 256 << 20
    assert not server.answer("systemctl list-units --all --no-legend 'dbbench*'")
    assert not server.answer("find /sys/fs/cgroup -name 'dbbench-*'")
    server.answer("test -d /root/.cache/dbbench && ! test -e /.cache && ! test -e /.local")


def test_the_filesystems_are_compared_on_a_disk_with_large_sectors(server: Server) -> None:
    """It has sectors of 4096 bytes. Its identity is typed once, and the run ends with its page."""
    device = f'path = "{DISK.format("NVME4K")}"'
    text = plan(device).replace('["ext4"]', '["ext4", "xfs", "btrfs"]')
    server.answer("cat >/root/plan.toml", stdin=text)
    run = "dbbench run plan.toml --wipe NVME4K --name compared --progress plain"
    printed = server.command(f"cd /root && {run}")
    assert printed.returncode == 0, printed.stderr
    tried = trials(server, "compared")
    assert {trial["filesystem"]["family"] for trial in tried} == {"ext4", "xfs", "btrfs"}
    assert [trial["error"] for trial in tried] == [None, None, None]
    server.answer("test -s /root/results/compared/report.html")
    assert "nothing to remove" in server.answer("cd /root && dbbench clean")


# Not `pgbench --version`, nor what fills the tables.
UNDER_LOAD: Final = "pgrep -f 'pgbench .*[-]-progress=1'"


@pytest.mark.soak
def test_a_killed_run_on_layers_and_two_disks_continues(server: Server) -> None:
    """SIGKILL leaves an encrypted volume on the SCSI disk, and a log on the disk with sectors of
    4096 bytes. The same command, without --wipe, removes both and runs the trial.
    """
    log = f'[device.wal]\nfs_setup = "xfs"\npath = "{DISK.format("NVME4K")}"'
    server.answer("cat >/root/plan.toml", stdin=plan(f'path = "{SCSI}"\n{log}', "ext4-crypt"))
    run = "dbbench run plan.toml --name killed --progress plain"
    server.answer(
        "systemd-run --quiet --unit=killed --working-directory=/root"
        f" -p StandardError=file:/root/log {run} --wipe SCSI0 --wipe NVME4K"
    )
    server.wait_for(f"{UNDER_LOAD} || {{ cat /root/log; false; }}")
    server.answer("systemctl kill --kill-who=main --signal=KILL killed")
    server.answer("systemctl reset-failed")
    assert "dbbench-" in server.answer("dmsetup ls --target crypt")
    server.answer(f"cd /root && {run}")
    (trial,) = trials(server, "killed")
    assert trial["error"] is None and trial["filesystem"]["wal"]["family"] == "xfs"
    assert "No devices found" in server.answer("dmsetup ls --target crypt")
    assert "nothing to remove" in server.answer("cd /root && dbbench clean")


# Sets both limits as a trial does, exceeds them, and prints what the kernel says of them.
LIMITS: Final = """
import json, subprocess, sys, time
from pathlib import Path
from dbbench.machine.limits import cgroup, throttle
from dbbench.model import DeviceLimit
from dbbench.results.journal import Journal

disk = Path("/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_NVME4K_1").resolve()
number = Path("/sys/class/block", disk.name, "dev").read_text().strip()
write = ["dd", "if=/dev/zero", f"of={disk}", "bs=4k", "count=400", "oflag=direct"]
allocate = [sys.executable, "-c", "bytearray(b'x') * (200 << 20)"]
limit = DeviceLimit(iops=200)
journal = Journal(Path("/root/journal.jsonl"))
with cgroup.unit(journal), throttle.limit_disks([number], limit, journal, None):
    where = cgroup.hierarchy()
    with (
        cgroup.make_group(where, f"dbbench-x-{journal.tag}", journal, 64 << 20) as group,
        throttle.limit_group(group, [number], limit),
    ):
        began = time.monotonic()
        with group.enter():
            subprocess.run(write, check=True)
            seconds = time.monotonic() - began
            killed = subprocess.run(allocate).returncode
        files = [group.path / name for name in ("memory.events", "io.stat", "io.max")]
        texts = {file.name: file.read_text() for file in files}
        outer = (group.path.parent / "memory.max").read_text().strip()
        print(json.dumps([str(group.path), outer, number, seconds, killed, texts]))
"""
PYTHON: Final = "/usr/lib/dbbench/bin/python3 -sP -"
UNIT: Final = "systemd-run --quiet -p MemoryMax=1G"


@pytest.mark.parametrize(
    ("start", "below", "most"),
    [
        ("", "dbbench-", "max"),
        # the shell stays in the scope, which would end without a process, as dbbench itself does
        (f"{UNIT} --scope sh -c '$0 $@; exit $?'", "dbbench-", str(1 << 30)),
        # alone in its unit: what DelegateSubgroup= does is missing before systemd 254
        (f"{UNIT} --wait --pipe -p Delegate=yes --unit=own", "own.service", str(1 << 30)),
    ],
    ids=["login", "scope", "delegated"],
)
def test_limits_hold_wherever_dbbench_is_started(
    server: Server,
    start: str,
    below: str,
    most: str,
) -> None:
    """A MemoryMax= around dbbench also holds for the server: what exceeds its own limit is killed,
    and requests wait.
    """
    printed = server.answer(f"cd /root && {start} {PYTHON}", stdin=LIMITS)
    group, outer, number, seconds, killed, texts = json.loads(printed)
    assert group.startswith(f"/sys/fs/cgroup/system.slice/{below}")
    assert outer == most
    assert killed == -9 and "oom_kill 1\n" in texts["memory.events"]
    assert f"{number} rbps=max wbps=max riops=200 wiops=200\n" in texts["io.max"]
    written = re.search(rf"^{number} .* wios=(\d+)", texts["io.stat"], re.MULTILINE)
    assert written and int(written[1]) > 300  # the kernel adds up later what each CPU has counted
    assert seconds > 1.5  # two without a first burst
    server.wait_for("! find /sys/fs/cgroup -name 'dbbench-*' | grep .")


def test_a_sudo_account_compares_directories(server: Server) -> None:
    """Without sudo: a minute's measurement of the disk, and a plan for two directories."""
    server.answer("mkdir a b && dbbench probe a b --time 2s --json >probed.json", "ops")
    probed = json.loads(server.answer("cat probed.json", "ops"))
    assert [Path(each["path"]).name for each in probed["directories"]] == ["a", "b"]
    printed = server.answer("dbbench init --dirs a,b --engine postgres -o dirs.toml", "ops")
    assert "Wrote dirs.toml for postgres" in printed
    assert "are on the same filesystem" in printed
    assert server.answer("find a b -type f", "ops") == ""


@pytest.mark.soak
def test_the_first_plan_can_be_run(server: Server) -> None:
    """What `init` writes for this machine is accepted as it is."""
    printed = server.answer("cd /root && dbbench init -o first.toml && dbbench plan first.toml")
    assert "Wrote first.toml for postgres" in printed
    assert "ext4: mkfs.ext4" in printed


def test_a_plan_is_made_from_the_running_server(server: Server) -> None:
    """The distribution's own, which is only read, as the account of its administrator."""
    server.answer("systemctl start postgresql")
    server.wait_for("runuser -u postgres -- psql -qtc 'select 1'")
    init = "dbbench init --from-running -o running-plan.toml"
    try:
        printed = server.answer(f"runuser -u postgres -- sh -c 'cd /tmp && {init}'")
    finally:
        server.answer("systemctl stop 'postgresql@*' postgresql")
    assert "Wrote running-plan.toml for postgres" in printed
    text = server.answer("cat /tmp/running-plan.toml")
    assert 'settings.shared_buffers = "128MB"' in text and 'baseline = "ext4"' in text


# A mounted volume of LVM in an encrypted disk.
LAYERS: Final = """
set -e
KEY="--batch-mode --key-file -"
echo x | cryptsetup luksFormat $KEY --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $DISK
echo x | cryptsetup open $KEY $DISK kept
pvcreate -q /dev/mapper/kept
vgcreate -q my-group /dev/mapper/kept
lvcreate -q -n data -L 1G my-group
mkfs.ext4 -q /dev/my-group/data
mount /dev/my-group/data /mnt
echo kept >/mnt/file
"""
RELEASE: Final = ("vgchange -an my-group", "cryptsetup close kept")


def test_a_disk_in_use_is_refused_and_stays_as_it_is(server: Server) -> None:
    """Also with the identity that permits to overwrite it. The commands that the message names
    release it.
    """
    disk = DISK.format("NVME1")
    server.answer(f"DISK={disk}\n{LAYERS}")
    server.answer("cat >/root/plan.toml", stdin=plan(f'path = "{disk}"'))
    refused = server.command("cd /root && dbbench run plan.toml --wipe NVME1 --name refused")
    assert refused.returncode == 5 and "is mounted at /mnt" in refused.stderr, refused.stderr
    lines = [line.strip() for line in refused.stderr.splitlines()]
    assert [line for line in lines if line in RELEASE] == [*RELEASE]
    again = "umount /mnt && mount -o ro /dev/my-group/data /mnt && cat /mnt/file"
    assert server.answer(again) == "kept\n"
    server.answer(f"umount /mnt && {' && '.join(RELEASE)} && wipefs -qa {disk}")


TIMER: Final = "dbbench-nightly@n.timer"
SOON: Final = "[Timer]\nOnActiveSec=1s\nAccuracySec=1s\n"


def test_stopping_the_nightly_unit_does_not_leave_it_failed(server: Server) -> None:
    """The units of the .deb, started by the timer and stopped in mid-run: alerts on failed units
    stay quiet, and the journal has the progress.
    """
    text = plan('size = "512MiB"', blocks=3, more='memory = "256MiB"', kind="loop")
    server.answer("mkdir -p /etc/dbbench && cat >/etc/dbbench/n.toml", stdin=text)
    folder = f"/run/systemd/system/{TIMER}.d"
    server.answer(f"mkdir -p {folder} && cat >{folder}/soon.conf", stdin=SOON)
    server.answer(f"systemctl daemon-reload && systemctl start {TIMER}")
    server.wait_for("pgrep -f dbbench.run.worker")
    server.answer(f"systemctl stop {TIMER} dbbench-nightly@n.service")
    log = server.answer("journalctl --no-pager -u dbbench-nightly@n | tail -20")
    assert "dbbench[" in log and ": run stock-night-" in log, log
    assert server.answer("systemctl show -P ActiveState dbbench-nightly@n") == "inactive\n", log
    assert "Deactivated successfully" in log, log
    assert server.answer("mount | grep -c /run/dbbench || true").strip() == "0"


def test_a_confined_mysqld_is_refused_with_the_line_that_helps(server: Server) -> None:
    """Only Ubuntu has a profile that is enforced: it denies data directories elsewhere."""
    file = "/etc/apparmor.d/usr.sbin.mysqld"
    if server.command(f"test -e {file}").returncode:
        pytest.skip("needs a release that confines mysqld")
    text = plan('size = "1GiB"', kind="loop").replace("postgres", "mysql")
    text = text.replace("pgbench-tpcb", "sysbench-oltp-read-write")
    text = text.replace("scale = 1", "tables = 1\ntable_size = 100")
    server.answer("cat >/root/plan.toml", stdin=text)
    refused = server.command("cd /root && dbbench run plan.toml --name confined")
    assert refused.returncode == 1, refused.stderr
    assert f"apparmor_parser --remove {file}" in refused.stderr, refused.stderr


# Two trials and two boots: half an hour of emulation on a busy machine.
@pytest.mark.soak
@pytest.mark.parametrize(
    ("setup", "end"),
    [
        ("ext4-md1", Server.cut_power),
        ("ext4-on-lvm-snapshot", Server.cut_power),
        ("xfs-md0", Server.cut_power),
        ("btrfs-raid1", Server.shut_down),
    ],
    ids=["md1", "lvm-snapshot", "md0", "btrfs-raid1"],
)
def test_a_run_on_two_disks_continues_after_the_machine_has_ended(
    server: Server,
    setup: str,
    end: Callable[[Server], None],
) -> None:
    """udev may assemble the layers when the server boots again, and the run removes them first. The
    trial that was published before is kept. Flushes of md0 are delayed by a mapping.
    """
    device = f'paths = ["{DISK.format("NVME1")}", "{SCSI}"]'
    if setup == "xfs-md0":
        device += "\nlimit = { flush_ms = 20 }"
    server.answer("cat >/root/plan.toml", stdin=plan(device, setup, blocks=2))
    run = f"dbbench run plan.toml --name {setup} --progress plain"
    server.answer(
        "systemd-run --quiet --unit=layers --working-directory=/root"
        f" -p StandardError=file:/root/log {run} --wipe NVME1 --wipe SCSI0"
    )
    published = f"ls /root/results/{setup}/trials/*/trial.json"
    server.wait_for(f"{published} || {{ cat /root/log; false; }}")
    server.wait_for(UNDER_LOAD)  # of the second trial
    (kept,) = trials(server, setup)
    server.answer("sync")
    end(server)
    server.boot()
    server.answer(f"cd /root && {run}")
    first, second = trials(server, setup)
    assert kept in (first, second) and first["error"] is second["error"] is None
    assert "nothing to remove" in server.answer("cd /root && dbbench clean")
    assert not re.search("raid|lvm|crypt|dm", server.answer("lsblk -nro NAME,TYPE"))
