"""The install command of tox: `python tests/venv.py .venv WHEEL` installs only the wheel and links
the rest.

pytest, the tools and the locked dependencies come from the virtual environment that `make` has
built. The editable dbbench in it is not visible: a folder that a .pth file adds is searched for
packages, but its own .pth files are not read.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path


def main(venv: Path, wanted: list[str]) -> int:
    """Write the link, then install what is missing; return 1 if that environment does not exist."""
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
    if not packages.is_dir():
        print(f"{packages} does not exist. Build it with:  make .venv/.done-test", file=sys.stderr)
        return 1
    here = Path(sysconfig.get_path("purelib"))
    # .pth files are read by name: the next one imports coverage
    (here / "a0_shared.pth").write_text(f"{packages}\n")
    for starts_coverage in packages.glob("*coverage.pth"):
        shutil.copy(starts_coverage, here)
    pip = [
        sys.executable,
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    return subprocess.run([*pip, *wanted], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
