"""The coordinator: asks every host for its results, copies them, and reassigns the blocks of a lost host.

It has no state of its own: hosts have theirs on their disks, and collected trials are in the results. If it is killed,
the same command resumes. It keeps at most one answer per host in memory, and the names of trials.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dbbench import __version__, results
from dbbench.errors import BudgetUsedUp, DbbenchError, HostLost, ResultDamaged
from dbbench.fleet import ledger
from dbbench.fleet.ledger import Book, Fleet
from dbbench.fleet.room import Answer, Chunk, Deal, Dealt, HostSeen, Question, Refused, See
from dbbench.fleet.transport import Lost, Transport
from dbbench.model import Budget, BudgetEnd, Run, TrialSpec
from dbbench.model.events import Emit, Event
from dbbench.report.sentences import budget_text
from dbbench.results.trials import set_aside
from dbbench.units import iso

PATIENCE_S: Final = 15.0  # a host without news answers after this time: each question costs a few ms of its CPU
GONE_AFTER_S: Final = 600.0  # longer than a reboot; what the host measures meanwhile is not lost
_RETRY_S: Final = 1.0
_TELL_S: Final = 1.0
_SAVE_SHARE: Final = 20  # writing run.json takes at most 1/20 of the time: with 20 000 trials it has several MB


class Coordinator:
    """A fleet in operation."""

    def __init__(
        self, results_folder: Path, fleet: Fleet, plan_text: str, scripts: dict[str, str], engine: Transport,
        emit: Emit, *, wipe: tuple[str, ...] = (), patience_s: float = PATIENCE_S, gone_after_s: float = GONE_AFTER_S,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.results, self.fleet, self.engine = results_folder, fleet, engine
        self._plan_text, self._scripts, self._wipe = plan_text, scripts, wipe
        self._emit, self._clock = emit, clock
        self._patience_s, self._gone_after_s = patience_s, gone_after_s
        self._runs = {name: results.load_spec(results_folder / name) for name in ledger.run_names(fleet)}
        self._start = True  # whether hosts start supervisors
        self._unsaved: set[str] = set()
        self._saved, self._save_s, self._told, self._looked = 0.0, 0.0, 0.0, 0.0
        self.books = {host: self._book(host) for host in fleet.dealing}

    def work(self) -> None:
        """Work until every host has run its blocks or is lost. Raises HostLost at the end."""
        self._emit(Event("fleet_begin", {"name": self.fleet.name, "mode": self.fleet.mode, "hosts": list(self.books),
                                         "trials": sum(len(book.expected) for book in self.books.values()),
                                         "done": sum(len(book.taken) for book in self.books.values())}))  # fmt: skip
        try:
            while any(book.open for book in self.books.values()) or self._further():
                self.step()
            self._conclude()
        finally:
            self._save(now=True)
            self._tell(now=True)

    def collect(self, seconds: float) -> None:
        """Copy finished trials from hosts that answer within that many seconds; start nothing."""
        until = self._clock() + seconds
        self._start = False
        for book in self.books.values():
            book.dealt = True
        while any(book.open and not book.current for book in self.books.values()) and self._clock() < until:
            self.step()
        for book in self.books.values():
            if book.current and book.state.trial:
                self._emit(
                    Event("note", {"text": f"{book.host} is running a trial; its results are collected after it"})
                )
        self._save(now=True)

    def step(self) -> None:
        """Ask every idle host, and process the answers."""
        for book in self.books.values():
            self._ask(book)
        for host, answer in self.engine.answers(_TELL_S):
            book = self.books[host]
            book.asked = False
            if isinstance(answer, Lost):
                book.lost(answer.why, self._clock() + _RETRY_S)
            elif book.open:
                book.heard = self._clock()
                self._guarded(book, answer)
                self._ask(book)
        self._look()
        self._save()
        self._tell()

    # --- questions to hosts ---

    def _ask(self, book: Book) -> None:
        """Send the next question, unless one is pending or none is due."""
        if not book.asked and book.open and self._clock() >= book.retry_at and (self._start or not book.current):
            book.asked = True
            self.engine.ask(book.host, self._question(book))

    def _question(self, book: Book) -> Question:
        if not book.dealt:
            return self._deal(book)
        if book.transfer is not None and book.transfer.rest:
            name, _ = book.transfer.rest[0]
            return Chunk(book.run, book.transfer.trial, name, book.transfer.offset)
        return See(book.run, book.blocks, tuple(sorted(book.arrived)), self._patience_s, self._start)

    def _deal(self, book: Book) -> Deal:
        run = self._runs[book.run]
        budget = None if run.budget is None else Budget(step=0)
        host_run = dataclasses.replace(run, order=book.order, precision=None, budget=budget, hosts={}, host={},
                                       versions={})  # fmt: skip
        return Deal(book.run, results.written_spec(host_run), self._plan_text, self._scripts, self._wipe, __version__)

    # --- answers of hosts ---

    def _guarded(self, book: Book, answer: Answer) -> None:
        """Process an answer; a failure affects only this host."""
        try:
            self._take(book, answer)
        except ResultDamaged as error:
            book.transfer = None
            book.damaged += 1
            if book.damaged >= 3:  # one damaged transfer may be the network; three in a row mean a bad disk
                self._give_up(book, f"{error.title}: {error.evidence}")
        except DbbenchError as error:
            self._give_up(book, f"{error.id} {error.title}: {error.evidence}")

    def _take(self, book: Book, answer: Answer) -> None:
        match answer:
            case Refused(error):
                self._give_up(book, str(error.get("evidence")), error.get("remedy"))
            case Dealt(facts):
                book.dealt = True
                self._change(book.run, hosts={**self._runs[book.run].hosts, book.host: facts})
                if self.fleet.mode == "each":  # each host has a separate run, like one started by hand
                    host_facts = {name: value for name, value in facts.items() if name != "versions"}
                    self._change(book.run, host=host_facts, versions=dict(facts["versions"]))
            case HostSeen():
                self._see(book, answer)
            case bytes() if book.transfer is not None:
                book.transfer.take(answer)
                self._home(book)

    def _see(self, book: Book, seen: HostSeen) -> None:
        book.current = not seen.trial
        if not seen.dealt:
            book.dealt = False
            return
        if (has := seen.state.waits_for) != book.state.waits_for and has and not self._is_ours(has):
            self._emit(Event("note", {"text": f"{book.host} waits for the disk, which is used by {has}"}))
        book.state = seen.state
        dealt = {spec.id for spec in book.order}
        if new := [TrialSpec(**spec) for spec in seen.repeats if spec["id"] not in dealt]:
            book.order = (*book.order, *new)
            have = {spec.id for spec in self._runs[book.run].order}
            more = [spec for spec in new if spec.id not in have]
            self._change(book.run, order=(*self._runs[book.run].order, *more))
        if seen.trial:
            book.begin(seen, self.results / book.run)
            self._home(book)
        elif seen.state.error is not None and seen.state.error.get("id") == BudgetUsedUp.id:
            self._cut(book)
        elif seen.state.error is not None:
            error = seen.state.error
            self._give_up(book, str(error.get("evidence")), error.get("remedy"))
        elif seen.state.ended and book.expected <= book.taken and not self._another(book):
            book.done = True
            self._emit(Event("note", {"text": f"{book.host}: all of its {len(book.taken)} trials are collected"}))

    def _is_ours(self, folder: str) -> bool:
        """Whether the run's directory belongs to a host of this fleet."""
        return Path(folder).is_relative_to(ledger.folder_of(self.results, self.fleet.name))

    def _home(self, book: Book) -> None:
        """Publish a trial that has arrived completely.

        Its host continues meanwhile. It keeps the trial, and is asked for it again if it cannot be published here.
        """
        transfer = book.transfer
        if transfer is None or transfer.rest:
            return
        book.transfer, book.arriving = None, transfer.trial
        self._ask(book)
        try:
            transfer.incoming.finish()
            book.taken.add(transfer.trial)
        finally:
            book.arriving = None
        book.damaged = 0
        trial = results.load_trial(self.results / book.run / "trials" / transfer.trial)
        primary = self._runs[book.run].cell(trial.id.rpartition("-b")[0]).workload.primary
        self._emit(Event("trial_end", {
            "host": book.host, "trial": trial.id, "arm": trial.fs_setup, "engine": trial.engine,
            "workload": trial.workload, "block": trial.block, "attempt": trial.attempt, "status": trial.status.value,
            "metric": primary, "value": trial.summary.get(primary),
            "error": dataclasses.asdict(trial.error) if trial.error else None}))  # fmt: skip

    # --- hosts that are lost ---

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked < _TELL_S:
            return
        self._looked, there = now, self.engine.hosts()
        for book in self.books.values():
            book.heard = max(book.heard, there.get(book.host, 0.0))
            if book.open and now - book.heard > self._gone_after_s:
                self._give_up(book, f"no answer for {now - book.heard:.0f} s")

    def _give_up(self, book: Book, why: str, remedy: Any = None) -> None:
        """Expect nothing more of the host; with `spread` its unfinished blocks are reassigned as a whole."""
        book.gone, book.transfer = why, None
        self.engine.forget(book.host)
        self._emit(Event("note", {"text": f"! {book.host}: {why}" + (f" ({remedy})" if remedy else "")}))
        gone, dealt = {**self.fleet.gone, book.host: why}, self.fleet.dealing
        run = self._runs[book.run]
        left = ledger.unfinished_blocks(run.order, book.blocks, book.taken)
        able = {
            b.host: len(ledger.unfinished_blocks(run.order, b.blocks, b.taken))
            for b in self.books.values()
            if not b.gone
        }
        if self.fleet.mode == "spread" and left and able:
            torn = [spec.id for spec in run.order if spec.block in left]  # the whole block runs again on another host
            aside = set_aside(self.results / book.run, torn, book.host)
            dealt = ledger.deal_again(dealt, book.host, left, able)
            aside_text = f", {len(aside)} of its finished trials are not used" if aside else ""
            self._emit(Event("note", {"text": f"blocks {', '.join(map(str, left))} of {book.host} are assigned again "
                                              f"in full{aside_text}"}))  # fmt: skip
        self._deal_again(dealt, run, gone)

    def _deal_again(self, dealt: ledger.Dealing, run: Run, gone: dict[str, str]) -> None:
        self.fleet = dataclasses.replace(self.fleet, dealing=dealt, gone=gone)
        ledger.save(self.results, self.fleet)
        for host, book in self.books.items():
            if book.blocks != dealt[host]:
                book.redeal(dealt[host], ledger.trials_of_host(run.order, dealt[host]))

    # --- a budget of time ---

    def _another(self, book: Book) -> bool:
        """With a budget alone, assign another block to a host whose budget has time for it; return whether it did."""
        run, mean_s = self._runs[book.run], book.state.mean_s
        if run.budget is None or run.precision is not None or run.plan.budget_s is None or mean_s is None:
            return False
        block_s = mean_s * len(run.cells)
        if book.state.used_s + block_s > run.plan.budget_s:
            return False
        hosts = [host for host in self.books if self.books[host].run == book.run]
        longer, dealt = ledger.deal_longer(run, self.fleet.dealing, book.host, hosts)
        self._change(book.run, order=longer.order)
        self._save(now=True)
        self._deal_again(dealt, longer, self.fleet.gone)
        return True

    def _cut(self, book: Book) -> None:
        """Drop what a host could not finish within its budget: repeats, and incomplete blocks, whose finished trials
        are set aside."""
        run = self._runs[book.run]
        missing = {spec.id: spec for spec in book.order if spec.id not in book.taken}
        torn = sorted({spec.block for spec in missing.values() if spec.attempt == 1})
        if torn:
            set_aside(self.results / book.run, [spec.id for spec in book.order if spec.block in torn], "budget")
            self._emit(Event("note", {"text": f"{book.host} has used up its budget; blocks that it did not finish: "
                                              f"{', '.join(map(str, torn))}"}))  # fmt: skip
        if missing:
            order = tuple(spec for spec in run.order if spec.block not in torn and spec.id not in missing)
            end: BudgetEnd = "cut" if torn else "time"
            self._change(book.run, order=order, budget=dataclasses.replace(run.budget or Budget(), ended=end))
            left = tuple(block for block in book.blocks if block not in torn)
            self._save(now=True)
            self._deal_again({**self.fleet.dealing, book.host: left}, self._runs[book.run], self.fleet.gone)
            book.redeal(left, ledger.trials_of_host(order, left))
        book.done = book.dealt = True

    def _account(self) -> None:
        """Store in each run how much of the budget its hosts have used: the largest value of a host."""
        for name, run in self._runs.items():
            if run.budget is not None:
                states = [book.state for book in self.books.values() if book.run == name]
                used_s = max([run.budget.used_s, *(state.used_s for state in states)])
                trial_s = max((state.mean_s for state in states if state.mean_s is not None), default=None)
                times = run.budget.cell_s if trial_s is None else {cell.id: trial_s for cell in run.cells}
                self._change(name, budget=dataclasses.replace(run.budget, used_s=used_s, cell_s=times))

    def _give_result(self) -> None:
        """Store in each run the outcome of its budget. Blocks that no host has any more are dropped."""
        self._account()
        for name, run in self._runs.items():
            if run.budget is not None:
                dealt = {block for book in self.books.values() if book.run == name for block in book.blocks}
                order = tuple(spec for spec in run.order if spec.block in dealt)
                whole = dealt - set(
                    ledger.unfinished_blocks(order, sorted(dealt), results.finished(self.results / name))
                )
                budget = dataclasses.replace(run.budget, blocks=len(whole), ended=run.budget.ended or "time")
                self._change(name, order=order, budget=budget)
                self._emit(Event("note", {"text": f"{name}: {budget_text(self._runs[name])}"}))

    def _further(self) -> bool:
        """With --until-precision, assign further blocks of open questions when all results are collected; return
        whether there are any."""
        run, able = self._runs.get(self.fleet.name), [book.host for book in self.books.values() if not book.gone]
        if run is None or run.precision is None or not able or self._lacking():
            return False
        # Imported here, because it imports everything that a runner needs.
        from dbbench.fleet.ledger import dealt_further

        self._account()
        run = self._runs[self.fleet.name]
        longer, dealt = dealt_further(run, self.fleet.dealing, self.results / run.name, able)
        self._change(
            run.name, order=longer.order, questions=longer.questions, settled=longer.settled, budget=longer.budget
        )
        self._save(now=True)
        if more := len(longer.order) - len(run.order):
            self._emit(Event("note", {"text": f"{more} more trials to reach the precision"}))
        self._deal_again(dealt, longer, self.fleet.gone)
        return any(book.open for book in self.books.values())

    def _lacking(self) -> list[Book]:
        return [book for book in self.books.values() if book.expected - book.taken]

    def _conclude(self) -> None:
        lacking = self._lacking()
        if not lacking:
            self._give_result()
        self.fleet = dataclasses.replace(self.fleet, finished=not lacking)
        ledger.save(self.results, self.fleet)
        home = sum(len(book.taken) for book in self.books.values())
        self._emit(Event("fleet_end", {"name": self.fleet.name, "trials": home, "lacking": [b.host for b in lacking]}))
        if lacking:
            raise HostLost(
                "\n  ".join(f"{book.host}: {book.gone}; {len(book.expected - book.taken)} trials were not collected"
                            for book in lacking),
                effect="The results that arrived are kept.",
                remedy="Correct the cause on the host, then run the same command again to resume.",
            )  # fmt: skip

    # --- state: runs, hosts and progress ---

    def _book(self, host: str) -> Book:
        name = ledger.run_name(self.fleet, host)
        order = ledger.trials_of_host(self._runs[name].order, self.fleet.dealing[host])
        taken = {spec.id for spec in order} & results.finished(self.results / name)
        book = Book(host, name, self.fleet.dealing[host], order, taken, self._clock())
        book.done = not order  # a host without blocks waits for blocks of hosts that leave
        return book

    def _change(self, name: str, **news: Any) -> None:
        self._runs[name] = dataclasses.replace(self._runs[name], **news)
        self._unsaved.add(name)

    def _save(self, now: bool = False) -> None:
        if self._unsaved and (now or time.monotonic() - self._saved > _SAVE_SHARE * self._save_s):
            began = time.monotonic()
            for name in sorted(self._unsaved):
                results.save_spec(self.results / name, self._sorted(self._runs[name]))
            self._unsaved.clear()
            self._saved = time.monotonic()
            self._save_s = self._saved - began

    @staticmethod
    def _sorted(run: Run) -> Run:
        return dataclasses.replace(run, hosts=dict(sorted(run.hosts.items())))

    def _tell(self, now: bool = False) -> None:
        if now or time.monotonic() - self._told >= _TELL_S:
            self._told = time.monotonic()
            rows = [book.row(self._clock()) for book in self.books.values()]
            ledger.tell(self.results, self.fleet.name, rows)
            self._emit(Event("hosts", {"utc": iso(self._clock()), "hosts": rows}))
