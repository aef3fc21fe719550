"""`colonnade explain`: the importance of each party of a finished run."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.run.activity import activity
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import out as console
from colonnade.reports.explanation.findings import Findings
from colonnade.reports.explanation.trained import Trained
from colonnade.reports.explanation.words import CHANCE, columns_of, headline, of_heads, sentences
from colonnade.reports.explanation.write import write_explanation

_READING, _MAPS = 1, 3  # steps besides one a party


def explain(run: Path, out: Path | None, sigma: float, keep: tuple[str, ...]) -> None:
    """Writes explain.html and explain.json, and prints the ranking. See `write_explanation`."""
    parties = len((RunFolder(run).read_summary() or {}).get("parties", ()))
    with activity("explaining", _READING + parties + _MAPS, "steps") as doing:

        def say(line: str) -> None:
            doing.step(1 if doing.facts else 0)
            doing.facts = (line.partition(";")[0],)

        explained = write_explanation(run, out, sigma, keep, say)
    _show(explained.trained, explained.found)
    console.point("page", explained.page)
    for path in explained.owned:
        console.point("a party's own columns", path)
    for path, names in explained.kept:
        console.point(f"retrain with {', '.join(names)}", f"colonnade up {path}")


def _show(trained: Trained, found: Findings) -> None:
    console.say(headline(found), "bold")
    columns = columns_of(found)
    table = Grid("rank", "party", *(name for name, _ in columns))
    for rank, party in enumerate(found.ranked, 1):
        table.add_row(str(rank), party.name, *(say(party) for _, say in columns))
    console.show(table)
    heads = [of_heads(found)] if any(party.norm is not None for party in found.parties) else []
    for sentence in (*sentences(trained, found), CHANCE, *heads):
        console.say(sentence)
