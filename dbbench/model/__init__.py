"""The nouns, each once, as frozen dataclasses.

What a person writes (Plan, FsSetup, Workload), what it expands to (Cell, TrialSpec, Run) and what a trial
found (Trial and its parts). `store/` and `plan/` turn them into JSON and out of TOML with pydantic's
TypeAdapter; no noun is written a second time as a schema. Units are in the names; `None` is "not measured".
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
from dbbench.model.declared import Dataset, DeviceCount, FsSetup, Layer, Mkfs, Needs, Parameter, Volume, Workload
from dbbench.model.expanded import Cell, Run, Setting, Settings, TrialSpec, Window, merged, titled
from dbbench.model.found import (
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
    Fault,
    FileShape,
    FilesystemFacts,
    FreeExtents,
    IoFacts,
    MemoryFacts,
    OperationFacts,
    PhaseTime,
    SnapshotFacts,
    SnapshotTaken,
    SpaceFacts,
    Trial,
    TrialWarning,
    WearFacts,
    WrittenPoint,
)
from dbbench.model.lab import ControlFacts, CutFacts, LabFacts, LabRow
from dbbench.model.words import (
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

__all__ = [
    "SCHEMA", "STRICT", "AgeFacts", "AgedScan", "AgedSlope", "Ageing", "Arm", "Bytes", "CacheFacts", "CeilingFacts",
    "CeilingRow", "Cell", "CheckpointFacts", "ClientFacts", "ClientSpec", "ConditionFacts", "ControlFacts",
    "CoresFacts", "CutFacts", "Dataset", "DatasetFacts", "DeviceCount", "DeviceFacts", "DeviceSpec", "DrainFacts",
    "Durability", "EngineAgeFacts", "EngineAgeing", "EngineName", "EngineSpec", "Fault", "FileShape",
    "FilesystemFacts", "FreeExtents", "FsSetup", "IoFacts", "LabFacts", "LabRow", "Layer", "MemoryFacts", "Mkfs",
    "Needs", "OperationFacts", "Parameter", "Phase", "PhaseTime", "Plan", "Run", "Scalar", "Seconds", "Setting",
    "Settings", "SnapshotFacts", "SnapshotSpec", "SnapshotTaken", "SpaceFacts", "Status", "StudyOf", "Trial",
    "TrialSpec", "TrialWarning", "Volume", "WalDevice", "WearFacts", "Window", "Workload", "WorkloadSpec",
    "WrittenPoint", "durability_class", "merged", "plain", "titled",
]  # fmt: skip
