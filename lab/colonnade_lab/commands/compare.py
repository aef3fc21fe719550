"""`colonnade compare`: all protocols on one task under one budget, and a page that recommends one for each need."""

from __future__ import annotations

from colonnade.reports.console.grid import Grid
from colonnade.reports.console.outputs import make_folder
from colonnade.reports.console.screen import out as console
from colonnade_lab.comparison.pages import ComparisonPages
from colonnade_lab.comparison.plan import (
    FILE,
    ComparisonPlan,
    chosen,
    deltas,
    in_words,
    job,
    jobs,
    read_plan,
    with_outside,
)
from colonnade_lab.comparison.protocol_results import ProtocolResults, perform
from colonnade_lab.comparison.table import head, needs, row
from colonnade_lab.papers.results import Results, RunOptions, refuse_failed, run_missing


def compare(named: tuple[str, ...], options: RunOptions) -> None:
    """Runs what is missing, prints the table, and writes comparison-charts.html and comparison.md.

    No name means every protocol. Pages show all with stored results, even if only a few are named.
    """
    plan = with_outside(read_plan(options.plan or FILE), named)
    names = chosen(plan, named)
    make_folder(options.out)
    results = Results(options.out)
    wanted = list(jobs(plan, names, options.seeds))
    failed = run_missing(wanted, results, options, perform)
    every = [_results_of(plan, name, options, results) for name in names]
    _show(every, plan)
    kept = [one for name in plan.protocols if (one := _results_of(plan, name, options, results)).found]
    for page in ComparisonPages(plan, kept, options.seeds).write(options.out) if kept else ():
        console.point("page", page)
    refuse_failed(failed)


def _results_of(plan: ComparisonPlan, name: str, options: RunOptions, results: Results) -> ProtocolResults:
    found = {}
    for condition, run in plan.conditions(name).items():
        records = (results.get(job(name, condition, run, seed)) for seed in range(options.seeds))
        found[condition] = [record for record in records if record is not None]
    return ProtocolResults(
        name, plan.protocols[name], {condition: records for condition, records in found.items() if records}
    )


def _show(every: list[ProtocolResults], plan: ComparisonPlan) -> None:
    table = Grid(*_some(head(plan.epsilons, deltas(plan))), title="protocols side by side")
    for one in every:
        table.add_row(*_some(row(one, plan.epsilons)))
    console.show(table)
    for need in needs(every, plan.epsilons, deltas(plan)):
        console.say(f"{need.need}: {need.take} ({need.why})")
    for said in in_words(plan):
        console.say(said, "dim")


def _some(cells: list[str]) -> list[str]:
    """Selects the columns that fit on a screen: accuracy, bytes and seconds to a share, leaks. Pages show all."""
    return [*cells[:2], cells[3], *cells[5:7], *cells[-2:]]
