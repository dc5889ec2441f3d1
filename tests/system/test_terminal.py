"""Commands on a terminal: drawing never ends them, and the end that they expect is shown until it
comes.
"""

import itertools
import re
from typing import Any

import pytest

from tests.support.leftovers import below
from tests.support.plans import plan
from tests.support.terminal import SIZES, Screen, Terminal, dbbench_on
from tests.support.window_faults import stand_still

pytestmark = pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf")
PAIR = ["ext4", {"use": "ext4", "label": "ext4-b"}]
SMALL = {"name": "small-files", "files": 500}  # a trial of two seconds, without a server
TPCB = {"name": "pgbench-tpcb", "scale": 1, "clients": 1, "rate": 200}
LEFT = re.compile(r"(less than 2 min|about (\d+ h ?)?(\d+ min)?) left, until (\w{3} )?\d\d:\d\d$")
COUNT = re.compile(r"^\[ *(\d+)/(\d+)\]")


class Watched:
    """A run on a terminal: `ends` has, for each (trial, number of trials) that was drawn, whether
    its expected end was shown.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.terminal = Terminal(*size)
        self.ends: dict[tuple[int, int], set[bool]] = {}

    def visible(self, screen: Screen, _pid: int) -> bool:
        lines = screen.text.splitlines()
        for head, line in itertools.pairwise(lines):
            if head.startswith("run ") and (count := COUNT.match(line)):
                self.ends.setdefault((int(count[1]), int(count[2])), set()).add(
                    bool(LEFT.search(head))
                )
        return True

    def run(
        self,
        dbbench: Any,
        *words: str,
        statuses: tuple[int, ...] = (0,),
    ) -> Screen:
        """Run a command on the terminal; return the screen."""
        ended = dbbench_on(self.terminal, list(words), dbbench.folder, dbbench.env, self.visible)
        screen = self.terminal.screen
        assert ended in statuses, screen.text
        assert screen.cursor_visible and "no longer shown" not in screen.text, screen.text
        return screen


class Disturbed(Watched):
    """A run whose first window the load generator spends stopped, so that the trial is suspect."""

    done = False

    def visible(self, screen: Screen, pid: int) -> bool:
        if not self.done and "tx/s" in screen.text:
            self.done = True
            stand_still(below(pid, "pgbench")[0], 3)
        return super().visible(screen, pid)


class HungUp(Watched):
    """A run whose terminal is lost in its first trial."""

    def visible(self, screen: Screen, pid: int) -> bool:
        super().visible(screen, pid)
        return not self.ends


@pytest.mark.parametrize("size", [SIZES[0], pytest.param(SIZES[1], marks=pytest.mark.long)])
def test_a_run_that_adds_blocks_by_budget(size: tuple[int, int], dbbench: Any) -> None:
    """The end of the budget is shown from the first trial to the last one, also of the blocks that
    were added.
    """
    dbbench.plan(plan(PAIR, "files", SMALL, blocks=None, budget="30s", device={"size": "400MiB"}))
    watched = Watched(size)
    screen = watched.run(dbbench, "run", "plan.toml", "--name", "r")
    run = dbbench.spec()
    assert screen.colored and screen.text.count("\nrun r ") == 1 and "budget 30 s: " in screen.text
    assert set(watched.ends) >= {(number, 6) for number in range(1, 7)}
    assert set.union(*watched.ends.values()) == {True}, watched.ends
    if run["budget"]["blocks"] > 3:  # fewer on a machine where six trials take half a minute
        assert "more trials, block 4: " in screen.text and max(watched.ends)[1] == len(run["order"])


@pytest.mark.long
@pytest.mark.needs("engine:postgres")
@pytest.mark.parametrize("size", SIZES)
def test_a_run_that_repeats_a_suspect_block(size: tuple[int, int], dbbench: Any) -> None:
    """From the second trial on the expected end is shown, also of the trials that were added."""
    load = plan(
        PAIR,
        "postgres",
        TPCB,
        blocks=2,
        repeat_suspect=True,
        warmup="0s",
        device={"size": "400MiB"},
    )
    dbbench.plan(load)
    watched = Disturbed(size)
    screen = watched.run(dbbench, "run", "plan.toml", "--name", "r")
    assert screen.colored and "W129" in screen.text
    assert "2 more trials: blocks with a suspect trial are repeated as a whole" in " ".join(
        screen.text.split()
    )
    assert max(watched.ends)[1] == len(dbbench.spec()["order"]) == 6
    later = [ends for (number, _), ends in watched.ends.items() if number > 1]
    assert set.union(*later) == {True}, watched.ends


def test_a_lost_terminal_does_not_end_a_run(dbbench: Any) -> None:
    """Every trial is finished, and the page is written, although nothing can be shown any more."""
    dbbench.plan(plan("ext4", "files", SMALL, blocks=2, device={"size": "400MiB"}))
    lost = HungUp(SIZES[0])
    dbbench_on(
        lost.terminal,
        ["run", "plan.toml", "--name", "r"],
        dbbench.folder,
        dbbench.env,
        lost.visible,
    )
    assert lost.ends and len(dbbench.trials()) == 2
    assert (dbbench.folder / "results/r/report.html").exists()


OTHERS = {
    "nightly": ("nightly", "run", "plan.toml"),
    "powercut": ("powercut", "plan.toml", "--cuts", "2"),
    "fleet": ("fleet", "run", "plan.toml", "--local", "2", "--spread", "--name", "r"),
    "study": ("study", "run", "pg-fs-benchmark", "--scale", "tiny"),
}
SHOWN = {
    "nightly": r"^run test-night-",
    "powercut": "^  prepare: ",
    "study": "^run pg-fs-benchmark",
    "fleet": "^fleet r: spread, ",
}


@pytest.mark.long
@pytest.mark.needs("engine:postgres")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("command", OTHERS)
def test_other_commands_that_draw(
    command: str,
    size: tuple[int, int],
    dbbench: Any,
) -> None:
    """They end as they do without a terminal; the last drawing (of a fleet: its first line) stays
    once, and nothing in it is made of nothing.
    """
    if command == "fleet":
        pytest.importorskip("distributed")
    dbbench.plan(plan(PAIR, "postgres", TPCB, blocks=2, baseline="ext4", device={"size": "512MiB"}))
    # Beside other tests a night is disturbed, and then it is no evidence.
    ends = (0, 4) if command == "nightly" else (0,)
    screen = Watched(size).run(dbbench, *OTHERS[command], statuses=ends)
    assert len(re.findall(SHOWN[command], screen.text, re.MULTILINE)) == 1, screen.text
    assert "None" not in screen.text
