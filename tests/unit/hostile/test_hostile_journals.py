"""A journal or a fleet's folder that someone else wrote: `clean` and `run` remove and obey nothing that
it names elsewhere.
"""

import shutil
import tempfile
import time
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli
from dbbench.fleet import fleet_files
from dbbench.fleet.fleet_files import Fleet
from dbbench.results.journal import Journal, tag_of
from dbbench.run.recover import give_back
from dbbench.storage.devices.image import give_back_images
from tests.support.files import write_file
from tests.support.hostile import SLOWEST_S, TEXT
from tests.unit.hostile.test_damaged_runs import PLANTS

HOSTILE_PATHS = {  # {other}: the tag of another run; {own}: of the run whose journal it is
    "image": [
        "/etc/passwd",
        "/x/../.dbbench-a-{own}.img/../../etc/passwd",
        "relative/.dbbench-a-{own}.img",
        "/dev/sda",
        "/x/.dbbench-a-{other}.img",
        "/x/.dbbench-a.img",
        "/x/.dbbench-{own}-{other}.img",
        "/.dbbench-{own}.img",
        "/x/../.dbbench-a-{own}.img",
        "/.dbbench-a-{own}.img/x",
        "/.dbbench-a-{own}.img\n",
    ],
    "runtime": [
        "/",
        "/home",
        "/tmp",
        "/tmp/dbbench-{own}-x/../../home",
        "/root/dbbench-{own}-x",
        "/tmp/dbbench-{own}-",
        "/tmp/dbbench-{other}-x",
        "/tmp/dbbench-x",
    ],
    "layer": [
        "md:data",
        "lvm:vg0",
        "sh:dbbench-{own}1",
        "md:dbbench-{own}1;reboot",
        "lvm:dbbench-{other}1a2b3c4d",
    ],
    "pool": ["tank", "-f", "dbbench-{other}1a2b3c4d", "dbbench-{own}1/tank"],
    "cgroup": [
        "/sys/fs/cgroup/system.slice",
        "/sys/fs/cgroup/dbbench-r-{other}",
        "/dbbench-r-{own}/../x",
    ],
}


@pytest.mark.parametrize("what", HOSTILE_PATHS)
def test_a_journal_that_names_other_peoples_things_is_not_obeyed(what: str, tmp_path: Path) -> None:
    """What is outstanding is removed by `clean` as root; the things of another run are no less
    foreign.
    """
    (tmp_path / "other").mkdir()
    journal = Journal(tmp_path / "journal.jsonl")
    paths = [
        path.format(own=journal.tag, other=tag_of(tmp_path / "other"))
        for path in HOSTILE_PATHS[what]
    ]
    for path in paths:
        journal.note("take", what=what, path=path)
    assert journal.outstanding(what) == []
    assert journal.foreign() == [(what, path) for path in paths]


def test_clean_of_one_run_leaves_what_another_has(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its image, its temporary folder and its trials, whatever the journal says; what is left alone
    is named.
    """
    good = Journal(copy / "good/journal.jsonl")
    bad = Journal(copy / "bad/journal.jsonl")
    image = copy / f"good/.dbbench-good-{good.tag}.img"
    runtime = Path(tempfile.mkdtemp(prefix=f"dbbench-{good.tag}-", dir="/tmp"))
    (partial := copy / "good/trials/.partial-x").mkdir()
    (copy / "bad/trials/.partial-x").symlink_to(partial)
    image.write_text(TEXT)
    for what, path in (("image", image), ("runtime", runtime), ("layer", "md:dbbench-1")):
        bad.note("take", what=what, path=str(path))
    try:
        assert cli.run(["clean", "bad", "--results", str(copy)]) == 0
        assert image.read_text() == TEXT and runtime.is_dir() and partial.is_dir()
        out, err = capsys.readouterr()
        assert (
            out.splitlines()[0] == "nothing to remove"
            and err.count("does not belong to this run") == 3
        )
    finally:
        runtime.rmdir()


@pytest.mark.parametrize("plant", ["link", "fifo", "sparse"])
def test_a_fleets_lock_is_not_written_through(
    plant: str,
    copy: Path,
    victim: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is in the place of the coordinator's lock stays as it is."""
    fleet_files.save(copy, Fleet("f", "spread", "2026-01-01T00:00:00Z", "x", ("bad",)))
    PLANTS[plant](copy / ".fleet/f/.lock", victim)
    for argv in (["show", "bad"], ["show"], ["clean"]):
        began = time.process_time()
        cli.run([*argv, "--results", str(copy)])
        out, err = capsys.readouterr()
        assert "E999" not in err and time.process_time() - began < SLOWEST_S, (argv, err)
        assert argv == ["clean"] or "bad" in out


@pytest.mark.parametrize("linked", [".fleet", ".fleet/f", ".fleet/f/hosts", ".fleet/f/hosts/h"])
def test_clean_follows_no_link_of_a_fleet(linked: str, tmp_path: Path) -> None:
    """What is behind a link is another's results."""
    results_folder = tmp_path / "r"
    elsewhere = tmp_path / "elsewhere"
    synthetic.write(results_folder, Shape(name="f", arms=("ext4", "xfs"), work=TPCB, blocks=1))
    fleet = Fleet("f", "spread", "2026-01-01T00:00:00Z", "x", ("h",), finished=True)
    fleet_files.save(results_folder, fleet)
    shutil.copytree(results_folder / "f", results_folder / ".fleet/f/hosts/h/f")
    partial = results_folder / ".fleet/f/hosts/h/f/trials/.partial-x"
    partial.mkdir()
    (results_folder / linked).rename(elsewhere)
    (results_folder / linked).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    cli.run(["clean", "--results", str(results_folder)])
    assert [path for path in sorted(elsewhere.rglob("*")) if path.name != ".lock"] == before
    assert (results_folder / linked).is_symlink()


def test_clean_removes_nothing_that_a_planted_journal_names(
    folder: Path,
    victim: Path,
    tmp_path: Path,
) -> None:
    """A folder and a file of another user, and the target of a link with a name of dbbench,
    remain.
    """
    (home := tmp_path / "home").mkdir()
    (home / "letter").write_text("dear")
    journal = Journal(folder / "journal.jsonl")
    (link := tmp_path / f".dbbench-a-{journal.tag}.img").symlink_to(victim)
    for what, path in (("runtime", home), ("directory", home), ("image", victim), ("image", link)):
        journal.note("take", what=what, path=str(path))
    give_back(folder, journal)
    (folder / "in").symlink_to(tmp_path)  # the folder of an image, as somebody else has it
    real = write_file(tmp_path / f".dbbench-b-{journal.tag}.img", TEXT)
    journal.note("take", what="image", path=str(folder / "in" / real.name))
    assert give_back_images(journal) == [] and link.is_symlink()
    assert (home / "letter").read_text() == "dear" and real.read_text() == TEXT
    (tmp_path / "else/.partial-x").mkdir(parents=True)
    (folder / "trials").rmdir()
    (folder / "trials").symlink_to(tmp_path / "else")  # unfinished trials of another run
    give_back(folder, journal)
    assert (tmp_path / "else/.partial-x").is_dir()
