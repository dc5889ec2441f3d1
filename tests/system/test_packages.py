"""The packages of `make dist`, installed in bare roots, run the tiny plan with equal results.

The tests use the bare roots of `make releases`, which are built if they are missing, and take a
few minutes.
"""

import hashlib
import json
import re
import shlex
import shutil
import sys
import textwrap
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import artifacts
import bundle
import pytest

from dbbench import process
from dbbench.machine.limits import cgroup
from dbbench.model.base import plain
from dbbench.plan import expand, load
from dbbench.plan.catalog import catalog
from dbbench.plan.expanding import identity
from dbbench.results.journal import Journal
from tests import releases

ROOT: Final = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (ROOT / ".git").exists(), reason="needs a checkout: git lists the files of the packages"
    ),
    pytest.mark.needs("root", "debootstrap", "dpkg-deb", "git", "fs:overlay", "fs:ext4", "fs:xfs"),
]
TINY: Final = "/mnt/packaging/debian/tests/tiny"  # the test of the .deb: autopkgtest starts it too
UPDATE: Final = ("apt-get", "update", "-q")
APT: Final = ("apt-get", "install", "-qy", "--no-install-recommends")
VENV: Final = "/opt/a path with spaces"
COMPLETED_BY_BASH: Final = """
set -e
. /usr/share/bash-completion/completions/dbbench
complete -p dbbench
COMP_WORDS=(dbbench night) COMP_CWORD=1
_dbbench_completion dbbench
test "${COMPREPLY[*]}" = nightly
"""
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


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    assert artifacts.main(["--dist", str(folder), "--level", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def image(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root that the Containerfile makes of a bare root: what overlayfs takes as lower
    directories.
    """
    bare = releases.bare("debian12")
    work = tmp_path_factory.mktemp("image")
    (run,) = re.findall(
        r"^RUN ((?:.*\\\n)*.*)",
        (ROOT / "packaging/Containerfile").read_text(),
        re.MULTILINE,
    )
    with releases.entered(bare, work) as inside:
        shutil.copy(next(dist.glob("*.deb")), work / "tmp")
        inside("sh", "-c", run)
        (work / "merged/data").mkdir()
    return Path(f"{work}/upper:{bare}")


def digest(plan_sha256: str, cells: Any, order: Any) -> str:
    """A digest of the plan, its cells and their order."""
    return hashlib.sha256(
        json.dumps([plan_sha256, cells, order], sort_keys=True).encode()
    ).hexdigest()


def expected() -> str:
    """The digest of the tiny plan in the checkout."""
    shipped = catalog()
    plan = load(ROOT / "docs/plans/tiny.toml", shipped)
    expanded = expand(plan, shipped)
    return digest(identity(plan, expanded.cells), plain(expanded.cells), plain(expanded.order))


def digest_of(run: Path) -> str:
    """The digest of a run."""
    found = json.loads((run / "run.json").read_text())
    return digest(found["plan_sha256"], found["cells"], found["order"])


def tried(
    root: Path,
    work: Path,
    package: Path | None,
    *steps: Sequence[str],
    path: str = "",
) -> str:
    """Install a package in a root, run the tiny plan there, and return the digest of the run."""
    with releases.entered(root, work) as inside:
        if package is not None:
            shutil.copy(package, work / "tmp")
        for step in steps:
            inside(*step)
        where = f"PATH={path}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        inside("env", "AUTOPKGTEST_TMP=/tmp", where, TINY)
    return digest_of(work / "tmp/results/tiny")


def test_the_wheel_runs_the_tiny_plan(dist: Path, tmp_path: Path) -> None:
    """In a virtual environment whose path has spaces; its manual is where `man` looks for it, and
    `pip check` is ok.
    """
    (wheel,) = dist.glob("*.whl")
    steps = (
        UPDATE,
        (*APT, "python3-venv"),
        ("python3", "-m", "venv", VENV),
        (f"{VENV}/bin/pip", "install", "-q", f"/tmp/{wheel.name}"),
        (f"{VENV}/bin/pip", "check"),
        ("test", "-s", f"{VENV}/share/man/man1/dbbench.1"),
        (f"{VENV}/bin/python", "-m", "dbbench.packages", "run"),
    )
    assert (
        tried(releases.bare("debian12"), tmp_path, wheel, *steps, path=f"{VENV}/bin:") == expected()
    )


@pytest.mark.parametrize(
    "release",
    [
        "debian12",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("debian13", "sid", "ubuntu2404", "ubuntu2604")
        ),
    ],
)
def test_three_commands_lead_to_a_verdict(
    dist: Path,
    release: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of docs/install.md in a bare root. The seconds are printed; a busy machine takes
    longer.
    """
    (deb,) = dist.glob("*.deb")
    text = (ROOT / "docs/install.md").read_text()
    (block,) = re.findall(
        r"^## From a bare machine to a verdict\n.*?^```\n(.*?)^```",
        text,
        re.MULTILINE | re.DOTALL,
    )
    commands = block.splitlines()
    assert len(commands) == 3
    with releases.entered(releases.bare(release), tmp_path) as inside:
        shutil.copy(deb, tmp_path / "tmp")
        began = time.monotonic()
        for command in commands:
            inside("sh", "-c", re.sub(r"dbbench_\S+\.deb", deb.name, command), cwd="/tmp")
        with capsys.disabled():
            print(f"{release}: {time.monotonic() - began:.0f} s from nothing to a verdict")
        inside("sh", "-c", f"test \"$(cd / && dbbench --version)\" = '{version(dist)}'")
    (run,) = (tmp_path / "tmp/results").glob("*/run.json")
    assert digest_of(run.parent) == expected()


def test_the_deb_is_clean(dist: Path, tmp_path: Path) -> None:
    """For lintian, man, systemd and the shells, which complete a command; and removing it leaves
    nothing.
    """
    (deb,) = dist.glob("*.deb")
    with releases.entered(releases.equipped("debian12"), tmp_path) as inside:
        shutil.copy(deb, tmp_path / "tmp")
        inside(*UPDATE)
        inside(*APT, "lintian", "man-db", "systemd", "zsh", "fish", f"/tmp/{deb.name}")
        inside("lintian", "--allow-root", "--fail-on", "error,warning", f"/tmp/{deb.name}")
        inside("sh", "-c", "! dpkg --verify dbbench | grep .")
        for page in ("man1/dbbench.1", "man5/dbbench-plan.5"):
            inside(
                "sh",
                "-c",
                f"! LC_ALL=C.UTF-8 man --warnings -l /usr/share/man/{page}.gz 2>&1 >/dev/null | "
                "grep .",
            )
        units = "dbbench-nightly@x.service dbbench-nightly@x.timer dbbench-nightly-check@x.timer"
        # Versions of systemd before 254 ignore this line, as the unit says.
        ignored = "Unknown key 'DelegateSubgroup'"
        verified = f"systemd-analyze verify --man=no {units} 2>&1 | grep dbbench"
        inside("sh", "-c", f'! {verified} | grep -v "{ignored}"')
        inside("bash", "-c", COMPLETED_BY_BASH)
        inside(
            "fish",
            "-c",
            'test (complete -C "dbbench night" | string match -r "^\\S+") = nightly',
        )
        inside("zsh", "-f", "-n", "/usr/share/zsh/vendor-completions/_dbbench")
        versions = (
            "from dbbench.machine.host import versions; assert versions()['psycopg2'] and "
            "versions()['pydantic']"
        )
        inside("/usr/lib/dbbench/bin/python3", "-sPc", versions)
        inside("mkdir", "/usr/lib/dbbench/lib/python3/site-packages/added")  # as pip does
        inside("dpkg", "--purge", "dbbench")
        inside("sh", "-c", "! ls -d /usr/lib/dbbench /usr/bin/dbbench 2>/dev/null")


def test_the_image_runs_the_tiny_plan(image: Path, tmp_path: Path) -> None:
    """As root in a privileged container."""
    assert tried(image, tmp_path, None) == expected()


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


def test_without_a_network_make_install_says_so_at_once(tmp_path: Path) -> None:
    """With package lists and without them: a few lines, and before a virtual environment is made."""
    make = "unshare --net make -C /mnt install VENV=/tmp/venv > /tmp/printed 2>&1"
    for number, before in enumerate((":", "rm -r /var/lib/apt/lists")):
        with releases.entered(releases.bare("debian12"), tmp_path / str(number)) as inside:
            began = time.monotonic()
            inside("sh", "-c", f"{before}; {make}; test $? = 2; test ! -e /tmp/venv")
            took_s = time.monotonic() - began
        printed = (tmp_path / str(number) / "tmp/printed").read_text()
        assert (
            "error E201" in printed and "Failed to fetch" in printed and "needs a bundle" in printed
        )
        assert len(printed.splitlines()) < 25 and took_s < 120, (took_s, printed)


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


@pytest.mark.soak
def test_the_bundle_is_installed_without_a_network(tmp_path: Path) -> None:
    """In a bare root of its release, where the tiny plan runs."""
    made = bundle.written("debian12", tmp_path)  # an error if it is too large
    process.run(["tar", "-C", tmp_path, "-xf", made])
    install = ("sh", "/tmp/dbbench-bundle/install.sh")
    with releases.entered(releases.bare("debian12"), tmp_path / "root") as inside:
        (tmp_path / "dbbench-bundle").rename(tmp_path / "root/tmp/dbbench-bundle")
        inside("unshare", "--net", *install)
        inside("unshare", "--net", "env", "AUTOPKGTEST_TMP=/tmp", TINY)
        inside("test", "-s", "/usr/local/share/man/man1/dbbench.1")
        # the power-loss lab: it loads libfuse
        inside("/opt/dbbench/bin/python", "-c", "import mfusepy")
    assert digest_of(tmp_path / "root/tmp/results/tiny") == expected()


def version(dist: Path) -> str:
    """What `dbbench --version` prints of the commit that the wheel was built of."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        commit, day, *changed = (
            archive.read("dbbench/commit.txt").decode().strip().split(maxsplit=2)
        )
    return f"dbbench {artifacts.__version__} (commit {commit} of {day}" + (
        f", {changed[0]})" if changed else ")"
    )
