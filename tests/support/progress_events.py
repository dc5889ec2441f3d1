"""Events of a run of two trials, for tests of progress."""

from typing import Any

from dbbench.model.events import Event
from dbbench.report.progress.state import State


def trial(position: int, arm: str, block: int = 1) -> dict[str, Any]:
    """The data of a trial_begin."""
    return {
        "id": f"{arm}.postgres.tpcb-b{block}-a1",
        "position": position,
        "total": 4,
        "arm": arm,
        "block": block,
        "attempt": 1,
        "engine": "postgres",
        "workload": "tpcb",
    }


def ended(position: int, arm: str, value: float | None, status: str = "ok", **more: Any) -> Event:
    """A trial_end."""
    return Event(
        "trial_end",
        {
            **trial(position, arm),
            "trial": "x",
            "status": status,
            "metric": "tps",
            "unit": "tx/s",
            "value": value,
            **more,
        },
    )


BEGIN = Event(
    "run_begin",
    {"name": "r", "trials": 4, "done": 0, "seed": 42, "arms": ["ext4", "xfs"], "blocks": 2},
)


def begun(position: int, arm: str) -> Event:
    """A trial_begin."""
    return Event("trial_begin", trial(position, arm))


def state_of(*events: tuple[float, Event]) -> State:
    """The state after events, each at its second."""
    state = State()
    for at, event in events:
        state.take(event, at)
    return state


def state_at(events: list[Event], at: float = 100.0) -> State:
    """The state after `events`, all of them at one moment."""
    return state_of(*((at, event) for event in events))
