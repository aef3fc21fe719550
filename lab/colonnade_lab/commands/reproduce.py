"""`colonnade reproduce`: the papers' tables compared with ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rich.text import Text

from colonnade.reports.console.grid import Grid
from colonnade.reports.console.outputs import make_folder
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted
from colonnade_lab.pages.counts import outcomes, total_words
from colonnade_lab.pages.pages import PaperPages
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.paper_comparison import TableStanding, stand
from colonnade_lab.papers.papers import Paper, chosen, introduction
from colonnade_lab.papers.results import (
    Results,
    RunOptions,
    about,
    code_digest,
    jobs,
    missing,
    refuse_failed,
    run_missing,
)
from colonnade_lab.papers.running import Job

_MARKS = {
    "agrees": "[green]agrees[/]", "better": "[green]better[/]", "worse": "[red]worse[/]", "differs": "[red]differs[/]",
    "undecided": "[yellow]undecided[/]", "holds": "[green]holds[/]", "not reached": "[red]not reached[/]",
    "reversed": "[red]reversed[/]", "open": "[yellow]open[/]", None: "",
}  # fmt: skip


def reproduce(options: RunOptions) -> None:
    """Runs what is missing, prints the paper's values next to ours, and writes pages."""
    papers = list(chosen(options.which, quick=options.quick))
    make_folder(options.out)
    results = Results(options.out)
    wanted = jobs([(options.label(name), paper) for name, paper in papers], options.seeds)
    failed = run_missing(wanted, results, options, name="{0.paper}/{0.name}")
    find = {name: partial(_find, options, results, name, paper) for name, paper in papers}
    standings = {
        name: stand(paper, find[name], max(options.seeds, results.seeds(options.label(name)))) for name, paper in papers
    }
    left = missing(wanted, results)
    for name, paper in papers:
        _show(options, name, standings[name], left)
        console.say(paper.cite, "dim")
    everything = [table for tables in standings.values() for table in tables]
    _announce_other_code(wanted, results)
    console.say(total_words(everything, options.seeds))
    if not options.which:
        made = partial(_made, options, results, dict(papers))
        text = "" if options.quick else introduction()
        pages = PaperPages(dict(papers), standings, options.seeds, options.quick, find, made, text)
        for page in pages.write(options.out):
            console.point("page", page)
    refuse_failed(failed)


def _announce_other_code(wanted: list[Job], results: Results) -> None:
    """Prints how many results other code produced. They count, but running them again may give other numbers."""
    made = [found for job in wanted if (found := results.made_by(job))]
    if other := sum(not found.endswith(f"code {code_digest()}") for found in made):
        said = f"{other} of {counted(len(made), 'result')} were made by other code than this, {code_digest()}"
        console.say(said, "dim")


def _find(options: RunOptions, results: Results, name: str, paper: Paper, run: str, seed: int) -> RunRecord | None:
    return results.get(Job(options.label(name), run, paper.runs[run], seed))


def _made(options: RunOptions, results: Results, papers: Mapping[str, Paper], name: str, run: str) -> list[str]:
    """Versions and code that produced the results of a run, without repeats."""
    seeds = range(max(options.seeds, results.seeds(options.label(name))))
    jobs_of = (Job(options.label(name), run, papers[name].runs[run], seed) for seed in seeds)
    return sorted({made for job in jobs_of if (made := results.made_by(job))})


def _show(options: RunOptions, name: str, tables: list[TableStanding], left: list[Job]) -> None:
    for standing in tables:
        title = _title(options, name, standing, left)
        if standing.cells:
            table = Grid("", "", "paper", "ours", "seeds", "", title=title)
            for one in standing.cells:
                seeds, kind = str(len(one.ours)), "" if one.cell.kind == "result" else f" ({one.cell.kind})"
                mark = Text.from_markup(_MARKS[one.verdict]).append(kind)
                table.add_row(one.cell.row, one.cell.column, one.paper_words, one.words, seeds, mark)
            console.show(table)
        if standing.pairs:
            found = outcomes(pair.outcome for pair in standing.pairs)
            said = f"the paper's order: of {found.listed} pairs, {found.words}"
            console.say(said)
        if standing.claims:
            table = Grid("claim", "measured", "lead", "seeds", "", title=title)
            for claim in standing.claims:
                mark = Text.from_markup(_MARKS[claim.outcome])
                table.add_row(claim.text, claim.words, claim.lead_words, claim.seeds, mark)
            console.show(table)
        for excluded in standing.table.excluded:
            said = f"{name}/{standing.name}, left out: {excluded.words}"
            console.say(said, "dim")


def _title(options: RunOptions, name: str, standing: TableStanding, left: list[Job]) -> str:
    """Title of a table, with the duration of its missing runs, some of which other tables may need too."""
    title = f"{name}/{standing.name}: {standing.table.title}"
    runs = [job for job in left if job.paper == options.label(name) and job.name in standing.table.runs]
    return f"{title} ({about(runs, options.processes)} to run)" if runs else title
