"""Bytes that change on a disk: who notices, and are they repaired? In each attempt, every byte of a
block of 4 KiB on one disk of a copy is changed in its lowest bit: of a table, its index, the
part of the log that recovery needs, or of a directory. A block is found by its content, which
works for every filesystem that does not compress it, and for each copy of a mirror. Then the
filesystem is mounted, the server started, and everything is read and compared.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from dbbench import errors
from dbbench.datasets.sources.postgres_copies import seal
from dbbench.engines import profile_of
from dbbench.engines.port import ChecksData, Server, log_files_of
from dbbench.engines.sql import cursor_of, rows
from dbbench.labs.harm.attempts import no_attempt, repeat
from dbbench.labs.powercut import witness
from dbbench.labs.powercut.base_images import BaseImages, Images, Lab, attach, copy_disks, files_of
from dbbench.labs.powercut.conclusions import single
from dbbench.labs.powercut.phases import phase
from dbbench.labs.powercut.recovery import check_filesystem, kill, mount, mounted, serving
from dbbench.machine.kernel_log import Watch
from dbbench.machine.pagecache import data_parts
from dbbench.model import HarmCount, HarmOutcome
from dbbench.run.record import stopping
from dbbench.run.stages import Volumes
from dbbench.storage.devices.port import leaves_of

FLIPPED: Final = 4096
# a place may not matter, for example a copy in the filesystem's journal: others are tried
TRIES: Final = 4
# with a checkpoint, recovery would not need the log before it
LOG_S: Final = witness.CHECKPOINT_S / 2
RANGE: Final = 64  # accounts that are read with one search in the index
# Who notices, in this order; `check` and `fsck` only if someone starts them: amcheck, CHECK TABLE;
# scrub, fsck.
NOTICING: Final = (
    HarmOutcome.FILESYSTEM,
    HarmOutcome.DATABASE,
    HarmOutcome.CHECK,
    HarmOutcome.FSCK,
)
_ZEROS: Final = bytes(FLIPPED)


@dataclass(frozen=True)
class Sample:
    """Disks, and (number of the disk, offset) of blocks on them; acknowledged commits that must be
    there.
    """

    disks: Images
    places: list[tuple[int, int]]
    acknowledged: Mapping[int, int] = field(default_factory=dict)


def flip_bytes(lab: Lab, base: BaseImages, rounds: int) -> list[HarmCount]:
    """Change a block of each kind so many times; return the counts of each outcome. A kind without
    a block on the disks is not tried. Raises DbbenchError.
    """
    counts = list[HarmCount]()
    for kind, sample in _samples(lab, base).items():
        column = f"flip in {kind}"
        if sample.places:
            counts += repeat(column, partial(_round, column, sample), lab, base, rounds)
        else:
            counts += no_attempt(column, "no block on the disks has the content of its files")
    return counts


def _samples(lab: Lab, base: BaseImages) -> dict[str, Sample]:
    """Let a copy of the server work and crash. Return the samples: for the log on the crashed
    disks, otherwise on the base. InnoDB's tables are their primary key, so there is no index.
    """
    engine = base.engine
    seen = witness.Acknowledged()
    crashed = base.copy(lab, "crashed")
    with mounted(lab, base, crashed) as datadir:
        # Blocks that belong to a file cannot be of a directory.
        inside = set[int]()
        for role in base.target.setups:
            for path in lab.workdir.mount_point(role).rglob("*"):
                if path.is_file() and not path.is_symlink():
                    inside.update(map(hash, _blocks(path)))
        with serving(lab, base, datadir) as server:
            files = _files(server, datadir)
            effective = server.effective_settings()
            # without the first page, which is the same in several indexes
            contents = {kind: set(list(_blocks(path))[4:]) for kind, path in files.items()}
            before = _blocks_of(log_files_of(engine, datadir, effective))
            with witness.banking(server, 0, seen, False) as must_work:
                time.sleep(LOG_S)
                must_work()
                kill(server)
        log = _blocks_of(log_files_of(engine, datadir, effective)) - before
    # Metadata: a block with the file's name that belongs to no file.
    name = os.fsencode(files["table"].name)
    contents["metadata"] = set()
    for _number, _offset, block in _list_blocks(base.images):
        if name in block and hash(block) not in inside:
            contents["metadata"].add(block)
    samples = {}
    for kind, blocks in contents.items():
        samples[kind] = Sample(base.images, _places(base.images, blocks))
    # The log has the commits of this crash; the other samples have none.
    acknowledged = seen.before(time.monotonic_ns())
    samples["log"] = Sample(crashed, _places(crashed, log), acknowledged)
    return samples


def _files(server: Server, datadir: Path) -> dict[str, Path]:
    if profile_of(server.engine).dialect == "mysql":
        return {"table": datadir / server.database / "account.ibd"}
    query = "SELECT pg_relation_filepath('account'), pg_relation_filepath('account_pkey')"
    ((table, index),) = rows(server, query)
    return {"table": datadir / table, "index": datadir / index}


def _round(
    column: str,
    sample: Sample,
    lab: Lab,
    base: BaseImages,
    seed: str,
) -> list[HarmCount]:
    """Change blocks, one at a time, until one matters; return the outcome in one word, and its
    evidence. What the database notices is tried again without its data checksums, if they can be
    disabled.
    """
    chance = random.Random(seed)
    for place in chance.sample(sample.places, min(TRIES, len(sample.places))):
        word, evidence = _attempt(lab, base, sample, place)
        if word != HarmOutcome.HARMLESS:
            break
    optional = profile_of(base.target.engine.name).chosen_checksums
    # of the crashed disks, on which the log is changed, checksums cannot be disabled
    if word == HarmOutcome.DATABASE and not sample.acknowledged and optional:
        plain = base.copy(lab, "plain")
        with mounted(lab, base, plain) as datadir:
            seal(datadir, base.place, False)
        without, text = _attempt(lab, base, Sample(plain, []), place)
        if without not in (HarmOutcome.FILESYSTEM, HarmOutcome.DATABASE):
            word = HarmOutcome.CHECKSUMS
            evidence += f"; without checksums {without}: {text}"
    return [single(column, word, evidence)]


def _attempt(
    lab: Lab,
    base: BaseImages,
    sample: Sample,
    place: tuple[int, int],
) -> tuple[HarmOutcome, str]:
    """Change one block of a copy, and use everything. A phase that exceeds its deadline is an
    outcome: `hangs`.
    """
    # Each attempt begins with intact disks.
    disks = copy_disks(sample.disks, lab.disks("flipped", base.target))
    number, offset = place
    lab.tell(f"{base.target.key}: 4 KiB changed on disk {number} at byte {offset}")
    lab.server_log.unlink(missing_ok=True)  # the new log must be of this attempt only
    noticed = dict[str, str]()
    wrong = ""
    original = _flip(files_of(disks)[number], offset)
    try:
        # Whoever notices is written down: the kernel, the server, the checks.
        with attach(disks) as volumes, Watch() as kernel:
            try:
                with mount(lab, base.target, volumes) as datadir:
                    wrong = _read_everything(lab, base, datadir, sample.acknowledged, noticed)
                    faults = kernel_faults(kernel, volumes)
                    if faults:
                        noticed[HarmOutcome.FILESYSTEM] = faults[0]
                    if not noticed:
                        check_filesystem(lab, base, volumes, noticed, mounted=True)
            except errors.MountFailed as error:
                noticed[HarmOutcome.FILESYSTEM] = wrong = str(error)
            if not noticed:
                check_filesystem(lab, base, volumes, noticed)
    except (errors.DeadlinePassed, errors.UnmountFailed) as error:
        return HarmOutcome.HANGS, str(error)
    # The first of the list that noticed decides.
    word = next(
        (name for name in NOTICING if name in noticed),
        HarmOutcome.NOBODY if wrong else HarmOutcome.HARMLESS,
    )
    evidence = noticed.get(word, wrong).strip().partition("\n")[0]
    # A block that has its old content again was repaired.
    with files_of(disks)[number].open("rb") as image:
        image.seek(offset)
        if noticed and not wrong and image.read(FLIPPED) == original:
            word = HarmOutcome.REPAIRED
    return word, f"disk {number}, byte {offset}: {evidence or 'everything is as before'}"


def kernel_faults(kernel: Watch, volumes: Volumes) -> list[str]:
    """Return the kernel's lines about faults of these volumes' devices."""
    return [line for leaf in leaves_of(volumes) for line in kernel.lines_about(leaf) or ()]


def _read_everything(
    lab: Lab,
    base: BaseImages,
    datadir: Path,
    acknowledged: Mapping[int, int],
    noticed: dict[str, str],
) -> str:
    """Start the server, compare all rows and check the tables. Add to `noticed` who noticed
    something; return what cannot be read, or differs.
    """
    wrong = ""
    engine = base.engine
    try:
        with serving(lab, base, datadir, clean=True) as server:
            with phase("look up"):
                wrong = _difference(server, acknowledged)
            if isinstance(engine, ChecksData):
                with phase("check"):
                    engine.check_running(server)
    except errors.DataCorrupt as error:
        noticed[HarmOutcome.CHECK] = " ".join(str(error).split())
    except OSError as error:
        noticed[HarmOutcome.FILESYSTEM] = wrong = str(error)
    except UnicodeDecodeError as error:  # a client's: the server has returned wrong bytes
        wrong = str(error)
    except Exception as error:  # also of psycopg2 or mysql.connector
        died = isinstance(error, errors.EngineStartFailed | errors.EngineDied)
        if stopping(error) or (isinstance(error, errors.DbbenchError) and not died):
            raise
        noticed[HarmOutcome.DATABASE] = wrong = " ".join(str(error).split())
    return wrong


def _difference(server: Server, acknowledged: Mapping[int, int]) -> str:
    """Describe how the accounts, read by a scan and by the index, and the ledger differ from what
    was written.
    """
    by_scan = list[tuple[int, str]]()
    by_index = list[tuple[int, str]]()
    with cursor_of(server) as cursor:
        cursor.execute("SELECT id, filler FROM account")
        by_scan += cursor.fetchall()
        for first in range(0, witness.ACCOUNTS, RANGE):
            ids = f"id >= {first} AND id < {first + RANGE}"
            cursor.execute(f"SELECT id, filler FROM account WHERE {ids}")
            by_index += cursor.fetchall()
    expected = {(number, witness.FILLER) for number in range(witness.ACCOUNTS)}
    for how, accounts in (("scan", by_scan), ("index", by_index)):
        if len(accounts) != len(expected) or set(accounts) != expected:
            wrong = len(expected - set(accounts))
            return f"{wrong} of {len(expected)} rows are missing or changed (read by {how})"
    with cursor_of(server) as cursor:
        lost = witness.missing(cursor, acknowledged)
        if lost:
            return f"{lost} of {sum(acknowledged.values())} acknowledged commits are missing"
        unequal = witness.unequal(cursor)
        if unequal:
            return f"{unequal} balances do not match the ledger"
        return ""


def _flip(image: Path, offset: int) -> bytes:
    """Change the lowest bit of each byte of the block; return the block as it was."""
    with image.open("r+b", buffering=0) as file:
        original = os.pread(file.fileno(), FLIPPED, offset)
        os.pwrite(file.fileno(), bytes(byte ^ 1 for byte in original), offset)
    return original


def _places(disks: Images, blocks: set[bytes]) -> list[tuple[int, int]]:
    """Return where these blocks are on the disks."""
    return [(number, offset) for number, offset, block in _list_blocks(disks) if block in blocks]


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the blocks of a file, without those of zeros."""
    with path.open("rb") as file:
        while block := file.read(FLIPPED):
            if block != _ZEROS[: len(block)]:
                yield block.ljust(FLIPPED, b"\0")


def _blocks_of(paths: Iterable[Path]) -> set[bytes]:
    return {block for path in paths for block in _blocks(path)}


def _list_blocks(disks: Images) -> Iterator[tuple[int, int, bytes]]:
    """Yield the disk's number, offset and content of each block that is not in a hole."""
    for number, image in enumerate(files_of(disks)):
        with image.open("rb") as file:
            for begin, end in data_parts(file.fileno(), 0, image.stat().st_size):
                for offset in range(begin - begin % FLIPPED, end, FLIPPED):
                    yield number, offset, os.pread(file.fileno(), FLIPPED, offset)
