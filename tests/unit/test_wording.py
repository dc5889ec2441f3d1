"""No decision depends on the wording of a message.

Every message is replaced by "x": those in results, and those that are produced for display.
Verdicts, exit statuses, repeated blocks and the structure of the page must not change.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli, results
from dbbench.commands.powercut import _judge
from dbbench.compare import remarks
from dbbench.datasets import sources
from dbbench.errors import EXIT_OK, DbbenchError
from dbbench.labs.powercut import conclusions as powercut
from dbbench.model import (
    Conclusion,
    DatasetFacts,
    LabFacts,
    SourceChange,
    SourceChangeKind,
    Trial,
    TrialWarning,
)
from dbbench.nightly import analysis, judging
from dbbench.nightly.night import Change, Night, Ratio
from dbbench.report.answer import answer
from dbbench.report.page.charts.nights import Course, NightPoint, without_hosts
from dbbench.report.page.html import build, render
from dbbench.report.verdict_table import COLUMNS
from dbbench.report.verdicts import gate, verdicts
from dbbench.results import LoadedRun
from dbbench.run import adaptive, evaluate, queue
from tests.support.pages import Seen

# Fields of results that are written for people.
MESSAGES: Final = frozenset(
    {
        "checked",
        "contradiction",
        "flushes_note",
        "invalid",
        "note",
        "notes",
        "reason",
        "reasons",
        "skipped",
        "statement",
        "text",
        "told",
        "unread",
    }
)
SHAPES: Final = {
    "all": Shape(),
    "suspect": Shape(work=TPCB, suspect=[f"xfs.postgres.pgbench-tpcb-b{b}-a1" for b in (1, 2, 3)]),
    "failed": Shape(
        work=TPCB, failed=["ext4.postgres.pgbench-tpcb-b1-a1", "xfs.postgres.pgbench-tpcb-b2-a1"]
    ),
    "baseline": Shape(work=TPCB, failed=[f"ext4.postgres.pgbench-tpcb-b{b}-a1" for b in (1, 2, 3)]),
    "classes": Shape(work=TPCB, arms=("ext4", "ext4-nobarrier", "xfs"), blocks=5),
    "unfinished": Shape(work=TPCB, missing=4, gaps=(3, 9), stalls=(8, 9)),
}


def silenced(noun: Any, message: bool = False) -> Any:
    """The noun with "x" for each message in it; a message that is not there stays away."""
    if isinstance(noun, str):
        return "x" if message and noun else noun
    if dataclasses.is_dataclass(noun) and not isinstance(noun, type):
        fields = {f.name: getattr(noun, f.name) for f in dataclasses.fields(noun)}
        return dataclasses.replace(
            noun, **{k: silenced(v, k in MESSAGES) for k, v in fields.items()}
        )
    if isinstance(noun, dict):
        return {key: silenced(value, message) for key, value in noun.items()}
    return (
        type(noun)(silenced(value, message) for value in noun) if isinstance(noun, tuple) else noun
    )


@pytest.fixture
def wordless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What puts a kind into words says "x"."""
    for module, name in ((remarks, "text"), (sources, "text"), (powercut, "statement")):
        assert callable(getattr(module, name))
        monkeypatch.setattr(module, name, lambda *_: "x")
    monkeypatch.setattr(Change, "text", "x")


def skeleton(page: str) -> list[tuple[str, str | None]]:
    """Sections, tables with their rows, notices and drawings of a page, with their ids."""
    shown = ("section", "h2", "h3", "table", "tr", "th", "td", "svg", "details", "article")
    return [(tag, attributes.get("id")) for tag, attributes in Seen(page).elements if tag in shown]


def decisions(run: LoadedRun) -> Iterator[object]:
    """All that is decided about a run, without a word of prose."""
    for metric in (None, "all"):
        found = verdicts([run], None, metric)
        yield gate(found)
        for table in found.tables:
            yield [kind for kind, _ in answer([table], [run]).caveats]
            for row in table.rows:
                yield [note.kind for note in row.notes]
                yield [
                    column.words(row, table.metric) for column in COLUMNS if column.key != "notes"
                ]
    yield queue.extend(run.run, lambda spec: status_of(run, spec.id)).order
    yield skeleton(render([run]))
    page = build([run])
    yield [
        [(arm, len(notes)) for arm, notes in comparison.table.notes]
        for comparison in page.comparisons
    ]
    yield [kind for kind, _ in page.verdict.notices]


def status_of(run: LoadedRun, ident: str) -> Any:
    """The trial's status; of one that was not driven `ok`."""
    return next((trial.status for trial in run.trials if trial.id == ident), "ok")


def changed(trial: Trial) -> Trial:
    """With findings that the made-up trials lack: no steady state, borrowed throughput, a device at
    its ceiling.
    """
    more = [TrialWarning("W005", "+9 %"), TrialWarning("W003", "drain took 9 s")]
    limited = [TrialWarning("W042", "writes stood at 300 IOPS")] if trial.block > 1 else []
    return dataclasses.replace(trial, warnings=(*trial.warnings, *more[: trial.block], *limited))


@pytest.mark.parametrize("name", SHAPES)
def test_a_made_up_run_without_words_is_judged_the_same(
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Verdicts, notes by kind, the gate, which blocks are repeated, and the page's sections, tables
    and rows.
    """
    run = synthetic.loaded(tmp_path, SHAPES[name])
    run = dataclasses.replace(run, trials=tuple(map(changed, run.trials)), lab=synthetic.lab())
    before = list(decisions(run))
    request.getfixturevalue("wordless")
    assert list(decisions(silenced(run))) == before


@pytest.mark.parametrize("name", SHAPES)
def test_exit_statuses_stay(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Of commands that read a run."""
    folder = str(synthetic.write(tmp_path, SHAPES[name]))
    commands = [
        ["compare", folder, "--gate"],
        *([word, folder] for word in ("compare", "show", "report")),
    ]
    before = [cli.run(command) for command in commands]
    assert before[1:] == [EXIT_OK] * 3
    request.getfixturevalue("wordless")
    whole = results.load_whole
    read = results.load_run
    monkeypatch.setattr("dbbench.commands.show.load_whole", lambda path: silenced(whole(path)))
    monkeypatch.setattr(results, "load_run", lambda path: silenced(read(path)))
    assert [cli.run(command) for command in commands] == before


def test_further_blocks_are_those_of_the_kinds(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A settled pair stays settled, whatever is written about it."""
    request.getfixturevalue("wordless")
    run = results.load_spec(synthetic.write(tmp_path, Shape(work=TPCB, blocks=5)))
    trials = {trial.id: trial for trial in results.load_run(tmp_path / "demo").trials}
    plan = dataclasses.replace(run.plan, margin=1e-9)  # so that nothing is the same
    once = adaptive.further(dataclasses.replace(run, plan=plan, precision=0.9), trials)
    # btrfs is slow
    assert sorted(question.kind for question in once.questions.values()) == ["decided", "settled"]
    stricter = dataclasses.replace(once, precision=1e-9)
    assert adaptive.further(stricter, trials).order == run.order
    open_again = dataclasses.replace(stricter, questions={})
    assert len(adaptive.further(open_again, trials).order) == len(run.order) + 2


@pytest.mark.parametrize("conclusion", Conclusion)
@pytest.mark.parametrize("contradiction", ["", "cut 1 (checkpoint, seed 1): lost: 3 of 512"])
def test_a_lab_without_words_ends_the_same(conclusion: Conclusion, contradiction: str) -> None:
    """The error of `dbbench powercut` goes by the conclusions of its rows and the controls."""

    def ended(lab: LabFacts) -> str:
        try:
            _judge(lab)
        except DbbenchError as error:
            return error.id
        return ""

    lab = synthetic.lab(conclusion is Conclusion.BLIND, contradiction)
    lab = dataclasses.replace(
        lab, rows=tuple(dataclasses.replace(row, conclusion=conclusion) for row in lab.rows)
    )
    wanted = {Conclusion.BLIND: "E821", Conclusion.NONE: "E821"}.get(conclusion, "")
    wanted = "E821" if contradiction and conclusion is not Conclusion.BLIND else wanted
    assert ended(lab) == ended(silenced(lab)) == wanted


def night(number: int, ratio: float, good: bool = True) -> Night:
    """A night on which host and kernel are new."""
    date = f"2026-01-{number:02}"
    changes = (Change("host", "a", "b"), Change("kernel", "1", "2"))
    reasons = () if good else ("the guard is +9% from the reference that it is",)
    ratios = {"e w: xfs": Ratio(ratio, ratio * 0.98, ratio * 1.02, 7)}
    return Night(
        date,
        f"r{number}",
        f"{date}T01:00:00.000Z",
        good,
        reasons,
        0,
        ratios,
        changes=changes,
    )


def judged(nights: list[Night], tonight: Night) -> list[object]:
    """What is reported of tonight, confirmed by a second run that is the same: without a word of
    prose.
    """
    again = tonight.ratios["e w: xfs"]
    findings = [
        judging.confirm(finding, again) for finding in judging.judge(nights, tonight, None, 60)
    ]
    bare = [(dataclasses.replace(finding, notes=()), len(finding.notes)) for finding in findings]
    return [*bare, analysis.overall(tonight, findings, [])]


@pytest.mark.parametrize(("ratio", "good"), [(0.9, True), (0.7, True), (1.2, True), (0.7, False)])
def test_nights_without_words_are_judged_the_same(
    ratio: float,
    good: bool,
    request: pytest.FixtureRequest,
) -> None:
    """Findings, their confirmation, and the word of the night."""
    nights = [night(n, 0.9) for n in range(1, 9)]
    tonight = night(9, ratio, good)
    before = judged(nights, tonight)
    request.getfixturevalue("wordless")
    assert judged([silenced(past) for past in nights], silenced(tonight)) == before


def test_the_host_is_taken_out_of_a_night_without_words() -> None:
    """By the name of the fact that changed."""
    point = NightPoint("2026-01-01", 1.0, changed={"host": "x", "kernel": "x"})
    (course,) = without_hosts([Course("t", "xfs", "ext4", (point,))])
    assert course.points[0].changed == {"kernel": "x"}


def test_settings_of_a_source_are_warned_of_by_their_kind(request: pytest.FixtureRequest) -> None:
    """W101 for settings that are not in force; not for a database whose name has the same words."""
    request.getfixturevalue("wordless")
    values = {
        "database": "taken out, reset",
        "name": "x",
        "settings": "a = 1",
        "done": "x",
        "text": "taken out, reset",
    }
    for kind in SourceChangeKind:
        facts = DatasetFacts("source", "k", 1, None, "copy", changes=(SourceChange(kind, values),))
        observed: Any = SimpleNamespace(restored=SimpleNamespace(facts=facts))
        warned = [warning.id for warning in evaluate._of_dataset(cast(Any, None), observed)]
        assert warned == (["W101"] if kind in evaluate.NOT_IN_FORCE else [])
