"""The vocabulary of the program, as frozen dataclasses.

What a person writes (Plan, FsSetup, Workload), what a plan expands to (Cell, TrialSpec, Run), and the result of a trial
(Trial and its parts). `results/` writes them as JSON and `plan/` reads them from TOML with pydantic's TypeAdapter, so
no schema repeats them. Names contain their units. `None` means "not measured".
"""

from __future__ import annotations

from dbbench.model.asked import (
    Ageing,
    Arm,
    ClientSpec,
    DeviceSpec,
    EngineAgeing,
    EngineSpec,
    Plan,
    SnapshotSpec,
    StudyOf,
    WalDevice,
    WorkloadSpec,
)
from dbbench.model.base import (
    SCHEMA,
    STRICT,
    Bytes,
    Durability,
    EngineName,
    Phase,
    Scalar,
    Seconds,
    Status,
    durability_class,
    plain,
)
from dbbench.model.declared import Dataset, DeviceCount, FsSetup, Layer, Mkfs, Needs, Parameter, Volume, Workload
from dbbench.model.expanded import (
    DROPPED,
    Budget,
    BudgetEnd,
    Cell,
    EarlierLoad,
    Question,
    Run,
    Setting,
    Settings,
    TrialSpec,
    Window,
    merged,
    spelt,
    titled,
)
from dbbench.model.power_loss_lab import Conclusion, ControlFacts, CutFacts, LabFacts, LabRow
from dbbench.model.result import (
    AgedScan,
    AgedSlope,
    AgeFacts,
    CacheFacts,
    CeilingFacts,
    CeilingRow,
    CheckpointFacts,
    ClientFacts,
    ConditionFacts,
    CoresFacts,
    DatasetFacts,
    DeviceFacts,
    DrainFacts,
    EngineAgeFacts,
    Extents,
    Fault,
    FileShape,
    FilesystemFacts,
    FreeExtents,
    GrownFile,
    GrowthFacts,
    IoFacts,
    MemoryFacts,
    OperationFacts,
    PhaseTime,
    SnapshotFacts,
    SnapshotTaken,
    SourceChange,
    SourceChangeKind,
    SpaceFacts,
    Trial,
    TrialWarning,
    WearFacts,
    Work,
    WorkFacts,
    WriteFacts,
    WrittenPoint,
)

__all__ = [
    "DROPPED", "SCHEMA", "STRICT", "AgeFacts", "AgedScan", "AgedSlope", "Ageing", "Arm", "Budget", "BudgetEnd",
    "Bytes", "CacheFacts",
    "CeilingFacts", "CeilingRow", "Cell", "CheckpointFacts", "ClientFacts", "ClientSpec", "Conclusion",
    "ConditionFacts", "ControlFacts", "CoresFacts", "CutFacts", "Dataset", "DatasetFacts", "DeviceCount",
    "DeviceFacts", "DeviceSpec", "DrainFacts", "Durability", "EarlierLoad", "EngineAgeFacts", "EngineAgeing",
    "EngineName", "EngineSpec", "Extents", "Fault", "FileShape", "FilesystemFacts", "FreeExtents", "FsSetup",
    "GrownFile", "GrowthFacts", "IoFacts", "LabFacts", "LabRow", "Layer", "MemoryFacts", "Mkfs", "Needs",
    "OperationFacts", "Parameter", "Phase", "PhaseTime", "Plan", "Question", "Run", "Scalar", "Seconds", "Setting",
    "Settings", "SnapshotFacts", "SnapshotSpec", "SnapshotTaken", "SourceChange", "SourceChangeKind", "SpaceFacts",
    "Status", "StudyOf", "Trial", "TrialSpec", "TrialWarning", "Volume", "WalDevice", "WearFacts", "Window", "Work",
    "WorkFacts", "Workload", "WorkloadSpec", "WriteFacts", "WrittenPoint", "durability_class", "merged", "plain",
    "spelt", "titled",
]  # fmt: skip
