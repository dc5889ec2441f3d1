"""The cells and trials of a plan: their order, identity, parameters and preview, and a part of them."""

import dataclasses
import random
from pathlib import Path

import pytest

from dbbench.errors import UnknownName, UsageInvalid
from dbbench.plan import Expanded, expand, identity, narrow, preview
from dbbench.plan.catalog import catalog
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.planned_conditions import sentences
from tests.support.plan_texts import GOOD, simple
from tests.support.plans import SHIPPED, flaws_of, plan_of

DIRECTORIES = GOOD.replace(
    'size = "4GiB"', 'kind = "dir"\npaths = { ext4 = "/a", xfs = "/b", ext4-b = "/c" }'
)


@pytest.fixture
def good(tmp_path: Path) -> Expanded:
    """What the good plan expands to."""
    return expand(plan_of(tmp_path, GOOD), SHIPPED)


def test_cells_are_arms_times_engines_times_workloads_and_each_is_in_every_block(
    good: Expanded,
) -> None:
    """A workload is driven on those of the plan's engines that it runs on. Blocks are complete,
    positions count up, ids say what they are.
    """
    assert [cell.id for cell in good.cells if cell.arm == "xfs"] == [
        "xfs.postgres.pgbench-tpcb",
        "xfs.mariadb.sysbench-oltp-read-write",
        "xfs.postgres.scan",
        "xfs.mariadb.scan",
    ]
    assert len(good.cells) == 12
    ids = sorted(cell.id for cell in good.cells)
    for block in (1, 2, 3):
        assert ids == sorted(spec.cell for spec in good.order if spec.block == block)
    assert [spec.position for spec in good.order] == list(range(1, 37))
    assert all(spec.id == f"{spec.cell}-b{spec.block}-a1" for spec in good.order)
    assert [spec.block for spec in good.order] == sorted(spec.block for spec in good.order)


def test_the_order_is_random_by_the_seed_alone(tmp_path: Path, good: Expanded) -> None:
    """The same seed gives the same order, another one another; blocks differ from each other. Cells
    are sorted by draws of random(), whose sequence is the same on every version of Python.
    """
    plan = plan_of(tmp_path, GOOD)
    assert (
        good.order
        == expand(plan, SHIPPED).order
        != expand(dataclasses.replace(plan, seed=8), SHIPPED).order
    )
    first, second = ([spec.cell for spec in good.order if spec.block == block] for block in (1, 2))
    draw = random.Random(7)
    ranks = [draw.random() for _ in good.cells]
    assert first != second
    assert first == [
        cell.id for _, cell in sorted(zip(ranks, good.cells, strict=True), key=lambda pair: pair[0])
    ]
    assert ranks[0] == 0.32383276483316237  # of CPython 3.2 and later


def test_parameters_windows_and_datasets_are_complete(good: Expanded) -> None:
    """A cell holds all that a trial needs: defaults filled in, the plan's values over them."""
    cells = {cell.id: cell for cell in good.cells}
    tpcb = cells["ext4-b.postgres.pgbench-tpcb"]
    assert (tpcb.setup.name, tpcb.arm) == ("ext4", "ext4-b")
    assert (tpcb.parameters["clients"], tpcb.parameters["rate"]) == (8, 0)
    assert tpcb.dataset.parameters["scale"] == 2
    assert (tpcb.window.kind, tpcb.window.warmup_s, tpcb.window.measure_s) == ("fixed", 120.0, 60.0)
    scan = cells["xfs.mariadb.scan"]
    assert (scan.window.kind, scan.window.warmup_s, scan.window.measure_s) == (
        "to-completion",
        0.0,
        0.0,
    )
    assert scan.dataset.parameters["table_bytes"] == 32 * 2**20


def test_a_script_is_named_by_its_whole_path(tmp_path: Path) -> None:
    """A script beside a user's workload is found wherever the trial's process stands."""
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads/own.toml").write_text(
        'title = "x"\ndriver = "pgbench"\nengines = ["postgres"]\nscript = "own.sql"\n'
        'dataset = { kind = "pgbench", scale = 1 }\n'
    )
    script = tmp_path / "workloads/own.sql"
    script.write_text("SELECT 1;\n")
    known = catalog([tmp_path])
    plan = plan_of(tmp_path, simple(workload="own"), known)
    cells = expand(plan, known).cells
    assert cells[0].workload.script == str(script.resolve())
    before = identity(plan, cells)
    script.write_text("SELECT 2;\n")
    assert identity(plan, cells) != before


def test_the_identity_is_of_what_is_measured(tmp_path: Path) -> None:
    """Comments and the order of keys do not make another plan; a value does."""
    plan = plan_of(tmp_path, GOOD)
    same = plan_of(
        tmp_path, GOOD.replace("blocks = 3\nseed = 7\n", "seed = 7  # of the order\nblocks = 3\n")
    )
    other = plan_of(tmp_path, GOOD.replace("clients = 8", "clients = 9"))
    hashes = [identity(each, expand(each, SHIPPED).cells) for each in (plan, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_narrowing_keeps_what_was_asked_for(tmp_path: Path) -> None:
    """--fs keeps the plan's order, and of kind dir the directories of these arms; a baseline that
    is left out is replaced by the first arm. A label that the plan does not have, and no blocks,
    are errors of usage. --quick is one block, and shortens every window, also those of a
    workload; --blocks still counts.
    """
    plan = plan_of(tmp_path, GOOD)
    less = narrow(plan, Narrowing(fs=["ext4-b", "ext4"], blocks=9, seed=3))
    assert ([arm.label for arm in less.fs_setups], less.baseline) == (["ext4", "ext4-b"], "ext4")
    assert (less.blocks, less.seed) == (9, 3)
    assert narrow(plan, Narrowing()) == plan
    assert narrow(plan_of(tmp_path, DIRECTORIES), Narrowing(fs=["xfs"])).device.paths == {
        "xfs": "/b"
    }
    with pytest.raises(UnknownName, match='did you mean "ext4-b"'):
        narrow(plan, Narrowing(fs=["ext4-c"]))
    with pytest.raises(UsageInvalid):
        narrow(plan, Narrowing(blocks=0))
    quick = narrow(plan, Narrowing(quick=True))
    assert (quick.blocks, quick.repeat_suspect) == (1, False)
    assert {
        c.window.measure_s for c in expand(quick, SHIPPED).cells if c.window.kind == "fixed"
    } == {5.0}
    assert narrow(quick, Narrowing(quick=True, blocks=2)).blocks == 2


def test_the_preview_counts_each_golden_copy_once_and_names_every_command(tmp_path: Path) -> None:
    """Arms share a copy: more of them cost trials, not copies; the image is counted once. Each arm
    has its mkfs and mount, never with discard; a directory is taken as it is.
    """
    plan = plan_of(tmp_path, GOOD)
    less = narrow(plan, Narrowing(fs=["xfs"]))
    one = preview(less, expand(less, SHIPPED))
    all_three = preview(plan, expand(plan, SHIPPED))
    assert all_three.disk_bytes - one.disk_bytes == 3_000_000 * 24  # results of the 24 trials more
    assert all_three.eta_s > 2 * one.eta_s - 120
    assert [(arm, argv[0]) for arm, argv in all_three.commands] == [
        ("ext4", "mkfs.ext4"),
        ("ext4", "mount"),
        ("xfs", "mkfs.xfs"),
        ("xfs", "mount"),
        ("ext4-b", "mkfs.ext4"),
        ("ext4-b", "mount"),
    ]
    assert all("nodiscard" in " ".join(argv) or "-K" in argv for _, argv in all_three.commands)
    there = plan_of(tmp_path, DIRECTORIES)
    assert preview(there, expand(there, SHIPPED)).commands == ()


def test_relative_paths_of_a_plan_begin_in_its_directory(tmp_path: Path, here: Path) -> None:
    """Trials run in another directory than the command: every path of a plan is absolute when it
    has been read.
    """
    (tmp_path / "plans").mkdir()
    text = GOOD.replace(
        'size = "4GiB"', 'size = "4GiB"\nat = "loops"\nwal = { fs_setup = "ext4", at = "../logs" }'
    )
    text = text.replace('name = "mariadb"\n', 'name = "mariadb"\nbin = "sbin"\n', 1)
    text = text.replace(
        'name = "scan"\ntable_bytes = "32MiB"',
        'name = "scan"\nsource = { postgres = "shop", mariadb = "/b" }',
    )
    plan = plan_of(Path("plans"), text)
    there = tmp_path / "plans"
    assert plan.device.wal is not None
    assert (plan.device.at, plan.device.wal.at) == (f"{there}/loops", f"{there}/../logs")
    assert plan.engine[1].bins == (f"{there}/sbin",)
    assert plan.workload[2].source == {"postgres": f"{there}/shop", "mariadb": "/b"}
    directories = plan_of(Path("plans"), DIRECTORIES.replace('"/a"', '"a"'))
    assert directories.device.paths == {"ext4": f"{there}/a", "xfs": "/b", "ext4-b": "/c"}
    disks = GOOD.replace('size = "4GiB"', 'kind = "block"\npaths = ["sdb", "/dev/sdc"]')
    assert plan_of(Path("plans"), disks).device.paths == (f"{there}/sdb", "/dev/sdc")


@pytest.mark.parametrize(
    ("memory", "chance"), [("400MiB", True), ("300MiB", False), ("2GiB", False)]
)
def test_scans_of_one_to_two_times_the_memory_are_announced(
    tmp_path: Path,
    memory: str,
    chance: bool,
) -> None:
    """Four tables with about 648 MiB; the page cache keeps a varying part of them."""
    plan = plan_of(tmp_path, f'memory = "{memory}"\n{simple()}table_bytes = "128MiB"\n')
    announced = sentences(plan, expand(plan, SHIPPED).cells)
    assert sum("is a matter of chance" in sentence for sentence in announced) == chance


@pytest.mark.parametrize(
    ("written", "margin"),
    [
        ('"3%"', 0.03),
        ('"0.5 %"', 0.005),
        ("0.1", 0.1),
        *(
            (bad, None)
            for bad in ('"3"', "3", "0", '"0%"', "-0.03", '"100%"', '"small"', "true", '["3%"]')
        ),
    ],
)
def test_a_margin_is_a_share(
    tmp_path: Path,
    written: str,
    margin: float | None,
) -> None:
    """Another margin judges the same measurement, so the run of the plan is the same. A bad one
    (None) is an error with its line and what is expected.
    """
    text = f"margin = {written}\n{GOOD}"
    if margin is None:
        flaws = flaws_of(tmp_path, text)
        assert '"margin" must be a percentage such as "3%"' in flaws and "plan.toml:1" in flaws
    else:
        plan = plan_of(tmp_path, text)
        cells = expand(plan, SHIPPED).cells
        assert plan.margin == margin
        assert identity(plan, cells) == identity(dataclasses.replace(plan, margin=0.05), cells)
