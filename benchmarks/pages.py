"""The report of a run of 10,000 rounds among ten parties: its size, the time to make it, a browser's first paint."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import colonnade
from benchmarks.report import Figure, in_turn, median
from tests.support.browser import CHROMIUM, Browser

ROUNDS, PARTIES, ROWS = 10_000, 10, 400
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        run = trained(Path(scratch) / "run")
        page = run.report()
        made = median(in_turn(run.report, repeats=5)[0])
        figures = [
            Figure(f"report of {ROUNDS:,} rounds, {PARTIES} parties: size", page.stat().st_size / 1000, 300, "kB"),
            Figure("its making", made, 2, "s"),
        ]
        if CHROMIUM is not None:
            with Browser() as browser:
                figures.append(Figure("its first paint in Chromium", median(_paints(browser, page)), 100, "ms"))
        return figures


def trained(folder: Path, rounds: int = ROUNDS) -> colonnade.Run:
    """A run on the virtual clock, on columns of noise."""
    draws = np.random.default_rng(0)
    values, ids = draws.normal(size=(ROWS, PARTIES)), np.arange(ROWS)
    tables = {f"party{at}": pd.DataFrame({"id": ids, "value": values[:, at]}) for at in range(PARTIES)}
    tables["server"] = pd.DataFrame({"id": ids, "label": (values.sum(axis=1) > 0).astype(int)})
    config = {
        "federation": {
            "id": "long", "protocol": "split", "classes": 2, "rounds": rounds, "batch": 16, "stop": "none",
            "evaluate": {"every": 20},
        },
        "server": {"labels": {"key": "id", "label": "label"}},
        "every_party": {"data": {"key": "id"}},
    }  # fmt: skip
    return colonnade.simulate(config, tables, folder)


def _paints(browser: Browser, page: Path) -> list[float]:
    found = []
    for _ in range(5):
        browser.open(page)
        while (at := browser.value(_PAINT)) is None:
            time.sleep(0.02)
        found.append(float(at))
    return found
