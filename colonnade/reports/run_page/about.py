"""Description of a run: headline, best round, configuration and environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.common.run.numbers import plain
from colonnade.reports.console.progress import JUDGED
from colonnade.reports.console.summary import (
    WARNING,
    back_off_words,
    best_of_stopped,
    fallen_words,
    measure_of,
    metric_rows,
    number_words,
    own_models,
    pace_words,
    with_baseline,
)
from colonnade.reports.html.frame import facts, folded, section
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.privacy import headline as spent
from colonnade.reports.words import counted, seconds

_ENDS = {
    "completed": "",
    "interrupted": "The run was interrupted.",
    "failed": "The run failed.",
    "unfinished": "The run has not ended: it goes on, or its server was killed. This is what its events say so far.",
}


def headline(run: RecordedRun) -> str:
    """The run in a sentence: what was run, result, duration, and privacy spent."""
    said = run.summary
    on = f" on {said['dataset']}" if said.get("dataset") else ""
    what = f"{said['protocol'] or 'A run'}{on} among {counted(len(run.parties), 'party')}"
    took = seconds(said["seconds"]) + (" of simulated delays" if run.virtual else "")
    rounds, best = counted(said["rounds"], "round"), best_of_stopped(said)
    if best is None:
        return f"{what}: {reached(said, said['metrics'])} after {rounds} and {took}; {spent(said)}."
    where = f"in round {best['round']}, the best of {rounds}"
    return f"{what}: {reached(said, best)} {where}, after {took}; {spent(said)}."


def reached(summary: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """The last accuracy or RMSE, of the test rows if there are any; for unequal classes the judging metric first.

    Args:
        metrics: of the last round, or of the best.
    """
    measure = measure_of(summary)
    for part, rows in (("test", "test"), ("val", "validation")):
        if (value := metrics.get(f"{part}_accuracy")) is not None:
            accuracy = f"accuracy {with_baseline(summary, f'{part}_accuracy', value)}"
            judged = metrics.get(f"{part}_{measure}")
            if not measure or judged is None:
                return f"{rows} {accuracy}"
            return f"{rows} {JUDGED[measure]} {number_words(f'{part}_{measure}', judged)} and {accuracy}"
        if (value := metrics.get(f"{part}_rmse")) is not None:
            r2 = metrics.get(f"{part}_r2")
            said = f"{rows} RMSE {with_baseline(summary, f'{part}_rmse', value)}"
            return said if r2 is None else f"{said}, R2 {plain(r2)}"
    return "no accuracy was measured"


def opening(run: RecordedRun) -> Html:
    """The headline, how the run ended if not well, and its result."""
    status, error = run.summary["status"], run.summary.get("error")
    ended = _ENDS.get(status, f"The run is {status}.")
    said = Html(tag("p", headline(run), class_="headline"))
    if ended:
        said = Html(said + tag("p", f"{ended} {error or ''}".strip(), class_="note"))
    for warned in filter(None, (run.summary.get(WARNING), fallen_words(run.summary))):
        said = Html(said + tag("p", f"Warning: {warned}.", class_="note"))
    return Html(tag("div", said, facts(_reached(run)), id="opening") + "\n")


def _reached(run: RecordedRun) -> list[tuple[str, object]]:
    said, metrics = run.summary, run.summary["metrics"]
    rows: list[tuple[str, object]] = [*metric_rows(said), *own_models(metrics)]
    rows = [(name, value) for name, value in rows if name != WARNING]  # shown above
    if said.get("stopped"):
        rows.append(("stopped", said["stopped"]))
    if said.get("back_offs"):
        rows.append(("went back", back_off_words(said["back_offs"])))
    if said.get("pace"):
        rows.append(("turns", pace_words(said["pace"])))
    if said.get("seconds_to_first_round") is not None:
        rows.append(("first round after", seconds(said["seconds_to_first_round"])))
    return rows


def configuration(run: RecordedRun) -> Html:
    """The configuration, collapsed, or a note that it is not in the folder."""
    if not run.config:
        return section("Configuration", tag("p", "It is in the file that the run was started with, and not here."))
    return section("Configuration", folded("All settings", tag("pre", run.config, tabindex="0")))


def environment(run: RecordedRun) -> Html:
    """Versions as recorded by the run's server, not those of this process."""
    known = run.summary.get("environment")
    rows: list[tuple[str, object]] = [("folder", run.name), ("federation", run.summary.get("federation", "not known"))]
    if isinstance(known, dict):
        rows += [(str(name), value) for name, value in known.items()]
    else:
        ended = run.summary["status"] != "unfinished"
        rows.append(("versions", "not written down by this run" if ended else "written down at the run's end"))
    return section("Environment", facts(rows))
