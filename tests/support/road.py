"""The road of a trial with real files: the device is a directory; engine, load and sampler only
record their calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dbbench import process, results
from dbbench.datasets import golden
from dbbench.drivers import DRIVERS
from dbbench.engines import ENGINES, files
from dbbench.engines.port import Place
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Series
from dbbench.model import (
    Arm,
    Dataset,
    DeviceSpec,
    EngineSpec,
    Run,
    Settings,
    Status,
    Trial,
    TrialWarning,
    Workload,
)
from dbbench.model.events import Event
from dbbench.run.record import Record
from dbbench.run.trial import run_trial
from dbbench.run.workdir import WorkDir
from dbbench.samplers import SAMPLERS
from dbbench.storage.devices import KINDS, canary, directory
from dbbench.storage.devices.guard import Permit
from dbbench.storage.devices.port import Device, DiskSet
from dbbench.storage.filesystems import FAMILIES
from dbbench.storage.filesystems.common import mount_of

# the release of each is recorded as its name with a leading slash
TAKEN = ("device", "serve", "samplers", "load")
TABLE = b"x" * 1000


class Calls:
    """The names of the calls, in order. `at` has actions for calls, usually failures."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.at: dict[str, Callable[[], object]] = {}

    def __call__(self, name: str) -> None:
        self.names.append(name)
        self.at.get(name, lambda: None)()

    def fail(self, name: str, error: BaseException) -> None:
        """Raise `error` at the call `name`."""

        def raising() -> None:
            raise error

        self.at[name] = raising

    @contextlib.contextmanager
    def around(self, name: str) -> Iterator[None]:
        self(name)
        try:
            yield
        finally:
            self.names.append(f"/{name}")

    def all_released(self) -> bool:
        """Whether everything that was acquired was released."""
        return all(self.names.count(name) == self.names.count(f"/{name}") for name in TAKEN)


class Server(files.Files):
    """A folder in place of a server, as in the engine `files`."""

    def __init__(self, datadir: Path, place: Place, calls: Calls) -> None:
        super().__init__(datadir, place)
        self.calls = calls

    def settle(self) -> None:
        self.calls("settle")

    def checkpoint(self) -> None:
        self.calls("checkpoint")


@dataclass(frozen=True)
class Engine:
    """The engine `files` with a dataset of one file, under the account of this process."""

    calls: Calls

    def __getattr__(self, name: str) -> Any:
        return getattr(files, name)

    def account(self) -> process.User:
        return process.User("", os.geteuid(), os.getegid())

    def create(self, datadir: Path, _place: Place, *_options: str) -> None:
        datadir.mkdir(0o700)
        (datadir / "table").write_bytes(TABLE)

    @contextlib.contextmanager
    def serving(
        self,
        datadir: Path,
        _settings: Settings,
        place: Place,
    ) -> Iterator[Server]:
        assert (datadir / "table").read_bytes() == TABLE
        with self.calls.around("serve"):
            yield Server(datadir, place, self.calls)

    def check(self, *_: Any) -> str:
        self.calls("check")
        return "all"

    def data_files(self, _datadir: Path) -> list[Path]:
        return []  # a unit test must not empty the page cache of the machine


@dataclass(frozen=True)
class Load:
    """20 transactions in a window of 2 s."""

    calls: Calls
    pids: tuple[int, ...] = ()

    def wait_until(self, *_: Any) -> None:
        self.calls("warm up")

    def wait(self, *_: Any) -> None:
        self.calls("measure")

    def outcome(self) -> Outcome:
        self.calls("outcome")
        return Outcome(
            time.time(),
            2.0,
            20,
            0,
            Series(3, {"tps": [9.0, 10.0, 10.0]}),
            Histogram({500: 20}),
        )


@dataclass(frozen=True)
class Driver:
    """Starts `Load`."""

    calls: Calls

    @contextlib.contextmanager
    def driving(self, *_: Any) -> Iterator[Load]:
        with self.calls.around("load"):
            yield Load(self.calls)


@dataclass(frozen=True)
class Sampler:
    """Samples nothing."""

    calls: Calls
    PROGRAMS: ClassVar = ()

    @contextlib.contextmanager
    def beside(self, *_: Any) -> Iterator[Sampler]:
        with self.calls.around("samplers"):
            yield self

    def read(self, _begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        return Series(seconds, {"cpu_user_pct": [5.0] * seconds}), []


class Road:
    """Runs trials of one cell in a directory."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.calls, self.told, self.folder = Calls(), list[Event](), folder
        self.directory = folder / "device"
        self.root = folder / "root"
        for path in (self.directory, self.root):
            path.mkdir()
        self.run = _on_files(run, DeviceSpec("dir", path=str(self.directory)))
        self._register(monkeypatch)
        cell = self.run.cells[0]
        golden.ensure(
            golden.recipe(cell.engine, cell.dataset), WorkDir(self.root).place(cell.engine)
        )
        self.calls.names.clear()

    def _register(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Register the engine, the driver, the sampler and the device in place of the real ones."""
        for name in tuple(SAMPLERS):
            monkeypatch.delitem(SAMPLERS, name)
        family = mount_of(self.directory).fstype  # for example tmpfs, or the overlay of a container
        for table, name, part in (
            (SAMPLERS, "machine", Sampler(self.calls)),
            (ENGINES, "files", Engine(self.calls)),
            (DRIVERS, "copy", Driver(self.calls)),
            (KINDS, "dir", self._attached),
            (FAMILIES, family, FAMILIES.get(family, FAMILIES["ext4"])),
        ):
            monkeypatch.setitem(table, name, part)

    @contextlib.contextmanager
    def _attached(
        self,
        disks: DiskSet,
        _permit: Any,
        arm: str,
    ) -> Iterator[Device]:
        """Yield the directory without the disk below it, so that no program is started for its
        wear. The canary writes nothing, because a directory has the name of its file.
        """
        with self.calls.around("device"), directory.attach(disks.spec, arm) as device:
            (device.path / canary.FILE).mkdir()
            yield dataclasses.replace(device, leaves=())

    def _emit(self, event: Event) -> None:
        self.told.append(event)
        if event.kind == "phase_begin":
            self.calls(f"stage {event.data['phase']}")

    def create(self, name: str = "results", **plan: Any) -> Path:
        """Create a run with these values in its plan, and return its folder."""
        device = dataclasses.replace(self.run.plan.device, condition=plan.pop("condition", "none"))
        changed = dataclasses.replace(self.run.plan, device=device, **plan)
        return results.create_run(
            self.folder / name,
            dataclasses.replace(self.run, plan=changed),
            "",
        )

    def first(self, folder: Path) -> Status:
        """Run the first trial of the run in that folder."""
        run_folder = results.RunFolder(folder)
        workdir = WorkDir(self.root)
        workdir.make()
        record = Record(run_folder, run_folder.run.order[0], self._emit)
        return run_trial(record, workdir, {}, Permit((), run_folder.journal))

    def trial(self, **plan: Any) -> Trial:
        """Run the first trial of a new run and return it, as read back."""
        folder = self.create(**plan)
        self.first(folder)
        return results.load_run(folder).trials[0]

    def phases(self, kind: str = "phase_begin") -> list[str]:
        """Return the phases of the events so far."""
        return [str(event.data["phase"]) for event in self.told if event.kind == kind]


def _on_files(run: Run, device: DeviceSpec) -> Run:
    """Return the run with the engine `files` in a directory."""
    workload = Workload("Copy", "copy", ("files",), {"kind": "none"}, name="w")
    engine = EngineSpec("files")
    cells = tuple(
        dataclasses.replace(
            cell,
            engine=engine,
            workload=workload,
            parameters={},
            dataset=Dataset("none"),
        )
        for cell in run.cells
    )
    plan = dataclasses.replace(
        run.plan,
        device=device,
        engine=(engine,),
        fs_setups=(Arm("ext4", "ext4"),),
    )
    return dataclasses.replace(run, cells=cells, plan=plan)
