"""sysbench's counts as a trial keeps them."""

import gzip
import re
from pathlib import Path


def kept_counts(raw: Path) -> list[tuple[int, int, int]]:
    """Return (second of the trial, bucket, count) of all that sysbench ran, also outside of the
    window; a negative bucket is an error or a kind of event.
    """
    command = (raw / "sysbench.command").read_text()
    late = re.search(r"^# second 0 of the trial is (\d+) s after the start$", command, re.MULTILINE)
    late_s = int(late[1]) if late else 0
    text = gzip.decompress((raw / "sysbench_events.txt.gz").read_bytes()).decode()
    counts = []
    for line in text.splitlines():
        second, bucket, count = map(int, line.split())
        counts.append((second - late_s, bucket, count))
    return counts
