"""Database servers of other releases for tests, unpacked from the packages of Debian and Ubuntu.

A root contains one server and its libraries; nothing is installed or configured in it. apt
resolves and downloads the packages with a separate configuration, and `dpkg -x` unpacks them.
This needs no root privileges and takes about half a minute, once per machine. The name of a root
in the cache is the digest of its recipe, so a changed recipe makes a new root. A damaged or
incomplete root is made again.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FORMAT: Final = 1  # of what `_build` makes out of the packages
DEADLINE_S: Final = 600
MANIFEST: Final = "MANIFEST.json"  # written last: every file with its size
# links into usr, which a package (base-files) would bring
MERGED: Final = ("bin", "sbin", "lib", "lib64")
DEBIAN_KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# debootstrap knows where Ubuntu's packages are
UBUNTU_SCRIPT: Final = Path("/usr/share/debootstrap/scripts/gutsy")
DEBIAN: Final = "Debian"
UBUNTU: Final = "Ubuntu"


@dataclass(frozen=True)
class Recipe:
    """What a root is made from."""

    distribution: str
    # from the last of several come the packages of the server's own source alone
    suites: tuple[str, ...]
    packages: tuple[str, ...]
    program: str  # the server, or another file that must be there, below the root
    components: str = "main"

    @property
    def key(self) -> str:
        """Return a digest of the recipe."""
        return hashlib.sha256(json.dumps([FORMAT, repr(self)]).encode()).hexdigest()[:12]


def _postgres(
    distribution: str,
    suites: tuple[str, ...],
    major: int,
) -> Recipe:
    packages = (f"postgresql-{major}", "patchelf")
    components = "main universe" if distribution == UBUNTU else "main"  # patchelf's
    return Recipe(
        distribution,
        suites,
        packages,
        f"usr/lib/postgresql/{major}/bin/postgres",
        components,
    )


def _mysql(distribution: str, suite: str, suffix: str = "") -> Recipe:
    return Recipe(distribution, (suite,), (f"mysql-server-core{suffix}",), "usr/sbin/mysqld")


RECIPES: Final = {
    "postgres-16": _postgres(UBUNTU, ("noble",), 16),
    "postgres-17": _postgres(DEBIAN, ("trixie",), 17),
    "postgres-18": _postgres(DEBIAN, ("sid",), 18),
    "postgres-19": _postgres(DEBIAN, ("sid", "experimental"), 19),
    "mariadb-11.8": Recipe(DEBIAN, ("trixie",), ("mariadb-server-core",), "usr/sbin/mariadbd"),
    "mysql-8.0": _mysql(UBUNTU, "noble", "-8.0"),
    "mysql-8.4": _mysql(UBUNTU, "resolute"),
    "mysql-9.7": _mysql(DEBIAN, "sid"),
}


# Ubuntu's keys, which Debian 12 has no package of.
KEYRING: Final = Recipe(
    DEBIAN,
    ("trixie",),
    ("ubuntu-keyring",),
    "usr/share/keyrings/ubuntu-archive-keyring.gpg",
)


def server_bin(name: str) -> Path | None:
    """Return `bin` of a plan for that server: the folder of PostgreSQL's programs, or the root of
    the other servers.
    """
    root = server_root(name)
    if root is None:
        return None
    return (root / RECIPES[name].program).parent if name.startswith("postgres") else root


@functools.lru_cache
def server_root(name: str) -> Path | None:
    """Return the root; make it if it is missing or damaged. Return None if this machine cannot make
    it.
    """
    return _made(name, RECIPES[name])


def keys(distribution: str) -> Path:
    """Return the keys that sign a distribution's packages. Raises LookupError if this machine has
    none of Ubuntu.
    """
    if distribution == DEBIAN:
        return DEBIAN_KEYS
    if (here := Path("/", KEYRING.program)).exists():
        return here
    root = _made("ubuntu-keys", KEYRING)
    if root is None:
        raise LookupError(f"no {here}, and no package of Debian with it")
    return root / KEYRING.program


def _made(name: str, recipe: Recipe) -> Path | None:
    cache = _cache()
    root = cache / f"{name}-{recipe.key}"
    if intact(root):
        return root
    cache.mkdir(0o755, parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes, one makes it
        if not intact(root):
            shutil.rmtree(root, ignore_errors=True)
            try:
                _build(recipe, root)
            except (OSError, LookupError, subprocess.SubprocessError) as error:
                shutil.rmtree(root, ignore_errors=True)
                print(
                    f"cannot make {root}: {error} {getattr(error, 'stderr', '')}", file=sys.stderr
                )
                return None
    return root


def intact(root: Path) -> bool:
    """Return whether every file of the root exists with its original size."""
    try:
        files = json.loads((root / MANIFEST).read_text())
        return all((root / name).lstat().st_size == size for name, size in files.items())
    except (OSError, ValueError):
        return False


def _cache() -> Path:
    """A directory that the unprivileged account of a server can reach; root's home is closed to it."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "dbbench/servers"
    return (Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache") / "dbbench/servers"


def _build(recipe: Recipe, root: Path) -> None:
    """Download, unpack, and write the manifest last. LookupError where this machine knows no
    mirror.
    """
    root.mkdir(0o755)
    for name in MERGED:
        (root / "usr" / name).mkdir(0o755, parents=True)
        (root / name).symlink_to(f"usr/{name}")
    with _apt(recipe, root.with_name(f"{root.name}.apt")) as (archives, options):
        _run("apt-get", *options, "update")
        install = ("install", "--yes", "--download-only", "--no-install-recommends")
        _run("apt-get", *options, *install, *recipe.packages)
        for package in sorted(archives.glob("*.deb")):
            _run("dpkg-deb", "--extract", package, root)
    if "patchelf" in recipe.packages:
        _use_own_libraries(root, (root / recipe.program).parent)
    files = {str(path.relative_to(root)): path.lstat().st_size for path in _files(root)}
    if not (root / recipe.program).is_file():
        raise LookupError(f"the packages have no {recipe.program}")
    (root / MANIFEST).write_text(json.dumps(files))


@contextlib.contextmanager
def _apt(recipe: Recipe, folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """A configuration of apt with nothing of this machine: no installed package, no source but the
    recipe's.
    """
    shutil.rmtree(folder, ignore_errors=True)
    archives = folder / "cache/archives"
    for place in (
        archives / "partial",
        folder / "state/lists/partial",
        folder / "etc/preferences.d",
    ):
        place.mkdir(parents=True)
    signed = f"[signed-by={keys(recipe.distribution)}] {mirror(recipe.distribution)}"
    sources = [f"deb {signed} {suite} {recipe.components}\n" for suite in recipe.suites]
    (folder / "etc/sources.list").write_text("".join(sources))
    (folder / "etc/preferences").write_text(
        f"Package: src:{recipe.packages[0]}\nPin: release a={recipe.suites[-1]}\nPin-Priority: "
        "900\n"
    )
    (folder / "state/status").touch()
    configured = {
        "Dir::Etc": folder / "etc",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state/status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Languages": "none",
        "APT::Get::AllowUnauthenticated": "false",
    }
    try:
        yield archives, [f"--option={name}={value}" for name, value in configured.items()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _use_own_libraries(root: Path, programs: Path) -> None:
    """Make the programs load this root's libraries by themselves: initdb starts postgres without
    asking anybody.

    DT_RPATH and not DT_RUNPATH: it also holds for the libraries of the libraries.
    """
    libraries = root / "usr/lib" / f"{platform.machine()}-linux-gnu"
    loader = next((root / "usr/lib64").glob("ld-linux-*.so.*"), None) or next(
        (root / "usr/lib").glob("ld-linux-*")
    )
    patchelf = (loader, "--library-path", libraries, root / "usr/bin/patchelf")
    for program in sorted(programs.iterdir()):
        if (
            program.is_file()
            and not program.is_symlink()
            and program.read_bytes()[:4] == b"\x7fELF"
        ):
            set_path = ("--force-rpath", "--set-rpath", libraries, "--set-interpreter", loader)
            _run(*map(str, patchelf), *map(str, set_path), program)


def _files(root: Path) -> Iterator[Path]:
    for folder, _folders, names in os.walk(root):
        yield from (Path(folder, name) for name in sorted(names))


def mirror(distribution: str) -> str:
    """Where this machine has packages of that distribution from: apt's own sources, else
    debootstrap's default.
    """
    argv = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        f"Origin: {distribution}",
    ]
    found = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
    if address := next((address for address in found if "security" not in address), None):
        return address
    places = {
        UBUNTU: (UBUNTU_SCRIPT, r"default_mirror (http://archive\S+)"),
        DEBIAN: (Path("/usr/sbin/debootstrap"), r'DEF_MIRROR="(\S+)"'),
    }
    script, pattern = places[distribution]
    match = re.search(pattern, script.read_text())
    if match is None:
        raise LookupError(f"{script} names no mirror of {distribution}")
    return match[1]


def _run(*argv: str | Path) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=DEADLINE_S)
