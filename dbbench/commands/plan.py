"""`dbbench plan PLAN`: what a run of the plan would do (dry run)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dbbench.commands.options import Options, command_line, plan_argument, plan_options, results_option


@command_line()
@plan_argument
@plan_options
@results_option
def command(options: Options, plan_file: str, **narrowing: Any) -> None:
    """Show what a run would do, without doing it.

    Prints the trials in order, the commands, the devices with their identities, estimates of the time, the disk space
    and the bytes written, the setups that are skipped, and everything that this machine lacks for the plan. With a
    budget: as many blocks as it is expected to give.
    """
    from dbbench.model import plain
    from dbbench.plan import preview
    from dbbench.plan.forecast import apply_budget, forecast, recall
    from dbbench.plan.narrowing import Narrowing
    from dbbench.plan.request import able, list_gaps, load_request
    from dbbench.report.plan_text import as_document, put_plan, put_refusals, put_skips
    from dbbench.report.text import put_json
    from dbbench.run.preflight import refusals

    wanted = load_request(plan_file, options.paths, Narrowing(**narrowing))
    expanded = recall(wanted.plan, wanted.expanded, options.results_folder)
    plan, expanded, allowance = apply_budget(wanted.plan, expanded)
    wanted = replace(wanted, plan=plan, expanded=expanded)
    look = preview(wanted.plan, wanted.expanded)
    expected = forecast(wanted.plan, wanted.expanded, options.results_folder)
    lacking = list_gaps(wanted, options.paths)
    refused = refusals(able(wanted, options.paths), options.results_folder)
    if options.json:
        problems = [{"id": refusal.id, "title": refusal.title, "evidence": refusal.evidence, "remedy": refusal.remedy}
                    for refusal in refused]  # fmt: skip
        put_json({**as_document(wanted, look, expected), "budget": None if allowance is None else plain(allowance),
                  "skipped": wanted.skipped, "unsupported": lacking, "refused": problems})  # fmt: skip
    else:
        put_plan(wanted, look, expected, allowance)
        put_skips(wanted.skipped, lacking)
        put_refusals(refused)
