"""Write dist/dbbench-VERSION-RELEASE-ARCH.tar: what a machine without a network needs, and a script
that installs it.

    make bundle                        for the release of this machine
    make bundle RELEASE=ubuntu2404     for another one

The packages of the tools are downloaded in a bare root of the release (`tests/releases.py`) with
all their dependencies, whatever the other machine has already; the wheels are those of
requirements.lock for its Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import artifacts

from dbbench import __version__, packages
from dbbench.results.fileio import sha256
from tests.releases import CHECKOUT, RELEASES, Broken, bare, entered

PROGRAMS: Final = ("debootstrap", "dpkg-deb", "git")
MOST_BYTES: Final = 350_000_000
FIRST: Final = ("python3", "python3-venv")
# Runs in the root of the release, with the checkout at /mnt. The empty status file makes apt
# download all dependencies, even those that the root has.
_DOWNLOAD: Final = """
set -eu
mkdir -p /tmp/bundle/apt/partial /tmp/bundle/wheels
: > /tmp/status
apt-get update -q
apt-get install -qy --no-install-recommends --download-only -o Dir::State::status=/tmp/status \
    -o Dir::Cache::archives=/tmp/bundle/apt -o APT::Sandbox::User=root "$@" $(python3 -c '
import sys
sys.path.insert(0, "/mnt")
from dbbench.packages import TOOLS, exists, in_release
names = [in_release(tool.debian) for tool in TOOLS if tool.group == "run"]
print(*dict.fromkeys(name for name in names if exists(name)))')
rm -rf /tmp/bundle/apt/partial /tmp/bundle/apt/lock
apt-get install -qy --no-install-recommends "$@"
python3 -m venv /tmp/venv
/tmp/venv/bin/pip download -q --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
    -d /tmp/bundle/wheels -r /tmp/wanted.lock
. /etc/os-release
echo "$ID ${VERSION_ID:-${VERSION_CODENAME:-}} $(dpkg --print-architecture)" > /tmp/bundle/RELEASE
"""


def written(name: str, dist: Path) -> Path:
    """Write the bundle of a release. Raises SystemExit where it is larger than MOST_BYTES."""
    with tempfile.TemporaryDirectory(prefix="dbbench-bundle-", dir="/var/tmp") as work:
        root = Path(work) / "root"
        root.mkdir()
        with entered(bare(name), root) as inside:
            locks = artifacts.locks(CHECKOUT)
            (root / "tmp/wanted.lock").write_text(locks[0] + artifacts.locked("mfusepy", locks))
            inside("sh", "-c", _DOWNLOAD, "download", *FIRST)
        folder = Path(shutil.move(root / "tmp/bundle", Path(work) / "dbbench-bundle"))
        source = artifacts.exported(Path(work) / "source")
        artifacts.wheel(source, folder / "wheels")
        (folder / "apt/Packages").write_text(index(folder / "apt"))
        for script in ("install.sh", "launcher.sh"):
            shutil.copy(CHECKOUT / "packaging" / script, folder)
        shutil.copy(CHECKOUT / "dbbench/packages.py", folder)
        (folder / "data/installer").mkdir(parents=True)
        shutil.copy(CHECKOUT / "packaging/installer/tools.py", folder / "data/installer")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        sums = [f"{sha256(path, folder)}  {path.relative_to(folder)}\n" for path in files]
        (folder / "SHA256SUMS").write_text("".join(sums))
        arch = (folder / "RELEASE").read_text().split()[-1]
        made = dist / f"dbbench-{__version__}-{name}-{arch}.tar"
        subprocess.run(
            ["tar", "-C", work, "--sort=name", "--owner=0", "--group=0", "-cf", made, folder.name],
            check=True,
        )
    if made.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{made.name} has {made.stat().st_size} bytes, more than {MOST_BYTES}")
    return made


def index(folder: Path) -> str:
    """Return the package index of a directory of .deb files."""
    entries = []
    for path in sorted(folder.glob("*.deb")):
        fields = subprocess.run(
            ["dpkg-deb", "-f", path], check=True, capture_output=True, text=True
        ).stdout
        entries.append(
            f"{fields.rstrip()}\nFilename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: "
            f"{sha256(path, folder)}\n"
        )
    return "\n".join(entries)


def here() -> str | None:
    """Return the name of this machine's release, or None for one that is not listed."""
    values = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    codename = values.get("VERSION_CODENAME", "").strip('"')
    return next((name for name, release in RELEASES.items() if release.suite == codename), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the bundle and print its file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "release",
        nargs="?",
        choices=RELEASES,
        default=here(),
        help="[default: that of this machine]",
    )
    release = parser.parse_args(argv).release
    if release is None:
        parser.error(f"this machine has none of the releases; choose from {', '.join(RELEASES)}")
    if lacking := [name for name in PROGRAMS if packages.find(name) is None]:
        raise SystemExit(
            f"error E201: {', '.join(lacking)} not installed\n  Nothing was changed. "
            f"{packages.remedy(lacking)}"
        )
    artifacts.DIST.mkdir(exist_ok=True)
    try:
        made = written(release, artifacts.DIST)
    except Broken as failure:
        raise SystemExit(f"error: the bundle was not written: {failure}") from None
    print(f"{os.path.relpath(made)}  {made.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
