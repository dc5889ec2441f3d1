"""The vocabulary of the program, as frozen dataclasses.

What a person writes (Plan, FsSetup, Workload), what a plan expands to (Cell, TrialSpec, Run),
and the result of a trial (Trial). `results/` writes them as JSON and `plan/` reads them from
TOML with pydantic's TypeAdapter. Names contain their units. `None` means "not measured".
"""

from __future__ import annotations

from dbbench.model.base import *
from dbbench.model.catalog_files import *
from dbbench.model.device import *
from dbbench.model.plan import *
from dbbench.model.power_loss_lab import *
from dbbench.model.result import *
from dbbench.model.run import *
from dbbench.model.time_facts import *
