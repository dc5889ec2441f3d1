"""A run: its trials in the recorded order, each in a process; directories of trials show which are
finished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench import datasets, errors, process, results
from dbbench.engines.serving import tail
from dbbench.machine import limits, pagecache
from dbbench.metrics.table import METRICS
from dbbench.model import Cell, Run, Status, TrialSpec
from dbbench.model.events import Emit, Event
from dbbench.plan import writes
from dbbench.plan.forecast import budget_text, outlook
from dbbench.plan.request import PlanRequest
from dbbench.results import RunFolder
from dbbench.results.at_ceiling import judge
from dbbench.results.fileio import kept_if_used, writing
from dbbench.results.merging import keep_scripts
from dbbench.run import worker
from dbbench.run.adaptive import charge, conclude, extend, further, may_begin, of_first_blocks
from dbbench.run.children import Launcher, Stop, stoppable
from dbbench.run.create import scripts_of
from dbbench.run.record import Record
from dbbench.run.recover import RELEASE_S, give_back
from dbbench.storage import devices
from dbbench.storage.devices import image
from dbbench.units import count, size_text

_REFUSED: Final = (errors.MakeFailed.id, errors.MountFailed.id, errors.SetupNotInForce.id)
# statuses of errors that are raised before anything is measured, often with "Nothing was changed."
_BEFORE: Final = (errors.EXIT_USAGE, errors.EXIT_REFUSED)
LOG: Final = "launcher.log"  # in the run's directory: stderr of the trials' processes


@contextlib.contextmanager
def begin(
    folder: RunFolder | None,
    results_folder: Path,
    request: PlanRequest,
    make: Callable[[], Path],
) -> Iterator[RunFolder]:
    """Yield the run's folder with the workloads' scripts. If there is none, it is made, and removed
    again if the block refuses the run.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            stack.enter_context(kept_if_used(results_folder))
            folder = RunFolder(make())
            stack.enter_context(_removing(folder.path))
        keep_scripts(folder.path, scripts_of(request))
        yield folder


@contextlib.contextmanager
def _removing(path: Path) -> Iterator[None]:
    """Remove the run's folder if an error ends the block before anything was measured. It stays if
    it says what else is left: images, disks that were written, the log of a fault.
    """
    try:
        yield
    except (errors.Interrupted, errors.Terminated):
        raise
    except errors.DbbenchError:
        # The error itself counts, whatever becomes of the folder. Another process may resume it.
        with contextlib.suppress(errors.DbbenchError, OSError), results.lock(path):
            journal = RunFolder(path).journal
            left = [*results.list_results(path), *journal.holdings(), *journal.written_disks()]
            log = path / LOG
            if not left and not (log.exists() and log.stat().st_size):
                results.discard(path)
        raise


def execute(
    path: Path,
    sha256: str,
    *,
    wipe: tuple[str, ...] = (),
    emit: Emit,
    stop: Stop | None = None,
) -> None:
    """Run the remaining trials of the run in `path`. Every process compares `sha256`, the identity
    of the user's plan, with run.json. `stop`: of a caller that is not the main thread. Raises
    RunLocked, the error of a trial that could not begin, Interrupted and Terminated; the same
    command resumes the run.
    """
    with (
        results.lock(path),
        contextlib.nullcontext(stop) if stop else stoppable() as stop,
        Launcher(worker.__name__, path / LOG, emit, stop) as launcher,
    ):
        queue = Queue(RunFolder(path), launcher, worker.Request("", str(path), sha256, wipe))
        worker.must_be(queue.folder.run, sha256)
        give_back(path, queue.folder.journal)
        for identity in wipe:
            queue.folder.journal.note("wipe", device=identity)
        began = time.monotonic()
        with limits.preparing(queue.folder.run.cells, queue.folder.journal):
            queue.work_off()
        image.give_back_images(queue.folder.journal, RELEASE_S)
        queue.conclude(began)


def name_writes(error: errors.DbbenchError, folder: RunFolder, built: Sequence[str]) -> None:
    """Say in the error's effect what the run has written before. `built`: keys of golden copies."""
    clean = f"dbbench clean {shlex.quote(str(folder.path))}"
    texts = []
    for image_file in map(Path, folder.journal.outstanding("image")):
        if image_file.exists():
            size = size_text(image_file.stat().st_size)
            texts.append(f"{image_file} ({size}) is kept; `{clean}` removes it.")
    for disk in folder.journal.written_disks():
        texts.append(f"This run has written to {disk}.")
    for key in built:
        size = size_text(datasets.golden.disk_bytes(datasets.golden.cache_folder() / key))
        texts.append(
            f"The golden copy {key} ({size}) is kept; `dbbench clean --golden` removes it."
        )
    if texts:
        error.effect = " ".join(texts)


class Queue:
    """The trials of one locked run that are still to be done."""

    def __init__(
        self,
        folder: RunFolder,
        launcher: Launcher,
        request: worker.Request,
    ) -> None:
        self.folder = folder
        self._launcher = launcher
        self._emit = launcher.emit
        self._request = request  # what each process is started with; its work and item differ
        self._charged = time.monotonic()  # the time until then is charged to the budget
        self._built: list[str] = []  # keys of golden copies that this start has made

    @property
    def run(self) -> Run:
        return self.folder.run

    def work_off(self) -> None:
        """Prepare the device and the datasets, then run trials until none is left or the budget is
        used up.
        """
        self._tell_begin()
        self._charged = time.monotonic()
        try:
            # Nothing is prepared if nothing is left to run.
            if to_run := any(may_begin(self.run, spec) for spec in self.folder.pending):
                self._prepare()
                self._charge()
            for spec in self._next():
                self._emit(Event("trial_begin", self._describe(spec)))
                self._drive(spec)
                self._charge(spec.cell)
                self._emit(Event("trial_end", self._end(spec)))
                self._leave_out(spec)
            # The bare device is measured again, to see whether it is still the same.
            if to_run:
                self._measure_again()
        except BaseException as error:
            with contextlib.suppress(errors.DbbenchError):
                if isinstance(error, errors.DbbenchError) and error.exit_code in _BEFORE:
                    name_writes(error, self.folder, self._built)
                self._charge()
            raise

    def conclude(self, began: float) -> None:
        """Report the end of the run; set trials of a block aside that the budget interrupted."""
        run = self.run
        if run.budget is not None:
            run, aside = conclude(run, results.list_results(self.folder.path))
            self.folder.set_aside(aside, "budget")
            self.folder.save(run)
            self._note(budget_text(run))
        if text := writes.deviation(self.folder.trials):
            self._note(text)
        statuses = [trial.status for trial in self.folder.trials]
        seconds = time.monotonic() - began
        counts = {status.value: statuses.count(status) for status in Status}
        self._emit(Event("run_end", {"name": run.name, "seconds": seconds, **counts}))

    def _charge(self, cell: str = "") -> None:
        """Charge the time since the last call to the budget; `cell` is that of the trial that used
        it.
        """
        now = time.monotonic()
        seconds = now - self._charged
        self._charged = now
        if self.run.budget is not None:
            self.folder.save(charge(self.run, seconds, cell))

    def _prepare(self) -> None:
        self._launcher.prepare()
        # A dump that is refused ends the run before an image or a disk is written.
        self._build_datasets()
        image.make_images(self.run, self.folder.path, self.folder.journal, self._tell)
        if not self.run.plan.device.existing and results.load_ceiling(self.folder.path) is None:
            self._tell("measuring the bare device")
            self._measure("ceiling")

    def _build_datasets(self) -> None:
        # Cells with the same copy are built once.
        cells: dict[str, Cell] = {}
        for cell in self.run.cells:
            key = datasets.golden.recipe(cell.engine, cell.dataset, cell.raw).key
            cells.setdefault(key, cell)
        if all(map(datasets.golden.exists, cells)):
            return
        # What another program writes to the disks meanwhile would be erased by --wipe.
        with devices.holding(self.run.plan.device, self._request.wipe, self.folder.journal):
            for key, cell in cells.items():
                if datasets.golden.exists(key):
                    continue
                title = cell.workload.name
                self._tell(f"building the dataset of {title} on {cell.engine.name}")
                # The process reports its own errors; a status without one is a kill.
                if status := self._start("golden", cell.id):
                    raise errors.DatasetBuildFailed(
                        f"the process that builds the dataset of {title} on {cell.engine.name} "
                        f"ended with {process.ending(status)}:\n{tail(self._launcher.log)}",
                        effect="The copy was removed; nothing was measured.",
                        remedy="Read dmesg: the kernel kills processes if the memory is exhausted.",
                    )
                self._built.append(key)

    def _measure_again(self) -> None:
        ceiling = results.load_ceiling(self.folder.path)
        if ceiling is not None and not ceiling.again and judge(self.folder.trials, ceiling)[1]:
            self._tell(
                "measuring the bare device again, because a trial exceeded the first measurement"
            )
            self._measure("ceiling")

    def _start(self, work: str, item: str = "") -> int:
        return self._launcher.run(
            dataclasses.asdict(dataclasses.replace(self._request, work=work, item=item))
        )

    def _measure(self, work: str, item: str = "") -> int:
        """Do the work when the disk has written what others left in memory for it."""
        folders = image.folders_of_images(self.run, self.folder.path)
        folders += map(Path, self.run.plan.device.directories.values())
        pagecache.write_back(folders, self._tell)
        return self._start(work, item)

    def _next(self) -> Iterator[TrialSpec]:
        """Yield trials until none may begin. In a budget, repeated blocks get the time that others
        leave.
        """
        lengthen = (
            (self._repeat, self._add_block)
            if self.run.budget is None
            else (self._add_block, self._repeat)
        )
        while True:
            for add in lengthen:
                if not self.folder.pending:
                    add()
            left = self.folder.pending
            if not left or not may_begin(self.run, left[0]):
                return
            yield left[0]

    def _repeat(self) -> None:
        longer = extend(self.run, lambda spec: self.folder.trial(spec).status)
        if more := len(longer.order) - len(self.run.order):
            self.folder.save(longer)
            trials = count(more, "more trial")
            text = f"{trials}: blocks with a suspect trial are repeated as a whole"
            self._note(text, total=len(longer.order))

    def _add_block(self) -> None:
        before = self.run
        if before.precision is None and before.budget is None and before.search is None:
            return
        longer = further(before, {trial.id: trial for trial in self.folder.trials})
        if longer != before:
            self.folder.save(longer)
        if (
            before.search is None
            and not before.questions
            and (text := outlook(longer, self.folder.trials))
        ):
            self._note(text)
        if more := longer.order[len(before.order) :]:
            arms = ", ".join(dict.fromkeys(longer.cell(spec.cell).arm for spec in more))
            why = "to reach the precision" if longer.precision is not None else "within the budget"
            if longer.search is not None:
                levels = [longer.cell(spec.cell).limit for spec in more]
                names = dict.fromkeys(level.name for level in levels if level is not None)
                why = f"at {', '.join(names)}"
            text = f"{count(len(more), 'more trial')}, block {more[0].block}: {arms}, {why}"
            self._note(text, total=len(longer.order))

    def _drive(self, spec: TrialSpec) -> None:
        """Run a trial. If its process ends before it could publish a result, publish that as the
        result.
        """
        # A trial that cannot publish itself must not be lost.
        try:
            status = self._measure("trial", spec.id)
            died: errors.DbbenchError = errors.TrialDied(
                f"the process of the trial ended with {process.ending(status)}; "
                f"see {self._launcher.log}"
            )
        except errors.TrialStuck as stuck:
            died = stuck
        path = self.folder.path
        with writing(path / "run.json"):
            # raises if the run's directory was removed or renamed while the trial ran
            (path / "run.json").stat()
        if not (path / "trials" / spec.id).is_dir():
            # otherwise the next trial finds its devices in use
            give_back(path, self.folder.journal)
            record = Record(self.folder, spec, self._emit)
            record.fail(died)
            record.publish()

    def _leave_out(self, spec: TrialSpec) -> None:
        """Drop an arm if the plan's options for mkfs or mount were refused: its other trials would
        fail too.
        """
        run = self.run
        error = self.folder.trial(spec).error
        label = self.run.cell(spec.cell).arm
        adds = any(arm.label == label and arm.adds for arm in run.plan.fs_setups)
        if not adds or error is None or error.id not in _REFUSED:
            return
        # What remains to be run of this arm leaves the order.
        left = [other for other in self.folder.pending if run.cell(other.cell).arm == label]
        if left:
            order = tuple(
                dataclasses.replace(
                    other,
                    position=other.position - sum(gone.position < other.position for gone in left),
                )
                for other in run.order
                if other not in left
            )
            self.folder.save(dataclasses.replace(run, order=order))
            text = (
                f"{len(left)} more trials of {label} are left out: they would fail with "
                f"{error.id} too"
            )
            self._note(text, total=len(order))

    def _note(self, text: str, **more: int) -> None:
        self._emit(Event("note", {"text": text, **more}))

    def _tell(self, what: str, fraction: float | None = None) -> None:
        self._emit(Event("prepare", {"what": what, "fraction": fraction}))

    def _tell_begin(self) -> None:
        run = self.run
        # Progress computes the end of the run from these numbers.
        budget_s = None if run.budget is None else (run.plan.budget_s or 0.0) - run.budget.used_s
        first = sum(run.budget is not None and of_first_blocks(run, spec) for spec in run.order)
        arms = [arm.label for arm in run.plan.fs_setups]
        self._emit(
            Event(
                "run_begin",
                {
                    "name": run.name,
                    "trials": len(run.order),
                    "done": len(run.order) - len(self.folder.pending),
                    "seed": run.plan.seed,
                    "arms": arms,
                    "blocks": run.plan.blocks,
                    "first": first,
                    "budget_s": budget_s,
                    "results": self._earlier(),
                },
            )
        )

    def _describe(self, spec: TrialSpec) -> dict[str, object]:
        cell = self.run.cell(spec.cell)
        return {
            "id": spec.id,
            "position": spec.position,
            "total": len(self.run.order),
            "arm": cell.arm,
            "block": spec.block,
            "attempt": spec.attempt,
            "engine": cell.engine.name,
            "workload": cell.title,
            "warmup_s": cell.window.warmup_s,
            "measure_s": cell.window.measure_s,
        }

    def _earlier(self) -> list[dict[str, object]]:
        """Return the ends of the trials that an earlier start has finished, as far as they can be
        read.
        """
        pending = {spec.id for spec in self.folder.pending}
        ends = []
        for spec in self.run.order:
            if spec.id not in pending:
                with contextlib.suppress(errors.DbbenchError):
                    ends.append(self._end(spec))
        return ends

    def _end(self, spec: TrialSpec) -> dict[str, object]:
        trial = self.folder.trial(spec)
        primary = self.run.cell(spec.cell).workload.primary
        return {
            **self._describe(spec),
            "trial": spec.id,
            "status": trial.status.value,
            "metric": primary,
            "unit": METRICS[primary].unit,
            "value": trial.summary.get(primary),
            "error": dataclasses.asdict(trial.error) if trial.error else None,
        }
