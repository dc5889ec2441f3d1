"""Published studies: their files, their plans at each scale, and the machines on which they run."""

from pathlib import Path

import pytest

from dbbench import plan
from dbbench.commands import study as command
from dbbench.errors import ProgramMissing, UnknownName
from dbbench.metrics.table import METRICS
from dbbench.model import FsSetup, StudyOf
from dbbench.plan import studies
from dbbench.plan.preview import preview
from dbbench.run import disk_space
from dbbench.storage import filesystems
from dbbench.units import seconds_of
from tests.support.plans import SHIPPED, flaws_of, plan_of
from tests.support.study_plans import ALL, loaded, written

# A claim needs an interval, and there are 28.
BLOCKS = {"claims": 3}
LAPTOP_S = {"claims": 8 * 3600}
EACH = [(name, scale) for name in ALL for scale in studies.SCALES]
GIB = 2**30


def test_all_are_there() -> None:
    """None is missing, and each file can be read."""
    assert studies.names() == ALL
    for name in ALL:
        found = studies.study(name)
        assert found.title and found.address and found.did and found.differs
        assert list(found.scales) == list(studies.SCALES) and found.name == name


@pytest.mark.parametrize(("name", "scale"), EACH)
def test_every_scale_is_a_plan(name: str, scale: str, tmp_path: Path) -> None:
    """It loads, fits on its devices, and says whose it is; each published figure belongs to an arm,
    a workload and a metric that it has. tiny has one block of seconds and 2 GiB; laptop takes at
    most 8 GiB and, as estimated, a quarter of an hour. The claims need a night.
    """
    made = loaded(tmp_path, name, scale)
    found = studies.study(name)
    assert made.study == StudyOf(name, scale) and made.name == f"{name}-{scale}"
    expanded = plan.expand(made, SHIPPED)
    for table in found.table:  # a run without a sweep is shown next to every published variant
        assert table.metric in METRICS and table.workload in {spec.name for spec in made.workload}
        assert not (table.then and table.ratios)
        wanted = studies.variant_of(table, found.scales[scale])
        variants = {
            word
            for cell in expanded.cells
            if cell.workload.name == table.workload
            for word in cell.variant.split("+")
        }
        assert "$" not in wanted and (wanted in variants or variants == {""} or not wanted)
    assert expanded.order
    assert [error.evidence for error in disk_space.fits(made, expanded)] == []
    told = preview(made, expanded)
    if scale == "tiny":
        values = found.scales["tiny"].values
        assert seconds_of(values.get("measure", "1s")) <= 4 and values[
            "blocks"
        ] == made.blocks == BLOCKS.get(name, 1)
        assert told.disk_bytes <= 2.2 * GIB and not made.repeat_suspect
    if scale == "laptop":
        assert (
            told.disk_bytes <= 8 * GIB
            and told.eta_s <= LAPTOP_S.get(name, 15 * 60)
            and not made.repeat_suspect
        )


@pytest.mark.parametrize("name", ALL)
def test_every_published_arm_is_run_at_full_scale(name: str, tmp_path: Path) -> None:
    """The full scale has each arm that has a figure, and the baseline that ratios are to."""
    full = loaded(tmp_path, name, "full")
    tables = studies.study(name).table
    uses = {arm.label if arm.adds else arm.use for arm in full.fs_setups}
    for table in tables:
        assert {*table.then, *table.ratios} <= uses
        assert (
            full.baseline in table.then
            or not table.then
            or table.metric in ("compression_ratio", "cpu_pct")
        )


def test_full_scales_are_as_published() -> None:
    """A tablespace on the test disk, pools of 10 and 20 GB, 900 s of reading, the files of bonnie
    and of the copy.
    """
    for name, *lines in (
        ("percona-2012", 'innodb_buffer_pool_size = ["10G", "20G"]'),
        ("pg-fs-benchmark", 'shared_buffers = "8GB"', 'measure = "900s"'),
        ("bonnie-2011", 'memory = "1GiB"', 'file_size = "2264MiB"'),
        ("pg-btrfs-compression-2015", 'tablespace = "test_disk"'),
        ("oracle-clone-2012", 'interval = ["0s", "600s"]'),
        ("raid0-copy-2012", 'file_size = "1.73GiB"', "zeros = 0 "),
    ):
        assert [line for line in lines if line not in written(name, "full")] == []


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """A study or scale that there is not, also in a plan, because the page could not show it; an
    engine that is not installed.
    """
    with pytest.raises(UnknownName, match="percona-2012"):
        studies.study("percona-2013")
    found = studies.study("percona-2012")
    with pytest.raises(UnknownName):
        studies.plan_text(found, "huge", {"mysql": [""]})
    with pytest.raises(ProgramMissing, match="mysql or mariadb"):
        studies.servers_of(found, {"postgres": {"": "15.18"}})
    assert studies.servers_of(found, {"postgres": {"": "15.18"}, "mariadb": {"": "10.11.19"}}) == {
        "mariadb": [""]
    }
    text = written("percona-2012", "tiny").replace(
        'study = { name = "percona', 'study = { name = "perkona'
    )
    assert 'unknown study "perkona-2012"' in flaws_of(tmp_path, text)


@pytest.mark.parametrize(
    ("version", "will_do"),
    [
        ("15.18", False),
        ("16.11", False),
        ("16.12", True),
        ("17.7", False),
        ("17.8", True),
        ("18.1", False),
        ("18.6", True),
        ("19rc1", True),
    ],
)
def test_a_server_that_is_too_old_is_refused(version: str, will_do: bool) -> None:
    """A feature that later releases of several branches have: by branch; every later branch has it."""
    assert studies.suits(version, ("16.12", "17.8", "18.2")) == will_do
    assert studies.suits(version, ())


@pytest.mark.parametrize(
    ("name", "lacking", "runs"),
    [
        ("raid0-copy-2012-mirror", "md", False),  # its baseline
        ("raid0-copy-2012-mirror", "btrfs", False),  # all other setups
        ("pg-fs-benchmark", "zfs", True),  # some setups: they are skipped
        ("pg-fs-benchmark", "ext4", False),
    ],
)
def test_a_study_runs_here_if_its_baseline_and_another_setup_do(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    lacking: str,
    runs: bool,
) -> None:
    """Otherwise the list shows the setup that is not possible, and why."""

    def works(setup: FsSetup) -> str | None:
        parts = {setup.mkfs.family, *(layer.kind for layer in setup.layers)}
        return f"no {lacking} here" if lacking in parts else None

    monkeypatch.setattr(filesystems, "works", works)
    found = studies.study(name)
    servers = studies.servers_of(found, {"files": {"": "1"}, "postgres": {"": "17.9"}})
    reason = command._impossible(found, servers)
    assert reason is None if runs else str(reason).endswith(f": no {lacking} here")


def test_a_server_is_named_by_its_folder() -> None:
    """The folder becomes `bin` of the plan; without one the plan names none."""
    for name in ALL:
        found = studies.study(name)
        first = found.engines[0]
        assert 'bin = "/opt/pg\\"18"' in studies.plan_text(found, "tiny", {first: ['/opt/pg"18']})
        assert "\nbin =" not in studies.plan_text(found, "tiny", {first: [""]})


def test_a_study_of_versions_has_every_server(tmp_path: Path) -> None:
    """Each engine is a table with the folders of its servers; another study runs one engine, and
    refuses the folders of a second one.
    """
    found = studies.study("versions-and-filesystems")
    installed = {
        "postgres": {"/pg/17": "17.9", "/pg/18": "18.6"},
        "mysql": {"/my": "9.7.0"},
        "mariadb": {},
    }
    given = ["/my", "/pg/17", "/pg/18"]
    servers = studies.servers_of(found, installed, given)
    assert servers == {"postgres": ["/pg/17", "/pg/18"], "mysql": ["/my"]}
    made = plan_of(tmp_path, studies.plan_text(found, "tiny", servers))
    assert {engine.name: list(engine.bins) for engine in made.engine} == servers
    assert len(plan.expand(made, SHIPPED).cells) == 3 * len(given)
    with pytest.raises(ProgramMissing, match="it cannot use /pg/17; it cannot use /pg/18"):
        studies.servers_of(studies.study("percona-2012"), installed, given)
    with pytest.raises(ProgramMissing, match="it cannot use /nothing"):
        studies.servers_of(found, installed, [*given, "/nothing"])
