"""Releases of the parties, summed over their ledgers; kinds of messages in words, for readers who know no protocol."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.privacy.accounting.budget import reservations
from colonnade.common.privacy.accounting.ledger import refuse_unpinned
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.words import counted

_DELTA = re.compile(r"\bdelta=(\S+)")


@dataclass
class Book:
    """All messages of one kind that left.

    Attributes:
        bytes: tensor bytes as sent.
        rows: number of rows, counted in every message.
        repeats: messages that left again after a rollback.
        mechanisms: their protection; "" means nothing private.
    """

    messages: int = 0
    bytes: int = 0
    rows: int = 0
    repeats: int = 0
    parties: set[str] = field(default_factory=set)
    mechanisms: list[str] = field(default_factory=list)


def read_books(folder: Path, parties: Iterable[str]) -> dict[str, Book]:
    """Reads parties/NAME/ledger.jsonl by kind of message; empty without a ledger."""
    books: dict[str, Book] = {}
    for party in parties:
        _read(RunFolder(folder).party(party).ledger, party, books)
    return books


def refuse_lost(folder: Path, parties: Iterable[str]) -> None:
    """Raises CheckpointError if a party's ledger in a run's folder has lost lines since its pin was written."""
    for party in parties:
        refuse_unpinned(RunFolder(folder).party(party).ledger)


def read_books_of(ledger: Path) -> dict[str, Book]:
    books: dict[str, Book] = {}
    _read(ledger, ledger.parent.name, books)
    return books


def spent(ledger: Path) -> tuple[str, str]:
    """Epsilon of all planned releases by a party's ledger, or of the more that were made; and the paid releases."""
    epsilon, planned, delta = None, None, ""
    for entry in read_lines(ledger):
        planned = entry.get("planned", planned)
        if entry.get("epsilon") is not None:  # only releases of a model cost epsilon
            epsilon, found = entry["epsilon"], _DELTA.search(str(entry.get("mechanism")))
            delta = f"delta {found[1]}" if found else "the agreed delta"
    if not isinstance(epsilon, int | float):
        return "no privacy guarantee was counted", ""
    paid = counted(sum(releases for releases, _ in reservations(ledger)), "release")
    about = "it is this party's own; a person known to other parties is in their releases too"
    running = f"epsilon {epsilon:.4g} at {delta}"
    if not isinstance(planned, int | float) or planned <= epsilon:
        return f"{running} after the last message", f"{paid} paid for; {about}"
    so_far = f"a running count after the last message, which bounds no run whose end others choose: {running}"
    return f"epsilon {planned:.4g} at {delta} of all planned releases", f"{paid} paid for ({so_far}); {about}"


def _read(ledger: Path, party: str, books: dict[str, Book]) -> None:
    for entry in read_lines(ledger):
        if isinstance(kind := entry.get("kind"), str):  # otherwise the line reserves a budget
            _enter(books.setdefault(kind, Book()), party, entry)


def _enter(book: Book, party: str, entry: dict[str, object]) -> None:
    size, rows, mechanism = entry.get("bytes"), entry.get("rows"), str(entry.get("mechanism", ""))
    book.messages += 1
    book.bytes += size if isinstance(size, int) else 0
    book.rows += rows if isinstance(rows, int) else 0
    book.repeats += bool(entry.get("repeat"))
    book.parties.add(party)
    if mechanism not in book.mechanisms:
        book.mechanisms.append(mechanism)


KINDS: Mapping[str, str] = {
    "Answer": "results of a round, computed on coded shares of all data",
    "Census": "alignment of rows: how many keys the party has",
    "Codes": "codes of a batch of training rows, ones and zeros",
    "Counts": "counts of classes by code, with noise",
    "Decisions": "rows of a prediction: on which side of the forest's splits they are",
    "Embedding": "embeddings of a batch of training rows: what the party's model makes of them",
    "Evaluation": "validation and test rows, in the form in which training rows leave",
    "Features": "raw columns of a batch of training rows, scaled",
    "Held": "alignment of rows: which earlier result the party has kept",
    "Kept": "alignment of rows: a receipt, the result is on the party's disk",
    "HintPart": "trees and shapes: a part of the party's table of bins, encrypted",
    "InformationValues": "a scorecard: how much the party's columns tell of the labels, by number; or nothing",
    "KeyOffer": "a public key, for encryption between parties",
    "KeyProof": "a proof that the parties have the same keys",
    "Logits": "scores of the classes for a batch of training rows",
    "MaskedSums": "sums of the server's encrypted numbers over the party's bins, under a mask of its own",
    "Masked": "masked values, of which the server can read the sum over the parties alone",
    "Opened": "a receipt: whose shares of the data have arrived",
    "OpenedShares": "shares of keys with which the masks of a sum are removed",
    "Output": "rows of a prediction: what the party's model makes of them",
    "Pair": "two embeddings of a batch: of the party's model, and of the model a small step away",
    "Pledge": "alignment of rows: a signed digest of a list before it is sent",
    "Points": "alignment of rows: keys that are hashed and hidden by a secret of the party",
    "Positions": "alignment of rows: where the common rows are in a list",
    "Prediction": "scores of the classes for a batch of training rows",
    "Prepared": "which shares of the data the party still has, and its number of columns",
    "ProbeDigest": "a hash of the party's answer to zeros, which shows that its table of bins is one",
    "ProbeSums": "the answer: noise",
    "Products": "a regression: scalar products of coefficients and gradients, and a direction's logits of all rows",
    "Proved": "alignment of rows: hidden keys, with a proof that one secret hides them all",
    "Reused": "alignment of rows: a receipt, the kept result is used again",
    "SealedShares": "shares of the party's keys for masks, encrypted for every other party",
    "SetProof": "a proof that the parties have the same set of members in a sum",
    "Shares": "shares of the party's data, encrypted for every other party",
    "Change": "what a step of the party's shape functions changes in the scores of all rows",
    "BinCounts": "trees and shapes: how many bins the columns have, and a random number",
    "Sides": "trees: on which side of splits the rows are, training, validation and test rows alike",
    "Stated": "alignment of rows: a signature, the party has the kept result",
    "Sums": "trees: sums of the server's encrypted numbers over the bins of the columns",
}
"""What leaves a party, by the kind's name on the wire."""


def describe_kind(kind: str, protocol: str | None = None) -> str:
    """Describes a kind of message in a few words; "" if it is unknown.

    Args:
        kind: name on the wire, as in ledgers.
        protocol: the run's, if known. Kinds of another package's protocol are described by the first line of their
            docstrings.
    """
    contract = None if protocol is None or protocol in NAMES else CONTRACTS.get(protocol)
    found = None if contract is None else contract.kinds.get(kind)
    if found is not None and found.__module__.partition(".")[0] != "colonnade":
        return (inspect.getdoc(found) or "").partition("\n")[0].rstrip(".")
    return KINDS.get(kind, "")
