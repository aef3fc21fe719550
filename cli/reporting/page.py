"""report.html and comparison.html, put together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cli.page.frame import frame
from cli.page.script import SCRIPT
from cli.reporting.about import configuration, environment, importance, opening
from cli.reporting.charts import charts
from cli.reporting.comparison import comparison, named, sentences
from cli.reporting.incidents import incidents
from cli.reporting.presence import presence
from cli.reporting.privacy import privacy
from cli.reporting.quality import quality
from cli.reporting.run import Run
from cli.reporting.traffic import traffic


def html(runs: Sequence[Run], beside: Path, again: float = 0) -> str:
    """The page of a run, or of several compared.

    Args:
        runs: at least one.
        beside: the folder that the page will lie in.
        again: seconds after which a browser loads it anew; 0 for never.
    """
    return _one(runs[0], beside, again) if len(runs) == 1 else _several(runs)


def _one(run: Run, beside: Path, again: float) -> str:
    sections = [
        opening(run),
        charts({run.name: run}),
        quality(run),
        presence(run),
        incidents(run),
        traffic(run),
        privacy(run),
        importance(run, beside),
        configuration(run),
        environment(run),
    ]
    return frame(f"{run.summary.get('federation') or run.name}: report", sections, SCRIPT, again)


def _several(runs: Sequence[Run]) -> str:
    by_name = named(runs)
    return frame(f"{len(runs)} runs compared", [sentences(by_name), charts(by_name), comparison(by_name)], SCRIPT)
