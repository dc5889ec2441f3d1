"""sar: sysstat's binary recorder beside the load, `sadf` afterwards. Raw file: `sar.bin`."""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.errors import CommandFailed, DeadlinePassed, ProgramMissing
from dbbench.process import find, run, running
from dbbench.samplers.port import Sampling, Target
from dbbench.samplers.sar_parse import parse
from dbbench.samplers.sysstat import Entry, Recording

# The recorder is in no PATH: Debian and Ubuntu; Fedora and SUSE, 64 and 32 bit.
SADC: Final = ("/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc", "/usr/lib/sa/sadc")
_OPTIONS: Final = ("-u", "ALL", "-d", "-r", "ALL", "-B", "-b", "-q", "LOAD")
_PRESSURE: Final = ("-q", "CPU", "-q", "IO", "-q", "MEM")


def programs() -> tuple[str, ...]:
    """sadc (by path: it is in no PATH) and sadf."""
    return (_sadc() or SADC[0], "sadf")


@contextlib.contextmanager
def beside(target: Target, raw: Path) -> Iterator[Sampling]:
    """Record into `raw/sar.bin` once a second. ProgramMissing where sysstat is not installed."""
    sadc = _sadc()
    if sadc is None:
        raise ProgramMissing(
            f"sysstat's recorder sadc is in none of {', '.join(SADC)}", remedy="Install the package sysstat."
        )
    binary, log = raw / "sar.bin", raw / "sar.log"
    names = _names(target.disk)
    with running([sadc, "-S", "DISK", "1", binary], stdout=log) as program:
        recording = Recording("sar", "cpu_user_pct", time.time(), lambda: _read(binary, names))
        try:
            yield recording
        finally:
            recording.note_end(program, log)


def _sadc() -> str | None:
    return next((path for path in SADC if find(path)), None)


def _names(disk: str | None) -> tuple[str, ...]:
    """The disk's kernel name, and what sysstat calls it once the device is gone."""
    if disk is None:
        return ()
    with contextlib.suppress(OSError):
        major, _, minor = Path("/sys/class/block", disk, "dev").read_text().strip().partition(":")
        return (disk, f"dev{major}-{minor}")
    return (disk,)


def _read(binary: Path, disk_names: tuple[str, ...]) -> tuple[list[Entry], str | None]:
    """The entries of a binary file, and what is wrong with it. sadf prints whole records up to a cut."""
    options = (*_OPTIONS, *(_PRESSURE if Path("/proc/pressure").is_dir() else ()))
    try:
        done = run(["sadf", "-j", binary, "--", *options], timeout_s=120, ok=range(256))
    except (CommandFailed, DeadlinePassed, ProgramMissing) as error:
        return [], f"sar: {error}"
    with gzip.GzipFile(binary.with_suffix(".json.gz"), "wb", 6, mtime=0) as packed:
        packed.write(done.stdout.encode())
    entries, whole = parse(done.stdout, disk_names)
    said = done.stderr.strip().splitlines()
    if done.returncode == 0 and whole and not said:
        return entries, None
    return entries, f"sar: sadf says {said[0]!r}" if said else f"sar: sadf ended with status {done.returncode}"
