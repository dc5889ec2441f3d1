"""Default times of a plan: its windows, and how long each phase of a trial may take."""

from __future__ import annotations

from typing import Final

from dbbench.model.base import Phase

WARMUP_S: Final = 60.0
MEASURE_S: Final = 120.0
# --quick: long enough for every sampler to record some seconds, and short enough for a person to
# wait.
QUICK_WARMUP_S: Final = 2.0
QUICK_MEASURE_S: Final = 5.0

# In seconds: long enough for a slow disk and a large dataset, short enough that a trial that hangs
# at night has ended by the morning. `deadlines` in the plan overrides each; the lengths of warm-up
# and window are added to theirs.
DEADLINES_S: Final[dict[Phase, float]] = {
    Phase.CANARY: 120,
    Phase.CONDITION: 24 * 3600,
    Phase.MKFS: 600,
    Phase.MOUNT: 300,
    Phase.AGE: 6 * 3600,
    Phase.RESTORE: 6 * 3600,
    Phase.SETTLE: 3600,
    Phase.DROP_CACHE: 900,
    Phase.START: 1800,
    Phase.WARMUP: 120,
    Phase.MEASURE: 300,
    Phase.DRAIN: 3600,
    Phase.STOP: 1800,
    Phase.CHECK: 6 * 3600,
    Phase.SPACE: 1800,
    Phase.OPERATIONS: 6 * 3600,
}
# a scan or copy has no fixed length, but after half a day it hangs
UNBOUNDED_WORK_S: Final = 12 * 3600.0
