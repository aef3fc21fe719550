"""comparison.html and comparison.md: which to take, the numbers, what attacks find, and who sees what."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.sources import load_labels
from colonnade.common.parsing.file import load
from colonnade.common.run.environment import describe_environment
from colonnade.reports.console.outputs import write_text
from colonnade.reports.html.charts import Axis, Bar, Dot, row_chart, scatter_chart
from colonnade.reports.standings.contender import Contender, Estimate, Measure, Protection
from colonnade.reports.standings.page import ComparisonPage, Figure, ValueTable
from colonnade_lab.comparison.figures import LEAKS, draw_leaks, figures, rebuilt_share
from colonnade_lab.comparison.plan import ABOUT, ATTACKED, OWN, PLAIN, SLOW, UNITS, ComparisonPlan, deltas, in_words
from colonnade_lab.comparison.protocol_results import VICTIM, ProtocolResults
from colonnade_lab.comparison.table import GOOD, head, needs, row
from colonnade_lab.pages.plots import as_file
from colonnade_lab.papers.intervals import floor

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


_MEASURE = Measure("accuracy")


def _contender(plan: ComparisonPlan, result: ProtocolResults, validation: int) -> Contender:
    """How it stands undisturbed: means over seeds with the binomial error of the rows, which all seeds share."""
    tests = result.values(PLAIN, "accuracy")
    seen = [record.metrics.get("val_accuracy") for record in result.found.get(PLAIN, ())]
    known = [value for value in seen if value is not None]
    chosen = statistics.fmean(known) if known and len(known) == len(seen) else None
    run = plan.conditions(result.name)[PLAIN]
    federation = load(run.path, run.set).federation
    return Contender(
        result.name, result.name,
        test=Estimate(result.accuracy / 100, (floor(tests[0]) / 100) or None) if tests else None,
        validation=None if chosen is None else Estimate(chosen, math.sqrt(chosen * (1 - chosen) / validation)),
        sent=1e6 * result.mean(PLAIN, "mb") if tests else None,
        protection=Protection.of(result.name, federation.protocol.model_dump()), reference=result.entry.reference,
    )  # fmt: skip


def _rows(plan: ComparisonPlan, results: Sequence[ProtocolResults]) -> tuple[int, int]:
    """Numbers of test and validation rows, which all protocols share."""
    run = plan.conditions(results[0].name)[PLAIN]
    config = load(run.path, run.set)
    assert config.server is not None  # a plan's files are of all members
    labels = load_labels(config.server.labels, run.path.parent, config.federation.task)
    parts = Schedule(config.federation, len(labels.values), labels.official_test).partition
    return len(parts.test), len(parts.validation)


def _leaks(results: Sequence[ProtocolResults]) -> list[Figure]:
    """What attacks find, most first: labels named by a party, and columns rebuilt by the server."""
    named = sorted((one for one in results if not math.isnan(one.named[0])), key=lambda one: -one.named[0])
    made = sorted((one for one in results if not math.isnan(one.rebuilt)), key=lambda one: -rebuilt_share(one))
    labels = [Bar(one.name, one.named[0], f"{one.named[0]:.0%} ({one.named[1]:.0%})", colour=2) for one in named]
    columns = [Bar(one.name, rebuilt_share(one), f"{rebuilt_share(one):.0%}") for one in made]
    axis = Axis("share", lambda value: f"{value:.0%}", (0.0, 1.0))
    drawn = (
        ("Labels that a party names (by chance)", labels),
        ("Variance of columns that the server rebuilds", columns),
    )
    return [Figure(title, row_chart(bars, axis, caption=f"{title}, by attacks")) for title, bars in drawn if bars]


def _noisy(results: Sequence[ProtocolResults], epsilons: Sequence[float]) -> list[Figure]:
    """Accuracy by epsilon, a chart for each unit that some protocol has noise for."""
    found = []
    for unit in UNITS:
        dots = [
            Dot(one.name, each, one.under(unit, each) / 100, colour=number)
            for number, one in enumerate(results, 1)
            for each in epsilons
            if not math.isnan(one.under(unit, each))
        ]
        if dots:
            title, across = f"Accuracy at epsilon of {ABOUT[unit]}", Axis("epsilon", lambda value: f"{value:.3g}")
            found.append(Figure(title, scatter_chart(dots, across, Axis("accuracy", _MEASURE.say), title=title)))
    return found


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
        wanted, numbers, seen = self._tables()
        test, validation = _rows(self.plan, self.results)
        return ComparisonPage(
            TITLE, _MEASURE, test, validation, [_contender(self.plan, one, validation) for one in self.results],
            ValueTable(*numbers), more=[*_noisy(self.results, self.plan.epsilons), *_leaks(self.results)],
            more_title="Noise, and what attacks find",
            facts=[
                ("For a need of its own", [(need, f"{take}: {why}") for need, take, why in wanted[1]]),
                ("What each role sees", [(name, f"server: {own}; a party: {party}") for name, own, party in seen[1]]),
                ("Differences between protocols", [*notes(self.plan, self.results, self.seeds),
                                                   *self.plan.left_out.items()]),
                ("Configuration", [(one.name, " ".join(one.entry.set)) for one in self.results]),
                ("How", [("made by", how(self.plan, self.seeds).replace("`", ""))]),
            ],
            notes=[said.replace("`", "") for said in (*in_words(self.plan), *CAUTIONS)],
        ).html()  # fmt: skip

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
