"""The state of a plan's nights, and whether it is another than the last that was told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dbbench.nightly.analysis import Finding
from dbbench.nightly.history import FOLDER, Night
from dbbench.store.files import write_json

QUIET: Final = ("ok", "learning")


def overall(tonight: Night, findings: Sequence[Finding], missing: Sequence[str]) -> str:
    """One word: regression, failed, inconclusive (the night tells nothing, or nights are missing), improvement, ok."""
    states = {finding.state for finding in findings}
    if "regression" in states:
        return "regression"
    if tonight.failed:
        return "failed"
    if not tonight.good or "suspect" in states or missing:
        return "inconclusive"
    return "improvement" if "improvement" in states else "ok"


def changed(results: Path, plan: str, word: str, findings: Sequence[Finding]) -> bool:
    """Whether somebody should be told; notes the state as told. The first night is told where it is not quiet."""
    path = results / FOLDER / f"{plan}.state.json"
    series = {finding.key: "ok" if finding.state in QUIET else finding.state for finding in findings}
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        told, known = before["state"], before["series"]
    except (OSError, ValueError, KeyError, TypeError):
        told, known = "ok", {}
    write_json(path, {"state": word, "series": series})
    return bool(told != word or any(known.get(key, "ok") != state for key, state in series.items()))
