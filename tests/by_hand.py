"""Recompute the first screen from the files of the trials, without any code of dbbench: `python
tests/by_hand.py results/RUN` prints the values, changes and intervals, and ends with 1 if the
page or `compare` shows another.

Throughput is the mean of the seconds of the window in series.csv.gz; of a scan, the bytes by the
time of its passes in raw/scan.json. A block is a pair with the baseline; intervals are those of
docs/method.md: t of paired logarithms, variances shared between the pairs of a run, Holm, 95 %
(runs with --until-precision have others).
"""

import csv
import gzip
import html
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import t as student

Key = tuple[str, str]
ALPHA = 0.05


class Line(NamedTuple):
    """What a table shows of a setup; without an interval, low and high are None."""

    value: float
    change: float | None = None
    low: float | None = None
    high: float | None = None


def throughput(folder: Path) -> float:
    """Return tx/s of the window, or MB/s of the scan after its first pass."""
    scan = folder / "raw/scan.json"
    if scan.exists():
        recorded = json.loads(scan.read_text())
        size = sum(table["size_bytes"] for table in recorded["tables"])
        return float(size / statistics.mean(recorded["passes_s"]) / 1e6)
    with gzip.open(folder / "series.csv.gz", "rt") as text:
        rows = [row for row in csv.DictReader(text) if row["phase"] == "measure"]
    return statistics.mean(float(row["tps"]) for row in rows)


def measured(run: Path) -> dict[Key, dict[str, dict[int, float]]]:
    """Return the throughput by engine and workload, setup and block; the first attempt counts."""
    values: dict[Key, dict[str, dict[int, float]]] = {}
    for folder in sorted((run / "trials").iterdir()):
        trial = json.loads((folder / "trial.json").read_text())
        if trial["status"] == "failed" or trial["attempt"] > 1:
            continue
        arms = values.setdefault((trial["engine"], trial["workload"]), {})
        arms.setdefault(trial["fs_setup"], {})[trial["block"]] = throughput(folder)
    return values


def prior(spreads: list[tuple[int, float]]) -> tuple[float, float]:
    """Return degrees of freedom and variance that the pairs (blocks, deviation) share."""
    logs = []
    chance = []
    for blocks, deviation in spreads:
        half = (blocks - 1) / 2
        logs.append(math.log(deviation**2) - float(digamma(half)) + math.log(half))
        chance.append(float(polygamma(1, half)))
    beyond = statistics.variance(logs) - statistics.mean(chance)
    if beyond <= 0:
        return math.inf, math.exp(statistics.mean(logs))
    half = float(brentq(lambda x: float(polygamma(1, x)) - beyond, 1e-6, 1e6))
    return 2 * half, math.exp(statistics.mean(logs) + float(digamma(half)) - math.log(half))


def lines(run: Path, baseline: str) -> dict[Key, dict[str, Line]]:
    """Return what the first screen has to show."""
    values = measured(run)
    logs: dict[tuple[Key, str], list[float]] = {}
    for key, arms in values.items():
        for arm, blocks in arms.items():
            if arm != baseline:
                pairs = [(blocks[b], arms[baseline][b]) for b in blocks if b in arms[baseline]]
                logs[key, arm] = [math.log(value / base) for value, base in pairs]
    spreads = {
        pair: (len(each), statistics.stdev(each)) for pair, each in logs.items() if len(each) > 2
    }
    several = len({key for key, _ in spreads}) > 1
    shared_df, variance = prior(list(spreads.values())) if several else (0.0, 0.0)
    screen: dict[Key, dict[str, Line]] = {}
    for key, arms in values.items():
        screen[key] = {
            arm: Line(statistics.geometric_mean(blocks.values())) for arm, blocks in arms.items()
        }
        errors: dict[str, tuple[float, float, float]] = {}
        for arm in arms:
            if arm == baseline:
                continue
            each = logs[key, arm]
            mean = statistics.mean(each)
            screen[key][arm] = screen[key][arm]._replace(change=math.exp(mean))
            if len(each) < 3:
                continue
            own = len(each) - 1
            more = min(shared_df / 4, 2 * own, (len(spreads) - 1) / 2 * own)
            more = more if shared_df >= own / 2 else 0.0
            pooled = (own * statistics.variance(each) + more * variance) / (own + more)
            errors[arm] = (mean, math.sqrt(pooled / len(each)), own + more)
        left = len(errors)
        chances = {a: 2 * student.sf(abs(m) / error, df) for a, (m, error, df) in errors.items()}
        for arm in sorted(chances, key=lambda arm: chances[arm]):
            mean, error, df = errors[arm]
            half = student.ppf(1 - ALPHA / left / 2, df) * error
            low, high = math.exp(mean - half), math.exp(mean + half)
            screen[key][arm] = screen[key][arm]._replace(low=low, high=high)
            left -= chances[arm] <= ALPHA / left
    return screen


def shown(line: Line) -> list[str]:
    """Return the figures as dbbench writes them, without spaces."""
    digits = max(0, 2 - math.floor(math.log10(line.value)))
    # A whole number has no decimals; a mean of logarithms may miss it by its last bit.
    if line.value >= 100 or math.isclose(line.value, round(line.value), rel_tol=1e-12):
        digits = 0
    figures = [f"{line.value:.{digits}f}"]
    if line.change is not None:
        figures.append(percent(line.change) + "%")
    if line.low is not None and line.high is not None:
        figures.append(f"{percent(line.low)}..{percent(line.high)}%")
    return figures


def percent(ratio: float) -> str:
    """Return a ratio as a signed change; from 100 % on without a decimal."""
    change = 100 * (ratio - 1)
    text = f"{change:+.0f}" if abs(change) >= 99.95 else f"{change:+.1f}"
    return text.removeprefix("+") if text == "+0.0" else text.replace("-", "−")


def missing(run: Path, baseline: str, text: str) -> list[str]:
    """Return the figures that the text of a page or of `compare` does not contain."""
    bare = re.sub(r"\s", "", html.unescape(re.sub(r"<[^>]+>", "", text)))
    absent = []
    for key, arms in lines(run, baseline).items():
        for arm, line in arms.items():
            absent += [f"{key} {arm} {part}" for part in shown(line) if part not in bare]
    return absent


def main(run: Path) -> int:
    """Print the figures; compare them with page and terminal."""
    baseline = json.loads((run / "run.json").read_text())["plan"]["baseline"]
    for key, arms in lines(run, baseline).items():
        for arm, line in arms.items():
            print(*key, arm, *shown(line))
    argv = [sys.executable, "-m", "dbbench", "compare", run.name, "--results", str(run.parent)]
    printed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    wrong = missing(run, baseline, printed)
    wrong += missing(run, baseline, (run / "report.html").read_text(encoding="utf-8"))
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
