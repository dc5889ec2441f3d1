"""A plan is read, or refused with all of its errors at once."""

import dataclasses
from pathlib import Path
from typing import get_args

import pytest

from dbbench.model import Plan, WalDevice
from dbbench.plan import expand, load, preview
from dbbench.plan.catalog import catalog
from dbbench.plan.rules import GENERATED, RULES
from dbbench.plan.server_settings import settings_of
from dbbench.plan.tomlfile import written_fields
from tests.support.plan_texts import GOOD, simple
from tests.support.plans import SHIPPED, flaws_of, plan_of

PLANS = Path(__file__).parents[2] / "docs" / "plans"
BAD = """\
name = "a b"
baseline = "ext5"
fs_setups = ["ext4", "xsf", "ext4"]
blocks = 0
mesure = "30s"
warmup = "30 parsecs"
[device]
kind = "lop"
szie = "2GiB"
[engine]
name = "postgress"
[[workload]]
name = "pgbench-tpbc"
[[workload]]
name = "pgbench-tpcb"
clients = 0
clints = 4
measure = 0
engines = ["mysql"]
"""


def test_a_good_plan_is_read_with_units(tmp_path: Path) -> None:
    """Sizes come in bytes, times in seconds; what is not written has its default. `[engine]` says
    the same as `[[engine]]`, and its errors have their own lines. A setup has options in the
    short form too, as after --fs.
    """
    assert len(plan_of(tmp_path, simple()).engine) == 1
    assert "plan.toml:4" in flaws_of(tmp_path, simple("postgrse"))
    plan = plan_of(tmp_path, GOOD)
    assert (plan.warmup_s, plan.measure_s, plan.device.size_bytes) == (120.0, 30.0, 4 * 2**30)
    assert [arm.label for arm in plan.fs_setups] == ["ext4", "xfs", "ext4-b"]
    assert plan.engine[0].settings == {"shared_buffers": "1GB"}
    assert plan.repeat_suspect is True
    short = plan_of(tmp_path, GOOD.replace('"ext4", ', '"ext4:commit=60,data=writeback", ', 1))
    table = '{ use = "ext4", mount = ["commit=60", "data=writeback"] }, '
    assert short == plan_of(tmp_path, GOOD.replace('"ext4", ', table, 1))
    assert short.fs_setups[0].label == "ext4:commit=60+data=writeback"
    assert 'did you mean "ext4"' in flaws_of(tmp_path, GOOD.replace('"ext4", ', '"ex4", ', 1))


def test_all_errors_of_a_plan_are_reported_at_once(tmp_path: Path) -> None:
    """Each error has file:line and what may have been meant; none hides another."""
    told = flaws_of(tmp_path, BAD)
    for line, text in (
        (1, '"name" must be at most 240 letters, digits and . _ + : = -, not "a b"'),
        (2, 'fs_setups has no baseline "ext5"; did you mean "ext4"?'),
        (3, 'unknown fs setup "xsf"; did you mean "xfs"?'),
        (3, '"ext4" is listed twice'),
        (4, '"blocks" must be 1 or more'),
        (5, 'unknown key "mesure"; did you mean "measure"?'),
        (6, '"warmup" must be a time'),
        (8, '"kind" must be one of loop, block, dir'),
        (9, 'unknown key "szie"; did you mean "size"?'),
        (11, 'did you mean "postgres"?'),
        (13, 'unknown workload "pgbench-tpbc"; did you mean "pgbench-tpcb"?'),
        (16, '"clients" must be at least 1'),
        (17, 'has no parameter "clints"; did you mean "clients"?'),
        (18, '"measure" must be 1 or more, not 0'),
        (19, 'workload "pgbench-tpcb" does not support mysql'),
    ):
        assert any(
            f"plan.toml:{line}  " in found and text in found for found in told.splitlines()
        ), (line, text)
    assert told.splitlines()[0].endswith("has 15 errors:")


def test_an_unreadable_device_hides_no_other_error(tmp_path: Path) -> None:
    """Rules that need the device are not checked with a default one."""
    text = GOOD.replace('size = "4GiB"', 'kind = "block"\npath = "/dev/sdz"\nszie = 1')
    text = text.replace('"ext4", "xfs"', '"xfs", { use = "ext4", wal = false }, "btrfs-raid1"')
    told = flaws_of(tmp_path, 'budget = "1h"\noperations = ["grow"]\n' + text).splitlines()
    assert (
        len(told) == 3
        and '"budget" cannot be combined with "blocks"' in told[1]
        and '"szie"' in told[2]
    ), told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "mariadb"', 'name = "postgres"', 'engine "postgres" is listed twice'),
        ('name = "scan"', 'name = "pgbench-tpcb"', 'workload "pgbench-tpcb" is listed twice'),
        (
            'engines = ["mariadb"]',
            'engines = ["mysql"]',
            '"mysql" is not an [[engine]] of this plan',
        ),
        ("fs_setups = [", "fs_setups = [3, ", 'each entry of "fs_setups" must be a table'),
        ("scale = 2", "scale = 0", '"scale" of the dataset must be 1 or more'),
        ("clients = 8", "clients = 8.5", "must be a whole number"),
        (
            'warmup = "2min"',
            "warmup = 2",
            'plan.toml:6  "warmup" requires a unit: write "2s" or "2min", not 2',
        ),
        (
            'warmup = "2min"',
            'warmup = "2"',
            '"warmup" requires a unit: write "2s" or "2min", not 2',
        ),
        ("blocks = 3", "blocks = true", '"blocks" must be a whole number, not true'),
        ("seed = 7", "seed = true", '"seed" must be a whole number, not true'),
        ('"ext4", "xfs"', '"ext4:comit", "xfs:a=1,ext4"', 'unknown fs setup "xfs:a=1,ext4"'),
        ('warmup = "2min"', 'warmup = "1.5s"', "a whole number of seconds"),
        (
            'size = "4GiB"',
            'size = "100MiB"',
            "must be 320 MiB or more (mkfs.xfs makes nothing smaller), not '100MiB'",
        ),
        ('size = "4GiB"', 'path = "/dev/sda"', '"path" has no effect with kind = "loop"'),
        ('size = "4GiB"', 'kind = "block"', 'kind = "block" requires path'),
        ('size = "4GiB"', 'kind = "dir"', 'paths = { ext4 = "/mnt/a" }'),
        (
            'size = "4GiB"',
            'kind = "dir"\npaths = { ext4 = "/a" }',
            '"paths" requires a directory for "ext4-b"',
        ),
        (
            'size = "4GiB"',
            'kind = "dir"\npaths = { ext4 = "/a", xsf = "/b" }',
            'did you mean "xfs"?',
        ),
        ('label = "ext4-b"', 'label = "b/c"', "invalid label"),
        ('name = "good"', "", '"name" is missing'),
        ("blocks = 3", 'budget = "0s"', 'plan.toml:4  "budget" must be more than 0, not'),
        ("blocks = 3", 'budget = "soon"', 'plan.toml:4  "budget" must be a time such as'),
    ],
)
def test_parts_that_do_not_fit(
    tmp_path: Path,
    old: str,
    new: str,
    told: str,
) -> None:
    """Names that exist but do not fit each other are errors of the plan, not of the run."""
    assert told in flaws_of(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("engine", "written", "own"),
    [
        ("mariadb", '"64MiB"', "64M"),
        ("mysql", '"1 GB"', "1G"),
        ("postgres", '"64MiB"', "64MB"),
        ("postgres", '["64MB", "128kb"]', "128kB"),
        ("mariadb", '"64M"', None),
        ("postgres", '"64 MB"', None),
        ("postgres", "16", None),
    ],
)
def test_sizes_of_settings_are_those_of_the_server(
    tmp_path: Path,
    engine: str,
    written: str,
    own: str | None,
) -> None:
    """A unit of another server is an error with its line; the server would refuse it in every
    trial.
    """
    text = simple(engine, settings=f"buffers = {written}")
    if own is None:
        assert plan_of(tmp_path, text).engine
    else:
        assert f'is not a size in the format of this server; write "{own}"' in flaws_of(
            tmp_path, text
        )


@pytest.mark.parametrize(
    ("engine", "setting", "told"),
    [
        ("postgres", "port = 5433", '"port" is reserved'),
        ("postgres", 'Listen_Addresses = "*"', "is reserved"),
        ("postgres", "default_transaction_read_only = true", "would write nothing"),
        ("mariadb", 'bind-address = "0.0.0.0"', '"bind-address" is reserved'),
        ("mysql", "loose_port = 3307", "is reserved"),
        ("mariadb", "autocommit = [0, 1]", "would write nothing"),
        ("mariadb", "innodb_page_size = 4096", "when the data directory is made"),
        ("mariadb", "loose_innodb_x = 1", 'write "innodb_x"'),
        ("mysql", 'default-time-zone = "Europe/Berlin"', "tables of time zones"),
    ],
)
def test_settings_with_which_every_trial_would_fail_are_refused(
    tmp_path: Path,
    engine: str,
    setting: str,
    told: str,
) -> None:
    """With the line, and why."""
    flaws = flaws_of(tmp_path, simple(engine, settings=setting))
    assert ":6  " in flaws
    assert told in flaws


def test_a_time_zone_without_a_name_is_a_setting(tmp_path: Path) -> None:
    """It needs no tables of the server."""
    text = simple("mariadb", settings='default_time_zone = "+01:00"')
    assert plan_of(tmp_path, text).engine


@pytest.mark.parametrize(
    ("engine", "settings", "flaw"),
    [
        *(
            (engine, settings, None)
            for engine, settings in (
                ("postgres", 'io_max_workers = "default"'),
                ("postgres", 'io_method = ["default", "sync"]'),
                ("mysql", 'innodb-flush-method = "default"'),
                ("mariadb", 'innodb_log_file_size = "default"'),
            )
        ),
        ("postgres", 'io_max_worker = "default"', "io_max_worker"),
        ("postgres", 'seq_page_cost = ["default", 2]', "seq_page_cost"),
        ("mysql", 'io_max_workers = "default"', "io_max_workers"),
    ],
)
def test_a_default_that_is_dropped_must_be_one(
    tmp_path: Path,
    engine: str,
    settings: str,
    flaw: str | None,
) -> None:
    """ "default" for a setting that nothing sets is a flaw with its line; else the setting is not
    given at all.
    """
    text = simple(engine, settings=settings)
    if flaw is not None:
        told = f'"{flaw}" = "default" has no effect: dbbench sets no default for it; remove it'
        assert f":6  {told}" in flaws_of(tmp_path, text)
        return
    name = settings.partition(" ")[0].replace("-", "_")
    first = expand(plan_of(tmp_path, text), SHIPPED).cells[0]
    whole = dataclasses.replace(first, engine=dataclasses.replace(first.engine, settings={}))
    assert settings_of(whole).keys() - settings_of(first).keys() == {name}


def test_an_engine_without_a_workload_and_a_workload_without_an_engine_are_errors(
    tmp_path: Path,
) -> None:
    """What a person names and what is never run is a misunderstanding."""
    text = simple(workload="pgbench-tpcb").replace(
        "[engine]", '[[engine]]\nname = "mysql"\n[[engine]]'
    )
    text = text.replace("[engine.settings]", "settings = {}")
    assert 'no workload of this plan supports engine "mysql"' in flaws_of(tmp_path, text)
    told = flaws_of(tmp_path, simple("mariadb", "pgbench-tpcb"))
    assert "supports none of the engines of this plan (supported: postgres" in told


@pytest.mark.parametrize(
    ("mkfs", "told"),
    [
        ('famly = "ext4"', "mine.toml:2"),
        ('family = "btfs"', 'unknown family "btfs"; did you mean "btrfs"?'),
    ],
)
def test_a_damaged_setup_is_reported_with_its_own_file(
    tmp_path: Path,
    mkfs: str,
    told: str,
) -> None:
    """An error of a user's own fs setup names that file and its line, before anything is made."""
    (tmp_path / "fs_setups").mkdir()
    (tmp_path / "fs_setups/mine.toml").write_text(f'title = "x"\nmkfs = {{ {mkfs} }}\n')
    text = GOOD.replace('["ext4", "xfs"', '["mine", "xfs"')
    assert told in flaws_of(tmp_path, text, catalog([tmp_path]))


def test_the_demo_is_what_it_says() -> None:
    """Three filesystems under two databases in at most ten minutes and 8 GiB."""
    plan = load(PLANS / "demo.toml", SHIPPED)
    look = preview(plan, expand(plan, SHIPPED))
    assert [arm.label for arm in plan.fs_setups] == ["ext4", "xfs", "btrfs"]
    assert look.eta_s <= 620
    assert look.disk_bytes <= 8 * 2**30


def test_rules_are_about_keys_that_a_plan_has() -> None:
    """A rule for a key that does not exist would never be checked."""
    names = {"operation", *(f"workload.{name}" for name in GENERATED)}
    names |= {f"device.wal.{key}" for key in written_fields(WalDevice)}
    for name, kind in written_fields(Plan).items():
        inner = next((arg for arg in get_args(kind) if dataclasses.is_dataclass(arg)), kind)
        keys = written_fields(inner) if dataclasses.is_dataclass(inner) else ()
        names |= {name, *(f"{name}.{key}" for key in keys)}
    assert {rule.key for rule in RULES} <= names
