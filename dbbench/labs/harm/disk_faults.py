"""Requests that fail on the disk below a running server: who notices, and what is left? Sessions
insert rows while the disk of a copy has a fault. Right after it the disk is copied, as a reset of
the machine would leave it. Then it works again: does the server, at once, after another start, or
after the filesystem was mounted again? All acknowledged rows must be there, after the reset and at
the end. A control without a fault must end unharmed.
"""

from __future__ import annotations

import errno
import operator
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.engines.port import Server
from dbbench.engines.serving import log_size
from dbbench.errors import (
    DbbenchError,
    DeadlinePassed,
    EngineDied,
    EngineStartFailed,
    MountFailed,
)
from dbbench.labs.faults import PROGRAM, DiskFault, Orders, describe
from dbbench.labs.harm.attempts import look_up, repeat
from dbbench.labs.harm.flips import kernel_faults
from dbbench.labs.harm.rows import MARK, RowWriter, create_table
from dbbench.labs.powercut.base_images import (
    BaseImages,
    Images,
    Lab,
    attach,
    copy_disks,
    files_of,
    name_files,
)
from dbbench.labs.powercut.conclusions import single
from dbbench.labs.powercut.disk import serve_disks
from dbbench.labs.powercut.disk_images import BLOCK
from dbbench.labs.powercut.recovery import mount, mounted, serving
from dbbench.machine import threads
from dbbench.machine.kernel_log import Watch
from dbbench.model import HarmCount, HarmOutcome

CONTROL: Final = "no fault"
GIVEN: Final = "given fault"
MOST: Final = 40  # a second of the load has more requests than that
FaultsOf = Callable[[random.Random], Sequence[DiskFault]]
# Column of the harm table -> its faults, of which the requests' numbers are random.
COLUMNS: Final[Mapping[str, FaultsOf]] = {
    "failed write": lambda chance: [
        DiskFault("fail", "write", chance.randint(1, MOST), content=MARK)
    ],
    "failed flush": lambda chance: [DiskFault("fail", "flush", chance.randint(1, MOST))],
    "failed reads": lambda _: [DiskFault("fail", "read")],
    "disk gone": lambda _: [DiskFault("fail", "any", seconds=5.0)],
    "disk read-only": lambda _: [DiskFault("fail", "write")],
}

# A transaction fills more than a page of the log, so that no later commit writes it again.
ROW_BYTES: Final = 6_000
READ: Final = "SELECT MAX(filler) FROM account"  # a table that was not read before
WARM: Final = 20  # acknowledged rows before the fault
WARM_S: Final = 60.0
MET_S: Final = 3.0  # until a request meets the fault; also how long one lasts that has no end
RESET_S: Final = 0.1  # from a single fault to the reset: a checkpoint may hide its harm
WATCH_S: Final = 2.0  # after the reset; a server that does not answer for so long waits
ACCEPT_S: Final = 10.0
_POLL_S: Final = 0.05
_COMPLAINT: Final = re.compile(r"error|panic|fatal|fail|corrupt", re.IGNORECASE)


@dataclass
class FaultAttempt:
    """One copy of the target's disks under load, with these faults."""

    lab: Lab
    base: BaseImages
    faults: Sequence[DiskFault]
    writer: RowWriter
    orders: Orders
    # the rows that were acknowledged before the reset
    before_reset: RowWriter = field(init=False)
    unwritten: str = ""  # what only the page cache had at the end

    @property
    def live(self) -> Images:
        """The disks below the server."""
        return self.lab.disks("faulty", self.base.target)

    @property
    def reset(self) -> Images:
        """Copies of them as they were right after the faults."""
        return self.lab.disks("reset", self.base.target)

    def work(self) -> tuple[HarmOutcome, HarmOutcome, str]:
        """Return who notices, and how it continues, each if no row is harmed, with the evidence of
        the first. Raises DbbenchError, also if no request met the faults.
        """
        lab = self.lab
        images = copy_disks(self.base.images, self.live)
        output = lab.workdir.logs / "disk.log"
        seen = dict[Path, list[int]]()
        self.orders.give()
        lab.server_log.unlink(missing_ok=True)
        with (
            serve_disks(
                lab.workdir.root,
                files_of(images),
                self.orders.path,
                output,
                PROGRAM,
            ) as files,
            attach(name_files(images, files)) as volumes,
            Watch() as kernel,
            mount(lab, self.base.target, volumes) as datadir,
        ):
            with serving(lab, self.base, datadir) as server:
                create_table(server)
                with self.writer.writing(server):
                    self._warm(server)
                    offset = log_size(lab.server_log)
                    met = self._suffer(server)
                    word, evidence = self._watch(server)
                    lines = _complaints(lab.server_log, offset)
                    lines += kernel_faults(kernel, volumes)
                    if word is HarmOutcome.NOBODY and lines:
                        word = HarmOutcome.LOGS
                    evidence = "; ".join(filter(None, (evidence, *lines[:1])))
                    accepts = self.writer.accepts(server, ACCEPT_S)
            after = HarmOutcome.RECOVERS if accepts else self._restarts(datadir, word)
            with suppress(OSError):  # of a filesystem that the fault ended
                seen = _contents(datadir)
        # Whatever a server reads on the mounted filesystem must also be on the disk.
        with (
            suppress(OSError, MountFailed),  # the look-up says so
            mounted(lab, self.base, images) as datadir,
        ):
            self.unwritten = _unwritten(seen, _contents(datadir))
        # Said once the server has ended in peace: an error within the blocks above kills it.
        if self.faults and not met:
            raise DbbenchError(f"no request met the fault: {describe(self.faults)}")
        return word, after, "; ".join(filter(None, (*met[:1], evidence)))

    def _warm(self, server: Server) -> None:
        """Let each session acknowledge some rows."""

        def is_cold() -> bool:
            fewest = min(map(len, self.writer.acknowledged.values()))
            return fewest < WARM and server.alive()

        if process.wait_while(is_cold, WARM_S, _POLL_S) or self.writer.failed is not None:
            raise DbbenchError(f"the server acknowledges no rows: {self.writer.failed}")

    def _suffer(self, server: Server) -> list[str]:
        """Have the faults, and copy the disks right after them, if requests met them; return these."""
        self.orders.give(*self.faults)
        if any(fault.request == "read" for fault in self.faults):
            threads.Helper("reader", self.writer.read, server, READ).start()
        if process.wait_while(lambda: bool(self.faults) and not self.orders.met(), MET_S, RESET_S):
            self.orders.give()
            return []
        time.sleep(max(map(_lasting_s, self.faults), default=RESET_S))
        met = self.orders.met()
        # No request is carried out during the copy.
        self.orders.give(DiskFault("hold", "any"))
        time.sleep(RESET_S)
        self.before_reset = self.writer.snapshot()
        copy_disks(self.live, self.reset)
        self.orders.give()
        return met

    def _watch(self, server: Server) -> tuple[HarmOutcome, str]:
        """Return who has noticed the faults, and the evidence."""
        since = self.writer.count
        time.sleep(WATCH_S)
        if not server.alive():
            return HarmOutcome.DIES, ""
        if self.writer.failed:
            return HarmOutcome.REFUSES, self.writer.failed[1]
        if self.writer.count == since:
            return HarmOutcome.WAITS, f"no answer for {WATCH_S:.0f} s"
        return HarmOutcome.NOBODY, ""

    def _restarts(self, datadir: Path, word: HarmOutcome) -> HarmOutcome:
        """Start the server again on the mounted filesystem, as a supervisor does, and return whether
        it then acknowledges rows.
        """
        try:
            with (
                serving(self.lab, self.base, datadir) as server,
                self.writer.writing(server),
            ):
                if self.writer.accepts(server, ACCEPT_S):
                    if word is HarmOutcome.DIES:
                        return HarmOutcome.RECOVERS
                    return HarmOutcome.RESTARTED
        except (EngineStartFailed, EngineDied, DeadlinePassed):
            pass
        except OSError as error:
            # The server's directories cannot be made on a filesystem that the fault ended.
            if error.errno not in (errno.EROFS, errno.EIO):
                raise
        return HarmOutcome.REMOUNTED


def fail_disks(
    lab: Lab,
    base: BaseImages,
    rounds: int,
    given: Sequence[DiskFault] = (),
) -> list[HarmCount]:
    """Try each column's faults so many times, or only those given; return the counts of each
    outcome. If the control without a fault is harmed, nothing else is tried.
    """
    columns = {GIVEN: lambda _: given} if given else COLUMNS
    control = partial(fail_once, CONTROL, lambda _: ())
    counts = repeat(CONTROL, control, lab, base, 1)
    if counts[0].word is HarmOutcome.UNHARMED:
        for column, faults_of in columns.items():
            attempt = partial(fail_once, column, faults_of)
            counts += repeat(column, attempt, lab, base, rounds)
    return counts


def fail_once(
    column: str,
    faults_of: FaultsOf,
    lab: Lab,
    base: BaseImages,
    seed: str,
) -> list[HarmCount]:
    """Return who noticed the faults, and what is left; of no fault, only what is left. Raises
    DbbenchError, OSError.
    """
    faults = faults_of(random.Random(seed))
    text = describe(faults) or "no fault"
    attempt = FaultAttempt(
        lab, base, faults, RowWriter(seed, ROW_BYTES), Orders(lab.scratch / "orders")
    )
    word, after, evidence = attempt.work()
    # The look-ups are on other loop devices, after another mount. The first harm decides.
    for when, images, writer in (
        ("after a reset", attempt.reset, attempt.before_reset),
        ("at the end", attempt.live, attempt.writer),
    ):
        harm, left = look_up(lab, base, images, writer)
        if harm is not HarmOutcome.UNHARMED:
            after = harm
            left = f"{when}: {left}"
            break
    if not faults:
        unharmed = (word, after) == (HarmOutcome.NOBODY, HarmOutcome.RECOVERS)
        return [single(column, HarmOutcome.UNHARMED if unharmed else after, f"{evidence} {left}")]
    evidence_after = filter(None, (f"{text}: {left}", attempt.unwritten))
    return [
        single(column, word, evidence),
        single(f"after {column}", after, "; ".join(evidence_after)),
    ]


def _lasting_s(fault: DiskFault) -> float:
    """Return how long a fault lasts after its first request."""
    if fault.seconds is not None:
        return fault.seconds
    if fault.first is None or fault.onwards:
        return MET_S
    return RESET_S


def _complaints(log: Path, offset: int) -> list[str]:
    """Return the lines of a server's log since `offset` that tell of an error."""
    lines = log.read_bytes()[offset:].decode(errors="replace").splitlines()
    return list(filter(_COMPLAINT.search, lines))


def _contents(folder: Path) -> dict[Path, list[int]]:
    """Return a hash of each block of all files. Raises OSError."""
    contents = {}
    for path in filter(Path.is_file, folder.rglob("*")):
        with path.open("rb") as file:
            blocks = iter(partial(file.read, BLOCK), b"")
            contents[path] = list(map(hash, blocks))
    return contents


def _unwritten(seen: Mapping[Path, Sequence[int]], now: Mapping[Path, Sequence[int]]) -> str:
    """Describe the first file that a fresh mount shows with other blocks than the last one, or ""."""
    for path, blocks in seen.items():
        wrong = sum(map(operator.ne, blocks, now.get(path, ())))
        if wrong:
            return f"{wrong} blocks of {path.name} were in the page cache, but not on the disk"
    return ""
