"""Text shared by both pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.common.run.environment import describe_environment
from colonnade.reports.console.outputs import write_text
from colonnade.reports.html.frame import SCRIPT, facts, folded, frame, section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.plots import as_file
from colonnade_lab.comparison.figures import LEAKS, CurveFigure, draw_leaks, figures, strokes
from colonnade_lab.comparison.plan import ATTACKED, OWN, PLAIN, SLOW, ComparisonPlan, Unit, deltas, in_words
from colonnade_lab.comparison.protocol_results import VICTIM, ProtocolResults
from colonnade_lab.comparison.table import GOOD, head, needs, row

_CONDITIONS = {
    PLAIN: "undisturbed",
    SLOW: "with stragglers, waiting",
    OWN: "with stragglers, not waiting for all",
    ATTACKED: "attacked",
}

_OF = {"client": "a party", "row": "a row"}

TITLE = "Comparison of all protocols"


def how(plan: ComparisonPlan, seeds: int, results: Sequence[ProtocolResults] = ()) -> str:
    system = describe_environment()
    made = sorted({record.version for one in results for records in one.found.values() for record in records})
    by = f" Made by version {' and '.join(made)}." if any(made) else ""
    return (
        f"Written by `colonnade compare --seeds {seeds}` (the virtual clock: the same code, without a network; "
        f"{system['system']}, torch {system['torch']}). Every protocol had the same digits, the same two columns of "
        f"pixels at each of four holders, the same bottom models and the same rounds (`experiments/{plan.base}`), and "
        "rates of its own, chosen on validation rows (`lab/colonnade_lab/plans/beside.yaml`). Numbers are of test "
        f"rows, means of the seeds; curves are of the first one.{by}"
    )


CAUTIONS = (
    "One small task: what is named above has the better mean, and no interval says that it is ahead. Differences of "
    "a point or two are none.",
    f"'None' means that no eligible protocol reaches {GOOD:g} %. Protocols that send parties the labels are "
    "named for no protection, whatever their numbers.",
    "MB are those of training's messages, both ways; evaluations are not counted.",
    "Seconds are delays alone: the virtual clock charges nothing for computing. With 'never' a seed did not get there.",
    "Runs with noise were evaluated clean, and their noise came from the seed: a benchmark of learning, no guarantee.",
    "With noise on a party's whole data nothing of a single message is left at any of these epsilons: where the three "
    "numbers are alike, parties learned from what came back (labels, or gradients of a head that had seen noise), and "
    "the clean evaluation shows what they know. Where evaluations had the noise as well, split, c_vfl and vimadmm were "
    "right in 11, 11 and 12 % at epsilon 64 (one seed).",
    "An epsilon of a party's whole data and one of a row's embeddings are about different things and are not to be "
    "compared; noise on what goes up protects no label.",
    f"Attacks are of one seed on {VICTIM}, with the default settings of `colonnade attack`: a lower bound of what "
    "leaks. Labels are named from the first or the last epoch, whichever names more. The attacker at the server "
    "knows a fifth of the rows. A dash is 'no message names a row', which is no protection.",
)
"""Caveats of the numbers, one sentence each."""


def notes(plan: ComparisonPlan, results: Sequence[ProtocolResults], seeds: int) -> list[tuple[str, str]]:
    """Differences from the other protocols, by protocol, and the numbers with fewer seeds than requested."""
    found = []
    for result in results:
        own = (
            f"With stragglers, not waiting for all: {result.entry.way}."
            if OWN in result.found and result.entry.way
            else ""
        )
        if said := " ".join(part for part in (result.entry.note, own, _lost(plan, result, seeds)) if part):
            found.append((result.name, said))
    return found


def _lost(plan: ComparisonPlan, result: ProtocolResults, seeds: int) -> str:
    wanted = {condition: 1 if condition == ATTACKED else seeds for condition in plan.conditions(result.name)}
    there = {condition: len(result.found.get(condition, ())) for condition in wanted}
    few = [f"{_condition(each)} {there[each]} of {most}" for each, most in wanted.items() if there[each] < most]
    return f"Seeds that failed or were not run yet are in no number: {', '.join(few)}." if few else ""


def _condition(name: str) -> str:
    unit, _, epsilon = name.partition("-")
    return f"the noise for epsilon {epsilon} of {_OF[unit]}" if epsilon else _CONDITIONS[name]


_CAPTION = "Per cent of test rows, unless said"
_CHOICE = """
const boxes = [...document.querySelectorAll(".legend input.result")];
const every = document.getElementById("every");
const show = () => {
  const shown = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  for (const line of document.querySelectorAll("svg.curves polyline"))
    line.toggleAttribute("hidden", !shown.has(line.querySelector("title").textContent));
  if (every) every.checked = shown.size === boxes.length;
};
for (const box of boxes) { box.hidden = false; box.addEventListener("change", show); }
if (every) {
  every.parentElement.hidden = false;
  every.addEventListener("change", () => { for (const box of boxes) box.checked = every.checked; show(); });
}
"""


def _curves(results: Sequence[ProtocolResults], at: Mapping[Unit, float]) -> Html:
    pictures = [_figure(figure) for figure in figures(results, at)]
    return section("Curves", _legend(results), tag("div", *pictures, class_="charts")) if pictures else Html()


def _leaks(results: Sequence[ProtocolResults]) -> Html:
    drawn = Html(draw_leaks(results))
    return tag("div", drawn, class_="scroll", tabindex="0", role="region", aria_label=LEAKS) if drawn else Html()


def _figure(figure: CurveFigure) -> Html:
    said = tag("p", class_="said", aria_hidden="true")
    foot = tag("div", figure.foot, class_="foot faint")
    return tag("figure", tag("figcaption", figure.title), Html(figure.picture()), foot, said)


def _legend(results: Sequence[ProtocolResults]) -> Html:
    items = [tag("li", tag("label", tag("input", type="checkbox", id="every", checked=True, autocomplete="off"), " all",
                           hidden=True))]  # fmt: skip
    for number, result in enumerate(results):
        stroke, dash = strokes(number)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        swatch = f'<path d="M0 5h26" stroke="{stroke}" stroke-width="2"{dashed}/>'
        box = tag(
            "input", type="checkbox", value=result.name, checked=True, hidden=True, autocomplete="off", class_="result"
        )
        line = Html(f' <svg viewBox="0 0 26 10" aria-hidden="true">{swatch}</svg>')
        items.append(tag("li", tag("label", box, line, result.name)))
    return tag("ul", *items, class_="legend")


_NAME = "comparison"


@dataclass(frozen=True)
class ComparisonPages:
    plan: ComparisonPlan
    results: Sequence[ProtocolResults]
    seeds: int

    def write(self, folder: Path) -> list[Path]:
        pictures = {
            f"{_NAME}-{figure.key}.svg": (figure.title, figure.file())
            for figure in figures(self.results, deltas(self.plan))
        }
        if leaked := draw_leaks(self.results):
            pictures[f"{_NAME}-leaks.svg"] = (LEAKS, as_file(leaked))
        for name, (_, picture) in pictures.items():
            write_text(folder / name, picture)
        html, markdown = folder / f"{_NAME}.html", folder / f"{_NAME}.md"
        write_text(html, self._html())
        write_text(markdown, self._markdown({name: title for name, (title, _) in pictures.items()}))
        return [html, markdown]

    def _html(self) -> str:
        cautions = [tag("li", said.replace("`", "")) for said in (*in_words(self.plan), *CAUTIONS)]
        wanted, numbers, seen = self._tables()
        return frame(TITLE, [
            tag("p", how(self.plan, self.seeds).replace("`", "")),
            section("Recommendations", table(*wanted, words=(0, 1, 2), caption="By the results")),
            section("The numbers", table(*numbers, caption=_CAPTION), tag("ul", *cautions, class_="faint")),
            _curves(self.results, deltas(self.plan)),
            section("Leaks", _leaks(self.results)),
            section("What each role sees", table(*seen, words=(0, 1, 2), caption="Visible to each role")),
            section("Differences between protocols", facts(notes(self.plan, self.results, self.seeds)),
                    facts(self.plan.left_out.items())),
            section("Configuration", *(folded(one.name, tag("pre", "\n".join(one.entry.set))) for one in self.results)),
        ], SCRIPT + _CHOICE)  # fmt: skip

    def _markdown(self, pictures: dict[str, str]) -> str:
        wanted, numbers, seen = self._tables()
        lines = [f"# {TITLE}", "", how(self.plan, self.seeds, self.results), ""]
        lines += ["In words: [which to choose](../choosing.md).", ""]
        lines += ["## Recommendations", "", *_table(*wanted), "## Results", "", *_table(*numbers)]
        lines += [f"- {said}" for said in (*in_words(self.plan), *CAUTIONS)]
        lines += ["", "## Pictures", ""]
        for name, title in pictures.items():
            lines += [f"![{title}]({name})", ""]
        lines += ["## What each role sees", "", *_table(*seen), "## Differences between protocols", ""]
        lines += [f"- `{name}`: {said}" for name, said in notes(self.plan, self.results, self.seeds)]
        lines += [f"- `{name}` does not take part: {why}" for name, why in self.plan.left_out.items()]
        return "\n".join([*lines, ""])

    def _tables(self) -> Iterator[tuple[list[str], list[list[str]]]]:
        """Heads and lines: what to take for each need, the numbers, and what each role sees."""
        epsilons, at = self.plan.epsilons, deltas(self.plan)
        wanted = [[one.need, one.take, one.why] for one in needs(self.results, epsilons, at)]
        yield ["need", "take", "because"], wanted
        yield head(epsilons, at), [row(one, epsilons) for one in self.results]
        sees = [[one.name, *(one.contract.sees.get(who, "-") for who in ("server", "party"))] for one in self.results]
        yield ["protocol", "the server", "a party"], sees


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [names, ["---"] * len(names), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines] + [""]
