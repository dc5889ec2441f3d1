"""A small run, which no test drives."""

from dbbench import model


def small_run(name: str = "r") -> model.Run:
    """Return a run of one cell in two blocks."""
    setup = model.FsSetup("ext4", model.Mkfs("ext4"), name="ext4", mount=("noatime",))
    workload = model.Workload("TPC-B", "pgbench", ("postgres",), {"kind": "pgbench"}, name="w")
    window = model.Window("fixed", 1, 2)
    engine, dataset = model.EngineSpec("postgres"), model.Dataset("pgbench", {"scale": 1})
    cell = model.Cell("ext4.postgres.w", "ext4", setup, engine, workload, {"clients": 4}, dataset, window)
    order = tuple(model.TrialSpec(f"{cell.id}-b{b}-a1", cell.id, b, 1, b) for b in (1, 2))
    plan = model.Plan("p", (model.Arm("ext4", "ext4"),), (engine,), (model.WorkloadSpec("w"),), blocks=2)
    return model.Run(name, "2026-01-01T00:00:00Z", plan, "cafe", (cell,), order)
