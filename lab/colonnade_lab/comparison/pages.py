"""Output of the comparison: an HTML page, a Markdown page for the documentation, and its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.reports.console.outputs import write_text
from colonnade.reports.plots import as_file
from colonnade_lab.comparison import leaks
from colonnade_lab.comparison.epsilons import deltas, in_words
from colonnade_lab.comparison.figures import figures
from colonnade_lab.comparison.html_page import html_page
from colonnade_lab.comparison.plan import ComparisonPlan
from colonnade_lab.comparison.protocol_results import ProtocolResults
from colonnade_lab.comparison.recommendations import Need, needs
from colonnade_lab.comparison.table import head, row
from colonnade_lab.comparison.words import CAUTIONS, TITLE, how, notes

_NAME = "comparison"


@dataclass(frozen=True)
class ComparisonPages:
    """Content of the pages; `results` has one entry per protocol."""

    plan: ComparisonPlan
    results: Sequence[ProtocolResults]
    seeds: int

    def write(self, folder: Path) -> list[Path]:
        """Writes both pages and the pictures, and returns the pages' paths."""
        pictures = {
            f"{_NAME}-{figure.key}.svg": (figure.title, figure.file())
            for figure in figures(self.results, deltas(self.plan))
        }
        if leaked := leaks.draw(self.results):
            pictures[f"{_NAME}-leaks.svg"] = (leaks.TITLE, as_file(leaked))
        for name, (_, picture) in pictures.items():
            write_text(folder / name, picture)
        html, markdown = folder / f"{_NAME}.html", folder / f"{_NAME}.md"
        write_text(html, html_page(self.plan, self.results, self.seeds))
        write_text(markdown, self._markdown({name: title for name, (title, _) in pictures.items()}))
        return [html, markdown]

    def _markdown(self, pictures: dict[str, str]) -> str:
        epsilons, at = self.plan.epsilons, deltas(self.plan)
        lines = [
            f"# {TITLE}",
            "",
            how(self.plan, self.seeds, self.results),
            "",
            "In words: [which to choose](../choosing.md).",
            "",
        ]
        lines += ["## Recommendations", "", *_listed(needs(self.results, epsilons, at)), "## Results", ""]
        lines += _table(head(epsilons, at), [row(result, epsilons) for result in self.results])
        lines += [f"- {said}" for said in (*in_words(self.plan), *CAUTIONS)]
        lines += ["", "## Pictures", ""]
        for name, title in pictures.items():
            lines += [f"![{title}]({name})", ""]
        lines += ["## What each role sees", ""]
        lines += _table(["protocol", "the server", "a party"],
                        [[result.name, *(result.contract.sees.get(who, "-") for who in ("server", "party"))]
                         for result in self.results])  # fmt: skip
        lines += ["## Differences between protocols", ""]
        lines += [f"- `{name}`: {said}" for name, said in notes(self.plan, self.results, self.seeds)]
        lines += [f"- `{name}` does not take part: {why}" for name, why in self.plan.left_out.items()]
        return "\n".join([*lines, ""])


def _listed(found: Sequence[Need]) -> list[str]:
    return _table(["need", "take", "because"], [[one.need, one.take, one.why] for one in found])


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [names, ["---"] * len(names), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines] + [""]
