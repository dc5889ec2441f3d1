"""The packages of `make dist`, installed in bare roots, run the tiny plan with equal results.

The tests use the bare roots of `make releases`, which are built if they are missing, and take a
few minutes.
"""

import re
import shutil
import time
import zipfile
from pathlib import Path
from typing import Final

import artifacts
import bundle
import pytest

from dbbench import process
from tests import releases
from tests.support.packages import APT, ROOT, TINY, UPDATE, VENV, digest_of, expected, tried

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (ROOT / ".git").exists(), reason="needs a checkout: git lists the files of the packages"
    ),
    pytest.mark.needs("root", "debootstrap", "dpkg-deb", "git", "fs:overlay", "fs:ext4", "fs:xfs"),
]
COMPLETED_BY_BASH: Final = """
set -e
. /usr/share/bash-completion/completions/dbbench
complete -p dbbench
COMP_WORDS=(dbbench night) COMP_CWORD=1
_dbbench_completion dbbench
test "${COMPREPLY[*]}" = nightly
"""


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
