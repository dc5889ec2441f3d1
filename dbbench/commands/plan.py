"""`dbbench plan PLAN`: what a run of the plan would do (dry run)."""

from __future__ import annotations

from typing import Any

from dbbench.commands.options import (
    Options,
    command_line,
    plan_argument,
    plan_options,
    results_option,
)
from dbbench.errors import EXIT_OK


@command_line(
    "dbbench plan",
    "dbbench plan plan.toml --fs ext4,xfs --budget 8h",
    statuses=(0, 2, 5),
)
@plan_argument
@plan_options
@results_option
def command(options: Options, plan_file: str, **narrowing: Any) -> int:
    """Show what a run would do, without doing it.

    Prints first why a run would be refused here, if so. Then the time, the bytes written, the
    difference that the run would detect, what happens to this machine, the setups that are
    skipped, the conditions and the commands.
    """
    from dbbench.model import plain
    from dbbench.plan import preview
    from dbbench.plan.forecast import apply_budget, forecast, recall
    from dbbench.plan.narrowing import Narrowing
    from dbbench.plan.request import able, load_request
    from dbbench.report.plan_text import as_document, put_plan, put_refusals
    from dbbench.report.text import put_json
    from dbbench.run.preflight import refusals

    # What a run would do, with what earlier runs took.
    request = able(load_request(plan_file, options.paths, Narrowing(**narrowing)), options.paths)
    request, allowance = apply_budget(recall(request, options.results_folder))

    # What it costs, what it detects, and why it would be refused.
    look = preview(request.plan, request.expanded)
    expected = forecast(request, options.results_folder)
    refused = refusals(request, options.results_folder)
    if options.json:
        document = as_document(request, look, expected, options.results_folder)
        problems = [
            {
                "id": refusal.id,
                "title": refusal.title,
                "evidence": refusal.evidence,
                "remedy": refusal.remedy,
            }
            for refusal in refused
        ]
        put_json(
            {
                **document,
                "budget": None if allowance is None else plain(allowance),
                "skipped": request.skipped,
                "refused": problems,
            }
        )
    else:
        if refused:
            put_refusals(refused)
        put_plan(request, look, expected, allowance, options.results_folder)
    return refused[0].exit_code if refused else EXIT_OK
