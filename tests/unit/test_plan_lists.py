"""Lists in plans: their cells and their errors."""

from pathlib import Path

import pytest

from dbbench.model import Cell, DeviceLimit, Setting, plain
from dbbench.model.base import adapter
from dbbench.plan import Expanded, expand, identity, preview
from dbbench.plan.server_settings import settings_of
from dbbench.plan.variants import distinct
from tests.support.plan_texts import SWEPT
from tests.support.plans import SHIPPED, flaws_of, plan_of


@pytest.fixture
def swept(tmp_path: Path) -> Expanded:
    """What the plan with three lists expands to."""
    return expand(plan_of(tmp_path, SWEPT), SHIPPED)


SETTINGS = """\
name = "settings"
fs_setups = ["ext4"]
[[engine]]
name = "postgres"
settings = { checkpoint_timeout = ["30s", "5min"], shared_buffers = "64MB", jit = [false] }
[[engine]]
name = "mariadb"
settings.innodb_buffer_pool_size = ["10G", "20G"]
[[workload]]
name = "sysbench-script"
clients = 4
rate = [100, 200]
"""


def test_every_combination_is_a_cell_of_its_own(swept: Expanded) -> None:
    """2 filesystems x 2 clients x 2 memories x 2 versions; the id says which it is."""
    assert len({cell.id for cell in swept.cells}) == len(swept.cells) == 16
    assert len(swept.order) == 32
    found = {cell.id: cell for cell in swept.cells}
    cell = found["xfs.postgres.pgbench-tpcb.clients=8+memory=512MiB+bin=17"]
    assert (cell.parameters["clients"], cell.parameters["scale"], cell.memory_bytes) == (
        8,
        2,
        512 * 2**20,
    )
    assert (cell.engine.bin, cell.variant) == (
        Path("/usr/lib/postgresql/17/bin"),
        "clients=8+memory=512MiB+bin=17",
    )
    assert cell.title == "pgbench-tpcb, clients=8, memory=512MiB, bin=17"
    arms: dict[str, set[str]] = {}
    for cell in swept.cells:  # which are compared within the same values only
        arms.setdefault(cell.variant, set()).add(cell.arm)
    assert list(arms.values()) == [{"ext4", "xfs"}] * 8


def test_a_list_of_a_servers_setting_is_a_sweep(tmp_path: Path) -> None:
    """Checkpoint interval, buffer pool and offered load: each one line; the server of a cell has
    one of the values.
    """
    cells = {cell.id: cell for cell in expand(plan_of(tmp_path, SETTINGS), SHIPPED).cells}
    assert {name.removeprefix("ext4.") for name in cells} == {
        f"{engine}.sysbench-script.rate={rate}+{name}={value}"
        for rate in (100, 200)
        for engine, name, value in (
            ("postgres", "checkpoint_timeout", "30s"),
            ("postgres", "checkpoint_timeout", "5min"),
            ("mariadb", "innodb_buffer_pool_size", "10G"),
            ("mariadb", "innodb_buffer_pool_size", "20G"),
        )
    }
    cell = cells["ext4.postgres.sysbench-script.rate=200+checkpoint_timeout=5min"]
    assert cell.engine.settings == {
        "checkpoint_timeout": "5min",
        "shared_buffers": "64MB",
        "jit": False,
    }
    assert settings_of(cell)["checkpoint_timeout"] == Setting("5min", "plan")
    assert cell.engine.sweeps == {}


def test_settings_of_the_disks_queue_are_factors(tmp_path: Path) -> None:
    """Every combination, by the kernel's names and units; a single value is no factor."""
    queue = 'scheduler = ["none", "bfq"], readahead = ["64KiB", "1MiB"], nr_requests = 64'
    text = SWEPT.replace("blocks = 2", f"device = {{ {queue} }}")
    cells = expand(plan_of(tmp_path, text), SHIPPED).cells
    assert len(cells) == 64
    cell = next(cell for cell in cells if "scheduler=bfq+read_ahead_kb=1024" in cell.variant)
    assert cell.levels == {"scheduler": "bfq", "read_ahead_kb": 1024}
    assert cell.queue == {**cell.levels, "nr_requests": 64}


def test_equal_readahead_is_a_setting_of_the_queue(tmp_path: Path) -> None:
    """The same for every cell, and no factor."""
    text = SWEPT.replace("blocks = 2", 'equal_readahead = "1MiB"')
    cells = expand(plan_of(tmp_path, text), SHIPPED).cells
    assert [cell.queue for cell in cells] == [{"read_ahead_kb": 1024}] * 16


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nr_requests = 4096", "must be 2048 or less, not 4096"),
        ("nr_requests = [64, 64]", "lists a value twice"),
        ("wbt_lat_us = -1", "must be 0 or more, not -1"),
        ("wbt_lat_us = 10000001", "must be 10000000 or less, not 10000001"),
        ('readahead = "6KiB"', "must be a multiple of 4096"),
        ('readahead = "4TB"', "must be 1 GiB or less, not '4TB'"),
        ('scheduler = ""', 'must be the name of a scheduler, not ""'),
        ('scheduler = "none", kind = "dir"', '"scheduler" has no effect with kind = "dir"'),
    ],
)
def test_values_that_no_queue_can_have(tmp_path: Path, given: str, said: str) -> None:
    """They are refused before the kernel is asked."""
    text = SWEPT.replace("blocks = 2", f"device = {{ {given} }}")
    assert said in flaws_of(tmp_path, text)


def test_readahead_is_not_given_twice(tmp_path: Path) -> None:
    """The plan's and the device's key set the same."""
    both = 'equal_readahead = "1MiB"\ndevice = { readahead = "1MiB" }'
    text = SWEPT.replace("blocks = 2", both)
    assert 'cannot be combined with "equal_readahead"' in flaws_of(tmp_path, text)


def test_limits_of_the_device_are_a_factor(tmp_path: Path) -> None:
    """The nth values of the lists are a level; a single value applies to all. One level is no
    factor.
    """
    text = SWEPT.replace(
        "blocks = 2", "device.limit = { iops = [500, 3000], mb_per_s = 125, price = [1, 2] }"
    )
    cells = expand(plan_of(tmp_path, text), SHIPPED).cells
    assert len(cells) == 32
    levels = {str(cell.levels["limit"]): cell for cell in cells}
    assert list(levels) == ["model-500iops-125MBps", "model-3000iops-125MBps"]
    assert levels["model-3000iops-125MBps"].limit == DeviceLimit(3000, 125.0, 2.0)
    assert levels["model-500iops-125MBps"].variant.endswith("+limit=model-500iops-125MBps")
    single = expand(
        plan_of(tmp_path, SWEPT.replace("blocks = 2", "device.limit = { iops = 500 }")), SHIPPED
    ).cells
    assert {(cell.limit, *cell.levels) for cell in single} == {(DeviceLimit(500),)}


def test_lists_of_settings_that_say_nothing_are_reported(tmp_path: Path) -> None:
    """Empty, twice the same, no values, or the key that only the program has."""
    text = SETTINGS.replace('["30s", "5min"]', '["30s", "30s"]').replace("[false]", "[[1]]")
    text = text.replace('["10G", "20G"]', "[]").replace(
        'name = "mariadb"', 'name = "mariadb"\nsweeps = {}'
    )
    flaws = flaws_of(tmp_path, text)
    assert all(
        word in flaws
        for word in (
            "\"checkpoint_timeout\" lists '30s' twice",
            '"innodb_buffer_pool_size" is an empty list',
            'each value of "jit"',
            'unknown key "sweeps"',
        )
    )


def test_known_keys_are_those_that_a_person_writes(tmp_path: Path) -> None:
    """An unknown key of an engine lists the others, but none that only the program has."""
    text = SETTINGS.replace('name = "mariadb"', 'name = "mariadb"\nzzz = 1')
    flaws = flaws_of(tmp_path, text)
    assert 'unknown key "zzz"; known: bin, cpus_client' in flaws
    assert "sweeps" not in flaws


@pytest.mark.parametrize("section", ['name = "mariadb"', 'name = "sysbench-script"'])
def test_a_key_of_the_plan_in_a_section_is_sent_above_it(tmp_path: Path, section: str) -> None:
    """TOML takes what stands below a header for a part of that section."""
    text = SETTINGS.replace(section, f'{section}\nmemory = "1GiB"')
    assert "it is a key of the plan itself, above its first section" in flaws_of(tmp_path, text)


def test_a_list_of_one_is_the_value(tmp_path: Path, swept: Expanded) -> None:
    """No variant, no longer name, and the plan is the same plan as with the bare value."""
    text = (
        SWEPT.replace(', "1GiB"]', "]")
        .replace(', "/usr/lib/postgresql/17/bin"]', "]")
        .replace("[1, 8]", "[8]")
    )
    bare = text.replace("[8]", "8").replace('["512MiB"]', '"512MiB"')
    listed, single = (plan_of(tmp_path, each) for each in (text, bare))
    cells = expand(listed, SHIPPED).cells
    assert [cell.id for cell in cells] == [
        "ext4.postgres.pgbench-tpcb",
        "xfs.postgres.pgbench-tpcb",
    ]
    assert {(cell.variant, cell.title) for cell in cells} == {("", "pgbench-tpcb")}
    assert {(cell.memory_bytes, cell.parameters["clients"]) for cell in cells} == {(512 * 2**20, 8)}
    assert identity(listed, cells) == identity(single, expand(single, SHIPPED).cells)


def test_a_dataset_can_be_swept(tmp_path: Path) -> None:
    """Each scale has a dataset, so a golden copy, of its own; the preview counts both."""
    one = preview(plan := plan_of(tmp_path, SWEPT.replace("[1, 8]", "1")), expand(plan, SHIPPED))
    text = SWEPT.replace("[1, 8]", "1").replace("scale = 2", "scale = [2, 50]")
    cells = expand(plan := plan_of(tmp_path, text), SHIPPED)
    assert {cell.dataset.parameters["scale"] for cell in cells.cells} == {2, 50}
    assert preview(plan, cells).disk_bytes > one.disk_bytes + 50 * 15_000_000


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin"], ["15", "17"]),
        (["/usr/sbin/mysqld", "/tmp/mysql 9"], ["usr-sbin-mysqld", "tmp-mysql-9"]),
        (["/opt/pg", "/opt/pg/new"], ["opt-pg", "new"]),
        (["/opt/pg"], ["opt-pg"]),
        ([], []),
    ],
)
def test_paths_are_named_by_their_differences(paths: list[str], words: list[str]) -> None:
    """What all paths share at their begin and end is left out."""
    assert distinct(paths) == words


@pytest.mark.parametrize("text", ["{ iops = 200 }", '{ levels = [{ name = "v1", iops = 200 }] }'])
def test_a_run_with_a_limit_can_be_read_again(tmp_path: Path, text: str) -> None:
    """Also where a level has no name."""
    limited = SWEPT.replace("blocks = 2", f"device.limit = {text}")
    for cell in expand(plan_of(tmp_path, limited), SHIPPED).cells:
        assert adapter(Cell).validate_python(plain(cell)) == cell
