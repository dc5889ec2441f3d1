"""The page states the conditions of its figures, and names those that were not equal."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import synthetic
from synthetic import TPCB, Shape

from dbbench.model import CoresFacts, MemoryFacts, TrialWarning
from dbbench.report.page.html import build
from dbbench.report.verdicts import verdicts
from dbbench.results import Exceeded

MEMORY = MemoryFacts(
    dataset_ratio=3.0,
    label="io-bound",
    effective_bytes=2**30,
    enforced="cgroup v2",
    direct="direct",
)


def page(
    tmp_path: Path,
    of: dict[str, dict[str, Any]],
    every: dict[str, Any],
) -> SimpleNamespace:
    """The page of a synthetic run whose trials have these facts, by arm and for all."""
    run = synthetic.loaded(tmp_path, Shape(work=TPCB))
    return build(
        [synthetic.with_trials(run, lambda trial: {**every, **of.get(trial.fs_setup, {})})]
    )


def notices(found: SimpleNamespace, kind: str) -> list[str]:
    """The texts of a kind of notice."""
    return [text.replace("**", "") for of, text in found.verdict.notices if of == kind]


def test_equal_conditions_are_a_sentence_each_and_no_notice(tmp_path: Path) -> None:
    """What holds for all stands once."""
    found = page(tmp_path, {}, {"memory": MEMORY, "cores": CoresFacts("0-2", "3")})
    assert notices(found, "unequal") == []
    assert (
        sum(
            "3 times as large as the 1 GiB of memory that can hold data" in line
            for line in found.conditions
        )
        == 1
    )
    assert any(
        line.endswith("the server ran on cores 0-2, the load generator on 3.")
        for line in found.conditions
    )


def test_unequal_conditions_stand_before_the_figures_and_first(tmp_path: Path) -> None:
    """A second cache in one arm, or the disk's read-ahead: a notice, the first sentence, and the
    first fact of the environment, above what every filesystem has of its own.
    """
    fallback = dataclasses.replace(MEMORY, direct="buffered-fallback")
    found = page(tmp_path / "io", {"btrfs": {"memory": fallback}}, {"memory": MEMORY})
    (told,) = notices(found, "unequal")
    assert told.startswith(
        "Unequal conditions: btrfs and ext4: I/O of the server differs (through the page cache; "
        "baseline: direct)"
    )
    assert "not measured under equal conditions" in found.conditions[0]
    assert found.environment.differs[0].name == "I/O of the server"
    found = page(
        tmp_path / "host",
        {"xfs": {"host_state": {"disk: read_ahead_kb": "16"}}},
        {"host_state": {"disk: read_ahead_kb": "128"}},
    )
    assert found.environment.differs[0].name == "disk: read_ahead_kb"
    assert "disk: read_ahead_kb differs (16; baseline: 128)" in notices(found, "unequal")[0]


def test_device_at_its_ceiling_is_a_notice(tmp_path: Path) -> None:
    """In both arms the row's word is device-limited, and never the same. The notice names the rows
    with that word. Without the baseline at the limit too, the filesystems can be compared, and
    there is no notice.
    """
    flat = {"warnings": (TrialWarning("W042", "writes stood"),)}
    found = page(tmp_path / "all", {}, flat)
    words = {row.fs_setup: row.verdict for row in found.comparisons[0].group.rows[1:]}
    assert words == {"xfs": "device-limited", "btrfs": "slower"}
    (told,) = notices(found, "limited")
    assert told.startswith(
        "The device was the limit (W042): ext4 and xfs stayed at what fio measured"
    )
    found = page(tmp_path / "others", {"xfs": flat, "btrfs": flat}, {})
    assert notices(found, "limited") == []
    assert [finding.ident for finding in found.findings].count("W042") == 1


def test_what_is_not_a_limit_is_a_condition(tmp_path: Path) -> None:
    """Said once, however many trials and groups there are, and not among the answers."""
    run = synthetic.loaded(tmp_path, Shape())
    writes = Exceeded("writes", "IOPS", 500.0, 600.0, "xfs", 900.0)
    run = dataclasses.replace(
        run, exceeded=(Exceeded("reads", "MB/s", 1392.0, None, "ext4", 2853.0), writes)
    )
    page = build([run])
    assert [line.replace("\u202f", " ") for line in page.conditions[-2:]] == [
        "fio measured 1 392 MB/s, but ext4 read 2 853 MB/s: this is no limit of the device.",
        "fio measured 500 IOPS before the run and 600 after it, but xfs wrote 900 IOPS: this is "
        "no limit of the device.",
    ]
    assert "fio measured" not in str(page.verdict)
    assert verdicts([run]).findings == []
