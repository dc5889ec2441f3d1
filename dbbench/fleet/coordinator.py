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
from dbbench.fleet import fleet_files
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.parts import Given, Part, PartOutcome, further_parts, unpack
from dbbench.fleet.scheduler import Host, Hosts, Scheduler, Submitted
from dbbench.model import Run
from dbbench.model.events import Emit, Event
from dbbench.results import merging
from dbbench.results.trials import set_aside
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
        given: Given,
        emit: Emit,
        *,
        gone_after_s: float = GONE_AFTER_S,
        look_s: float = _LOOK_S,
    ) -> None:
        """`run`: the whole run, of which the parts are."""
        self.results = results_folder
        self.fleet = fleet
        self.parts = {part.name: part for part in parts}
        self.emit = emit
        self._run = run
        self._given = given
        self._gone_after_s = gone_after_s
        self._look_s = look_s
        self._next_look = 0.0
        self._submitted: dict[str, Submitted] = {}
        self._hosts = Hosts()
        self._seen = dict.fromkeys(fleet.hosts, time.monotonic())
        # host or part -> why the fleet does not expect it any more
        self._refused: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._finished: set[tuple[str, str]] = set()  # names of runs, ids of trials
        for part in parts:
            run_name = part.run.name
            collected = {
                (run_name, name) for name in results.list_results(results_folder / run_name)
            }
            done = part.trials & collected
            self._finished |= done
            # A host may have added this repeat of a block, and returned it with the block.
            if done == part.trials or part.name in fleet.collected:
                self._close(part)

    def work(self, scheduler: Scheduler) -> None:
        """Work until every part is collected or lost. Raises HostLost at the end, Terminated on
        `fleet stop`.
        """
        data = {
            "name": self.fleet.name,
            "mode": self.fleet.mode,
            "hosts": list(self.fleet.hosts),
            **self._counts,
        }
        self.emit(Event("fleet_begin", data))
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
        for when, event in scheduler.events():
            self._show(when, event)
        for name, submitted in list(self._submitted.items()):
            if submitted.done:
                del self._submitted[name]
                self._take(self.parts[name], submitted.outcome())
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self._look_s
            there = scheduler.hosts()
            self._seen.update(dict.fromkeys(there, now))
            self._look_at_hosts(there, scheduler)
            self._give_up(now)
            self._submit(scheduler)
            data = {
                "utc": iso(time.time()),
                **self._counts,
                "hosts": self._hosts.rows(),
            }
            self.emit(Event("hosts", data))

    # Parts are submitted.

    def _look_at_hosts(self, there: Mapping[str, Host], scheduler: Scheduler) -> None:
        self._hosts.connected = set(there)
        for name, host in there.items():
            if host.is_usable is None:
                self._refuse(name, f"it has another version of dbbench than {__version__}")
            elif host.is_usable == (name in self._refused):
                # It has just refused a part, or it refused one of an earlier command.
                scheduler.set_usable(host, name not in self._refused)

    def _give_up(self, now: float) -> None:
        """Give up parts whose hosts have refused them, or are gone for too long."""
        reasons = dict(self._refused)
        for host, seen in self._seen.items():
            if now - seen > self._gone_after_s:
                reasons.setdefault(host, f"no answer for {self._gone_after_s:.0f} s")
        for part in self.open_parts:
            hosts = self._seen.keys() if part.host is None else {part.host}
            if hosts <= reasons.keys():
                texts = [f"{host}: {reasons[host]}" for host in sorted(hosts)]
                self._lose(part, "; ".join(texts))

    def _submit(self, scheduler: Scheduler) -> None:
        """Submit a part for each free host: what waits at a host could not move to another one."""
        usable = self._hosts.connected - self._refused.keys()
        free = len(usable) - len(self._submitted)
        for part in self.open_parts:
            if part.name in self._submitted:
                continue
            may_run = free > 0
            if part.host is not None:
                may_run = part.host in usable
            if may_run:
                self._submitted[part.name] = scheduler.submit(part, self._given)
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
        try:
            self._import(part, outcome.files)
        except (errors.FilesystemFull, errors.NotWritable):
            raise
        except errors.DbbenchError as error:
            self._refuse(outcome.host, f"{error.id} {error.title}: {error.evidence}")

    def _import(self, part: Part, files: Mapping[str, bytes]) -> None:
        """Merge a part as `dbbench import` does, and note that it is collected."""
        folder = self.results / part.run.name
        arrived = fleet_files.folder_of(self.results, self.fleet.name) / fleet_files.ARRIVED
        shutil.rmtree(arrived, ignore_errors=True)
        unpack(files, arrived)
        # A coordinator that was killed here has imported some of them, maybe from another host.
        set_aside(folder, results.list_results(arrived), "interrupted-import")
        merging.merge(arrived, self.results)
        shutil.rmtree(arrived)
        self._close(part)
        fleet_files.save(self.results, self.fleet)

    def _close(self, part: Part) -> None:
        """Count a part as collected, also trials that its host has left out."""
        self._finished |= part.trials
        collected = dict.fromkeys((*self.fleet.collected, part.name))
        self.fleet = dataclasses.replace(self.fleet, collected=tuple(collected))

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

    @property
    def _counts(self) -> dict[str, int]:
        trials = set[tuple[str, str]]()
        for part in self.parts.values():
            trials |= part.trials
        done = self._finished & trials
        return {"trials": len(trials), "done": len(done)}

    def _show(self, when: float, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "stop":
            raise errors.Terminated("`dbbench fleet stop` has stopped this fleet")
        self._hosts.follow(when, event)
        if kind in ("trial_end", "note"):
            host = event["host"]
            data = event["data"]
            if kind == "trial_end":
                self._finished.add((self.fleet.run_of(host), data["trial"]))
            self.emit(Event(kind, {**data, "host": host}))

    def _conclude(self) -> None:
        lacking = sorted(self._lost)
        self.fleet = dataclasses.replace(self.fleet, finished=not lacking)
        fleet_files.save(self.results, self.fleet)
        data = {"name": self.fleet.name, "trials": len(self._finished), "lacking": lacking}
        self.emit(Event("fleet_end", data))
        if not lacking:
            return
        # Most parts have the same reason.
        raise errors.HostLost(
            "\n  ".join(dict.fromkeys(self._lost.values())),
            remedy="Correct the cause on the host, then run the same command again to resume.",
        )

    def _note(self, text: str) -> None:
        self.emit(Event("note", {"text": text}))
