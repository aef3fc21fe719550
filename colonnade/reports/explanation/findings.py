"""Importance of each party to a trained model, in numbers.

Parties are ranked by the loss of the measure without them: a party's messages are replaced by their mean over the
measured rows; for a forest its answers are shuffled over them (Breiman, "Random Forests", 2001). Zeros would also
remove a constant part, which a head may use as its bias, so that a party of mere noise could rank first.

VIMADMM (Xie et al. 2024), Section VI-C, ranks by the norm of a party's head. The norm is reported, but not used for the
ranking: it depends on the scale of the party's embeddings and on the head's random start, which differs by more than
training adds in a few epochs.

Paired resamples of the measured rows show whether a loss differs from chance: the same resamples (Efron, "Bootstrap
Methods", 1979) measure the model with and without each party, so that rows which are hard for both do not widen the
interval of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.common.data.columns.noise import add_gaussian
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.run.json_text import read_lines
from colonnade.reports.explanation.trained import Trained
from colonnade.reports.records.ledgers import read_books_of
from colonnade.server.training.trees.gradients import ScoreSum

Numbers = NDArray[np.float64]
Metric = Callable[[Numbers], Numbers]
"""Counts of rows, (resamples, rows), to the metric of each resample, (resamples,); NaN where it is undefined."""

DRAWS = 1000
_AT_ONCE = 2_000_000  # counts in memory
_ENDS = (2.5, 97.5)


def metric_of(name: str, said: Numbers, truth: NDArray[np.generic]) -> Metric:
    """Prepares `accuracy`, `balanced_accuracy`, `auc` (of the second class) or `r2`.

    Args:
        said: probabilities (rows, classes), or predicted targets (rows, targets).
        truth: classes (rows,), or targets (rows, targets).
    """
    if name == "r2":
        return _r2(said, np.asarray(truth, np.float64))
    if name == "auc":
        return _auc(said[:, 1], truth == 1)
    hits = (said.argmax(1) == truth).astype(np.float64)
    if name == "accuracy":
        return lambda counts: counts @ hits / counts.sum(1)
    members = [np.flatnonzero(truth == number) for number in np.unique(truth)]

    def balanced(counts: Numbers) -> Numbers:
        with np.errstate(invalid="ignore"):
            recalls = [counts[:, own] @ hits[own] / counts[:, own].sum(1) for own in members]
        found: Numbers = np.nanmean(recalls, axis=0)
        return found

    return balanced


def resampled(metrics: list[list[Metric]], rows: int, seed: int) -> Numbers:
    """Mean of each list of metrics on the same resamples of the rows, (lists, resamples)."""
    found = [
        [np.mean([metric(counts) for metric in several], axis=0) for several in metrics]
        for counts in _resamples(rows, seed)
    ]
    return np.concatenate(found, axis=1)


def interval(draws: Numbers) -> tuple[float, float]:
    """The middle 95% of the resamples."""
    kept = draws[np.isfinite(draws)]
    low, high = np.percentile(kept, _ENDS).tolist() if len(kept) else (np.nan, np.nan)
    return low, high


def _resamples(rows: int, seed: int) -> Iterator[Numbers]:
    draw, at_once = np.random.default_rng(seed), max(1, _AT_ONCE // rows)
    for begun in range(0, DRAWS, at_once):
        some = min(at_once, DRAWS - begun)
        yield draw.multinomial(rows, np.full(rows, 1 / rows), size=some).astype(np.float64)


def _auc(scores: Numbers, positive: NDArray[np.bool_]) -> Metric:
    order = np.argsort(scores, kind="stable")
    bads = positive[order].astype(np.float64)
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))  # of rows with equal scores

    def auc(counts: Numbers) -> Numbers:
        sorted_counts = counts[:, order]
        above = np.add.reduceat(sorted_counts * bads, starts, axis=1)
        below = np.add.reduceat(sorted_counts * (1 - bads), starts, axis=1)
        beaten = np.cumsum(below, axis=1) - below / 2
        with np.errstate(invalid="ignore"):
            found: Numbers = (above * beaten).sum(1) / (above.sum(1) * below.sum(1))
        return found

    return auc


def _r2(predicted: Numbers, true: Numbers) -> Metric:
    centred = true - true.mean(0)  # sums of squares of large numbers would lose their digits
    squares, varied = np.square(predicted - true), np.ptp(true, axis=0) > 0

    def r2(counts: Numbers) -> Numbers:
        total = counts.sum(1, keepdims=True)
        spread = counts @ np.square(centred) - np.square(counts @ centred) / total
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(varied & (spread > 0), 1 - counts @ squares / spread, 0.0)
        found: Numbers = each.mean(1)
        return found

    return r2


@dataclass(frozen=True)
class ModelScore:
    """A model on the measured rows: the measure, the mean loss, and the measure of resamples of the rows."""

    value: float
    loss: float
    metric: Metric


Value = Callable[[Sequence[Tensor]], ModelScore]

RANKED = 4
"""Parties, at least, whose ranks are compared."""
_ROUNDING = 1e-9  # of a mean over orders
SHUFFLES = 5
"""Orders of the rows, whose mean stands for a forest without a party."""


@dataclass(frozen=True)
class PartyFindings:
    """Findings on one party.

    Attributes:
        norm: Frobenius norm of its head; None if no head, or block of one, is its own.
        first_norm: the norm before the first round.
        noised: the measure when its features are noised; None for a forest or shapes.
        missing: the measure without it.
        missing_loss: mean loss without it.
        lost: the loss of the measure without it, on resamples of the rows, float64 (resamples,).
        gain: share of its splits in a forest's gain.
        splits: nodes of a forest that use its columns.
        size: mean distance of its scores in an additive model from their mean.
        sent: bytes of tensors that it sent in the run; None without its ledger.
        awaited: seconds that the others waited for it, over all rounds of which it was the slowest.
    """

    name: str
    norm: float | None
    first_norm: float | None
    noised: float | None
    missing: float
    missing_loss: float
    lost: Numbers = field(repr=False, compare=False)
    gain: float | None = None
    splits: int | None = None
    size: float | None = None
    sent: int | None = None
    awaited: float = 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the loss of the measure, over the resamples."""
        return interval(self.lost)

    @property
    def told(self) -> bool:
        """True if the loss without it differs from chance: the whole interval is above 0."""
        return self.interval[0] > _ROUNDING

    @property
    def growth(self) -> float | None:
        return self.norm / self.first_norm if self.norm is not None and self.first_norm else None


@dataclass(frozen=True)
class Findings:
    """Findings on all parties.

    Attributes:
        part: measured rows: test, or validation if the run has no test rows.
        measure: `accuracy`; for unequal classes `auc` (two classes) or `balanced_accuracy` (more); `r2` for numbers.
        labels: the measured rows', int64 (rows,), or scaled targets.
        embeddings: by party, float32 (rows, width); empty for a forest.
        sigma: standard deviation of the noise, in units of the scaled features.
        clean: the measure with all parties and no noise.
        parties: in roster order.
        draws: `clean` on resamples of the rows.
    """

    part: str
    measure: str
    labels: Tensor
    embeddings: dict[str, Tensor]
    sigma: float
    clean: float
    parties: tuple[PartyFindings, ...]
    draws: Numbers = field(repr=False, compare=False)

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the measure with all parties, over resamples of the rows."""
        return interval(self.draws)

    def apart(self, one: PartyFindings, other: PartyFindings) -> bool:
        """True if one party's loss exceeds another's by more than chance."""
        return interval(one.lost - other.lost)[0] > _ROUNDING

    @property
    def importance(self) -> list[float]:
        """Loss of the measure without each party, in roster order."""
        return [self.clean - party.missing for party in self.parties]

    @property
    def ranked(self) -> list[PartyFindings]:
        """Most important party first; ties are broken by the larger cross-entropy without the party."""

        def key(party: PartyFindings) -> tuple[float, float]:
            lost = self.clean - party.missing
            return (math.inf if math.isnan(lost) else -lost, -party.missing_loss)

        return sorted(self.parties, key=key)

    @property
    def needed(self) -> bool:
        return any(lost > 0 for lost in self.importance)

    @property
    def noise_lost(self) -> list[float] | None:
        """Loss of the measure when a party is noised, in roster order; None for a forest."""
        found = [self.clean - party.noised for party in self.parties if party.noised is not None]
        return found if len(found) == len(self.parties) else None

    @property
    def growths(self) -> list[float] | None:
        """Each head's norm over its norm before the first round, in roster order; None if a party has none."""
        found = [party.growth for party in self.parties if party.growth is not None]
        return found if len(found) == len(self.parties) else None

    def agreement(self, others: Sequence[float] | None) -> float | None:
        """Spearman's rank correlation of the importance with other numbers of the parties, if any.

        It is hardly informative for fewer than four parties: for two it is always 1 or -1.
        """
        if others is None or len(self.parties) < RANKED:
            return None
        with np.errstate(invalid="ignore"):  # all may be equal
            found = np.corrcoef(rankdata(self.importance), rankdata(others))[0, 1]
        return float(found) if np.isfinite(found) else None


def measure(trained: Trained, sigma: float, progress: Callable[[str], object] = lambda _party: None) -> Findings:
    """Measures the model with each party noised (except a forest), and with each party absent, all others unchanged.

    Args:
        sigma: standard deviation of the noise on a party's scaled features.
        progress: called with the name of every party.
    """
    part = _part(trained)
    rows = torch.cat(trained.server.schedule.blocks(part))
    labels, measure_name = trained.server.labels[rows], _measure(trained, rows)
    value = partial(_value, trained, measure_name, labels)
    embeddings: dict[str, Tensor] = {}
    without: dict[str, list[ModelScore]] = {}
    noised: dict[str, float] = {}
    with torch.no_grad():
        if trained.forest is not None:
            said = [trained.splits[name].of_rows(rows) for name in trained.names]
        elif isinstance(trained.joint, ScoreSum):
            said = [trained.locals[name].of_rows(trained.clients[name].features, rows) for name in trained.names]
        else:
            own = trained.locals
            embeddings = {name: _embeddings(trained.clients[name], own[name], part) for name in trained.names}
            said = [own[name].answer(embeddings[name]) for name in trained.names]
        for index, name in enumerate(trained.names):
            progress(name)
            if embeddings:
                noisy = own[name].answer(_embeddings(trained.clients[name], own[name], part, sigma))
                mean = said[index].mean(0, keepdim=True).expand_as(said[index])
                noised[name] = value(_with(said, index, noisy)).value
                without[name] = [value(_with(said, index, mean))]
            else:
                without[name] = _shuffled(trained, said, index, value)
        clean = value(said)
    each = [[clean.metric], *([one.metric for one in found] for found in without.values())]
    draws = resampled(each, len(rows), trained.config.federation.seed)
    costs, more = _costs(trained), _of_model(trained, said)
    parties = tuple(
        PartyFindings(
            name, _norm(trained.heads, index), _norm(trained.first_heads, index), noised.get(name),
            _mean(without[name]), sum(one.loss for one in without[name]) / len(without[name]),
            draws[0] - draws[index + 1], **costs[name], **more[name],
        )
        for index, name in enumerate(trained.names)
    )  # fmt: skip
    return Findings(part, measure_name, labels, embeddings, sigma, clean.value, parties, draws[0])


def _value(trained: Trained, name: str, labels: Tensor, parts: Sequence[Tensor]) -> ModelScore:
    score = trained.server.score()
    score.add(trained.logits(parts), labels)
    metrics = {**score.metrics, **score.some({name} - set(score.metrics))}
    return ModelScore(metrics.get(name, math.nan), metrics["loss"], metric_of(name, *score.arrays()))


def _costs(trained: Trained) -> dict[str, dict[str, Any]]:
    """Each party's costs in the run, as far as its ledger and the server's events show them."""
    waited = dict.fromkeys(trained.names, 0.0)
    for event in read_lines(trained.folder.events):
        slow = event.get("slowest") or {}
        if slow.get("party") in waited:
            waited[slow["party"]] += slow["seconds"]
    books = {name: read_books_of(trained.folder.party(name).ledger) for name in trained.names}
    sent = {name: sum(book.bytes for book in own.values()) if own else None for name, own in books.items()}
    return {name: {"sent": sent[name], "awaited": waited[name]} for name in trained.names}


def _of_model(trained: Trained, said: Sequence[Tensor]) -> dict[str, dict[str, Any]]:
    """Gains of a forest's splits, or the size of shapes' scores."""
    if (forest := trained.forest) is not None:
        used = [forest.used(party) for party in range(len(said))]
        total = sum(float(gains.sum()) for _, gains in used) or 1.0
        return {
            name: {"gain": float(gains.sum()) / total, "splits": int(times.sum())}
            for name, (times, gains) in zip(trained.names, used, strict=True)
        }
    if isinstance(trained.joint, ScoreSum):
        sizes = [(scores - scores.mean(0)).abs().mean().item() for scores in said]
        return {name: {"size": size} for name, size in zip(trained.names, sizes, strict=True)}
    return {name: {} for name in trained.names}


def without_columns(trained: Trained, party: str) -> dict[str, float]:
    """The measure of a forest if the sides of one of a party's columns are shuffled over the rows, by column.

    The server could compute it except for the names: it knows every side, and which splits share a column.
    """
    part = _part(trained)
    rows, place = torch.cat(trained.server.schedule.blocks(part)), trained.names.index(party)
    value = partial(_value, trained, _measure(trained, rows), trained.server.labels[rows])
    sides = [trained.splits[name].of_rows(rows) for name in trained.names]
    bits = np.unpackbits(sides[place].numpy(), axis=1)
    columns = np.array([column for column, *_ in trained.splits[party].described()])

    def without(column: str, order: Tensor) -> Tensor:
        shuffled, these = bits.copy(), np.flatnonzero(columns == column)
        shuffled[:, these] = bits[order.numpy()][:, these]
        return torch.from_numpy(np.packbits(shuffled, axis=1))

    return {
        column: _mean(_shuffled(trained, sides, place, value, partial(without, column)))
        for column in dict.fromkeys(columns.tolist())
    }


def _shuffled(
    trained: Trained,
    parts: Sequence[Tensor],
    index: int,
    value: Value,
    shuffle: Callable[[Tensor], Tensor] | None = None,
) -> list[ModelScore]:
    """Scores of the model with a party's answers shuffled over the rows, in several orders.

    Args:
        shuffle: the answers in an order of the rows; all of them by default.
    """
    said = shuffle or (lambda order: parts[index][order])
    draws = generator("explain", trained.config.federation.seed, trained.names[index])
    orders = [torch.randperm(len(parts[index]), generator=draws) for _ in range(SHUFFLES)]
    return [value(_with(parts, index, said(order))) for order in orders]


def _mean(several: Sequence[ModelScore]) -> float:
    return sum(one.value for one in several) / len(several)


def _with(parts: Sequence[Tensor], index: int, instead: Tensor) -> list[Tensor]:
    return [instead if at == index else part for at, part in enumerate(parts)]


def _measure(trained: Trained, rows: Tensor) -> str:
    """The metric that judges the run's model; `accuracy` if these rows have only one class."""
    if trained.server.scale is not None:
        return "r2"
    both = len(torch.unique(trained.server.labels[rows])) > 1
    return trained.server.measure if both else trained.server.plain_metric


def _part(trained: Trained) -> str:
    for part in ("test", "validation"):
        if len(getattr(trained.server.schedule.partition, part)):
            return part
    raise InputError(
        "the run kept no test and no validation rows: there is nothing to measure accuracy on",
        hint="give federation.rows.test a number of rows and run it again",
    )


def _embeddings(ctx: ClientContext, local: Local, part: str, sigma: float = 0.0) -> Tensor:
    """h_k of a part's rows, float32 (rows, width), with noise on the features if sigma is not 0."""
    draws = generator("explain", ctx.federation.seed, ctx.name)
    features = (ctx.features[block] for block in ctx.schedule.blocks(part))
    return torch.cat([local.model(add_gaussian(x, sigma, draws) if sigma else x) for x in features])


def _norm(heads: list[Tensor] | None, index: int) -> float | None:
    return None if heads is None else heads[index].double().norm().item()
