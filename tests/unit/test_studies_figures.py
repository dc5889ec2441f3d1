"""The published figures of the studies."""

from pathlib import Path

import pytest

from dbbench.plan import studies
from tests.support.study_plans import ALL, OURS, loaded


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
            ("kb_per_s", "", "btrfs-ssd", 450),
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
            for arm, value in zip(arms, (42.4, 112.0, 131.0), strict=True)
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
        "oracle-clone-2012": [(2, 3)],
        "oracle-clone-2012-binlog": [(2, 3)],
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
