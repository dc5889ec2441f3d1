"""Real servers apply a primary's log to its base copy and end equal to the primary; planted faults
are detected.
"""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import datasets
from dbbench.datasets import Golden
from dbbench.drivers import apply
from dbbench.drivers.apply import ARCHIVE
from dbbench.drivers.apply import load_archive as load
from dbbench.drivers.apply import save_archive as save
from dbbench.drivers.protocol import Load, LoadTask
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.errors import DataCorrupt, RestoreFailed
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Clock
from dbbench.model import Cell, Dataset, FsSetup, Mkfs, Window, Workload, merge_settings
from tests.support import servers
from tests.support.plans import plan

MIB = 2**20
ENGINE = ("postgres", "mariadb", "mysql")
NEEDS = {"postgres": (), "mariadb": ("mariadb-binlog", "mariadb"), "mysql": ()}
EACH = [
    pytest.param(name, marks=pytest.mark.needs(f"engine:{name}", *NEEDS[name])) for name in ENGINE
]
# binary logs: one commit after the other
BYTES = {"postgres": 20 * MIB, "mariadb": MIB, "mysql": MIB}
SMALL = {"postgres": {"shared_buffers": "16MB"}}


@pytest.fixture(scope="module")
def archive_of() -> Iterator[Callable[[str], Golden]]:
    """The golden copy of an engine, made once, in a folder that servers' accounts can enter."""
    with servers.open_folder() as cache:

        def made(engine: str) -> Golden:
            asked = Dataset(
                "archive", {"scale": 1, "tables": 1, "table_size": 2000, "log_bytes": BYTES[engine]}
            )
            with place(engine) as where:
                return datasets.golden.ensure(
                    datasets.golden.recipe(servers.spec(engine), asked),
                    where,
                    cache=cache,
                )

        yield made


@contextlib.contextmanager
def place(engine: str) -> Iterator[Place]:
    """In a folder of its own."""
    with servers.open_folder() as folder:
        yield servers.place(engine, folder)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands still fails sooner, but not during the pause of a busy disk."""
    monkeypatch.setattr(apply, "STUCK_S", 120.0)


@pytest.fixture
def applied() -> Callable[..., Outcome]:
    """Restore an archive's base copy, apply its log, stop, check. `during` is called when the log
    is on its way.
    """

    def done(
        engine: Any,
        golden: Golden,
        during: Callable[[Server], None] = lambda _: None,
        **parameters: Any,
    ) -> Outcome:
        kind = ENGINES[engine]
        spec = servers.spec(engine)
        settings = merge_settings(("default", kind.defaults(None)), ("plan", SMALL.get(engine, {})))
        with place(engine) as where:
            root = where.sockets.parent
            for name in ("scratch", "raw"):
                (root / name).mkdir()
            # the server's account must get there
            shutil.copytree(golden.path / ARCHIVE, root / "copy" / ARCHIVE)
            reachable = dataclasses.replace(golden, path=root / "copy")
            datasets.restore_copy(golden, root / "data", kind.account())
            datasets.archive.hand_over(reachable, root / "data", kind, root / "scratch")
            workload = Workload("t", "apply", (engine,), {"kind": "none"}, window="to-completion")
            cell = Cell(
                "c",
                "ext4",
                FsSetup("t", Mkfs("ext4")),
                spec,
                workload,
                parameters,
                Dataset("none"),
                Window("to-completion", 0, 0),
            )
            with kind.serving(root / "data", settings, where) as server:
                load_: Load
                with apply.driving(
                    LoadTask(server, cell, 1, Clock(), root / "raw", root / "scratch")
                ) as load_:
                    during(server)
                    load_.wait(lambda _: None)
                server.checkpoint()
                assert server.counters()
            kind.check(root / "data", settings, where)
            return load_.outcome()

    return done


@pytest.mark.parametrize("engine", EACH)
def test_every_table_is_equal(
    engine: str,
    applied: Any,
    archive_of: Any,
) -> None:
    """Each engine ends byte-equal by checksum, has applied all of its log, and passes its own check
    afterwards.
    """
    golden = archive_of(engine)
    found = load(golden.path / ARCHIVE)
    outcome = applied(engine, golden)
    applied_bytes = outcome.figures["applied_bytes"]
    # loaded machines log more
    assert 0.9 * BYTES[engine] < applied_bytes <= sum(log.size for log in found.logs)
    assert outcome.figures["kb_per_s"] == pytest.approx(
        applied_bytes / 1e3 / outcome.figures["duration_s"], rel=0.1
    )
    history = "public.pgbench_history" if engine == "postgres" else "sbtest1"
    assert int(found.checksums[history].split()[0]) >= 100


@pytest.mark.needs("engine:postgres")
def test_batches_every_so_often(applied: Any, archive_of: Any) -> None:
    """The second segment comes a second and a half after the first; the pause is not in the rate."""
    golden = archive_of("postgres")
    # a busy machine may need the whole of a short pause to apply a segment
    for interval in (1.5, 6.0, 24.0):
        figures = applied("postgres", golden, interval=interval, batch=1).figures
        assert figures["duration_s"] > interval * (len(load(golden.path / ARCHIVE).logs) - 1)
        faster = figures["kb_per_s"] / (figures["applied_bytes"] / 1e3 / figures["duration_s"])
        if faster > 1.3:
            break
    assert faster > 1.3


@pytest.mark.needs("engine:mariadb", "mariadb-binlog", "mariadb")
def test_a_row_too_many_is_caught(applied: Any, archive_of: Any) -> None:
    """Another session writes to the copy while the log is applied: E403 names the table and both
    counts.
    """

    def write(server: Server) -> None:
        with (
            contextlib.closing(server.connect()) as connection,
            contextlib.closing(connection.cursor()) as cursor,
        ):
            cursor.execute("INSERT INTO sbtest1 (id, k, c, pad) VALUES (1000000, 1, '', '')")

    with pytest.raises(DataCorrupt, match=r"sbtest1: 2001 rows.*on the primary 2000 rows"):
        applied("mariadb", archive_of("mariadb"), during=write)


@pytest.mark.needs("engine:postgres")
def test_a_log_that_ends_early_is_caught(
    applied: Any,
    archive_of: Any,
    tmp_path: Path,
) -> None:
    """A part of the log leaves tables that are not the primary's."""
    golden = archive_of("postgres")
    whole = load(golden.path / ARCHIVE)
    copy = dataclasses.replace(golden, path=tmp_path / "half")
    shutil.copytree(golden.path / ARCHIVE, copy.path / ARCHIVE)
    shutil.copytree(golden.data, copy.path / "data")
    copy.path.joinpath("manifest.json").write_bytes((golden.path / "manifest.json").read_bytes())
    before_last = whole.end // (16 * MIB) * 16 * MIB - MIB
    save(copy.path / ARCHIVE, dataclasses.replace(whole, logs=whole.logs[:-1], end=before_last))
    with pytest.raises(DataCorrupt, match=r"pgbench_accounts.*on the primary"):
        applied("postgres", copy)


@pytest.mark.needs("engine:postgres")
def test_a_damaged_segment_is_not_applied(archive_of: Any, tmp_path: Path) -> None:
    """One changed byte: the copy is not used again."""
    golden = archive_of("postgres")
    copy = dataclasses.replace(golden, path=tmp_path / "damaged")
    shutil.copytree(golden.path / ARCHIVE, copy.path / ARCHIVE)
    (copy.path / "manifest.json").touch()
    segment = copy.path / ARCHIVE / load(copy.path / ARCHIVE).logs[0].name
    with segment.open("r+b") as file:
        file.seek(MIB)
        byte = file.read(1)
        file.seek(MIB)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(RestoreFailed, match=f"{segment.name}"):
        datasets.archive.hand_over(copy, tmp_path / "data", ENGINES["postgres"], tmp_path)
    assert not (copy.path / "manifest.json").exists()


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres", "sadf")
def test_a_whole_trial(dbbench: Any, nothing_left: None) -> None:
    """A standby goes the road of every trial: cold, applied, checked, compared; figure and timeline
    in the result.
    """
    engine = {"name": "postgres", "settings": {"shared_buffers": "16MB"}}
    load = {"name": "archive-apply", "scale": 1, "log_bytes": "20MiB"}
    text = plan("ext4", engine, load, warmup=None, measure=None)
    trial = dbbench.trial(text, "--progress", "none")
    assert trial["error"] is None
    assert trial["summary"]["kb_per_s"] > 100
    assert trial["cache"]["proved"]
    assert "pg_amcheck" in trial["checked"]
    assert "apply rate" in dbbench("show", "r", trial["id"]).stdout
    assert "kB/s" in dbbench("compare", "r").stdout
