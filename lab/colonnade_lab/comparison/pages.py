"""comparison-charts.html and comparison.md: which to take, the numbers, what attacks find, and who sees what."""

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
from colonnade_lab.comparison.plan import ABOUT, ATTACKED, OWN, PLAIN, SLOW, UNITS, ComparisonPlan, deltas, in_words
from colonnade_lab.comparison.protocol_results import VICTIM, ProtocolResults
from colonnade_lab.comparison.table import GOOD, head, needs, row
from colonnade_lab.pages.markdown import markdown
from colonnade_lab.papers.intervals import floor

_CONDITIONS = {
    PLAIN: "undisturbed",
    SLOW: "with stragglers, waiting",
    OWN: "with stragglers, not waiting for all",
    ATTACKED: "attacked",
}

_OF = {"client": "a party", "row": "a row"}

TITLE = "Comparison of all protocols"
_TEMPLATES = Path(__file__).parent / "templates"


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
    """The undisturbed protocol: means over seeds with the binomial error of the rows, which all seeds share."""
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
    """Success of attacks, largest first: labels inferred by a party, and columns reconstructed by the server."""
    named = sorted((one for one in results if not math.isnan(one.named[0])), key=lambda one: -one.named[0])
    made = sorted((one for one in results if not math.isnan(one.rebuilt)), key=lambda one: -one.rebuilt_share)
    labels = [Bar(one.name, one.named[0], f"{one.named[0]:.0%} ({one.named[1]:.0%})", colour=2) for one in named]
    columns = [Bar(one.name, one.rebuilt_share, f"{one.rebuilt_share:.0%}") for one in made]
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


@dataclass(frozen=True)
class ComparisonPages:
    plan: ComparisonPlan
    results: Sequence[ProtocolResults]
    seeds: int

    def write(self, folder: Path) -> list[Path]:
        pages = {"comparison-charts.html": self._html(), "comparison.md": self._markdown()}
        for name, text in pages.items():
            write_text(folder / name, text)
        return [folder / name for name in pages]

    def _how(self, versions: Sequence[str] = ()) -> str:
        system = describe_environment()
        return markdown("how.jinja", _TEMPLATES, plan=self.plan, seeds=self.seeds, system=system, versions=versions)

    def _cautions(self) -> list[str]:
        said = markdown("cautions.jinja", _TEMPLATES, good=f"{GOOD:g}", victim=VICTIM)
        return [*in_words(self.plan), *said.splitlines()]

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
                ("How", [("made by", self._how().replace("`", ""))]),
            ],
            notes=[said.replace("`", "") for said in self._cautions()],
        ).html()  # fmt: skip

    def _markdown(self) -> str:
        wanted, numbers, seen = self._tables()
        records = [record for one in self.results for each in one.found.values() for record in each]
        return markdown(
            "comparison.jinja", _TEMPLATES, title=TITLE, wanted=wanted, numbers=numbers, seen=seen,
            how=self._how(sorted({record.version for record in records} - {""})), cautions=self._cautions(),
            notes=notes(self.plan, self.results, self.seeds), left_out=self.plan.left_out,
        )  # fmt: skip

    def _tables(self) -> Iterator[tuple[list[str], list[list[str]]]]:
        """Heads and lines: what to take for each need, the numbers, and what each role sees."""
        epsilons, at = self.plan.epsilons, deltas(self.plan)
        wanted = [[one.need, one.take, one.why] for one in needs(self.results, epsilons, at)]
        yield ["need", "take", "because"], wanted
        yield head(epsilons, at), [row(one, epsilons) for one in self.results]
        sees = [[one.name, *(one.contract.sees.get(who, "-") for who in ("server", "party"))] for one in self.results]
        yield ["protocol", "the server", "a party"], sees
