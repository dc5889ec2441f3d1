"""Build the packages into dist/, all from one copy of the checkout: wheel, man pages, .deb and
container image.

    make dist                                  wheel, man pages and .deb
    python packaging/artifacts.py deb --arch arm64
    python packaging/artifacts.py image            with buildah, podman or docker

The .deb contains what no release of Debian or Ubuntu since Debian 12 has in a sufficient
version, in the versions of requirements.lock, as a virtual environment below /usr/lib/dbbench
that also sees the system's packages. pydantic's compiled part is in it for each version of
Python, so that one .deb fits all these releases of an architecture.
"""

from __future__ import annotations

import argparse
import email.utils
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from dbbench import __version__
from dbbench.cli import BAKED, of_checkout
from dbbench.packages import TOOLS, Tool

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
HERE: Final = Path(__file__).parent
KINDS: Final = ("wheel", "man", "deb", "image")
GIT: Final = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT))
_WHEEL: Final = "import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])"
# Python package -> Debian package, if every release since Debian 12 and Ubuntu 24.04 has a
# sufficient version.
DEBIAN: Final = {
    "click": "python3-click (>= 8.1)",
    "jinja2": "python3-jinja2 (>= 3.1)",
    "msgpack": "python3-msgpack (>= 1.0.2)",
    "numpy": "python3-numpy (>= 1:1.24)",
    "packaging": "python3-packaging",
    "psutil": "python3-psutil (>= 5.8)",
    "psycopg2-binary": "python3-psycopg2 (>= 2.9)",
    "pyyaml": "python3-yaml (>= 5.4.1)",
    "rich": "python3-rich (>= 13)",
    "scipy": "python3-scipy (>= 1.10)",
    "tornado": "python3-tornado (>= 6.2)",
}
# Debian 12 has pydantic 1, plotly 5 and an old distributed, and no release has mfusepy and
# mysql-connector-python; the other packages are dependencies of these.
VENDORED: Final = (
    "annotated-types",
    "cloudpickle",
    "dask",
    "distributed",
    "fsspec",
    "importlib-metadata",
    "lazy-importer",
    "locket",
    "mfusepy",
    "mysql-connector-python",
    "narwhals",
    "partd",
    "plotly",
    "pydantic",
    "pydantic-core",
    "sortedcontainers",
    "sqlglot",
    "tblib",
    "toolz",
    "typing-extensions",
    "typing-inspection",
    "zict",
    "zipp",
)
COMPILED: Final = ("pydantic-core",)
# of Debian 12, Ubuntu 24.04, Debian 13, Ubuntu 26.04
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# Files of wheels that dbbench does not use: scripts, tests, and the pages of the fleet's web
# server, which is off.
_LEFT_OUT: Final = re.compile(r"\.data/|/tests/|^distributed/\w+/(?:templates|static)/")
PRIVATE: Final = "usr/lib/dbbench"
LAUNCHER: Final = HERE / "launcher.sh"
# Where each shell looks for the completions of packages.
COMPLETIONS: Final = {
    "bash": "usr/share/bash-completion/completions/dbbench",
    "fish": "usr/share/fish/vendor_completions.d/dbbench.fish",
    "zsh": "usr/share/zsh/vendor-completions/_dbbench",
}


class Source(NamedTuple):
    """A copy of the checkout, with its commit in the package; `made` is the time of the commit."""

    folder: Path
    made: datetime


def main(argv: Sequence[str] | None = None) -> int:
    """Build the requested kinds of packages and print the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "kinds", nargs="*", metavar="|".join(KINDS), help="[default: wheel man deb]"
    )
    parser.add_argument(
        "--arch", choices=MACHINES, help="of the .deb [default: that of this machine]"
    )
    parser.add_argument(
        "--level", type=int, default=6, help="of the compression of the .deb, 0 to 9 [default: 6]"
    )
    parser.add_argument(
        "--dist", type=Path, default=DIST, metavar="DIR", help="where to write [default: dist]"
    )
    given = parser.parse_args(argv)
    kinds = given.kinds or ["wheel", "man", "deb"]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"unknown kind {unknown[0]!r}; choose from {', '.join(KINDS)}")
    given.dist.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dbbench-dist-", dir="/var/tmp") as work:
        source = exported(Path(work) / "source")
        made = []
        if "man" in kinds:
            made += [
                Path(shutil.copy(page, given.dist))
                for page in sorted((source.folder / "man").iterdir())
            ]
        if {"wheel", "deb"} & {*kinds}:
            made.append(wheel(source, given.dist))
        if "deb" in kinds:
            arch = given.arch or _printed("dpkg", "--print-architecture")
            made.append(deb(source, made[-1], given.dist, arch, given.level))
    for path in made:
        print(f"{os.path.relpath(path)}  {path.stat().st_size / 1e6:.1f} MB")
    if "image" in kinds:
        image(given.dist)
    return 0


def exported(folder: Path) -> Source:
    """Copy the files of the checkout that git does not ignore, and write the commit and the man
    pages beside them.
    """
    listed = _printed(
        *GIT,
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    )
    for name in filter(None, listed.split("\0")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(ROOT / name):  # the index may still list deleted files
            shutil.copy2(ROOT / name, path, follow_symlinks=False)
    (folder / "dbbench" / BAKED).write_text(of_checkout(ROOT) + "\n", encoding="utf-8")
    made = datetime.fromtimestamp(
        int(
            _printed(
                *GIT,
                "log",
                "-1",
                "--format=%ct",
            )
        ),
        UTC,
    )
    _checked(
        sys.executable,
        str(HERE / "man.py"),
        str(folder / "man"),
        str(made.date()),
    )
    return Source(folder, made)


def wheel(source: Source, dist: Path) -> Path:
    """Build the wheel, with the man pages in share/man, where `man` finds them for a virtual
    environment in PATH.
    """
    pages = [
        f"share/man/man{page.suffix[1]} = man/{page.name}"
        for page in sorted((source.folder / "man").iterdir())
    ]
    with (source.folder / "setup.cfg").open("a") as config:
        config.write("\n".join(["", "[options.data_files]", *pages, ""]))
    _checked(
        sys.executable,
        "-c",
        _WHEEL,
        str(dist.resolve()),
        cwd=source.folder,
        made=source.made,
    )
    return dist / f"dbbench-{__version__}-py3-none-any.whl"


# --- the .deb
#   --------------------------------------------------------------------------------------


def deb(
    source: Source,
    wheel: Path,
    dist: Path,
    arch: str,
    level: int = 6,
) -> Path:
    """Build the .deb from the wheel, with what Debian lacks; `level` is that of xz."""
    with tempfile.TemporaryDirectory(prefix="dbbench-deb-", dir="/var/tmp") as work:
        tree = Path(work) / "tree"
        fetched = Path(work) / "wheels"
        _private(tree, [wheel, *vendored(source.folder, fetched, arch)])
        _shared(tree, source)
        _control(tree, source, arch)
        for path in tree.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755 if _executable(path) else 0o644)
        made = dist / f"dbbench_{__version__}-1_{arch}.deb"
        _checked(
            "dpkg-deb",
            "--root-owner-group",
            "-Zxz",
            f"-z{level}",
            "--build",
            str(tree),
            str(made),
            made=source.made,
        )
    return made


def vendored(folder: Path, target: Path, arch: str) -> list[Path]:
    """Download the wheels of VENDORED in their locked versions; pip compares their digests."""
    machine = MACHINES[arch]
    texts = locks(folder)
    target.mkdir()
    for names, tags in (
        ([name for name in VENDORED if name not in COMPILED], [("3.11", "any")]),
        (COMPILED, [(python, f"manylinux2014_{machine}") for python in PYTHONS]),
    ):
        requirements = target / "wanted.txt"
        requirements.write_text("".join(locked(name, texts) for name in names))
        for python, platform in tags:
            _checked(
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
                "--python-version",
                python,
                "--platform",
                platform,
                "--dest",
                str(target),
                "-r",
                str(requirements),
            )
    return sorted(target.glob("*.whl"))


def locks(folder: Path) -> list[str]:
    """Return the texts of a checkout's lock files, that of the program first."""
    return [
        (folder / name).read_text(encoding="utf-8")
        for name in ("requirements.lock", "requirements-test.lock")
    ]


def locked(name: str, texts: Sequence[str]) -> str:
    """Return the lines of a package in the first lock file that has it: its version and its
    digests.

    Without the condition on the version of Python, because the .deb is for all versions.
    """
    for lock in texts:
        if lines := re.search(
            rf"^({re.escape(name)}==\S+)[^\\\n]*(.*\n(?:    .*\n)*)", lock, re.MULTILINE
        ):
            return f"{lines[1]} {lines[2]}"
    raise SystemExit(f"no lock file has {name}")


def _private(tree: Path, wheels: Sequence[Path]) -> None:
    """Make a virtual environment that also sees the system's packages. All versions of Python share
    its directory.
    """
    packages = tree / PRIVATE / "lib/python3/site-packages"
    packages.mkdir(parents=True)
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(packages, [n for n in archive.namelist() if not _LEFT_OUT.search(n)])
    for python in PYTHONS:
        (tree / PRIVATE / "lib" / f"python{python}").symlink_to("python3")
    (tree / PRIVATE / "bin").mkdir()
    (tree / PRIVATE / "bin/python3").symlink_to("../../../bin/python3")
    (tree / PRIVATE / "pyvenv.cfg").write_text(
        "home = /usr/bin\ninclude-system-site-packages = true\n"
    )
    shutil.copy(LAUNCHER, tree / PRIVATE / "bin/dbbench")
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/dbbench").symlink_to("../lib/dbbench/bin/dbbench")


def _shared(tree: Path, source: Source) -> None:
    """Write man pages, documents, completions and units to the directories where the system expects
    them.
    """
    for page in (source.folder / "man").iterdir():
        _gzipped(
            tree / "usr/share/man" / f"man{page.suffix[1]}" / f"{page.name}.gz", page.read_bytes()
        )
    documents = tree / "usr/share/doc/dbbench"
    (documents / "examples").mkdir(parents=True)
    for path in (*source.folder.glob("docs/*.md"), source.folder / "README.md"):
        _gzipped(documents / f"{path.name}.gz", path.read_bytes())
    for path in source.folder.glob("docs/plans/*.toml"):
        shutil.copy(path, documents / "examples")
    _gzipped(documents / "changelog.gz", (source.folder / "CHANGELOG.md").read_bytes())
    shutil.copy(HERE / "debian/copyright", documents)
    for shell, name in COMPLETIONS.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(
            _printed(
                sys.executable,
                "-m",
                "dbbench",
                "completion",
                shell,
                cwd=source.folder,
            )
            + "\n"
        )
    units = tree / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for path in (source.folder / "docs/systemd").iterdir():
        text = path.read_text(encoding="utf-8").replace("/usr/local/bin/", "/usr/bin/")
        (units / path.name).write_text(
            "".join(line for line in text.splitlines(True) if "make install" not in line)
        )


def recommended(tool: Tool) -> bool:
    """Return whether the .deb names the package of a tool; util-linux is on every system."""
    return tool.group == "run" and not tool.module and tool.debian != "util-linux"


def control(arch: str, size_kib: int) -> str:
    """Return the control file. The tools are recommended: those of the table of which every
    benchmark needs some.
    """
    text = (HERE / "debian/control.in").read_text(encoding="utf-8")
    tools = dict.fromkeys(tool.debian for tool in TOOLS if recommended(tool))
    after = PYTHONS[-1].split(".")
    values = {
        "VERSION": f"{__version__}-1",
        "ARCH": arch,
        "SIZE": str(size_kib),
        "DEPENDS": ", ".join(
            ["python3 (>= 3.11)", f"python3 (<< 3.{int(after[1]) + 1})", *DEBIAN.values()]
        ),
        "RECOMMENDS": ", ".join(tools),
    }
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)


def _control(tree: Path, source: Source, arch: str) -> None:
    entry = (
        f"dbbench ({__version__}-1) unstable; urgency=medium\n\n  * Version {__version__}; see "
        "changelog.gz.\n\n"
    )
    entry += f" -- {maintainer()}  {email.utils.format_datetime(source.made)}\n"
    _gzipped(tree / "usr/share/doc/dbbench/changelog.Debian.gz", entry.encode())
    overrides = tree / "usr/share/lintian/overrides/dbbench"
    overrides.parent.mkdir(parents=True)
    shutil.copy(HERE / "debian/lintian-overrides", overrides)
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    (tree / "DEBIAN").mkdir()
    size = sum(-(-path.stat().st_size // 1024) for path in files)
    (tree / "DEBIAN/control").write_text(control(arch, size))
    sums = [
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n"
        for path in files
    ]
    (tree / "DEBIAN/md5sums").write_text("".join(sums))
    for script in ("postinst", "prerm", "postrm"):
        shutil.copy(HERE / "debian" / script, tree / "DEBIAN")


def maintainer() -> str:
    """Return the name and address of the control file."""
    match = re.search(
        r"^Maintainer: (.*)$",
        (HERE / "debian/control.in").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert match is not None
    return match[1]


def _executable(path: Path) -> bool:
    return path.is_dir() or (
        path.parent.name in ("bin", "DEBIAN") and path.read_bytes()[:2] == b"#!"
    )


def _gzipped(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 9, mtime=0))


# --- the image
#   -------------------------------------------------------------------------------------


def image(dist: Path) -> None:
    """Build the image dbbench:VERSION from the .deb in `dist`, with the first of buildah, podman
    and docker.
    """
    for program, words in (("buildah", ["bud"]), ("podman", ["build"]), ("docker", ["build"])):
        if shutil.which(program):
            if (
                program == "docker"
                and subprocess.run([program, "info"], capture_output=True).returncode
            ):
                raise SystemExit(
                    "docker is installed, but its daemon does not answer: start it, or use a "
                    "program without a daemon:  apt-get install buildah"
                )
            base = os.environ.get("DBBENCH_IMAGE_BASE")
            arguments = ["--build-arg", f"BASE={base}"] if base else []
            _checked(
                program,
                *words,
                *arguments,
                "-t",
                f"dbbench:{__version__}",
                "-f",
                str(HERE / "Containerfile"),
                str(dist),
            )
            return
    raise SystemExit("an image requires buildah, podman or docker:  apt-get install buildah")


# --- programs
#   --------------------------------------------------------------------------------------


def _checked(*argv: str, cwd: Path = ROOT, made: datetime | None = None) -> str:
    """Run a program and return its stdout. The times in packages that it writes are not later than
    `made`.
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    if made is not None:
        env["SOURCE_DATE_EPOCH"] = str(int(made.timestamp()))
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).splitlines()[-20:]
        raise SystemExit(
            "\n  ".join([f"{' '.join(argv[:6])} ended with status {done.returncode}:", *lines])
        )
    return done.stdout


def _printed(*argv: str, cwd: Path = ROOT) -> str:
    return _checked(*argv, cwd=cwd).strip()


if __name__ == "__main__":
    sys.exit(main())
