"""The model card of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from colonnade.common.config.members import Config, PartyConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import column_names
from colonnade.common.errors import ColonnadeError, InputError
from colonnade.common.escaped import plain
from colonnade.common.parsing.earlier_defaults import with_defaults_before
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import parse_yaml
from colonnade.common.privacy.accounting.chain import BEGINNING, newest
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.summary import (
    OF_TRAINING,
    STARTS,
    back_off_words,
    forest_words,
    metric_rows,
    own_models,
    what_else,
)
from colonnade.reports.guarantee import by_party, describe_person, describe_privacy, details
from colonnade.reports.records.kinds import describe_kind
from colonnade.reports.records.ledgers import is_file_name
from colonnade.reports.records.run import RecordedRun, read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.forest import FOREST_COLUMNS, forest_columns, tree_bytes
from colonnade.reports.words import amount

_MORE = {
    "average_precision": "average precision", "log_loss": "log loss", "brier": "Brier score",
    "ece": "expected calibration error",
}  # fmt: skip
_HASH = 16  # digits of a hash for visual comparison


def write_card(folder: Path, out: Path | None = None) -> Path:
    """Writes the card of a run that has ended, by default to card.md in its folder; returns its absolute path."""
    run = read_run(folder)
    if run.summary["status"] == "unfinished":
        raise InputError(f"{folder}: the run has not ended", hint="a card is of a run that has; wait, or resume it")
    path = (out or RunFolder(folder).card).resolve()
    make_folder(path.parent)
    write_text(path, markdown(run))
    return path


def markdown(run: RecordedRun) -> str:
    config = _config(run)
    sections = [
        f"# Model card: {plain(run.summary.get('federation') or run.name)}\n\n{plain(headline(run))}",
        _section("Training", _facts(_trained(run, config))),
        _section("Parties and data", _parties(run, config)),
        _section("Quality", _facts(_good(run))),
        _section("Protection of the data", _facts(_protected(run))),
        _section("Limits", _limits(run)),
        _section("Provenance", _facts(_provenance(run, config))),
    ]
    return "\n\n".join(sections) + "\n"


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


def _parties(run: RecordedRun, config: Config | None) -> str:
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
    between = ("model", "epsilon, this party alone") if forest is None else FOREST_COLUMNS
    heads = ("party", "columns", "source", *between, "rounds missed")
    made = _table(heads, lines)
    return f"{made}\n\nPrivacy: {plain(describe_person(run.summary))}." if epsilons and delta is not None else made


def _columns(run: RecordedRun, config: Config, name: str, own: PartyConfig) -> str:
    """Number of a party's columns, if its folder or its data are on this machine; a card omits their names."""
    folder = RunFolder(run.folder)
    if (base := folder.base()) is None:
        return "not known here"
    try:
        if is_file_name(name) and (fitted := EncoderFile(folder.party(name).path, begun=True).columns()):
            return str(fitted)
        return str(len(column_names(own.data, config.federation.party_index(name), base)))
    except (ColonnadeError, OSError):
        return "not known here"


def _good(run: RecordedRun) -> Iterator[tuple[str, object]]:
    metrics = run.summary["metrics"]
    yield from metric_rows(run.summary, {f"test_{key}": f"test {name}" for key, name in _MORE.items()})
    yield from own_models(metrics)
    if not any(key.startswith("test_") for key in metrics):
        yield "test rows", "the run kept none: nothing is known of rows that nothing was chosen by"


def _protected(run: RecordedRun) -> Iterator[tuple[str, object]]:
    yield "parties' data", describe_privacy(run.summary)
    yield from details(run.summary)
    if run.summary.get("start") == "secret" and not run.summary.get("forest"):
        yield "starts", STARTS["secret"]
    yield from ((name, words) for name, words in what_else(run.summary) if name not in OF_TRAINING)
    for kind, book in run.books.items():
        ways = ", ".join({"": "nothing private", "none": "in the clear"}.get(how, how) for how in book.mechanisms)
        what = describe_kind(kind, run.summary["protocol"])
        sent = f"{book.messages}, {amount(book.bytes)}, {book.rows} rows: {ways}"
        yield f"{kind} messages", f"{sent} ({what})" if what else sent


def _limits(run: RecordedRun) -> str:
    """Visible data of each role, from the protocol's contract, and the model's limits."""
    contract = CONTRACTS.get(run.summary["protocol"])
    lines = [] if contract is None else [f"The {role} sees {what}." for role, what in contract.sees.items()]
    lines += [
        "Predictions leak information on the training rows to their callers.",
        "Members are assumed to follow the protocol. A party that falsifies its columns spoils the model undetected.",
        "Numbers above are of this run's test rows alone; other data may give better or worse ones.",
    ]
    return "\n".join(f"- {plain(line)}" for line in lines)


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
        if is_file_name(name) and (head := newest(ledger)) != BEGINNING:
            yield f"newest hash of {name}'s ledger", head


def _config(run: RecordedRun) -> Config | None:
    """Configuration of the run; None if it is not in the folder or this version cannot read it."""
    try:
        return parse(with_defaults_before(parse_yaml(run.config)), begun=True) if run.config else None
    except (yaml.YAMLError, ColonnadeError, AttributeError, TypeError):
        return None


def _section(title: str, inside: str) -> str:
    return f"## {title}\n\n{inside}"


def _facts(rows: Iterator[tuple[str, object]]) -> str:
    return _table(("what", ""), [(name, value) for name, value in rows])


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    return "\n".join(table(head, rows))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [[plain(cell) for cell in head], ["---" for _ in head], *([plain(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
