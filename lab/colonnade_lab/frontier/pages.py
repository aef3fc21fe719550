"""Page of the frontier and its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.reports.console.outputs import write_text
from colonnade_lab.frontier.drawing import drawing
from colonnade_lab.frontier.looks import AXES, FrontierPoint
from colonnade_lab.frontier.plan import PAPER, UNCOMPRESSED, FrontierPlan
from colonnade_lab.frontier.standing import SetFrontier
from colonnade_lab.frontier.words import (
    TITLE,
    axis_words,
    budget_words,
    budgets_of,
    compression,
    gap,
    how,
    percent,
    summary,
)


@dataclass(frozen=True)
class FrontierPages:
    """Content of the page; `found` has the sets with stored results."""

    plan: FrontierPlan
    found: Sequence[SetFrontier]
    seeds: int

    def write(self, folder: Path) -> Path:
        """Writes the page, with a picture for each set, and returns its path."""
        for one in self.found:
            picture = drawing(self.plan.sets[one.name].title, one, list(self.plan.protocols))
            write_text(folder / _file(one), picture)
        page = folder / f"{PAPER}.md"
        write_text(page, self._text())
        return page

    def _text(self) -> str:
        lines = [f"# {TITLE}", ""]
        for said in how(self.plan, self.seeds):
            lines += [said, ""]
        lines += [*summary(self.found, self.plan), ""]
        waiting = [each.title for name, each in self.plan.sets.items() if name not in {one.name for one in self.found}]
        lines += [f"Not run yet: {', '.join(waiting)}.", ""] if waiting else []
        for one in self.found:
            lines += self._set(one)
        lines += ["## Differences between protocols", ""]
        lines += [f"- `{name}`: {entry.note}" for name, entry in self.plan.protocols.items() if entry.note]
        lines += [f"- `{name}` takes no part: {why}." for name, why in self.plan.left_out.items()]
        return "\n".join([*lines, ""])

    def _set(self, one: SetFrontier) -> list[str]:
        data = self.plan.sets[one.name]
        lines = [f"## {data.title}", "", f"{data.note} {self._seeds(one)}", ""]
        lines += [f"![Frontiers on {data.title}]({_file(one)})", ""]
        for said in (gap(one, self.plan), compression(one, self.plan)):
            lines += [said, ""] if said else []
        lines += self._firsts(one) + self._protocols(one)
        return lines

    def _seeds(self, one: SetFrontier) -> str:
        numbers = sorted(set(one.seeds.values()))
        missing = [name for name in self.plan.protocols if name not in one.seeds]
        said = f"{' to '.join(str(each) for each in dict.fromkeys((numbers[0], numbers[-1])))} seed"
        said += "" if numbers[-1] == 1 else "s"
        return f"{said[0].upper()}{said[1:]}." + (f" Not run yet: {', '.join(missing)}." if missing else "")

    def _firsts(self, one: SetFrontier) -> list[str]:
        """The undominated protocols within each budget; none with one seed, which decides nothing."""
        if not one.decides:
            return ["One seed: nobody is ahead of anybody.", ""]
        lines = [*_head(["within", "nobody is ahead of"])]
        for axis in AXES:
            for budget in budgets_of(self.plan.budgets, axis):
                said = ", ".join(_named(look) for look in one.leaders(axis, budget)) or "-"
                lines.append(_row([budget_words(axis, budget), said]))
        return [*lines, ""]

    def _protocols(self, one: SetFrontier) -> list[str]:
        """Test accuracy of every protocol within each budget."""
        places = [(axis, budget) for axis in AXES for budget in budgets_of(self.plan.budgets, axis)]
        lines = _head(["protocol", *(budget_words(*place) for place in places)])
        for name in one.seeds:
            chosen = [one.of(axis, name, budget) for axis, budget in places]
            shown = f"{name} (reference)" if name in one.references else name
            lines.append(_row([shown, *("-" if look is None else f"{100 * look.test:.1f}" for look in chosen)]))
        pareto = f" {self._pareto(one)}" if one.decides else ""
        lines += ["", f"Test accuracy in per cent; a dash: no look within the budget.{pareto}"]
        return [*lines, ""]

    @staticmethod
    def _pareto(one: SetFrontier) -> str:
        """Protocols on the common frontier, for each axis."""
        said = []
        for axis in AXES:
            names = dict.fromkeys(look.protocol for look in one.pareto(axis))
            said.append(f"against {axis_words(axis)} {', '.join(names)}")
        return f"On the frontier of all protocols, by rising cost: {'; '.join(said)}."


def console_rows(found: Sequence[SetFrontier], plan: FrontierPlan) -> list[list[str]]:
    """For the screen: the set, the budget, the protocols that no other beats within it, and the number of others."""
    lines = []
    for one in found:
        for axis in AXES:
            for budget in budgets_of(plan.budgets, axis):
                leaders, all_of_them = one.leaders(axis, budget), one.ranked(axis, budget)
                named = ", ".join(map(_named, leaders)) if one.decides else "one seed decides nothing"
                others = str(len(all_of_them) - len(leaders))
                lines.append([plan.sets[one.name].title, budget_words(axis, budget), named or "-", others])
    return lines


def _named(look: FrontierPoint) -> str:
    form = "" if look.variant == UNCOMPRESSED else f", {look.variant}"
    return f"{look.protocol} {percent(look)}{form}"


def _file(one: SetFrontier) -> str:
    return f"{PAPER}-{one.name}.svg"


def _head(names: Sequence[str]) -> list[str]:
    return [_row(names), _row(["---"] * len(names))]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
