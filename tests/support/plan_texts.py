"""Plans as text: a good one, one with three lists, and the smallest."""

GOOD = """\
name = "good"
baseline = "xfs"
fs_setups = ["ext4", "xfs", { use = "ext4", label = "ext4-b" }]
blocks = 3
seed = 7
warmup = "2min"
measure = "30s"
[device]
size = "4GiB"
[[engine]]
name = "postgres"
settings = { shared_buffers = "1GB" }
[[engine]]
name = "mariadb"
[[workload]]
name = "pgbench-tpcb"
scale = 2
clients = 8
measure = "60s"
[[workload]]
name = "sysbench-oltp-read-write"
engines = ["mariadb"]
[[workload]]
name = "scan"
table_bytes = "32MiB"
"""
SWEPT = """\
name = "swept"
fs_setups = ["ext4", "xfs"]
blocks = 2
memory = ["512MiB", "1GiB"]
[engine]
name = "postgres"
bin = ["/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin"]
[[workload]]
name = "pgbench-tpcb"
clients = [1, 8]
scale = 2
"""


def simple(
    engine: str = "postgres",
    workload: str = "scan",
    settings: str = "",
) -> str:
    """Return a plan of one setup, engine and workload; its sixth line is the first of the engine's
    settings.
    """
    head = f'name = "x"\nfs_setups = ["ext4"]\n[engine]\nname = "{engine}"\n'
    return f'{head}[engine.settings]\n{settings}\n[workload]\nname = "{workload}"\n'
