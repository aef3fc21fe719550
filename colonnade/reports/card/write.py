"""card.md and card.html, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.common.errors import InputError
from colonnade.common.escaped import plain
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.reports.card.answers import PLACES, Answers, answers_of, template
from colonnade.reports.card.contents import CardSection, Empty, sections, tiles
from colonnade.reports.console.outputs import make_folder, refuse_unwritable, write_text
from colonnade.reports.html.page import render
from colonnade.reports.records.run import RecordedRun, read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.scorecard.findings import ScoreFindings, find

_TEMPLATES = Path(__file__).parent / "templates"
_EMPTY = "**to be filled in**"


@dataclass(frozen=True)
class WrittenCard:
    """Paths of the card as Markdown and as a page, the file for people, and its places that are still empty."""

    markdown: Path
    page: Path
    answers: Path
    empty: tuple[str, ...]


def write_card(folder: Path, out: Path | None = None, groups: str = "") -> WrittenCard:
    """Writes the card of a run that has ended, by default as card.md and card.html in its folder.

    Args:
        out: the Markdown file; the page lies beside it.
        groups: FILE:COLUMN, ids and groups of people who are compared; "" for none.
    """
    if PartyFolder(folder).ledger.exists() and not RunFolder(folder).run.exists():
        raise InputError(
            f"{folder} is a party's own folder, and a model card is of the whole model",
            hint="the server's operator makes it: `colonnade card RUN`. What left this party: "
            f"`colonnade ledger {folder}`; its part of the model: `colonnade export`",
        )
    run = read_run(folder)
    if run.summary["status"] == "unfinished":
        raise InputError(f"{folder}: the run has not ended", hint="a card is of a run that has; wait, or resume it")
    path = (out or RunFolder(folder).card).resolve()
    if path.is_dir():
        raise InputError(f"--out {out}: expected a file, this is a folder", hint=f"{RunFolder(path).card}")
    if path.suffix not in ("", ".md", ".html"):
        raise InputError(f"--out {out}: a card is a .md file with a .html file beside it", hint="name the .md file")
    own = RunFolder(folder).card_answers.resolve()
    answers = answers_of(own)
    compared = find(folder, None, groups, None, "") if groups else None
    make_folder(path.parent)
    refuse_unwritable(path.parent)
    if not own.exists():
        write_text(own, template())
    page = path.with_suffix(".html")
    write_text(path.with_suffix(".md"), markdown(run, answers, compared))
    write_text(page, html(run, answers, compared))
    return WrittenCard(path.with_suffix(".md"), page, own, tuple(one.path for one in PLACES if one.path not in answers))


def html(run: RecordedRun, answers: Answers, groups: ScoreFindings | None = None) -> str:
    """The self-contained page."""
    made = list(sections(run, answers, groups))
    values = {
        "title": f"Model card: {_name(run)}",
        "said": headline(run),
        "cards": tiles(run, len(PLACES) - len(answers), len(PLACES)),
        "sections": made,
        "titles": [section.title for section in made],
    }
    return render("card.html", values, beside=_TEMPLATES)


def markdown(run: RecordedRun, answers: Answers | None = None, groups: ScoreFindings | None = None) -> str:
    """The card as Markdown; without answers all places for people are marked."""
    parts = [f"# Model card: {plain(_name(run))}\n\n{plain(headline(run))}"]
    parts += [_section(section) for section in sections(run, answers or {}, groups)]
    return "\n\n".join(parts) + "\n"


def _name(run: RecordedRun) -> str:
    return str(run.summary.get("federation") or run.name)


def _section(section: CardSection) -> str:
    parts = [f"## {section.title}"]
    if section.facts:
        parts.append("\n".join(table(("what", ""), section.facts)))
    for one in section.tables:
        parts += [one.caption, "\n".join(table(one.head, one.rows))]
    if section.lines:
        parts.append("\n".join(f"- {plain(line)}" for line in section.lines))
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [[plain(cell) for cell in head], ["---" for _ in head], *([_cell(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(cell: object) -> str:
    return f"{_EMPTY}: {plain(cell)}" if isinstance(cell, Empty) else plain(cell)
