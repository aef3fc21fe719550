"""`colonnade compare`: all protocols on one task under one budget, and a page that says which to take for what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from colonnade.reports.console.outputs import make_folder, refuse_unwritable
from colonnade.reports.console.screen import counted
from colonnade.reports.console.screen import out as console
from colonnade.reproduction.comparison.attacked import perform
from colonnade.reproduction.comparison.epsilons import deltas, in_words
from colonnade.reproduction.comparison.pages import ComparisonPages
from colonnade.reproduction.comparison.plan import FILE, ComparisonPlan, chosen, job, jobs, read_plan
from colonnade.reproduction.comparison.protocol_results import ProtocolResults
from colonnade.reproduction.comparison.recommendations import needs
from colonnade.reproduction.comparison.table import head, row
from colonnade.reproduction.papers.keeping import keep_all, refuse_failed
from colonnade.reproduction.papers.results import Results
from colonnade.reproduction.papers.work import about, missing, run_all


@dataclass(frozen=True)
class ComparisonOptions:
    """What the command line says.

    Args:
        names: of protocols; none for all.
        seeds: of every run; attacks have one.
        out: the folder of results and pages.
        processes: that run at a time.
        only_list: whether nothing is to be run.
        plan: the file.
    """

    names: tuple[str, ...]
    seeds: int
    out: Path
    processes: int
    only_list: bool = False
    plan: Path = FILE


def compare(asked: ComparisonOptions) -> None:
    """Runs what is missing, prints the table, and writes beside.html and beside.md with their pictures.

    Pages are of all protocols of which something is kept, also where a few are named.

    Raises:
        InputError: a protocol does not take part, or runs have failed.
        EnvironmentFault: nothing can be written there.
    """
    plan = read_plan(asked.plan)
    names = chosen(plan, asked.names)
    make_folder(asked.out)
    results = Results(asked.out)
    wanted = list(jobs(plan, names, asked.seeds))
    todo = missing(wanted, results)
    rest = f"{len(todo)} to be run, {about(todo, asked.processes)}" if todo else "kept"
    console.print(f"{counted(len(wanted), 'run')} with {counted(asked.seeds, 'seed')}: {rest}", markup=False)
    if todo and not asked.only_list:
        refuse_unwritable(asked.out)
    outcomes = () if asked.only_list else run_all(todo, asked.processes, perform)
    failed = keep_all(outcomes, len(todo), results, lambda job: job.name)
    lanes = [_lane(plan, name, asked, results) for name in names]
    _show(lanes, plan)
    kept = [lane for name in plan.protocols if (lane := _lane(plan, name, asked, results)).found]
    for page in ComparisonPages(plan, kept, asked.seeds).write(asked.out) if kept else ():
        console.print(f"page: {page}", markup=False, soft_wrap=True)
    refuse_failed(failed)


def _lane(plan: ComparisonPlan, name: str, asked: ComparisonOptions, results: Results) -> ProtocolResults:
    found = {}
    for condition, run in plan.conditions(name).items():
        records = (results.get(job(name, condition, run, seed)) for seed in range(asked.seeds))
        found[condition] = [record for record in records if record is not None]
    return ProtocolResults(
        name, plan.protocols[name], {condition: records for condition, records in found.items() if records}
    )


def _show(lanes: list[ProtocolResults], plan: ComparisonPlan) -> None:
    table = Table(*_some(head(plan.epsilons, deltas(plan))), title="protocols side by side")
    for lane in lanes:
        table.add_row(*_some(row(lane, plan.epsilons)))
    console.print(table)
    for need in needs(lanes, plan.epsilons, deltas(plan)):
        console.print(f"{need.need}: {need.take} ({need.why})", markup=False, soft_wrap=True)
    for said in in_words(plan):
        console.print(said, style="dim", markup=False, soft_wrap=True)


def _some(cells: list[str]) -> list[str]:
    """Those that a screen has room for: accuracy, bytes and seconds to a share, leaks. Pages have all."""
    return [*cells[:2], cells[3], *cells[5:7], *cells[-2:]]
