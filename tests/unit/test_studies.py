"""Published studies: their files, their plans at each scale, and their section of the page."""

from pathlib import Path

import pytest

from dbbench import plan
from dbbench.commands import study as command
from dbbench.errors import ProgramMissing, UnknownName
from dbbench.metrics.table import METRICS
from dbbench.model import FsSetup, Plan, StudyOf
from dbbench.plan import studies
from dbbench.plan.preview import preview
from dbbench.run import disk_space
from dbbench.storage import filesystems
from dbbench.units import seconds_of
from tests.support.plans import SHIPPED, flaws_of, plan_of

# dbbench's own
OURS = [
    "binlog-and-filesystems",
    "compression-of-growth",
    "io-method-and-filesystems",
    "mkfs-vintages",
]
ALL = sorted(
    [
        *OURS,
        "bonnie-2011",
        "claims",
        "harm",
        "oracle-clone-2012",
        "oracle-clone-2012-binlog",
        "percona-2012",
        "percona-2012-readers",
        "pg-btrfs-compression-2015",
        "pg-fs-benchmark",
        "raid0-copy-2012",
        "raid0-copy-2012-mirror",
        "versions-and-filesystems",
    ]
)
# A claim needs an interval, and there are 28.
BLOCKS = {"claims": 3}
LAPTOP_S = {"claims": 8 * 3600}
EACH = [(name, scale) for name in ALL for scale in studies.SCALES]
GIB = 2**30


def written(name: str, scale: str) -> str:
    """A study's plan as text."""
    found = studies.study(name)
    return studies.plan_text(found, scale, {name: [""] for name in found.engines})


def loaded(folder: Path, name: str, scale: str) -> Plan:
    """A study's plan, read and checked."""
    return plan_of(folder, written(name, scale))


def test_all_are_there() -> None:
    """None is missing, and each file can be read."""
    assert studies.names() == ALL
    for name in ALL:
        found = studies.study(name)
        assert found.title and found.address and found.did and found.differs
        assert list(found.scales) == list(studies.SCALES) and found.name == name


@pytest.mark.parametrize(("name", "scale"), EACH)
def test_every_scale_is_a_plan(name: str, scale: str, tmp_path: Path) -> None:
    """It loads, fits on its devices, and says whose it is; each published figure belongs to an arm,
    a workload and a metric that it has. tiny has one block of seconds and 2 GiB; laptop takes at
    most 8 GiB and, as estimated, a quarter of an hour. The claims need a night.
    """
    made = loaded(tmp_path, name, scale)
    found = studies.study(name)
    assert made.study == StudyOf(name, scale) and made.name == f"{name}-{scale}"
    expanded = plan.expand(made, SHIPPED)
    for table in found.table:  # a run without a sweep is shown next to every published variant
        assert table.metric in METRICS and table.workload in {spec.name for spec in made.workload}
        assert not (table.then and table.ratios)
        wanted = studies.variant_of(table, found.scales[scale])
        variants = {
            word
            for cell in expanded.cells
            if cell.workload.name == table.workload
            for word in cell.variant.split("+")
        }
        assert "$" not in wanted and (wanted in variants or variants == {""} or not wanted)
    assert expanded.order
    assert [error.evidence for error in disk_space.fits(made, expanded)] == []
    told = preview(made, expanded)
    if scale == "tiny":
        values = found.scales["tiny"].values
        assert seconds_of(values.get("measure", "1s")) <= 4 and values[
            "blocks"
        ] == made.blocks == BLOCKS.get(name, 1)
        assert told.disk_bytes <= 2.2 * GIB and not made.repeat_suspect
    if scale == "laptop":
        assert (
            told.disk_bytes <= 8 * GIB
            and told.eta_s <= LAPTOP_S.get(name, 15 * 60)
            and not made.repeat_suspect
        )


@pytest.mark.parametrize("name", ALL)
def test_every_published_arm_is_run_at_full_scale(name: str, tmp_path: Path) -> None:
    """The full scale has each arm that has a figure, and the baseline that ratios are to."""
    full = loaded(tmp_path, name, "full")
    tables = studies.study(name).table
    uses = {arm.label if arm.adds else arm.use for arm in full.fs_setups}
    for table in tables:
        assert {*table.then, *table.ratios} <= uses
        assert (
            full.baseline in table.then
            or not table.then
            or table.metric in ("compression_ratio", "cpu_pct")
        )


def figures(name: str) -> list[tuple[str, str, str, float]]:
    """(metric, variant at full scale, arm, published value or ratio) of a study."""
    found = studies.study(name)
    full = found.scales["full"]
    return [
        (table.metric, studies.variant_of(table, full), arm, value)
        for table in found.table
        for values in (table.then, table.ratios)
        for arm, value in values.items()
    ]


BY_SCALE = {
    "ext4": (85291, 58736, 30495, 139685),
    "xfs": (85765, 58991, 30977, 143471),
    "btrfs": (33352, 27952, 6541, 125503),
    "zfs-8k": (61028, 32568, 3822, 93711),
    "zfs-8k-nofpw": (62376, 36488, 6457, 93782),
}
ENDS = ("_per_s", "_cpu_pct", "_max_ms")
KIB_PER_S = ("char_write", "block_write", "rewrite", "char_read", "block_read")


def test_every_figure_of_the_other_studies() -> None:
    """Nothing more, nothing less. Of the comparison with PostgreSQL: read-write at three scales,
    read-only at the largest, five filesystems.
    """
    scales = ("scale=100", "scale=1000", "scale=10000", "")
    published = [
        ("tps", scale, arm, value)
        for arm, values in BY_SCALE.items()
        for scale, value in zip(scales, values, strict=True)
    ]
    assert sorted(figures("pg-fs-benchmark")) == sorted(published)
    assert figures("percona-2012") == [
        ("tps", "", "btrfs-nobarrier", 0.2),
        ("p95_ms", "", "btrfs-nobarrier", 10.0),
    ]
    assert figures("percona-2012-readers") == []
    for name in ("oracle-clone-2012", "oracle-clone-2012-binlog"):
        assert figures(name) == [
            ("kb_per_s", "", "ext4", 1200),
            ("kb_per_s", "", "btrfs", 450),
            ("kb_per_s", "", "zfs-8k-atime", 15000),
        ]
    assert figures("pg-btrfs-compression-2015") == [
        ("duration_s", "", "ext4", 420.0),
        ("duration_s", "", "btrfs-lzo", 262.0),
        ("duration_s", "", "btrfs-zlib", 302.0),
        ("compression_ratio", "", "btrfs-lzo", 2.0),
        ("compression_ratio", "", "btrfs-zlib", 4.0),
        ("cpu_pct", "", "btrfs-zlib", 7.5),
    ]
    # A single disk was timed without the final sync.
    assert {"copy_s", "duration_s"} <= {
        table.metric for table in studies.study("raid0-copy-2012").table
    }
    arms = ("ext4-writeback-default", "ext4-md0-4k-writeback", "btrfs-raid0-lzo-4k")
    assert figures("raid0-copy-2012") == [
        *(
            ("copy_s", "clients=1", arm, value)
            for arm, value in zip(arms, (45.7, 16.8, 14.6), strict=True)
        ),
        *(
            ("copy_mb_per_s", "clients=1", arm, value)
            for arm, value in zip(arms, (40.4, 107.0, 125.0), strict=True)
        ),
    ]


# Rate, CPU share and longest latency of each test on ext3, then on btrfs, as bonnie++ printed them.
BONNIE = """
char_write 331 98 92041us 43 99 293ms
block_write 23464 11 1128ms 22682 17 727ms
rewrite 10988 4 1835ms 10356 6 1222ms
char_read 1174 85 166ms 1038 79 46541us
block_read 39629 6 308ms 28796 6 504ms
seek 130.4 5 6549ms 86.8 99 13094ms
create 9964 26 17882us 1623 33 78474us
stat +++++ +++ 1418us +++++ +++ 6839us
delete 13035 26 1929us 2182 57 8791us
random_create 11089 27 489us 1974 27 1746us
random_stat +++++ +++ 51us +++++ +++ 66us
random_delete 11888 24 650us 1907 44 64034us
"""


def test_every_figure_of_bonnie() -> None:
    """All 64 in the metrics' units: ten rates and CPU shares, and twelve latencies, of each
    filesystem.
    """
    rates: dict[tuple[str, str], float] = {}
    for line in BONNIE.split("\n")[1:-1]:
        stem, *fields = line.split()
        for arm, (rate, cpu, latency) in (("ext3", fields[:3]), ("btrfs", fields[3:])):
            in_kib = stem in KIB_PER_S
            if rate != "+++++":
                name = f"{stem}_mb_per_s" if in_kib else f"{stem}s_per_s"
                rates[name, arm] = float(rate) * (1024 / 1e6 if in_kib else 1)
                rates[f"{stem}_cpu_pct", arm] = float(cpu)
            number = latency[:-2]
            unit = latency[-2:]
            rates[f"{stem}_max_ms", arm] = float(number) / (1000 if unit == "us" else 1)
    assert len(rates) == 64
    found = {(metric, arm): value for metric, _, arm, value in figures("bonnie-2011")}
    assert found == pytest.approx(rates, rel=1e-3)
    assert "disputed" in studies.study("bonnie-2011").superseded
    # a rate, a CPU share and a latency of each
    shown = [table.metric for table in studies.study("bonnie-2011").table]
    assert {end: sum(name.endswith(end) for name in shown) for end in ENDS} == dict.fromkeys(
        ENDS, 12
    )
    assert len(set(shown)) == 36


@pytest.mark.parametrize("name", OURS)
def test_ratios_of_dbbench_have_intervals(name: str, tmp_path: Path) -> None:
    """A study of dbbench itself has an interval that contains the ratio, of each ratio to the
    baseline, its conditions, and its date.
    """
    found = studies.study(name)
    baseline = loaded(tmp_path, name, "full").baseline
    assert {"hardware", "kernel", "server"} <= found.then.keys() and "2026" in found.did
    assert any(table.intervals for table in found.table)
    for table in found.table:
        for arm, (low, high) in table.intervals.items():
            ratio = table.ratios.get(arm) or table.then[arm] / table.then[str(baseline)]
            assert low <= ratio <= high


def test_reference_figures_are_in_a_study() -> None:
    """Publications about the same question, each with its conditions and every figure."""
    values = {
        name: [
            [value for row in one.figures.values() for value in row.values()]
            for one in studies.study(name).reference
        ]
        for name in ALL
    }
    totals = {
        name: [(len(each), round(sum(each), 2)) for each in several]
        for name, several in values.items()
    }
    assert totals == {
        "bonnie-2011": [],
        "claims": [],
        "harm": [],
        "raid0-copy-2012": [],
        "raid0-copy-2012-mirror": [],
        "percona-2012": [(0, 0)],
        "oracle-clone-2012": [(1, 2)],
        "oracle-clone-2012-binlog": [(1, 2)],
        "versions-and-filesystems": [],
        **{name: [] for name in OURS},
        "percona-2012-readers": [
            (6, 159 + 25 + 33 + 46 + 71 + 200),
            (3, 11 + 3 + 120),
            (6, 96.91),
            (4, 390.7),
        ],
        "pg-btrfs-compression-2015": [(18, 3939.52)],
        "pg-fs-benchmark": [(20, 300892), (2, 8000 + 3000)],
    }
    for name in ALL:
        for one in studies.study(name).reference:
            assert one.address.startswith("https://") and one.did.endswith(".")
    edb = studies.study("pg-fs-benchmark").reference[0].figures
    assert edb["tps, read-write, scale 5000"] == {
        "ext4": 5826,
        "xfs": 5891,
        "btrfs": 2199,
        "zfs": 3064,
        "zfs-tuned": 3964,
    }


def test_full_scales_are_as_published() -> None:
    """A tablespace on the test disk, pools of 10 and 20 GB, 900 s of reading, the files of bonnie
    and of the copy.
    """
    for name, *lines in (
        ("percona-2012", 'innodb_buffer_pool_size = ["10G", "20G"]'),
        ("pg-fs-benchmark", 'shared_buffers = "8GB"', 'measure = "900s"'),
        ("bonnie-2011", 'memory = "1GiB"', 'file_size = "2264MiB"'),
        ("pg-btrfs-compression-2015", 'tablespace = "test_disk"'),
        ("oracle-clone-2012", 'interval = ["0s", "600s"]'),
        ("raid0-copy-2012", 'file_size = "1.73GB"'),
    ):
        assert [line for line in lines if line not in written(name, "full")] == []


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """A study or scale that there is not, also in a plan, because the page could not show it; an
    engine that is not installed.
    """
    with pytest.raises(UnknownName, match="percona-2012"):
        studies.study("percona-2013")
    found = studies.study("percona-2012")
    with pytest.raises(UnknownName):
        studies.plan_text(found, "huge", {"mysql": [""]})
    with pytest.raises(ProgramMissing, match="mysql or mariadb"):
        studies.servers_of(found, {"postgres": {"": "15.18"}})
    assert studies.servers_of(found, {"postgres": {"": "15.18"}, "mariadb": {"": "10.11.19"}}) == {
        "mariadb": [""]
    }
    text = written("percona-2012", "tiny").replace(
        'study = { name = "percona', 'study = { name = "perkona'
    )
    assert 'unknown study "perkona-2012"' in flaws_of(tmp_path, text)


@pytest.mark.parametrize(
    ("version", "will_do"),
    [
        ("15.18", False),
        ("16.11", False),
        ("16.12", True),
        ("17.7", False),
        ("17.8", True),
        ("18.1", False),
        ("18.6", True),
        ("19rc1", True),
    ],
)
def test_a_server_that_is_too_old_is_refused(version: str, will_do: bool) -> None:
    """A feature that later releases of several branches have: by branch; every later branch has it."""
    assert studies.suits(version, ("16.12", "17.8", "18.2")) == will_do
    assert studies.suits(version, ())


@pytest.mark.parametrize(
    ("name", "lacking", "runs"),
    [
        ("raid0-copy-2012-mirror", "md", False),  # its baseline
        ("raid0-copy-2012-mirror", "btrfs", False),  # all other setups
        ("pg-fs-benchmark", "zfs", True),  # some setups: they are skipped
        ("pg-fs-benchmark", "ext4", False),
    ],
)
def test_a_study_runs_here_if_its_baseline_and_another_setup_do(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    lacking: str,
    runs: bool,
) -> None:
    """Otherwise the list shows the setup that is not possible, and why."""

    def works(setup: FsSetup) -> str | None:
        parts = {setup.mkfs.family, *(layer.kind for layer in setup.layers)}
        return f"no {lacking} here" if lacking in parts else None

    monkeypatch.setattr(filesystems, "works", works)
    found = studies.study(name)
    servers = studies.servers_of(found, {"files": {"": "1"}, "postgres": {"": "17.9"}})
    reason = command._impossible(found, servers)
    assert reason is None if runs else str(reason).endswith(f": no {lacking} here")


def test_a_server_is_named_by_its_folder() -> None:
    """The folder becomes `bin` of the plan; without one the plan names none."""
    for name in ALL:
        found = studies.study(name)
        first = found.engines[0]
        assert 'bin = "/opt/pg\\"18"' in studies.plan_text(found, "tiny", {first: ['/opt/pg"18']})
        assert "\nbin =" not in studies.plan_text(found, "tiny", {first: [""]})


def test_a_study_of_versions_has_every_server(tmp_path: Path) -> None:
    """Each engine is a table with the folders of its servers; another study runs one engine, and
    refuses the folders of a second one.
    """
    found = studies.study("versions-and-filesystems")
    installed = {
        "postgres": {"/pg/17": "17.9", "/pg/18": "18.6"},
        "mysql": {"/my": "9.7.0"},
        "mariadb": {},
    }
    given = ["/my", "/pg/17", "/pg/18"]
    servers = studies.servers_of(found, installed, given)
    assert servers == {"postgres": ["/pg/17", "/pg/18"], "mysql": ["/my"]}
    made = plan_of(tmp_path, studies.plan_text(found, "tiny", servers))
    assert {engine.name: list(engine.bins) for engine in made.engine} == servers
    assert len(plan.expand(made, SHIPPED).cells) == 3 * len(given)
    with pytest.raises(ProgramMissing, match="it cannot use /pg/17; it cannot use /pg/18"):
        studies.servers_of(studies.study("percona-2012"), installed, given)
    with pytest.raises(ProgramMissing, match="it cannot use /nothing"):
        studies.servers_of(found, installed, [*given, "/nothing"])
