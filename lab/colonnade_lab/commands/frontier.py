"""`colonnade reproduce --frontier`: accuracy of all protocols against bytes, rounds and simulated time."""

from __future__ import annotations

from colonnade.reports.console.grid import Grid
from colonnade.reports.console.outputs import make_folder
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted
from colonnade_lab.frontier.pages import FrontierPages, console_rows
from colonnade_lab.frontier.plan import FILE, PAPER, FrontierPlan, chosen_sets, perform, read_frontier
from colonnade_lab.frontier.standing import SetFrontier, set_frontier
from colonnade_lab.papers.results import Results, RunOptions, about, missing, refuse_failed, run_missing


def show_frontier(options: RunOptions) -> None:
    """Runs what is missing, prints the best protocols within each budget, and writes frontier.md with its pictures.

    The page shows every set with stored results, even if one is named, and all stored seeds.
    """
    plan = read_frontier(options.plan or FILE)
    sets = chosen_sets(plan, options.which)
    make_folder(options.out)
    results = Results(options.out, f"{PAPER}.json")
    wanted = list(dict.fromkeys(plan.jobs(sets, options.seeds)))
    todo = missing(wanted, results)
    for name in sets:
        if own := [job for job in todo if job.name.startswith(f"{name}/")]:
            said = f"{plan.sets[name].title}: {counted(len(own), 'run')}, {about(own, options.processes)}"
            console.say(said, "dim")
    failed = run_missing(wanted, results, options, perform)
    seeds = max(options.seeds, results.seeds(PAPER))
    every = [one for name in plan.sets if (one := set_frontier(plan, name, results.get, seeds)).seeds]
    _show([one for one in every if one.name in sets], plan)
    if every:
        page = FrontierPages(plan, every, seeds).write(options.out)
        console.point("page", page)
    refuse_failed(failed)


def _show(found: list[SetFrontier], plan: FrontierPlan) -> None:
    if rows := console_rows(found, plan):
        table = Grid("set", "within", "nobody is ahead of", "others", title="test accuracy of what is chosen")
        for row in rows:
            table.add_row(*row)
        console.show(table)
