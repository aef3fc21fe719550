"""card.md and card.html: sections with facts from the run, and places for people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from colonnade.common.config.data.tables import TableColumnsConfig
from colonnade.common.config.members import Config, PartyConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import column_names
from colonnade.common.data.tables import first_and_last
from colonnade.common.errors import ColonnadeError, InputError
from colonnade.common.parsing.earlier_defaults import with_defaults_before
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import parse_yaml
from colonnade.common.privacy.accounting.ledger import BEGINNING, newest
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.text import literal
from colonnade.reports.card.answers import PLACES, Answers, answers_of, template
from colonnade.reports.console.outputs import output_file, write_text
from colonnade.reports.console.progress import JUDGED
from colonnade.reports.console.summary import (
    OF_TRAINING,
    STARTS,
    back_off_words,
    forest_words,
    measure_of,
    metric_rows,
    own_models,
    positive_of,
    what_else,
)
from colonnade.reports.decision import confusion_of, decision_rows
from colonnade.reports.guarantee import by_party, describe_person, describe_privacy, details, uncounted, void
from colonnade.reports.html.page import render, tile
from colonnade.reports.records.ledgers import describe_kind, refuse_lost
from colonnade.reports.records.run import RecordedRun, is_party, read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.parties import FOREST_COLUMNS, forest_columns, tree_bytes
from colonnade.reports.scorecard.findings import ScoreFindings, find, suppressed_words
from colonnade.reports.scorecard.page import GROUPS, group_rows
from colonnade.reports.words import amount, counted, markdown_table

_MORE = {
    "average_precision": "average precision", "log_loss": "log loss", "brier": "Brier score",
    "ece": "expected calibration error",
}  # fmt: skip
_HASH = 16  # digits of a hash for visual comparison
_LISTED = 12  # classes whose shares are listed

_MAP = (
    ("1 General description", "purpose, provider, version, interfaces, hardware and software, instructions for use",
     "Model details, Intended use, Technical documentation"),
    ("2 Elements and development", "methods, architecture, data, oversight, validation, tests, cybersecurity",
     "Model details, Training data, Evaluation data, Ethical considerations, Technical documentation"),
    ("3 Functioning and control", "capabilities, limits, accuracy for groups, unintended outcomes, oversight",
     "Quantitative analyses, Factors, Caveats, Ethical considerations"),
    ("4 Performance metrics", "why the metrics are appropriate", "Metrics"),
    ("5 Risk management", "the system of Article 9", "Technical documentation"),
    ("6 Changes", "changes over the lifecycle", "Model details, Technical documentation"),
    ("7 Standards", "harmonised standards and other solutions", "Technical documentation"),
    ("8 Declaration of conformity", "a copy", "Technical documentation"),
    ("9 Post-market monitoring", "the system and its plan", "Technical documentation"),
)  # fmt: skip


class Empty(str):
    """The question of an unfilled place."""

    __slots__ = ()
    empty = True


@dataclass(frozen=True)
class CardTable:
    head: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    caption: str
    words: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class CardSection:
    """A part of a card: names and values, tables, and lines, each possibly empty."""

    title: str
    facts: Sequence[tuple[str, object]] = ()
    tables: Sequence[CardTable] = ()
    lines: Sequence[str] = ()


def sections(run: RecordedRun, answers: Answers, groups: ScoreFindings | None = None) -> Iterator[CardSection]:
    """Headings of Mitchell et al., "Model Cards for Model Reporting" (2019), a map to the EU AI Act, and provenance.

    Args:
        groups: scores with people's groups; None without groups.
    """
    config = _config(run)

    def asked(section: str) -> list[tuple[str, object]]:
        places = [place for place in PLACES if place.section == section]
        return [(place.title, answers.get(place.path) or Empty(place.question)) for place in places]

    yield CardSection("Model details", [*_trained(run, config), *asked("model_details")])
    yield CardSection("Intended use", asked("intended_use"))
    yield _factors(asked("factors"), groups)
    yield CardSection("Metrics", [*_decided(run), *asked("metrics")])
    yield CardSection("Evaluation data", list(_evaluated(run, config)))
    yield CardSection("Training data", [*_prevalence(run), *_dates(run, config), *asked("data")],
                      [_parties(run, config)])  # fmt: skip
    yield CardSection("Quantitative analyses", list(_good(run)), list(_importance(run)))
    ethical = [*_protected(run), *asked("ethics")]
    yield CardSection("Ethical considerations", ethical, list(_left(run)), list(_seen(run)))
    yield CardSection("Caveats and recommendations", asked("caveats"), lines=list(_limits(config)))
    yield CardSection("Technical documentation", asked("technical"), [CardTable(
        ("Annex IV", "what it asks for", "where in this card"), _MAP, words=(0, 1, 2),
        caption="Headings of Annex IV of Regulation (EU) 2024/1689, which high-risk systems need. A filled card is a "
        "part of that documentation and does not make a system conform.",
    )])  # fmt: skip
    yield CardSection("Provenance", list(_provenance(run, config)))


def tiles(run: RecordedRun, empty: int, places: int) -> list[dict[str, Any]]:
    """The card in four numbers, for the first screen."""
    said = run.summary
    name, value = next(iter(metric_rows(said)), ("quality", "not measured"))
    value, _, more = value.partition(" (")
    guarded = said["privacy"] is not None and not void(said)
    word, tone = ("bounded", "good") if guarded else ("no guarantee", "warn")
    left = "in card.yaml, beside the run" if empty else ""
    return [
        tile(f"Quality: {name}", value, more.rstrip(")")),
        tile("Members", counted(len(run.parties), "party"), f"labels: {said.get('dataset', 'not known')}"),
        tile("Privacy", word, describe_privacy(said).removeprefix("no guarantee; "), tone=tone),
        tile("To be filled in", f"{empty} of {places} places", left, tone="warn" if empty else "good"),
    ]


def _trained(run: RecordedRun, config: Config | None) -> Iterator[tuple[str, object]]:
    contract = CONTRACTS.get(run.summary["protocol"])
    yield "protocol", run.summary["protocol"] if contract is None else f"{contract.title} ({contract.source})"
    yield "labels", run.summary.get("dataset", "not known")
    if config is not None:
        agreed = config.federation
        what = "targets" if agreed.task == "regression" else "classes"
        yield "task", f"{agreed.task}, {what}: {agreed.outputs}"
        if not agreed.protocol.full_batch:
            yield "batch", agreed.batch
        yield "class weights", "not known" if config.server is None else config.server.class_weights
    yield "rounds", run.summary["rounds"]
    if (forest := run.summary.get("forest")) is not None:
        yield "trees", forest_words(forest)
        yield "bytes", tree_bytes(run.summary)
    yield "ended", run.summary["status"]  # an error may quote confidential text
    if run.summary.get("stopped"):
        yield "stopped early", run.summary["stopped"]
    if run.summary.get("back_offs"):
        yield "went back", back_off_words(run.summary["back_offs"])


def _parties(run: RecordedRun, config: Config | None) -> CardTable:
    """One line per party. Columns are unknown if the party's configuration is not in the folder."""
    lines = []
    epsilons, delta, forest = by_party(run.summary), run.summary.get("delta"), run.summary.get("forest")
    for name in run.parties:
        own = None if config is None else config.parties.get(name)
        source = "its own matter" if own is None else str(own.data.source)
        model = "its own matter" if own is None else str(getattr(own.model, "name", "of its own"))
        columns = "not known here" if own is None or config is None else _columns(run, config, name, own)
        epsilon = epsilons.get(name)
        spent = "no guarantee" if epsilon is None else f"{epsilon:.4g} at delta {delta:g}"
        missed = run.summary.get("missing", {}).get(name, "not known")
        own_part = (model, spent) if forest is None else forest_columns(forest["parties"][name])
        lines.append((name, columns, source, *own_part, missed))
    alone = f"epsilon, this party alone{uncounted(run.summary)}"
    between = ("model", alone) if forest is None else FOREST_COLUMNS
    heads = ("party", "columns", "source", *between, "rounds missed")
    about = f"Parties. Privacy: {describe_person(run.summary)}." if epsilons and delta is not None else "Parties"
    return CardTable(heads, lines, about, (0, 2))


def _columns(run: RecordedRun, config: Config, name: str, own: PartyConfig) -> str:
    """Number of a party's columns, if its folder or its data are on this machine; a card omits their names."""
    folder = RunFolder(run.folder)
    if (base := folder.base()) is None:
        return "not known here"
    try:
        if fitted := EncoderFile(folder.party(name).path, begun=True).columns():
            return str(fitted)
        return str(len(column_names(own.data, config.federation.party_index(name), base)))
    except (ColonnadeError, OSError):
        return "not known here"


def _decided(run: RecordedRun) -> Iterator[tuple[str, object]]:
    """The metric that judges the model, and the probability from which a row counts as positive."""
    measure = measure_of(run.summary)
    if measure:
        yield "judged by", f"{JUDGED[measure]}, since classes are unequal"
    decided = list(decision_rows(run.summary))
    yield from decided
    if positive_of(run.summary) is not None and not decided:
        yield "threshold", "each row gets its likelier class: no costs were configured (server.decide)"


def _evaluated(run: RecordedRun, config: Config | None) -> Iterator[tuple[str, object]]:
    """Rows not used in training, and their classes."""
    for part in ("test", "validation"):
        if counts := [sum(line) for line in confusion_of(run.summary, part)]:
            yield f"{part} rows", counted(sum(counts), "row")
            if len(counts) <= _LISTED and any(counts):
                shares = (f"{_class(config, at)} {count / sum(counts):.1%}" for at, count in enumerate(counts))
                yield f"prevalence among {part} rows", ", ".join(shares)
    if config is not None:
        yield "chosen", "drawn from the federation's seed, the same at every member; nobody trained on them"
    if not any(key.startswith("test_") for key in run.summary["metrics"]):
        yield "test rows", "the run kept none: nothing is known of rows that nothing was chosen by"


def _class(config: Config | None, number: int) -> str:
    names = None if config is None else config.federation.classes
    return f"class {number}" if names is None or isinstance(names, int) else str(names[number])


def _factors(asked: Sequence[tuple[str, object]], found: ScoreFindings | None) -> CardSection:
    """Groups of people at the cut-off, if known."""
    if found is None or found.groups is None:
        how = "Of two classes, colonnade card RUN --groups FILE:COLUMN compares groups of people at the cut-off."
        return CardSection("Factors", asked, lines=[how])
    rows = group_rows(found.groups)
    caption = f"Groups of the {found.part} rows at the cut-off {found.scale.say(found.cut_off[0])}"
    said = [*suppressed_words(found.groups), *found.notes]
    return CardSection("Factors", asked, [CardTable(GROUPS, rows, caption)] if rows else (), said)


def _prevalence(run: RecordedRun) -> Iterator[tuple[str, object]]:
    if (share := (run.summary.get("classes") or {}).get("share")) is not None:
        yield "prevalence", f"the commonest class has {share:.1%} of the training rows"


def _dates(run: RecordedRun, config: Config | None) -> Iterator[tuple[str, object]]:
    """First and last date in the columns that the configuration calls dates, of tables on this machine."""
    base = RunFolder(run.folder).base()
    if config is None or base is None:
        return
    for name, own in config.parties.items():
        if not isinstance(data := own.data, TableColumnsConfig):
            continue
        dated = {column: kind.removeprefix("date").strip() for column, kind in data.types.items() if "date" in kind}
        try:
            ends = [end for column, form in dated.items() for end in first_and_last(data, base, column, form)]
        except (ColonnadeError, OSError):
            continue
        if ends:
            yield f"dates in columns of {name}", f"{min(ends)} to {max(ends)}"


def _good(run: RecordedRun) -> Iterator[tuple[str, object]]:
    yield from metric_rows(run.summary, {f"test_{key}": f"test {name}" for key, name in _MORE.items()})
    yield from own_models(run.summary["metrics"])
    unmeasured = f"not measured: {run.outdated or 'colonnade explain RUN says who matters'}"
    yield "parties", (run.explained or {}).get("said", unmeasured)


def _importance(run: RecordedRun) -> Iterator[CardTable]:
    """The loss without each party, as `explain` measured it."""
    if (found := run.explained) is None:
        return
    rows = []
    for name in found["ranked"]:
        one = found["parties"][name]
        low, high = one["interval"]
        rows.append((name, f"{one['drop_missing']:.4f}", f"{low:.4f} to {high:.4f}", "yes" if one["told"] else "no"))
    head = ("party", f"{found['measure']} lost without it", "interval", "told from chance")
    yield CardTable(head, rows, "By what is lost without a party")


def _protected(run: RecordedRun) -> Iterator[tuple[str, object]]:
    yield "parties' data", describe_privacy(run.summary)
    yield from details(run.summary)
    if run.summary.get("start") == "secret" and not run.summary.get("forest"):
        yield "starts", STARTS["secret"]
    yield from ((name, words) for name, words in what_else(run.summary) if name not in OF_TRAINING)


def _left(run: RecordedRun) -> Iterator[CardTable]:
    """What left the parties, in words."""
    rows = []
    for kind, book in run.books.items():
        ways = ", ".join({"": "nothing private", "none": "in the clear"}.get(how, how) for how in book.mechanisms)
        what = describe_kind(kind, run.summary["protocol"]) or f"messages of the kind {kind}"
        rows.append((what, str(book.messages), amount(book.bytes), str(book.rows), ways))
    if rows:
        head = ("message", "times", "bytes", "rows", "protection")
        yield CardTable(head, rows, "What left the parties", words=(0, 4))


def _seen(run: RecordedRun) -> Iterator[str]:
    """Data that reaches each role, from the protocol's contract."""
    contract = CONTRACTS.get(run.summary["protocol"])
    yield from () if contract is None else (f"The {role} sees {what}." for role, what in contract.sees.items())
    yield "Predictions leak information on the training rows to their callers."
    yield "Members are assumed to follow the protocol. A party that falsifies its columns spoils the model undetected."


def _limits(config: Config | None) -> Iterator[str]:
    yield "Numbers above are of this run's test rows alone; other data may give better or worse ones."
    if config is not None and config.federation.align != "none":
        yield "People whom some member does not know were left out; nothing was measured of them."


def _provenance(run: RecordedRun, config: Config | None) -> Iterator[tuple[str, object]]:
    known = run.summary.get("environment")
    yield from ((name, value) for name, value in (known or {}).items())
    yield "run", RunFolder(run.folder).number() or "not known"
    if run.config:
        yield "SHA-256 of the configuration", hashlib.sha256(run.config.encode()).hexdigest()
    of = "batches and " + ("no first weights" if run.summary.get("start") == "secret" else "first weights")
    if run.summary.get("forest"):
        of = "parts of the rows, and samples"
    if config is not None:
        agreed = json.dumps(config.federation.hashes(), sort_keys=True).encode()
        yield "hash of what members agreed on", hashlib.sha256(agreed).hexdigest()[:_HASH]
        yield (
            "seed",
            f"{config.federation.seed} (of {of}; of noise where it is seeded)",
        )
    for name in run.parties:
        ledger = RunFolder(run.folder).party(name).ledger
        if (head := newest(ledger)) != BEGINNING:
            yield f"newest hash of {name}'s ledger", head


def _config(run: RecordedRun) -> Config | None:
    """Configuration of the run; None if it is not in the folder or this version cannot read it."""
    try:
        return parse(with_defaults_before(parse_yaml(run.config)), begun=True) if run.config else None
    except (yaml.YAMLError, ColonnadeError, AttributeError, TypeError):
        return None


_TEMPLATES = Path(__file__).parent / "templates"
_EMPTY = "**to be filled in**"


@dataclass(frozen=True)
class WrittenCard:
    """Paths of the card as Markdown and as a page, the file for people, and its places that are still empty."""

    markdown: Path
    page: Path
    answers: Path
    empty: tuple[str, ...]


def write_card(folder: Path, out: Path | None = None, groups: str = "") -> WrittenCard:
    """Writes the card of a run that has ended, by default as card.md and card.html in its folder.

    Args:
        out: the Markdown file; the page lies beside it.
        groups: FILE:COLUMN, ids and people's groups to compare; "" for none.
    """
    if is_party(folder):
        raise InputError(
            f"{folder} is a party's own folder, and a model card is of the whole model",
            hint="the server's operator makes it: `colonnade card RUN`. What left this party: "
            f"`colonnade ledger {folder}`; its part of the model: `colonnade export`",
        )
    run = read_run(folder)
    if run.summary["status"] == "unfinished":
        raise InputError(f"{folder}: the run has not ended", hint="a card is of a run that has; wait, or resume it")
    refuse_lost(folder, run.parties)
    if out is not None and out.suffix not in ("", ".md", ".html"):
        raise InputError(f"--out {out}: a card is a .md file with a .html file beside it", hint="name the .md file")
    own = RunFolder(folder).card_answers.resolve()
    answers = answers_of(own)
    compared = find(folder, None, groups, None, "") if groups else None
    path = output_file(out, RunFolder(folder).card)
    if not own.exists():
        write_text(own, template())
    page = path.with_suffix(".html")
    write_text(path.with_suffix(".md"), markdown(run, answers, compared))
    write_text(page, html(run, answers, compared))
    return WrittenCard(path.with_suffix(".md"), page, own, tuple(one.path for one in PLACES if one.path not in answers))


def html(run: RecordedRun, answers: Answers, groups: ScoreFindings | None = None) -> str:
    made = list(sections(run, answers, groups))
    values = {
        "title": f"Model card: {_name(run)}",
        "said": headline(run),
        "cards": tiles(run, len(PLACES) - len(answers), len(PLACES)),
        "sections": made,
        "titles": [section.title for section in made],
    }
    return render("card.html", values, beside=_TEMPLATES)


def markdown(run: RecordedRun, answers: Answers | None = None, groups: ScoreFindings | None = None) -> str:
    """The card as Markdown; without answers all places for people are marked."""
    parts = [f"# Model card: {literal(_name(run))}\n\n{literal(headline(run))}"]
    parts += [_section(section) for section in sections(run, answers or {}, groups)]
    return "\n\n".join(parts) + "\n"


def _name(run: RecordedRun) -> str:
    return str(run.summary.get("federation") or run.name)


def _section(section: CardSection) -> str:
    parts = [f"## {section.title}"]
    if section.facts:
        parts.append(markdown_table(("what", ""), section.facts, say=_cell))
    for one in section.tables:
        parts += [one.caption, markdown_table(one.head, one.rows, say=_cell)]
    if section.lines:
        parts.append("\n".join(f"- {literal(line)}" for line in section.lines))
    return "\n\n".join(parts)


def _cell(cell: object) -> str:
    return f"{_EMPTY}: {literal(cell)}" if isinstance(cell, Empty) else literal(cell)
