"""The fleet without dask: assignment of blocks, the coordinator with simulated hosts, addresses,
imports.
"""

import dataclasses
import io
import resource
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from dbbench import results
from dbbench.errors import FileUnreadable, FleetInsecure, HostLost, NotWritable
from dbbench.fleet import dealing, fleet_files, host, launch, security
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.messages import Assignment
from dbbench.machine import namespaces
from dbbench.model import TrialSpec
from dbbench.model.events import Event, ignore
from tests.support.fleet_hosts import TRIAL_S, Hosts, new_fleet, two_arms

AtWork = Callable[..., tuple[Coordinator, Hosts, list[Event]]]
ASSIGNMENT = Assignment("", b"", "# plan\n", {}, (), "1")


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory: what is fsynced costs nothing there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture
def at_work(room: Path) -> AtWork:
    """Return a function that makes coordinators of so many simulated hosts; with the same hosts it
    resumes.
    """

    def make(
        count: int,
        blocks: int,
        mode: Literal["spread", "each"] = "spread",
        hosts: Hosts | None = None,
    ) -> tuple[Coordinator, Hosts, list[Event]]:
        names = [f"h{number:03d}" for number in range(count)]
        results_folder = room / "results"
        told = list[Event]()
        hosts = hosts or new_fleet(two_arms(blocks), names, results_folder, mode)
        fleet = fleet_files.load(results_folder, "f")
        return (
            Coordinator(results_folder, fleet, hosts, ASSIGNMENT, told.append, clock=hosts.clock),
            hosts,
            told,
        )

    return make


def test_blocks_are_dealt_whole_and_evenly() -> None:
    """Every block to one host, none twice, and no host has two more than another; with --each the
    host is a factor.
    """
    dealt = dealing.first_blocks(two_arms(10).order, ["b", "a", "c"], "spread")
    assert sorted(block for mine in dealt.values() for block in mine) == list(range(1, 11))
    assert {len(mine) for mine in dealt.values()} == {3, 4}
    assert dealing.first_blocks(two_arms(10).order, ["c", "b", "a"], "spread") == dealt
    assert dealing.first_blocks(two_arms(3).order, ["a", "b"], "each") == {
        "a": (1, 2, 3),
        "b": (1, 2, 3),
    }


def test_blocks_without_a_host_go_to_who_has_least_left() -> None:
    """Whole, and the others stay where they are. Blocks that the run does not have any more are
    dropped.
    """
    dealt = dealing.deal(two_arms(5).order, {"a": (1,), "b": (2, 5), "c": (3,)}, {"b": 2, "c": 0})
    assert dealt == {"a": (1,), "b": (2, 5), "c": (3, 4)}
    assert dealing.deal(two_arms(5).order, dealt, {"b": 2}) == dealt
    assert dealing.deal(two_arms(2).order, dealt, {}) == {"a": (1,), "b": (2,), "c": ()}


@pytest.mark.parametrize("mode", ["spread", "each"])
def test_results_are_those_of_one_machine(at_work: AtWork, room: Path, mode: str) -> None:
    """All trials of the plan with their ids, in the plan's order; each keeps its host, a block has
    one.
    """
    coordinator, hosts, _ = at_work(4, 6, mode)
    coordinator.work()
    names = ["f"] if mode == "spread" else [f"f-{name}" for name in hosts.names]
    for name in names:
        run = results.load_run(room / "results" / name)
        assert [trial.id for trial in run.trials] == [spec.id for spec in run.run.order]
        by_block = {
            block: {t.host for t in run.trials if t.block == block} for block in range(1, 7)
        }
        assert {len(found) for found in by_block.values()} == {1}
        assert run.run.hosts.keys() == {host for found in by_block.values() for host in found}
        assert {facts["kernel"] for facts in run.run.hosts.values()} == {"6.1"}


@pytest.mark.parametrize("killed", [False, True])
def test_lost_answers_are_asked_again(at_work: AtWork, room: Path, killed: bool) -> None:
    """A worker or scheduler that dies costs an answer, never a trial. A coordinator that was killed
    in the middle is replaced by the same command: nothing is driven or fetched twice.
    """
    coordinator, hosts, _ = at_work(2, 4)
    if killed:
        while len(list((room / "results/f/trials").glob("[!.]*"))) < 3:
            coordinator.step()
        for name in hosts.names:
            hosts.forget(name)
        coordinator, _, _ = at_work(2, 4, hosts=hosts)
    for _ in range(0 if killed else 8):
        hosts.lose = 1
        coordinator.step()
        coordinator.step()
    coordinator.work()
    assert results.load_run(room / "results/f").remaining == []
    driven = [trial for finished in hosts.finished.values() for trial in finished]
    assert len(driven) == len(set(driven)) == 8


def test_gone_host_has_its_blocks_dealt_again_whole(at_work: AtWork, room: Path) -> None:
    """With spread: a torn block is driven again by one other host, what is home of it set aside,
    and it is said.
    """
    coordinator, hosts, told = at_work(2, 6)
    while len(hosts.finished.get("h001", ())) < 3 or len(coordinator.hosts["h001"].taken) < 3:
        coordinator.step()
    hosts.dead.add("h001")
    coordinator.work()
    run = results.load_run(room / "results/f")
    assert run.remaining == []
    assert all(len({t.host for t in run.trials if t.block == block}) == 1 for block in range(1, 7))
    aside = sorted(path.name for path in (room / "results/f/set-aside/h001").iterdir())
    assert len(aside) == 1
    assert any(
        "reassigned as a whole; 1 finished trial will" in str(event.data.get("text"))
        for event in told
    )
    assert coordinator.hosts["h001"].gone and not coordinator.hosts["h000"].gone


def test_gone_host_of_each_is_an_error(at_work: AtWork, room: Path) -> None:
    """With `each`, no other host can run its trials: the others finish, then the error is reported."""
    coordinator, hosts, _ = at_work(2, 2, "each")
    hosts.refuse["h001"] = "no mkfs.xfs"
    with pytest.raises(HostLost, match=r"h001: no mkfs\.xfs; 4 trials were not collected"):
        coordinator.work()
    assert results.load_run(room / "results/f-h000").remaining == []
    assert not fleet_files.load(room / "results", "f").finished


def test_damaged_transfer_is_never_a_result(at_work: AtWork, room: Path) -> None:
    """Bytes that do not match the checksums are requested again; a host that keeps sending them is
    given up.
    """
    coordinator, hosts, _ = at_work(1, 1)
    publish = hosts.publish

    def spoilt(host: str, spec: TrialSpec) -> None:
        publish(host, spec)
        path = hosts.folder / host / "trials" / spec.id / "trial.json"
        path.write_text(path.read_text().replace("9.5", "9.6"))

    hosts.publish = spoilt  # type: ignore[method-assign]
    with pytest.raises(HostLost, match="altered"):
        coordinator.work()
    assert list((room / "results/f/trials").glob("[!.]*")) == []


def test_results_that_cannot_be_written_end_the_coordinator(at_work: AtWork, room: Path) -> None:
    """A failure of the disk here is not one of the host, whose result is fetched when the fleet is
    resumed.
    """
    coordinator, hosts, _ = at_work(1, 1)
    (room / "results/f/trials").rmdir()
    (room / "results/f/trials").write_text("")
    with pytest.raises(NotWritable):
        coordinator.work()
    assert not coordinator.hosts["h000"].gone
    (room / "results/f/trials").unlink()
    hosts.waiting.clear()
    at_work(1, 1, hosts=hosts)[0].work()
    assert results.load_run(room / "results/f").remaining == []


def test_large_fleet_is_cheap(at_work: AtWork) -> None:
    """200 hosts with four trials each: flat memory, 1.1 x the ideal time at trials of 10 s.
    benchmarks/fleet.py has a hundred each, and the coordinator's CPU.
    """
    coordinator, hosts, _ = at_work(200, 400)
    coordinator.emit = ignore
    began = hosts.clock()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    coordinator.work()
    assert hosts.clock() - began <= 1.1 * 4 * TRIAL_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 50_000  # kB


def test_new_blocks_are_run_last() -> None:
    """A block that is assigned later never interrupts another; one that went elsewhere is dropped;
    repeats stay.
    """
    order = two_arms(6).order
    run = dataclasses.replace(two_arms(6), order=dealing.trials_of_host(order, (3, 5)))
    again = dataclasses.replace(run.order[0], id=run.order[0].id.replace("-a1", "-a2"), attempt=2)
    run = dataclasses.replace(run, order=(*run.order, again))

    def blocks(*mine: int) -> list[int]:
        task = host.HostTask(
            dataclasses.replace(run, order=dealing.trials_of_host(order, mine)), ()
        )
        return [spec.block for spec in host._merge(run, task).order]

    assert blocks(5, 1, 3) == [3, 3, 5, 5, 3, 1, 1]
    assert blocks(1, 5) == [5, 5, 1, 1]


@pytest.mark.parametrize(
    "address",
    [
        "tcp://0.0.0.0:8786",
        "tcp://127.0.0.1:8786",
        "tcp://localhost",
        "tcp://db1:8786",
        "ucx://127.0.0.1",
    ],
)
def test_without_tls_no_address_is_accepted(address: str, room: Path) -> None:
    """A scheduler speaks pickle to root, on loopback with every account of the machine: refused
    with exit code 5. An address without a protocol is TLS, which requires certificates.
    """
    with pytest.raises(FleetInsecure) as refused:
        security.whole(address)
    assert refused.value.exit_code == 5
    assert (security.whole("db1"), security.whole("127.0.0.1:9000")) == (
        "tls://db1:8786",
        "tls://127.0.0.1:9000",
    )
    with pytest.raises(FileUnreadable):
        security.of(room)


@pytest.mark.starts_processes
@pytest.mark.needs("openssl")
def test_certificates_are_private(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once, without the authority's key, in a directory of mode 0700. Their text is accepted
    in their place. A key that others can read is refused.
    """
    pytest.importorskip("distributed")
    folder = room / "config/fleet"
    assert security.make(folder) == folder
    files = security.files_of(folder)
    assert sorted(folder.iterdir()) == sorted(files)
    assert {path.stat().st_mode & 0o777 for path in (*files, folder)} == {0o600, 0o700}
    before = [path.read_text() for path in files]
    security.make(folder)
    assert [path.read_text() for path in files] == before
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(before)))
    for secured in (security.of(folder), security.of(security.STDIN)):
        context = secured.get_connection_args("worker")["ssl_context"]
        assert (context.verify_mode, context.minimum_version) == (
            ssl.CERT_REQUIRED,
            ssl.TLSVersion.TLSv1_3,
        )
    with pytest.raises(FileUnreadable):
        security.of(security.STDIN)  # nothing is left
    assert [path.name for path in folder.parent.iterdir()] == ["fleet"]
    (folder / security.KEY).chmod(0o640)
    with pytest.raises(FleetInsecure):
        security.of(folder)


def test_each_fleet_has_its_certificates(room: Path) -> None:
    """Fleets of the same name in other results, or of other names, do not share an authority."""
    folders = {
        security.folder_of_fleet(room / name) for name in ("a/.fleet/r", "b/.fleet/r", "b/.fleet/s")
    }
    assert len(folders) == 3 and {folder.parent for folder in folders} == {
        namespaces.private_folder()
    }
    assert security.folder_of_fleet(room / "a/.fleet/../.fleet/r") in folders


HEAVY = {
    "dbbench.run.queue",
    "dbbench.storage.devices",
    "dbbench.engines",
    "dbbench.drivers",
    "numpy",
    "scipy",
    "psutil",
}


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("modules", "unneeded"),
    [
        (
            "dbbench.cli, dbbench.commands.fleet, dbbench.fleet.operate, dbbench.fleet.host",
            {"dask", "distributed"},
        ),
        ("dbbench.fleet.host, dbbench.fleet.share", HEAVY),
    ],
)
def test_nothing_is_imported_without_need(modules: str, unneeded: set[str]) -> None:
    """The commands and the fleet's own modules, but those that start daemons, import no dask. What
    answers and waits on a host knows files only; the runner, with all that drives trials, comes
    later.
    """
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert unneeded & set(done.stdout.split()) == set()


def test_worker_by_ssh_is_one_command(room: Path, programs: Path) -> None:
    """The remote shell gets one quoted line; the host is named without the account; no password is
    requested. The certificates are its standard input.
    """
    (programs / "ssh").touch(0o755)
    for name in (security.CERT, security.CA, security.KEY):
        (room / name).write_text(f"{name}\n")
        (room / name).chmod(0o600)
    options = launch.HostOptions(
        None, "root@db1, db2", None, None, "sudo dbbench", "/my results", None, False
    )
    found = launch.ssh_workers(options, "tls://me:8786", room, Path("/x"))
    assert found["db2"].stdin == b"host.pem\nca.pem\nhost.key\n" and "host.key" not in repr(found)
    assert sorted(found) == ["db1", "db2"]
    assert found["db1"].argv[0] == "ssh" and "BatchMode=yes" in found["db1"].argv
    worker = (
        "sudo dbbench fleet worker tls://me:8786 --name db1 --results '/my results' --give-up 60 "
        "--certs -"
    )
    assert found["db1"].argv[-3:] == ("--", "root@db1", worker)
