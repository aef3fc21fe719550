"""`colonnade explain`: the importance of each party of a finished run."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from colonnade.reports.console.screen import out as console
from colonnade.reports.explanation.findings import Findings
from colonnade.reports.explanation.trained import Trained
from colonnade.reports.explanation.words import CHANCE, columns_of, headline, of_heads, sentences
from colonnade.reports.explanation.write import write_explanation


def explain(run: Path, out: Path | None, sigma: float, keep: tuple[str, ...]) -> None:
    """Writes explain.html and explain.json, and prints the ranking. See `write_explanation`."""
    explained = write_explanation(run, out, sigma, keep, _say)
    _show(explained.trained, explained.found)
    console.print(f"page: {explained.page}", markup=False, soft_wrap=True)
    for path in explained.owned:
        console.print(f"a party's own columns: {path}", markup=False, soft_wrap=True)
    for path, names in explained.kept:
        console.print(f"retrain with {', '.join(names)}: colonnade up {path}", markup=False, soft_wrap=True)


def _show(trained: Trained, found: Findings) -> None:
    console.print(headline(found), style="bold", markup=False)
    columns = columns_of(found)
    table = Table("rank", "party", *(name for name, _ in columns))
    for rank, party in enumerate(found.ranked, 1):
        table.add_row(str(rank), party.name, *(say(party) for _, say in columns))
    console.print(table)
    heads = [of_heads(found)] if any(party.norm is not None for party in found.parties) else []
    for sentence in (*sentences(trained, found), CHANCE, *heads):
        console.print(sentence, markup=False)


def _say(line: str) -> None:
    console.print(line, style="dim", markup=False, soft_wrap=True)
