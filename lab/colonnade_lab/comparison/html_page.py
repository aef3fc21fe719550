"""The self-contained HTML page of the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colonnade.reports.html.frame import facts, folded, frame, section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.html.script import SCRIPT
from colonnade_lab.comparison import leaks
from colonnade_lab.comparison.epsilons import deltas, in_words
from colonnade_lab.comparison.figures import Figure, figures, strokes
from colonnade_lab.comparison.plan import ComparisonPlan, Unit
from colonnade_lab.comparison.protocol_results import ProtocolResults
from colonnade_lab.comparison.recommendations import needs
from colonnade_lab.comparison.table import head, row
from colonnade_lab.comparison.words import CAUTIONS, TITLE, how, notes

_NEEDS = ("need", "take", "because")
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


def html_page(plan: ComparisonPlan, results: Sequence[ProtocolResults], seeds: int) -> str:
    epsilons, at = plan.epsilons, deltas(plan)
    wanted = [(one.need, one.take, one.why) for one in needs(results, epsilons, at)]
    numbers = [row(result, epsilons) for result in results]
    cautions = tag("ul", *(tag("li", said.replace("`", "")) for said in (*in_words(plan), *CAUTIONS)), class_="faint")
    return frame(TITLE, [
        tag("p", how(plan, seeds).replace("`", "")),
        section("Recommendations", table(_NEEDS, wanted, words=(0, 1, 2), caption="By the results")),
        section("The numbers", table(head(epsilons, at), numbers, caption=_CAPTION), cautions),
        _curves(results, at),
        section("Leaks", _leaks(results)),
        section("What each role sees", _sees(results)),
        section("Differences between protocols", facts(notes(plan, results, seeds)), facts(plan.left_out.items())),
        section("Configuration", *(folded(result.name, tag("pre", "\n".join(result.entry.set))) for result in results)),
    ], SCRIPT + _CHOICE)  # fmt: skip


def _curves(results: Sequence[ProtocolResults], at: Mapping[Unit, float]) -> Html:
    pictures = [_figure(figure) for figure in figures(results, at)]
    return section("Curves", _legend(results), tag("div", *pictures, class_="charts")) if pictures else Html()


def _leaks(results: Sequence[ProtocolResults]) -> Html:
    drawn = Html(leaks.draw(results))
    return tag("div", drawn, class_="scroll", tabindex="0", role="region", aria_label=leaks.TITLE) if drawn else Html()


def _figure(figure: Figure) -> Html:
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


def _sees(results: Sequence[ProtocolResults]) -> Html:
    rows = [[result.name, *(result.contract.sees.get(who, "-") for who in ("server", "party"))] for result in results]
    return table(["protocol", "the server", "a party"], rows, words=(0, 1, 2), caption="Visible to each role")
