"""The examples of docs/fleet in the container image: a pod, Slurm, the playbook, and clusters of dask."""

import json
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from dbbench import process
from dbbench.machine.limits import cgroup
from dbbench.results.journal import Journal
from tests import releases
from tests.support.packages import APT, ROOT, UPDATE

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (ROOT / ".git").exists(), reason="needs a checkout: git lists the files of the packages"
    ),
    pytest.mark.needs("root", "debootstrap", "dpkg-deb", "git", "fs:overlay", "fs:ext4", "fs:xfs"),
]
FLEET: Final = ROOT / "docs/fleet"
NAMES: Final = "fleet-scheduler coordinator.lan db1.lan db2.lan"  # of the examples
JOBQUEUE: Final = "dask-jobqueue==0.9.0"
CERTIFICATES: Final = (
    "timeout 60 sh -c 'until test -d /root/.config/dbbench/fleet; do sleep 0.2; done'"
)
# SIOCSIFFLAGS of `lo` with IFF_UP and IFF_RUNNING; the image has no ip(8).
LOOPBACK: Final = (
    "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH22x', "
    "b'lo', 0x41))"
)
LIMIT_BYTES: Final = 512 * 2**20
# What a container runtime does to a process without privileges. $0: the file to join the control
# group with.
POD: Final = """
echo $$ > $0
mount -t proc proc /proc
for path in /proc/sys /sys; do mount --rbind $path $path && mount -o remount,bind,ro $path; done
exec setpriv --reuid 1000 --regid 1000 --groups 1000 --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
"""
# As default seccomp profiles: EPERM for io_uring_setup, io_uring_enter and io_uring_register; the
# rest is permitted.
WITHOUT_IO_URING: Final = """
import ctypes, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x35, 0, 2, 425), (0x25, 1, 0, 427), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("@HP", len(rules), ctypes.addressof(code)))
assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_pod_compares_two_volumes(image: Path, tmp_path: Path) -> None:
    """The plan of docs/fleet/storage_classes.yaml with a small dataset: without root and
    capabilities, with read-only /proc/sys, a memory limit and no io_uring. The cold cache is
    proved.
    """
    where = cgroup.hierarchy()
    if isinstance(where, str):
        pytest.skip(f"needs control groups: {where}")
    recipe = (ROOT / "docs/fleet/storage_classes.yaml").read_text()
    (text,) = re.findall(r"^  plan\.toml: \|\n((?:    .*\n|\n)+)", recipe, re.MULTILINE)
    plan = textwrap.dedent(text)
    for old, new in (
        ("blocks = 5", 'blocks = 1\nwarmup = "1s"\nmeasure = "3s"\nrepeat_suspect = false'),
        ("scale = 1000", "scale = 5"),
        ("clients = 8", "clients = 1"),
        ("1GB", "64MB"),
    ):
        assert plan.count(old) == 1
        plan = plan.replace(old, new)
    journal = Journal(tmp_path / "journal.jsonl")
    with (
        releases.entered(image, tmp_path / "root") as inside,
        cgroup.make_group(where, "dbbench-test-pod", journal, LIMIT_BYTES) as group,
    ):
        root = tmp_path / "root/merged"
        for name in ("fast", "cheap"):
            process.run(["truncate", "--size=1G", tmp_path / name])
            process.run(["mkfs.ext4", "-q", tmp_path / name])
            (volume := root / "volumes" / name).mkdir(parents=True)
            process.run(["mount", "-o", "loop", tmp_path / name, volume])
            process.run(["chown", "root:1000", volume])
            volume.chmod(0o2775)  # as fsGroup
        data = root / "tmp/data"
        data.mkdir()
        process.run(["chown", "1000:1000", data])
        (root / "tmp/plan.toml").write_text(plan)
        (root / "tmp/limited.py").write_text(WITHOUT_IO_URING)

        def pod(*argv: str) -> str:
            enter = ("unshare", "--mount", "--pid", "--ipc", "--fork", "sh", "-euc", POD)
            env = (
                "env",
                "HOME=/home/dbbench",
                "DBBENCH_CACHE=/tmp/data/.dbbench-cache",
                "NO_COLOR=1",
            )
            started = (
                "python3",
                "/tmp/limited.py",
                "sh",
                "-c",
                'exec "$@" > /tmp/data/printed',
                "sh",
                *argv,
            )
            inside(*enter, str(group.path / "cgroup.procs"), *env, *started, cwd="/tmp/data")
            return (data / "printed").read_text()

        pod("mkdir", "-p", "/volumes/fast/test", "/volumes/cheap/test")
        assert "up to 512 MiB can cache data" in pod("dbbench", "plan", "/tmp/plan.toml")
        ask = "from dbbench.machine.host import without_io_uring as why; print(why())"
        assert "Operation not permitted" in pod("/usr/lib/dbbench/bin/python3", "-c", ask)
        shown = pod(
            "dbbench",
            "run",
            "/tmp/plan.toml",
            "--name",
            "classes",
            "--results",
            "/tmp/data/results",
            "--progress",
            "plain",
        )
        assert re.search(r"^cheap .* baseline *$", shown, re.MULTILINE), shown
        trials = [
            json.loads(path.read_text())
            for path in data.glob("results/classes/trials/*/trial.json")
        ]
    assert sorted(trial["fs_setup"] for trial in trials) == ["cheap", "fast"]
    for trial in trials:
        assert trial["error"] is None
        assert trial["cache"]["proved"] and "posix_fadvise" in trial["cache"]["method"]


def in_image(
    image: Path,
    work: Path,
    script: str,
    *files: Path,
    env: Sequence[str] = (),
    packages: Sequence[str] = (),
) -> Path:
    """Run a script in a directory of the image's root with these files and the tiny plan,
    `plan.toml`; return it.

    It has a network without a way out, on which the names of the examples are this machine, and
    process IDs of its own, so nothing outlives it.
    """
    with releases.entered(image, work) as inside:
        place = work / "tmp/job"
        place.mkdir()
        for path in (ROOT / "docs/plans/tiny.toml", *files):
            process.run(["cp", "-r", path, place])
        if packages:
            inside(*UPDATE)
            inside(*APT, *packages)
        (place / "tiny.toml").rename(place / "plan.toml")
        (work / "merged/etc/hosts").write_text(f"127.0.0.1 localhost {NAMES}\n")
        (place / "script").write_text(f"python3 -c {shlex.quote(LOOPBACK)}\n{script}")
        apart = (
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "env",
            "HOME=/root",
            *env,
        )
        inside(*apart, "bash", "-euo", "pipefail", "script", cwd="/tmp/job")
    return place


def added(files: Path, *words: str) -> Path:
    """Install Python packages, which the image does not have, into a directory `added`; return it."""
    target = files / "added"
    process.run(
        [sys.executable, "-m", "pip", "install", "-q", "--target", target, *words], timeout_s=300
    )
    return target


def finished(run: Path) -> dict[str, str]:
    """The host of each trial of a run; none has an error."""
    trials = [json.loads(path.read_text()) for path in run.glob("trials/*/trial.json")]
    assert {trial["error"] and trial["error"]["id"] for trial in trials} == {None}
    return {trial["id"]: trial["host"] for trial in trials}


def test_the_slurm_array_copies_what_dbbench_has_finished(image: Path, tmp_path: Path) -> None:
    """A signal before the end of the job stops dbbench, and only then is the run copied; the same
    job resumes it. The commands of its head merge the results.
    """
    script = FLEET / "array.sbatch"
    after = re.search(r"after its end:  (.*)", script.read_text())
    assert after is not None
    place = in_image(
        image,
        tmp_path,
        "bash array.sbatch > first 2>&1 & job=$!\n"
        "until [ -d /var/lib/dbbench/results/night/trials ]; do sleep 0.1; done; sleep 1\n"
        "kill -TERM $job; status=0; wait $job || status=$?\n"
        "grep -l '[d]bbench.*run' /proc/[0-9]*/cmdline > still-running || true\n"
        "diff -r /var/lib/dbbench/results/night fetched/1/night\n"
        "echo $status > status; cp -r fetched/1/night stopped\n"
        f"rm -r fetched; bash array.sbatch > second 2>&1\n{after[1]} > verdict\n",
        script,
        env=("SLURM_SUBMIT_DIR=/tmp/job", "SLURM_ARRAY_TASK_ID=1"),
    )
    assert (place / "status").read_text() == "143\n", (place / "first").read_text()
    assert (place / "still-running").read_text() == ""
    stopped = list((place / "stopped/trials").glob("*/trial.json"))
    assert len(stopped) < len(finished(place / "results/night")) == 2
    assert "baseline" in (place / "verdict").read_text()


def test_the_playbook_fetches_and_merges(image: Path, tmp_path: Path) -> None:
    """Its commands with their values, twice: the second time nothing has changed, as its conditions
    say.
    """
    yaml = pytest.importorskip("yaml")
    jinja2 = pytest.importorskip("jinja2")
    (host_play, merge_play) = yaml.safe_load((FLEET / "playbook.yaml").read_text())
    (drive,) = (task for task in host_play["tasks"] if "ansible.builtin.command" in task)
    (fetch,) = (
        task["ansible.posix.synchronize"]
        for task in host_play["tasks"]
        if "ansible.posix.synchronize" in task
    )
    (merge,) = merge_play["tasks"]
    values = {"ansible_play_hosts_all": ["db1"], "inventory_hostname": "db1", "item": "db1"}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters |= {
        "from_json": json.loads,
        "flatten": lambda lists: [one for each in lists for one in each],
    }
    for name, text in host_play["vars"].items():
        values[name] = environment.from_string(text).render(values)

    def filled(text: str) -> str:
        return str(environment.from_string(text).render(values))

    run = drive["ansible.builtin.command"]
    joined = merge["ansible.builtin.command"]
    place = in_image(
        image,
        tmp_path,
        "mkdir -p /var/lib/dbbench; cp plan.toml /var/lib/dbbench\nfor time in 1 2; do\n"
        f"(cd {run['chdir']}; {filled(run['cmd'])}) > run-$time 2> run-err-$time\n"
        f"mkdir -p {filled(fetch['dest'])}; cp -r {filled(fetch['src'])}. {filled(fetch['dest'])}\n"
        f"{filled(joined['cmd'])} > merge-$time\ndone\n",
    )
    for number, changed in ((1, True), (2, False)):
        driven = {"stderr": (place / f"run-err-{number}").read_text(), "rc": 0}
        merged = {"stdout": (place / f"merge-{number}").read_text()}
        for task, given in ((drive, {"driven": driven}), (merge, {"merged": merged})):
            assert environment.compile_expression(task["changed_when"])(**given) is changed, (
                task,
                given,
            )
    assert len(finished(place / "results/night")) == 2


def test_the_cluster_of_kubernetes_runs_a_plan(image: Path, tmp_path: Path) -> None:
    """Scheduler and worker with their arguments after the entry point of the image, and the command
    of its head.
    """
    yaml = pytest.importorskip("yaml")
    text = (FLEET / "kubernetes.yaml").read_text()
    (entry,) = re.findall(
        r"^ENTRYPOINT (.*)",
        (ROOT / "packaging/Containerfile").read_text(),
        re.MULTILINE,
    )
    (command,) = re.findall(r"^#   (dbbench fleet run .*)", text, re.MULTILINE)
    spec = yaml.safe_load(text)["spec"]
    started = [
        [*json.loads(entry), *part["spec"]["containers"][0]["args"]]
        for part in (spec["scheduler"], spec["worker"])
    ]
    scheduler, worker = (shlex.join(argv).replace("'$(NODE)'", "node-1") for argv in started)
    place = in_image(
        image,
        tmp_path,
        f"{scheduler} > scheduler.log 2>&1 &\nuntil test -d /certs; do sleep 0.2; done\n"
        f"mkdir -p /root/.config/dbbench; cp -a /certs /root/.config/dbbench/fleet\n{worker} > "
        "worker.log 2>&1 &\n"
        f"timeout 600 {command.replace('--hosts 3', '--hosts 1')} --name night > out 2>&1 ||"
        " { cat out scheduler.log worker.log; exit 1; }\n",
    )
    assert set(finished(place / "results/night").values()) == {"node-1"}


def test_the_slurm_cluster_of_dask_runs_a_plan(image: Path, tmp_path: Path) -> None:
    """dask-jobqueue submits its job, whose worker runs the plan of the command in its head;
    `sbatch` starts the job here.
    """
    text = (FLEET / "slurm_cluster.py").read_text()
    (command,) = re.findall(r"^    (dbbench fleet run .*)", text, re.MULTILINE)
    (files := tmp_path / "files").mkdir()
    (files / "cluster.py").write_text(text.replace("NODES = 8", "NODES = 1"))
    (files / "sbatch").write_text(
        "#!/bin/sh\ncp $1 job.sh; bash job.sh > job.log 2>&1 &\necho Submitted batch job 7\n"
    )
    place = in_image(
        image,
        tmp_path / "root",
        "chmod +x sbatch\n"
        "PATH=.:$PATH PYTHONPATH=added /usr/lib/dbbench/bin/python3 cluster.py > cluster.log 2>&1 "
        "&\n"
        f"{CERTIFICATES} || {{ cat cluster.log; exit 1; }}\n"
        f"timeout 600 {command.replace('--hosts 8', '--hosts 1')} --name night > out 2>&1 ||"
        " { cat out cluster.log job.log; exit 1; }\n",
        *(files / "cluster.py", files / "sbatch", added(files, "--no-deps", JOBQUEUE)),
    )
    assert len(finished(place / "results/night")) == 2


@pytest.mark.needs("ssh-keygen")
def test_the_ssh_cluster_of_dask_runs_a_plan(image: Path, tmp_path: Path) -> None:
    """Its scheduler and its worker are started by ssh on this machine and run the plan of the
    command in its head.
    """
    (files := tmp_path / "files").mkdir()
    text = (FLEET / "ssh_cluster.py").read_text()
    (command,) = re.findall(r"^    (dbbench fleet run .*)", text, re.MULTILINE)
    connect = {"username": "root", "client_keys": ["/tmp/job/key"], "known_hosts": None}
    for name, value in (("HOSTS", ["db1.lan"]), ("CONNECT", connect)):
        text, count = re.subn(rf"^{name} = .*", f"{name} = {value!r}", text, flags=re.MULTILINE)
        assert count == 1
    (files / "cluster.py").write_text(text)
    process.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", files / "key"])
    place = in_image(
        image,
        tmp_path / "root",
        # without RSA it crashes
        "for kind in ed25519 rsa; do dropbearkey -t $kind -f $kind > /dev/null 2>&1; done\n"
        "install -D -m 600 key.pub /root/.ssh/authorized_keys\n"
        "dropbear -F -E -s -r ed25519 -r rsa -p 22 2> ssh.log &\n"
        "dbbench fleet scheduler > certs.log 2>&1 &\n"
        f"{CERTIFICATES}; kill $!\n"
        "PYTHONPATH=added /usr/lib/dbbench/bin/python3 cluster.py > cluster.log 2>&1 &\n"
        f"timeout 600 {command.replace('--hosts 2', '--hosts 1')} --name night > out 2>&1 ||"
        " { cat out cluster.log ssh.log; exit 1; }\n",
        *(files / "cluster.py", files / "key", files / "key.pub", added(files, "asyncssh")),
        packages=("dropbear-bin",),
    )
    assert len(finished(place / "results/night")) == 2
