"""The coordinator: submits the parts of a fleet's plan as dask tasks, at most one for each host,
imports the results that come back, and prints. dask chooses the host of a block, and another one
when its worker dies. What the coordinator knows is on its disk: fleet.json names the parts that it
has imported. If it is killed, the same command submits the others.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dbbench import __version__, errors, results
from dbbench.fleet import fleet_files, parcel
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.parts import Part, further_parts
from dbbench.fleet.scheduler import Host, Hosts, Scheduler, Submitted
from dbbench.fleet.task import PartOutcome, PartWork
from dbbench.model import Run
from dbbench.model.events import Emit, Event
from dbbench.results import merging
from dbbench.units import count, iso

GONE_AFTER_S: Final = 600.0  # longer than a reboot
_LOOK_S: Final = 1.0  # between two looks at the hosts
_STEP_S: Final = 0.2


class Coordinator:
    """A fleet in operation."""

    def __init__(
        self,
        results_folder: Path,
        fleet: Fleet,
        parts: Sequence[Part],
        run: Run,
        work: PartWork,
        emit: Emit,
        *,
        gone_after_s: float = GONE_AFTER_S,
        look_s: float = _LOOK_S,
    ) -> None:
        """`run`, `work`: what is the same for all parts."""
        self.results = results_folder
        self.fleet = fleet
        self.parts = {part.name: part for part in parts}
        self.emit = emit
        self.hosts = Hosts()
        self._run = run
        self._work = work
        self._gone_after_s = gone_after_s
        self._look_s = look_s
        self._submitted: dict[str, Submitted] = {}
        # name of a part or of a host -> why the fleet does not expect it any more
        self._lost: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._absent_since: dict[str, float] = {}
        self._published = 0.0
        for part in parts:
            done = results.list_results(results_folder / part.run.name)
            ids = {spec.id for spec in part.run.order}
            self.hosts.finished |= {(part.run.name, name) for name in ids & done}
            if ids <= done and part.name not in fleet.collected:
                # A host has added this repeat of a block, and has returned it with the block.
                self.fleet = dataclasses.replace(
                    self.fleet, collected=(*self.fleet.collected, part.name)
                )

    def work(self, scheduler: Scheduler) -> None:
        """Work until every part is collected or lost. Raises HostLost at the end, Terminated on
        `fleet stop`.
        """
        self._import_arrived()
        self._begin()
        while self.open_parts or self._add_parts():
            self.step(scheduler)
            time.sleep(min(_STEP_S, self._look_s))
        self._conclude()

    @property
    def open_parts(self) -> list[Part]:
        """Return the parts that are neither collected nor lost."""
        closed = {*self.fleet.collected, *self._lost}
        return [part for part in self.parts.values() if part.name not in closed]

    def step(self, scheduler: Scheduler) -> None:
        """Take what has arrived, and submit what hosts can run."""
        if scheduler.is_connected():
            for event in scheduler.events():
                self._show(event)
        for name, submitted in list(self._submitted.items()):
            if submitted.done:
                del self._submitted[name]
                self._take(self.parts[name], submitted.outcome())
        if time.monotonic() - self._published >= self._look_s:
            self._published = time.monotonic()
            there = scheduler.hosts() if scheduler.is_connected() else {}
            self._look_at_hosts(there, scheduler)
            self._give_up(set(there))
            self._submit(scheduler)
            self._publish()

    # Parts are submitted.

    def _look_at_hosts(self, there: Mapping[str, Host], scheduler: Scheduler) -> None:
        self.hosts.connected = set(there)
        for name, host in there.items():
            if not host.is_same_version:
                self._refuse(name, f"it has another version of dbbench than {__version__}")
            elif host.is_usable == (name in self._refused):
                # It has just refused a part, or it refused one of an earlier command.
                scheduler.set_usable(host, name not in self._refused)

    def _give_up(self, there: set[str]) -> None:
        """Give up parts whose hosts have refused them, or are gone for too long."""
        now = time.monotonic()
        for part in self.open_parts:
            hosts = {*self.fleet.hosts, *there} if part.host is None else {part.host}
            able = hosts & there - self._refused.keys()
            refusals = [
                f"{name}: {self._refused[name]}" for name in sorted(hosts & self._refused.keys())
            ]
            if able:
                self._absent_since.pop(part.name, None)
            elif hosts <= self._refused.keys():
                self._lose(part, "; ".join(refusals))
            elif now - self._absent_since.setdefault(part.name, now) > self._gone_after_s:
                absent = ", ".join(sorted(hosts - self._refused.keys()))
                silence = f"{absent}: no answer for {self._gone_after_s:.0f} s"
                self._lose(part, "; ".join([*refusals, silence]))

    def _submit(self, scheduler: Scheduler) -> None:
        """Submit a part for each free host: what waits at a host could not move to another one."""
        usable = self.hosts.connected - self._refused.keys()
        free = len(usable) - len(self._submitted)
        for part in self.open_parts:
            waits = part.name not in self._submitted
            if waits and (free > 0 if part.host is None else part.host in usable):
                work = dataclasses.replace(self._work, run=part.run.name, spec=part.spec)
                self._submitted[part.name] = scheduler.submit(part, work)
                free -= 1

    # Results are imported.

    def _take(self, part: Part, outcome: PartOutcome | None) -> None:
        """Import what a task has returned. None: it was lost, and is submitted again."""
        if outcome is None:
            return
        if outcome.error is not None:
            remedy = outcome.error.get("remedy")
            why = f"{outcome.error['id']} {outcome.error['evidence']}"
            if remedy:
                why += f" ({remedy})"
            if outcome.host:
                self._refuse(outcome.host, why)
            else:
                self._lose(part, why)
            return
        arrived = self._arrived / part.name
        try:
            parcel.unpack(outcome.parcel, arrived)
            self._import(part.name)
        except (errors.FilesystemFull, errors.NotWritable):
            raise
        except errors.DbbenchError as error:
            shutil.rmtree(arrived, ignore_errors=True)
            self._refuse(outcome.host, f"{error.id} {error.title}: {error.evidence}")

    def _import_arrived(self) -> None:
        """Import what a killed coordinator had received."""
        for path in sorted(self._arrived.glob("[!.]*")):
            if path.name in self.parts:
                self._import(path.name)

    def _import(self, part_name: str) -> None:
        """Merge an arrived part as `dbbench import` does, and note that it is collected."""
        arrived = self._arrived / part_name
        folder = merging.merge(arrived, self.results).folder
        part = self.parts[part_name]
        run = results.load_spec(folder)
        # An arm whose options were refused is left out by its host. A host without facts has not
        # returned anything yet; it is named when it does.
        left_out = {spec.id for spec in part.run.order} - results.list_results(folder)
        order = tuple(spec for spec in run.order if spec.id not in left_out)
        hosts = {name: facts for name, facts in run.hosts.items() if facts}
        results.save_spec(folder, dataclasses.replace(run, order=order, hosts=hosts))
        self.hosts.finished |= {(folder.name, spec.id) for spec in part.run.order}
        self._change(collected=(*self.fleet.collected, part_name))
        shutil.rmtree(arrived)

    @property
    def _arrived(self) -> Path:
        return fleet_files.folder_of(self.results, self.fleet.name) / fleet_files.ARRIVED

    # Hosts and parts are given up, and parts are added.

    def _refuse(self, host: str, why: str) -> None:
        """Give no more parts to a host that reported an error."""
        if host not in self._refused:
            self._note(f"! {host}: {why}")
        self._refused[host] = why

    def _lose(self, part: Part, why: str) -> None:
        self._lost[part.name] = why
        self._submitted.pop(part.name, None)

    def _add_parts(self) -> bool:
        """Add repeats of suspect blocks, and blocks for --until-precision; return whether there are
        any. Each host repeats those of its own plan or budget.
        """
        if self._lost or self.fleet.mode == "each" or self._run.budget is not None:
            return False
        folder = results.RunFolder(self.results / self.fleet.name)
        added = further_parts(folder, self._run, len(self.fleet.hosts))
        for part in added:
            self.parts[part.name] = part
            self._note(f"{count(len(part.run.order), 'more trial')}: {part.name}")
        return bool(added)

    # The coordinator reports.

    def _begin(self) -> None:
        data = {
            "name": self.fleet.name,
            "mode": self.fleet.mode,
            "hosts": list(self.fleet.hosts),
            "trials": len(self._trials),
            "done": len(self.hosts.finished & self._trials),
        }
        self.emit(Event("fleet_begin", data))

    @property
    def _trials(self) -> set[tuple[str, str]]:
        return {(part.run.name, spec.id) for part in self.parts.values() for spec in part.run.order}

    def _show(self, event: dict[str, Any]) -> None:
        if event["kind"] == "stop":
            raise errors.Terminated("`dbbench fleet stop` has stopped this fleet")
        self.hosts.follow(event, self.fleet)
        if event["kind"] in ("trial_end", "note"):
            self.emit(Event(event["kind"], {**event["data"], "host": event["host"]}))

    def _publish(self) -> None:
        data = {
            "utc": iso(time.time()),
            "done": len(self.hosts.finished & self._trials),
            "trials": len(self._trials),
            "hosts": self.hosts.rows(),
        }
        self.emit(Event("hosts", data))

    def _conclude(self) -> None:
        lacking = sorted(self._lost)
        self._change(finished=not lacking)
        trials = len(self.hosts.finished)
        data = {"name": self.fleet.name, "trials": trials, "lacking": lacking}
        self.emit(Event("fleet_end", data))
        if lacking:
            raise errors.HostLost(
                "\n  ".join(
                    self._lost[name] if self.parts[name].host else f"{name}: {self._lost[name]}"
                    for name in lacking
                ),
                remedy="Correct the cause on the host, then run the same command again to resume.",
            )

    def _change(self, **news: Any) -> None:
        self.fleet = dataclasses.replace(self.fleet, **news)
        fleet_files.save(self.results, self.fleet)

    def _note(self, text: str) -> None:
        self.emit(Event("note", {"text": text}))
