"""Page of the frontier and its pictures; all sentences are derived from results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.common.run.environment import describe_environment
from colonnade.reports.console.outputs import write_text
from colonnade_lab.comparison.figures import strokes
from colonnade_lab.frontier.plan import COMPUTING, PAPER, UNCOMPRESSED, FrontierBudgets, FrontierPlan
from colonnade_lab.frontier.standing import AXES, MIB, ROUNDS, SECONDS, FrontierPoint, SetFrontier
from colonnade_lab.pages.plots import GREY, as_file, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TITLE = "The frontier of all protocols"


def axis_words(axis: str) -> str:
    if axis == MIB:
        return "MiB of training, both ways"
    return "rounds" if axis == ROUNDS else f"seconds at a delay of {SECONDS[axis]} ms"


def budget_words(axis: str, budget: float) -> str:
    if axis == MIB:
        return f"{budget:g} MiB"
    return f"{budget:g} rounds" if axis == ROUNDS else f"{budget:g} s at {SECONDS[axis]} ms"


def budgets_of(plan: FrontierBudgets, axis: str) -> tuple[float, ...]:
    return {MIB: plan.mib, ROUNDS: plan.rounds}.get(axis, plan.seconds)


def how(plan: FrontierPlan, seeds: int) -> list[str]:
    system = describe_environment()
    bits = " or ".join(f"{each}" for each in plan.bits)
    delays = ", ".join(f"{delay}" for delay in SECONDS.values())
    return [
        f"Written by `colonnade reproduce --frontier --seeds {seeds}` (the virtual clock: the same code, without a "
        f"network; {system['system']}, torch {system['torch']}). Every protocol had the same rows, the same 400 rounds "
        "and the same looks, an evaluation after every tenth round. Models and rates are the "
        "[defaults](../defaults.md); nothing was tuned.",
        f"Messages travel uncompressed ({UNCOMPRESSED} an entry) or with {bits} bits, in each direction that a "
        "protocol can compress. Within a budget the compression and the look of a protocol are those with the "
        "highest accuracy on **validation** rows, mean of the seeds; the numbers are the accuracy on **test** rows "
        "of what was chosen. No choice depends on test rows. A protocol is first within a budget if the 95 % "
        "interval of its lead on test rows over every other, paired by seed, excludes 0 (Student's t, no deviation "
        "below the binomial error of the test rows). One seed decides nothing, and names nobody.",
        f"Seconds are those of the virtual clock at a delay of {delays} ms one way, with {COMPUTING} of computing at "
        "every member; bandwidth is unlimited, since bytes have an axis of their own, and evaluations, encryption and "
        "field arithmetic take no time. A synchronous protocol has the same course at every delay, and its seconds "
        "follow exactly from a few rounds at each. `vafl`, `czofo` and `zoo_vfl` run as parties come: every delay is a "
        "run of its own, and on the other axes they stand with that at 25 ms. MiB are those of training's messages, "
        "what comes before the rounds included.",
    ]


def summary(found: Sequence[SetFrontier], plan: FrontierPlan) -> list[str]:
    """Counts how often a protocol is first within a budget, over the sets with two seeds; one line per axis."""
    whole = [one for one in found if set(one.seeds) == set(plan.protocols) and one.decides]
    lines = [] if whole else ["No set has two seeds of all protocols yet, so that none is named first within a budget."]
    for axis in AXES:
        leaders = list(_leaders(whole, plan, axis))
        firsts = Counter(each[0].protocol for each in leaders if len(each) == 1)
        if total := len(leaders):
            counted = [f"{name} {count}" for name, count in sorted(firsts.items(), key=lambda one: -one[1])]
            said = ", ".join([*counted, f"undecided {total - sum(firsts.values())}"])
            lines.append(f"- Against {axis_words(axis)}, first within {total} budgets of the sets: {said}.")
    return lines


def compression(found: SetFrontier, plan: FrontierPlan) -> str:
    """Says which compression the byte budgets select; "" if there is no choice."""
    said = []
    for budget in plan.budgets.mib:
        chosen = Counter(look.variant.split()[0] for look in found.ranked(MIB, budget))
        if chosen:
            counts = ", ".join(f"{bits} bits {chosen[bits]}" for bits in sorted(chosen, key=int))
            said.append(f"within {budget:g} MiB {counts}")
    return f"Chosen by so many protocols: {'; '.join(said)}." if said else ""


def gap(found: SetFrontier, plan: FrontierPlan) -> str:
    """Says how far all protocols within all rounds are from a reference; "" if one of them is missing."""
    most = max(plan.budgets.rounds)
    ranked = found.ranked(ROUNDS, most)
    others = [look for name in sorted(found.references) if (look := found.of(ROUNDS, name, most)) is not None]
    if not ranked or not others:
        return ""
    tests, other = sorted(ranked, key=lambda look: look.test), others[0]
    return (
        f"Within {most:g} rounds the protocols have {percent(tests[0])} to {percent(tests[-1])} of the test rows; "
        f"{other.protocol}, where every column is shared, has {percent(other)}."
    )


def percent(look: FrontierPoint) -> str:
    return f"{100 * look.test:.1f} %"


def _leaders(found: Sequence[SetFrontier], plan: FrontierPlan, axis: str) -> Iterator[list[FrontierPoint]]:
    for one in found:
        for budget in budgets_of(plan.budgets, axis):
            if leaders := one.leaders(axis, budget):
                yield leaders


_SIZE = (980, 900)


def drawing(title: str, found: SetFrontier, protocols: Sequence[str]) -> str:
    """Draws a set's frontiers, at least one, as SVG.

    Args:
        protocols: all of the plan, in its order, which fixes their colours on every picture.
    """

    def paint(figure: Figure) -> None:
        panels = figure.subplots(3, 2).flat
        for axis, axes in zip(AXES, panels, strict=False):
            _panel(axes, axis, found.fronts[axis], found.references, protocols)
        last = panels[len(AXES)]
        last.axis("off")
        handles, labels = panels[0].get_legend_handles_labels()
        last.legend(handles, labels, loc="center", ncols=2)

    fronts = found.fronts[AXES[0]]
    about = "; ".join(f"{name} comes to {front[-1].test:.1%}" for name, front in fronts.items() if front)
    return as_file(picture(_SIZE, paint, title=f"Frontiers on {title}", about=about))


def _panel(
    axes: Axes,
    axis: str,
    fronts: Mapping[str, Sequence[FrontierPoint]],
    references: frozenset[str],
    protocols: Sequence[str],
) -> None:
    axes.set_title(f"test accuracy against {axis_words(axis)}")
    axes.set_xscale("log")
    axes.grid(axis="y")
    most = max((front[-1].cost for front in fronts.values() if front), default=1.0)
    for name, front in fronts.items():
        if not front:
            continue
        colour, dash = (GREY, "4 4") if name in references else strokes(protocols.index(name))
        style = (0, tuple(map(float, dash.split()))) if dash else "-"
        x = [*(look.cost for look in front), most]
        y = [*(look.test for look in front), front[-1].test]
        axes.step(x, y, where="post", color=colour, linestyle=style, label=name)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")


@dataclass(frozen=True)
class FrontierPages:
    plan: FrontierPlan
    found: Sequence[SetFrontier]
    seeds: int

    def write(self, folder: Path) -> Path:
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
