"""The coordinator: asks every host for its results, copies them, and assigns the blocks of a lost
host to others. It has no state of its own: hosts have theirs on their disks, and collected
trials are in the results. If it is killed, the same command resumes. It keeps at most one answer
per host in memory, and the names of trials.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import errors, results
from dbbench.fleet import dealing, fleet_files, messages
from dbbench.fleet.connection import Connection, Lost
from dbbench.fleet.fleet_files import Fleet
from dbbench.model import Budget, Run, TrialSpec
from dbbench.model.events import Emit, Event
from dbbench.plan.forecast import budget_text
from dbbench.results.merging import Incoming
from dbbench.results.trials import set_aside
from dbbench.run.adaptive import further
from dbbench.units import count, iso

# a host without news answers after this time: each question costs a few ms of its CPU
PATIENCE_S: Final = 15.0
GONE_AFTER_S: Final = 600.0  # longer than a reboot; what the host measures meanwhile is not lost
_RETRY_S: Final = 1.0
_STATUS_S: Final = 1.0
_MOST_DAMAGED: Final = 3  # one damaged transfer may be the network; three in a row mean a bad disk

# yields questions to one host, and is sent the answers
Talk = Generator[messages.Question, Any, None]


@dataclass
class FleetHost:
    """The state of one host of the fleet."""

    name: str
    run: str  # name of the run of this host
    heard: float  # time of the last answer, UTC
    blocks: tuple[int, ...] = ()
    order: tuple[TrialSpec, ...] = ()  # trials of this host, with repeats as soon as they are known
    taken: set[str] = field(default_factory=set)  # ids of trials that the coordinator has stored
    state: messages.HostState = field(default_factory=messages.HostState)
    assigned: tuple[int, ...] = ()  # the blocks that the host knows as its own
    talk: Talk | None = None
    waiting: bool = False  # whether a question is on its way
    retry_at: float = 0.0
    damaged: int = 0  # damaged transfers in a row
    done: bool = False
    gone: str = ""  # why the fleet no longer waits for this host

    @property
    def open(self) -> bool:
        """Whether the coordinator still waits for results of this host."""
        return not self.done and not self.gone

    @property
    def missing(self) -> list[TrialSpec]:
        return [spec for spec in self.order if spec.id not in self.taken]

    def row(self, now: float) -> dict[str, Any]:
        left = len(self.missing)
        mean = self.state.mean_s
        phase = (
            "gone" if self.gone else "done" if self.done else self.state.phase or "between trials"
        )
        return {
            "host": self.name,
            "run": self.run,
            "trial": self.state.trial,
            "phase": phase,
            "phase_s": round(now - self.state.since, 1) if self.state.since and self.open else None,
            "done": len(self.taken),
            "trials": len(self.order),
            "blocks": list(self.blocks),
            "eta_s": 0.0
            if not left
            else None
            if mean is None or self.gone
            else round(left * mean, 1),
            "heard": iso(self.heard),
            "note": self.gone or self.state.note,
        }


class Coordinator:
    """A fleet in operation."""

    def __init__(
        self,
        results_folder: Path,
        fleet: Fleet,
        connection: Connection,
        assignment: messages.Assignment,
        emit: Emit,
        *,
        tied: bool = False,
        gone_after_s: float = GONE_AFTER_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`assignment`: what is the same for all hosts. `tied`: hosts stop after their trial if
        this process ends.
        """
        self.results = results_folder
        self.fleet = fleet
        self.connection = connection
        self._assignment = assignment
        self.emit = emit
        self._clock = clock
        self._gone_after_s = gone_after_s
        self._lock = str(fleet_files.folder_of(results_folder, fleet.name)) if tied else ""
        self.runs = {name: results.load_spec(results_folder / name) for name in fleet.runs}
        self._unsaved = set[str]()
        self._looked = self._published = 0.0
        self.hosts = {name: FleetHost(name, fleet.run_of(name), clock()) for name in fleet.blocks}
        for host in self.hosts.values():
            self._assign(host)
        self._deal()

    def work(self) -> None:
        """Work until every host has run its blocks or is lost. Raises HostLost at the end."""
        hosts = self.hosts.values()
        self.emit(
            Event(
                "fleet_begin",
                {
                    "name": self.fleet.name,
                    "mode": self.fleet.mode,
                    "hosts": list(self.hosts),
                    "trials": sum(len(host.order) for host in hosts),
                    "done": sum(len(host.taken) for host in hosts),
                },
            )
        )
        try:
            while any(host.open for host in hosts) or self._further():
                self.step()
            self._conclude()
        finally:
            self._save()
            self._publish_status()

    def step(self) -> None:
        for host in self.hosts.values():
            if host.open and not host.waiting and self._clock() >= host.retry_at:
                self._advance(host, None)
        for name, answer in self.connection.answers(_STATUS_S):
            host = self.hosts[name]
            host.waiting = False
            if isinstance(answer, Lost):
                host.talk = None
                host.retry_at = self._clock() + _RETRY_S
            elif host.open:
                host.heard = self._clock()
                self._advance(host, answer)
        if (now := self._clock()) - self._looked >= _STATUS_S:
            self._looked = now
            self._look_for_lost(now)
        if time.monotonic() - self._published >= _STATUS_S:
            self._save()
            self._publish_status()

    # A talk with a host: straight on, from one question to the next.

    def _advance(self, host: FleetHost, answer: messages.Answer) -> None:
        """Continue the host's talk. A failure affects only this host, except one of the results
        disk here.
        """
        if isinstance(answer, messages.Refusal):
            self._give_up(host, str(answer.error.get("evidence")), answer.error.get("remedy"))
            return
        if host.talk is None:
            host.talk = self._talk(host)
            answer = None
        try:
            question = next(host.talk, None) if answer is None else host.talk.send(answer)
        except StopIteration:
            question = None
        except errors.ResultDamaged as error:
            question = None
            host.damaged = host.damaged + 1
            if host.damaged >= _MOST_DAMAGED:
                self._give_up(host, f"{error.title}: {error.evidence}")
        except (errors.FilesystemFull, errors.NotWritable):
            raise
        except errors.DbbenchError as error:
            question = None
            self._give_up(host, f"{error.id} {error.title}: {error.evidence}")
        if question is None:
            host.talk = None
        else:
            host.waiting = True
            self.connection.ask(host.name, question)

    def _talk(self, host: FleetHost) -> Talk:
        """Yield questions until the host has nothing to do, or must be asked again later."""
        while host.open:
            if host.assigned != host.blocks:
                blocks = host.blocks
                self._store_facts(host, (yield self._assignment_of(host)))
                host.assigned = blocks
            taken = tuple(sorted(host.taken))
            report = yield messages.ResultRequest(
                host.run, host.blocks, taken, PATIENCE_S, self._lock
            )
            if not report.assigned:
                host.assigned = ()
                continue
            self._follow(host, report)
            if report.trial:
                incoming = Incoming(self.results / host.run, report.trial)
                batch = report.batch
                offset = 0
                while True:
                    for name, content in batch.pieces:
                        incoming.write(name, content)
                        offset += len(content)
                    if batch.last:
                        break
                    batch = yield messages.FileRequest(host.run, report.trial, offset)
                incoming.finish()
                self._store_trial(host, report.trial)
            elif report.state.ended:
                self._end(host)
                host.retry_at = self._clock() + _RETRY_S
                return

    def _assignment_of(self, host: FleetHost) -> messages.Assignment:
        run = self.runs[host.run]
        limit = None if run.budget is None else Budget(step=0)
        host_run = dataclasses.replace(
            run, order=host.order, precision=None, budget=limit, hosts={}, host={}, versions={}
        )
        return dataclasses.replace(
            self._assignment, run=host.run, spec=results.written_spec(host_run)
        )

    def _store_facts(self, host: FleetHost, facts: dict[str, Any]) -> None:
        self._change(
            host.run, hosts=dict(sorted({**self.runs[host.run].hosts, host.name: facts}.items()))
        )
        if self.fleet.mode == "each":  # each host has a separate run, like one started by hand
            host_facts = {name: value for name, value in facts.items() if name != "versions"}
            self._change(host.run, host=host_facts, versions=dict(facts["versions"]))

    def _follow(self, host: FleetHost, report: messages.HostReport) -> None:
        user = report.state.waits_for
        ours = fleet_files.folder_of(self.results, self.fleet.name)
        if user and user != host.state.waits_for and not Path(user).is_relative_to(ours):
            self._note(f"{host.name} waits for the disk, which is used by {user}")
        host.state = report.state
        run = self.runs[host.run]
        known = {spec.id for spec in host.order}
        if repeats := [TrialSpec(**spec) for spec in report.repeats if spec["id"] not in known]:
            host.order = (*host.order, *repeats)
            in_run = {spec.id for spec in run.order}
            self._change(
                run.name, order=(*run.order, *(spec for spec in repeats if spec.id not in in_run))
            )

    def _store_trial(self, host: FleetHost, name: str) -> None:
        host.taken.add(name)
        host.damaged = 0
        trial = results.load_trial(self.results / host.run / "trials" / name)
        primary = self.runs[host.run].cell(trial.id.rpartition("-b")[0]).workload.primary
        self.emit(
            Event(
                "trial_end",
                {
                    "host": host.name,
                    "trial": trial.id,
                    "arm": trial.fs_setup,
                    "engine": trial.engine,
                    "workload": trial.workload,
                    "block": trial.block,
                    "attempt": trial.attempt,
                    "status": trial.status.value,
                    "metric": primary,
                    "value": trial.summary.get(primary),
                    "error": dataclasses.asdict(trial.error) if trial.error else None,
                },
            )
        )

    def _end(self, host: FleetHost) -> None:
        """Decide what follows when the host runs nothing and has no further result."""
        error = host.state.error
        if error is not None and error.get("id") != errors.BudgetUsedUp.id:
            self._give_up(host, str(error.get("evidence")), error.get("remedy"))
        elif error is not None:
            self._cut(host)
        elif not host.missing and not self._add_block(host):
            host.done = True
            self._note(f"{host.name}: all {len(host.taken)} of its trials have been collected")

    # Blocks: of lost hosts, and further ones.

    def _look_for_lost(self, now: float) -> None:
        there = self.connection.hosts()
        for host in self.hosts.values():
            host.heard = max(host.heard, there.get(host.name, 0.0))
            if host.open and now - host.heard > self._gone_after_s:
                self._give_up(host, f"no answer for {now - host.heard:.0f} s")

    def _give_up(self, host: FleetHost, why: str, remedy: Any = None) -> None:
        """Expect nothing more of the host; with `spread` its unfinished blocks are assigned to
        others as a whole.
        """
        host.gone = why
        host.talk = None
        self.connection.forget(host.name)
        self._note(f"! {host.name}: {why}" + (f" ({remedy})" if remedy else ""))
        run = self.runs[host.run]
        left = dealing.unfinished_blocks(run.order, host.blocks, host.taken)
        blocks = self.fleet.blocks
        if (
            self.fleet.mode == "spread"
            and left
            and not all(other.gone for other in self.hosts.values())
        ):
            aside = set_aside(
                self.results / host.run, [s.id for s in run.order if s.block in left], host.name
            )
            blocks = {
                **blocks,
                host.name: tuple(block for block in host.blocks if block not in left),
            }
            unused = f"; {count(len(aside), 'finished trial')} will not be used" if aside else ""
            self._note(
                f"blocks {', '.join(map(str, left))} of {host.name} are reassigned as a "
                f"whole{unused}"
            )
        self.fleet = dataclasses.replace(self.fleet, blocks=blocks)
        self._deal()

    def _deal(self) -> None:
        """Assign each block of the runs that no host has, and store that before it is acted on."""
        self._save()
        run = self.runs.get(self.fleet.name)
        if run is None:  # each host has a run of its own
            blocks = {
                name: dealing.first_blocks(self.runs[host.run].order, [name], "each")[name]
                for name, host in self.hosts.items()
            }
        else:
            left = {
                name: len(dealing.unfinished_blocks(run.order, host.blocks, host.taken))
                for name, host in self.hosts.items()
                if not host.gone
            }
            blocks = dealing.deal(run.order, self.fleet.blocks, left)
        self.fleet = dataclasses.replace(self.fleet, blocks=blocks)
        fleet_files.save(self.results, self.fleet)
        for host in self.hosts.values():
            if host.blocks != blocks[host.name]:
                self._assign(host)

    def _assign(self, host: FleetHost) -> None:
        host.blocks = self.fleet.blocks[host.name]
        host.order = dealing.trials_of_host(self.runs[host.run].order, host.blocks)
        host.taken = results.list_results(self.results / host.run) & {
            spec.id for spec in host.order
        }
        host.done = not host.order  # a host without blocks waits for those of hosts that leave

    def _add_block(self, host: FleetHost) -> bool:
        """With a budget alone, assign another block to a host whose budget has time for it; return
        whether it did.
        """
        longer = dealing.with_block(self.runs[host.run], host.state)
        if longer is None:
            return False
        self._change(host.run, order=longer.order)
        self.fleet = dataclasses.replace(
            self.fleet,
            blocks={**self.fleet.blocks, host.name: (*host.blocks, longer.order[-1].block)},
        )
        self._deal()
        return True

    def _cut(self, host: FleetHost) -> None:
        """Drop what does not fit the host's budget: repeats, and incomplete blocks; their trials
        are set aside.
        """
        run, dropped = dealing.cut(self.runs[host.run], host.missing)
        if dropped:
            set_aside(
                self.results / host.run,
                [spec.id for spec in host.order if spec.block in dropped],
                "budget",
            )
            self._note(
                f"{host.name} has used up its budget; blocks that it did not finish: "
                f"{', '.join(map(str, dropped))}"
            )
        self._change(run.name, order=run.order, budget=run.budget)
        self._deal()
        self._assign(host)
        host.done = True

    def _further(self) -> bool:
        """Assign more blocks to open questions of --until-precision; return whether there are any."""
        run = self.runs.get(self.fleet.name)
        able = [host for host in self.hosts.values() if not host.gone]
        if (
            run is None
            or run.precision is None
            or not able
            or any(host.missing for host in self.hosts.values())
        ):
            return False
        longer = self._add_usage(run)
        trials = {
            spec.id: results.load_trial(self.results / run.name / "trials" / spec.id)
            for spec in run.order
        }
        # The precision is checked once for as many blocks as there are hosts, which is less often
        # than on one machine.
        for _ in able:
            longer = further(longer, trials)
        self._change(run.name, order=longer.order, questions=longer.questions, budget=longer.budget)
        if more := len(longer.order) - len(run.order):
            self._note(f"{more} more trials to reach the precision")
        self._deal()
        return any(host.open for host in self.hosts.values())

    def _add_usage(self, run: Run) -> Run:
        return dealing.add_usage(
            run, [host.state for host in self.hosts.values() if host.run == run.name]
        )

    def _conclude(self) -> None:
        lacking = [host for host in self.hosts.values() if host.missing]
        for name, run in self.runs.items() if not lacking else ():
            if run.budget is not None:
                blocks = {
                    block
                    for host in self.hosts.values()
                    if host.run == name
                    for block in host.blocks
                }
                ended = dealing.conclude(
                    self._add_usage(run), blocks, results.list_results(self.results / name)
                )
                self._change(name, order=ended.order, budget=ended.budget)
                self._note(f"{name}: {budget_text(ended)}")
        self.fleet = dataclasses.replace(self.fleet, finished=not lacking)
        fleet_files.save(self.results, self.fleet)
        taken = sum(len(host.taken) for host in self.hosts.values())
        self.emit(
            Event(
                "fleet_end",
                {"name": self.fleet.name, "trials": taken, "lacking": [h.name for h in lacking]},
            )
        )
        if lacking:
            raise errors.HostLost(
                "\n  ".join(
                    f"{host.name}: {host.gone}; {len(host.missing)} trials were not collected"
                    for host in lacking
                ),
                remedy="Correct the cause on the host, then run the same command again to resume.",
            )

    def _note(self, text: str) -> None:
        self.emit(Event("note", {"text": text}))

    def _change(self, name: str, **news: Any) -> None:
        self.runs[name] = dataclasses.replace(self.runs[name], **news)
        self._unsaved.add(name)

    def _save(self) -> None:
        for name in sorted(self._unsaved):
            results.save_spec(self.results / name, self.runs[name])
        self._unsaved.clear()

    def _publish_status(self) -> None:
        self._published = time.monotonic()
        rows = [host.row(self._clock()) for host in self.hosts.values()]
        fleet_files.save_status(self.results, self.fleet.name, rows)
        self.emit(Event("hosts", {"utc": iso(self._clock()), "hosts": rows}))
