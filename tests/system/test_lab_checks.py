"""The checks of the power-loss lab: each is the only one that finds some harm, so none can go
unnoticed.
"""

import contextlib
import dataclasses
import re
import subprocess
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dbbench.engines.port import Server
from dbbench.errors import DbbenchError, EngineDied
from dbbench.labs.powercut import lab as cutting
from dbbench.labs.powercut import recording, recovery, witness
from dbbench.labs.powercut.base_images import BaseImages, Images, Lab, attach, files_of
from dbbench.labs.powercut.disk_images import Cut
from dbbench.labs.powercut.recovery import Recovery, mount, serving
from tests.support.labs import copied, lab_of
from tests.support.servers import query

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "debugfs", "engine:postgres")

# harm the disks; return the commits to be looked up
Plant = Callable[[Lab, BaseImages, Images], dict[int, int]]


@dataclass(frozen=True)
class Check:
    """A check, as the source that finds or reports something, and harm that only this check finds."""

    source: str
    without: str  # source in its place
    harm: str
    plant: Plant
    quick: bool = False  # without the check of the filesystem
    module: Any = recovery


@pytest.fixture(scope="module")
def bank() -> Iterator[tuple[Lab, BaseImages]]:
    """Yield a lab, and ext4 with PostgreSQL and the tables of the witness."""
    with lab_of("ext4") as made:
        yield made


@contextlib.contextmanager
def served(lab: Lab, base: BaseImages, disks: Images) -> Iterator[Server]:
    """Run the server on the disks, and stop it."""
    with (
        attach(disks) as volumes,
        mount(lab, base.target, volumes) as datadir,
        serving(lab, base, datadir, clean=True) as server,
    ):
        yield server


def by_sql(*statements: str, commits: int = 0, acknowledged: dict[int, int] | None = None) -> Plant:
    """Make these commits of the witness's session 0, then each statement in a session of its own."""

    def plant(lab: Lab, base: BaseImages, disks: Images) -> dict[int, int]:
        with served(lab, base, disks) as server:
            for number in range(1, commits + 1):
                query(server, *witness._statements(0, number))
            for statement in statements:
                query(server, statement)
        return {0: commits} if acknowledged is None else acknowledged

    return plant


def in_files(change: Callable[[Path], None]) -> Plant:
    """Change a file of the stopped server."""

    def plant(lab: Lab, base: BaseImages, disks: Images) -> dict[int, int]:
        with attach(disks) as volumes, mount(lab, base.target, volumes) as datadir:
            change(datadir)
        return {}

    return plant


def change_unread_page(datadir: Path) -> None:
    """Change a byte in the free space map of pg_proc, which is read only before a row is inserted
    there.
    """
    (file,) = datadir.glob("base/*/1255_fsm")
    content = bytearray(file.read_bytes())
    for page in range(0, len(content), 8192):
        lower, upper = (
            int.from_bytes(content[page + at : page + at + 2], "little") for at in (12, 14)
        )
        if upper - lower > 64:
            content[page + lower + 32] ^= 1
            break
    file.write_bytes(content)


def on_disk(change: Callable[[Path], object]) -> Plant:
    """Change the unmounted disk."""

    def plant(_lab: Lab, _base: BaseImages, disks: Images) -> dict[int, int]:
        change(files_of(disks)[0])
        return {}

    return plant


def erase_superblock(image: Path) -> None:
    """Overwrite the beginning of the filesystem with zeros."""
    with image.open("r+b") as file:
        file.write(bytes(65536))


def count_links_wrongly(image: Path) -> None:
    """Let the root directory have 77 links, which the kernel does not compare."""
    subprocess.run(
        ["debugfs", "-w", "-R", "set_inode_field <2> links_count 77", image],
        check=True,
        capture_output=True,
    )


MOVED = witness.move(0, 2)
ONE_MORE = (
    "UPDATE ledger SET amount = amount + 1 WHERE n = 2",
    f"UPDATE account SET balance = balance - 1 WHERE id = {MOVED.debit}",
    f"UPDATE account SET balance = balance + 1 WHERE id = {MOVED.credit}",
)
READY = "UPDATE pg_index SET indisready = {} WHERE indexrelid = 'extra_pkey'::regclass"
CHECKS = {
    "commits": Check(
        'harms["lost"] = f"{lost} of {count} acknowledged commits are missing"',
        "pass",
        "lost",
        by_sql(commits=2, acknowledged={0: 3}),
    ),
    "content of commits": Check(
        "elif (int(row[1])",
        "elif False and (int(row[1])",
        "lost",
        by_sql(*ONE_MORE, commits=2),
        module=witness,
    ),
    "balances": Check(
        'harms["damaged"] = f"{unequal} balances do not match the ledger"',
        "pass",
        "damaged",
        by_sql("UPDATE account SET balance = 1 WHERE id = 5", commits=2),
    ),
    "schema changes": Check(
        'harms["schema"] = wrong_tables',
        "pass",
        "schema",
        by_sql(acknowledged={-1: 1}),
    ),
    "failing queries": Check(
        'harms["torn" if _TORN.search(str(error)) else kind] = f"{what}: {str(error).strip()}"',
        "pass",
        "damaged",
        by_sql("DROP TABLE ledger"),
    ),
    "tables and indexes": Check(
        'harms[kind] = f"{what}: {error}"',
        "pass",
        "damaged",
        by_sql(
            "CREATE TABLE extra (id INT PRIMARY KEY)",
            READY.format(False),
            "INSERT INTO extra VALUES (1)",
            READY.format(True),
        ),
    ),
    "every page": Check(
        "engine.check_pages(datadir, base.target.settings, base.place)",
        "pass",
        "torn",
        in_files(change_unread_page),
    ),
    "start": Check(
        'harms = {"unrecovered": str(error)}',
        "harms = dict[str, str]()",
        "unrecovered",
        in_files(lambda datadir: (datadir / "global/pg_control").write_bytes(b"") and None),
    ),
    "mount": Check(
        'harms["unrecovered"] = f"mount: {error}"',
        "pass",
        "unrecovered",
        on_disk(erase_superblock),
        quick=True,
    ),
    "filesystem": Check('harms["fsck"] = str(error)', "pass", "fsck", on_disk(count_links_wrongly)),
}


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", CHECKS)
def test_each_check_finds_what_no_other_one_finds(
    bank: tuple[Lab, BaseImages],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted harm is found; without the check, in a copy of the lab's source, it is not."""
    (lab, base), check = bank, CHECKS[name]
    disks = copied(lab, base)
    found = recovery.recover(lab, base, disks, check.plant(lab, base, disks), check.quick)
    assert (found.invalid, set(found.harms)) == ("", {check.harm}), found
    disks = copied(lab, base)
    changed = without(check)
    if check.module is witness:
        monkeypatch.setattr(recovery, "witness", changed)
    recover = recovery.recover if check.module is witness else changed.recover
    missed = recover(lab, base, disks, check.plant(lab, base, disks), check.quick)
    assert (missed.invalid, missed.harms) == ("", {}), missed


def without(check: Check) -> Any:
    """Return a copy of the check's module in which the check finds nothing."""
    text = Path(check.module.__file__).read_text()
    assert text.count(check.source) == 1, check.source
    changed = types.ModuleType(check.module.__name__)
    exec(
        compile(text.replace(check.source, check.without), check.module.__file__, "exec"),
        vars(changed),
    )
    return changed


def test_no_check_is_missing_here() -> None:
    """Every statement of the lab that reports harm is one of these checks."""
    text = Path(recovery.__file__).read_text()
    reports = {line.strip() for line in text.splitlines() if re.match(r" *harms\[.+\] = ", line)}
    # The first line of a start that looks torn comes in addition to its harm.
    reports -= {'harms["torn"] = torn[0].strip()'}
    assert len(reports) == 7 and reports <= {check.source for check in CHECKS.values()}


def test_nothing_is_found_without_harm(bank: tuple[Lab, BaseImages]) -> None:
    """Disks with two commits, and a server that was stopped, pass all checks."""
    lab, base = bank
    disks = copied(lab, base)
    found = recovery.recover(lab, base, disks, by_sql(commits=2)(lab, base, disks))
    assert (found.invalid, found.harms, found.acknowledged, found.lost) == ("", {}, 2, 0)


def test_what_a_killed_server_lost_is_found(
    bank: tuple[Lab, BaseImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a commit that was never made; then a server that dies when it is queried."""
    lab, base = bank
    before = witness.Acknowledged.before
    with monkeypatch.context() as planted:
        planted.setattr(witness.Acknowledged, "before", lambda seen, ns: {**before(seen, ns), 9: 1})
        (killed,) = recording.record(lab, base, 1, "kill").kills
    assert (killed.lost, set(killed.harms)) == (1, {"lost"})

    def die(*_: object) -> Recovery:
        raise EngineDied("it died")

    monkeypatch.setattr(recording, "check_server", die)
    (killed,) = recording.record(lab, base, 1, "die").kills
    assert killed.harms == {"unrecovered": "it died"} and killed.lost == killed.acknowledged > 0


def test_a_recording_with_few_commits_is_not_cut(
    bank: tuple[Lab, BaseImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that hardly worked has nothing to lose."""
    monkeypatch.setattr(recording, "LEAST", 10**9)
    with pytest.raises(DbbenchError, match="the witness received only"):
        recording.record(*bank, 0, "few")


def test_a_recording_knows_whether_a_checkpoint_ended(
    bank: tuple[Lab, BaseImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: nothing causes one, and the lab does not wait for it."""
    monkeypatch.setattr(witness, "_checkpoints", lambda *_: None)
    monkeypatch.setattr(recording, "CHECKPOINT_S", 0)
    assert recording.record(*bank, 0, "none").checkpoint is False


def test_harm_counts_if_a_second_recovery_finds_it(
    bank: tuple[Lab, BaseImages], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the cut is invalid; harm with units of 512 bytes is tried again with 4096."""
    lab, base = bank
    made = recording.record(lab, base, 0, "twice")
    assert made.checkpoint
    media = made.media(lab)
    harmed = Recovery(9, 1, {"lost": "1 of 9"})
    whole = Recovery(9)

    def facts(unit: int, *recoveries: Recovery) -> dict[str, Any]:
        outcomes = iter(recoveries)
        monkeypatch.setattr(cutting, "recover", lambda *_: next(outcomes))
        found = cutting._cut(
            lab,
            made,
            media,
            Cut("drop", made.plain[1] - 1, unit, 0.0, f"seed {unit}"),
        )
        assert next(outcomes, None) is None
        return {
            name: value
            for name, value in dataclasses.asdict(found).items()
            if name in ("lost", "harms", "invalid", "harms_at_4096")
        }

    unharmed = {"lost": 0, "harms": {}, "invalid": "", "harms_at_4096": None}
    assert facts(512, whole) == unharmed
    once = "a second recovery found no damage; first: 1 of 9"
    assert facts(512, harmed, whole) == {**unharmed, "invalid": once}
    twice = {**unharmed, "lost": 1, "harms": harmed.harms}
    assert facts(4096, harmed, harmed) == twice
    assert facts(512, harmed, harmed, whole) == {**twice, "harms_at_4096": {}}
