"""fio's commands and its JSON. Fixture recorded with fio 3.33 on a file of ext4 on a
virtual disk.
"""

import json
from pathlib import Path

import pytest

from dbbench.storage.devices import ceiling

SAID = (Path(__file__).parents[1] / "fixtures/fio/two_rows.json").read_text()


def test_rows_have_rate_and_latency_with_its_flush() -> None:
    """IOPS, 10^6 bytes a second, and the mean of one access: completion and fdatasync together. fio
    prints warnings to stdout before them. A job that ended with an error has figures that mean
    nothing.
    """
    write, read = ceiling.parse_rows("fio: file hash not empty on exit\n" + SAID)
    assert (write.name, write.iops, write.mb_per_s) == ("write_8k_fdatasync", 2242.8, 18.37)
    assert write.mean_ms == pytest.approx(0.0937 + 0.4126, abs=0.0001)
    assert (read.name, read.iops, read.mb_per_s) == ("read_8k", 184481.5, 1511.27)
    assert read.mean_ms == pytest.approx(0.1689, abs=0.0001)
    document = json.loads(SAID)
    document["jobs"][1]["error"] = 5
    with pytest.raises(ValueError, match="read_8k failed with error 5"):
        ceiling.parse_rows(json.dumps(document))


@pytest.mark.parametrize("said", ["", "fio: pid=1, err=5\n", "{}", '{"jobs": [{"jobname": "a"}]}'])
def test_something_else_is_not_a_ceiling(said: str) -> None:
    """A cut or foreign output is an error of its own, never a row of zeros."""
    with pytest.raises(ValueError, match="the output of fio is not JSON"):
        ceiling.parse_rows(said)


def test_command_touches_no_signature_and_makes_no_file() -> None:
    """Direct, from the first MiB on, rows one after the other; without allow_file_create fio would
    make a file. A row takes a sixtieth of the window: a run of seconds is not held up, one of
    minutes is measured properly.
    """
    assert [ceiling.row_seconds(window) for window in (2, 60, 120, 3600)] == [0.1, 1.0, 2.0, 5.0]
    argv = ceiling.command("/dev/x", 2**30, 0.5, 7)
    assert argv[0] == "fio"
    for word in (
        "--offset=1048576",
        "--direct=1",
        "--allow_file_create=0",
        "--runtime=500ms",
        "--randseed=7",
    ):
        assert argv.count(word) == len(ceiling.ROWS)
    assert argv.count("--stonewall") == len(ceiling.ROWS)
