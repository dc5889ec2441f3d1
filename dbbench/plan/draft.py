"""A plan as far as it could be read, by places in its file: what the checks look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dbbench.model import Arm, DeviceSpec, EngineSpec, FsSetup, Plan, Workload, WorkloadSpec
from dbbench.plan.tomlfile import Document, Key


@dataclass(frozen=True)
class PlanDraft:
    """The parts without an error, by their place in the file. `setups`: those of the arms; `log_setup`: that of the
    log's own volume."""

    document: Document
    plan: Plan | None
    device: DeviceSpec
    arms: dict[Key, Arm]
    setups: dict[Key, FsSetup]
    log_setup: FsSetup | None
    engines: dict[Key, EngineSpec]
    workloads: dict[Key, tuple[WorkloadSpec, Workload]]
    device_known: bool  # [device] could be read
    whole: bool  # arms, engines and workloads are complete, so a name that is missing there does not exist

    @property
    def labels(self) -> list[str]:
        return [arm.label for arm in self.arms.values()]

    @property
    def operations(self) -> dict[Key, str]:
        """Return the names of operations, also of those that do not exist."""
        names = self.document.data.get("operations")
        listed = enumerate(names) if isinstance(names, list) else ()
        return {("operations", index): name for index, name in listed if isinstance(name, str)}

    def value(self, key: Key) -> Any:
        value: Any = self.document.data
        for part in key:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value


def engines_of(spec: WorkloadSpec, workload: Workload, engines: Iterable[EngineSpec]) -> list[EngineSpec]:
    """Return the plan's engines on which one of its workloads runs, in the order of the plan."""
    engine_names = spec.engines or workload.engines
    return [engine for engine in engines if engine.name in engine_names and engine.name in workload.engines]
