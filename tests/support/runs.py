"""A small run, which no test drives."""

from dbbench.model import (
    Arm,
    Cell,
    Dataset,
    EngineSpec,
    FsSetup,
    Mkfs,
    Plan,
    Run,
    TrialSpec,
    Window,
    Workload,
    WorkloadSpec,
)


def small_run(name: str = "r") -> Run:
    """Return a run of one cell in two blocks."""
    setup = FsSetup("ext4", Mkfs("ext4"), name="ext4", mount=("noatime",))
    workload = Workload("TPC-B", "pgbench", ("postgres",), {"kind": "pgbench"}, name="w")
    window = Window("fixed", 1, 2)
    cell = Cell("ext4.postgres.w", "ext4", setup, EngineSpec("postgres"), workload, {"clients": 4},
                Dataset("pgbench", {"scale": 1}), window)  # fmt: skip
    order = tuple(TrialSpec(f"{cell.id}-b{b}-a1", cell.id, b, 1, b) for b in (1, 2))
    plan = Plan("p", (Arm("ext4", "ext4"),), (EngineSpec("postgres"),), (WorkloadSpec("w"),), blocks=2)
    return Run(name, "2026-01-01T00:00:00Z", plan, "cafe", (cell,), order)
