"""The results folder: written once, verified when read, never changed.

RUN/run.json plan.toml journal.jsonl    the plan, the order of trials, and what was acquired from
                                        the machine
RUN/trials/ID/                          a finished trial: trial.json, series.csv.gz,
                                        histogram.json, raw/, SHA256SUMS
RUN/powercut.json powercut/ SHA256SUMS  the result of the power-loss lab
RUN/trials/.partial-ID/                 a trial in progress or interrupted: never read as a
                                        result

`load(PATH).to_frame()` is a pandas.DataFrame of the trials, for notebooks and scripts.

Damage is detected by checksums and reported; nothing is repaired or guessed.
"""

from dbbench.results.at_ceiling import Exceeded, load_ceiling, save_ceiling
from dbbench.results.folder import (
    LoadedRun,
    RunFolder,
    all_of,
    find_open,
    find_runs,
    load_run,
    load_trial,
    load_whole,
    must_match,
)
from dbbench.results.runs import (
    FLEETS,
    INDEX_NAME,
    create_run,
    discard,
    drivable,
    index_rows,
    list_results,
    load_lab,
    load_spec,
    lock,
    pending,
    runs,
    save_lab,
    save_spec,
)
from dbbench.results.trials import Draft

load = load_run  # the name for scripts of users
