"""Page of the frontier and its pictures; all sentences are derived from results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.run.environment import describe_environment
from colonnade.reports.console.outputs import write_text
from colonnade_lab.frontier.plan import COMPUTING, PAPER, UNCOMPRESSED, FrontierPlan
from colonnade_lab.frontier.standing import AXES, MIB, ROUNDS, SECONDS, FrontierPoint, SetFrontier
from colonnade_lab.pages.markdown import markdown
from colonnade_lab.pages.plots import GREY, as_file, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SIZE = (980, 900)
_DASHES = ("-", (0, (6, 3)), (0, (2, 3)))


def axis_words(axis: str) -> str:
    if axis == MIB:
        return "MiB of training, both ways"
    return "rounds" if axis == ROUNDS else f"seconds at a delay of {SECONDS[axis]} ms"


def places(plan: FrontierPlan) -> Iterator[tuple[str, float, str]]:
    """Every axis with each of its budgets, and both in words."""
    for axis in AXES:
        unit = "MiB" if axis == MIB else "rounds" if axis == ROUNDS else f"s at {SECONDS[axis]} ms"
        for budget in {MIB: plan.budgets.mib, ROUNDS: plan.budgets.rounds}.get(axis, plan.budgets.seconds):
            yield axis, budget, f"{budget:g} {unit}"


def summary(found: Sequence[SetFrontier], plan: FrontierPlan) -> list[str]:
    """Counts how often a protocol is first within a budget, over the sets with two seeds; one line per axis."""
    whole = [one for one in found if set(one.seeds) == set(plan.protocols) and one.decides]
    lines = [] if whole else ["No set has two seeds of all protocols yet, so that none is named first within a budget."]
    for axis in AXES:
        every = [one.leaders(axis, budget) for one in whole for of, budget, _ in places(plan) if of == axis]
        leaders = [each for each in every if each]
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
        place = protocols.index(name)
        colour, dash = (GREY, (0, (4, 4))) if name in references else (f"C{place % 10}", _DASHES[place // 10])
        x = [*(look.cost for look in front), most]
        y = [*(look.test for look in front), front[-1].test]
        axes.step(x, y, where="post", color=colour, linestyle=dash, label=name)
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
        page, there = folder / f"{PAPER}.md", {one.name for one in self.found}
        text = markdown(
            "frontier.jinja", Path(__file__).parent / "templates", seeds=self.seeds, plan=self.plan,
            system=describe_environment(), uncompressed=UNCOMPRESSED, computing=COMPUTING, delays=SECONDS.values(),
            summary=summary(self.found, self.plan), sets=[self._set(one) for one in self.found],
            waiting=[each.title for name, each in self.plan.sets.items() if name not in there],
        )  # fmt: skip
        write_text(page, text)
        return page

    def _set(self, one: SetFrontier) -> dict[str, Any]:
        """What the page says of a set: the undominated protocols within each budget, and everyone's accuracy."""
        every, protocols, pareto = list(places(self.plan)), [], []
        for name in one.seeds:
            chosen = [one.of(axis, name, budget) for axis, budget, _ in every]
            shown = f"{name} (reference)" if name in one.references else name
            protocols.append((shown, ["-" if look is None else f"{100 * look.test:.1f}" for look in chosen]))
        for axis in AXES:
            names = dict.fromkeys(look.protocol for look in one.pareto(axis))
            pareto.append(f"against {axis_words(axis)} {', '.join(names)}")
        return {
            "data": self.plan.sets[one.name], "file": _file(one), "seeds": self._seeds(one), "decides": one.decides,
            "gap": gap(one, self.plan), "compression": compression(one, self.plan), "protocols": protocols,
            "firsts": [(said, _named(one.leaders(axis, budget))) for axis, budget, said in every],
            "pareto": f"On the frontier of all protocols, by rising cost: {'; '.join(pareto)}.",
        }  # fmt: skip

    def _seeds(self, one: SetFrontier) -> str:
        numbers = sorted(set(one.seeds.values()))
        missing = [name for name in self.plan.protocols if name not in one.seeds]
        said = f"{' to '.join(str(each) for each in dict.fromkeys((numbers[0], numbers[-1])))} seed"
        said += "" if numbers[-1] == 1 else "s"
        return f"{said[0].upper()}{said[1:]}." + (f" Not run yet: {', '.join(missing)}." if missing else "")


def console_rows(found: Sequence[SetFrontier], plan: FrontierPlan) -> list[list[str]]:
    """For the screen: the set, the budget, the protocols that no other beats within it, and the number of others."""
    lines = []
    for one in found:
        for axis, budget, said in places(plan):
            leaders, all_of_them = one.leaders(axis, budget), one.ranked(axis, budget)
            named = _named(leaders) if one.decides else "one seed decides nothing"
            lines.append([plan.sets[one.name].title, said, named or "-", str(len(all_of_them) - len(leaders))])
    return lines


def _named(looks: Sequence[FrontierPoint]) -> str:
    forms = {look: "" if look.variant == UNCOMPRESSED else f", {look.variant}" for look in looks}
    return ", ".join(f"{look.protocol} {percent(look)}{form}" for look, form in forms.items())


def _file(one: SetFrontier) -> str:
    return f"{PAPER}-{one.name}.svg"
