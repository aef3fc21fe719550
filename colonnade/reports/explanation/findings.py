"""Importance of each party to a trained model, in numbers.

Parties are ranked by what the measure loses without them: a party's messages are replaced by their mean over the
measured rows, and what it says to a forest is shuffled over them (Breiman, "Random Forests", 2001). Zeros would also
remove what is the same for all rows, which a head may use as its bias, so that a party of mere noise could come first.

VIMADMM (Xie et al. 2024), Section VI-C, ranks by the norm of a party's head. The norm is reported, but not used for the
ranking: it depends on the scale of the party's embeddings and on the head's random start, which differs by more than
training adds in a few epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.common.data.columns.noise import add_gaussian
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.reports.explanation.trained import Trained
from colonnade.server.training.trees.forest import Forest
from colonnade.server.training.trees.score_sum import ScoreSum

Value = Callable[[Sequence[Tensor]], tuple[float, float]]

RANKED = 4
"""Parties, at least, whose ranks are compared."""
SHUFFLES = 5
"""Orders of the rows, whose mean stands for a forest without a party."""


@dataclass(frozen=True)
class PartyFindings:
    """Findings on one party.

    Attributes:
        norm: Frobenius norm of its head; None if no head, or block of one, is its own.
        first_norm: the norm before the first round.
        noised: the measure when its features are noised; None of a forest or shapes.
        missing: the measure without it.
        missing_loss: mean loss without it.
        gain: of its splits in a forest, as a share of all parties'.
        splits: nodes of a forest that ask it.
        size: mean distance of its scores in an additive model from their mean.
    """

    name: str
    norm: float | None
    first_norm: float | None
    noised: float | None
    missing: float
    missing_loss: float
    gain: float | None = None
    splits: int | None = None
    size: float | None = None

    @property
    def growth(self) -> float | None:
        return self.norm / self.first_norm if self.norm is not None and self.first_norm else None


@dataclass(frozen=True)
class Findings:
    """Findings on all parties.

    Attributes:
        part: measured rows: test, or validation if the run has no test rows.
        measure: `accuracy`; for unequal classes `auc` (two classes) or `balanced_accuracy` (more); `r2` of numbers.
        labels: of these rows, int64 (rows,), or scaled targets.
        embeddings: by party, float32 (rows, width); empty of a forest.
        sigma: standard deviation of the noise, in units of the scaled features.
        clean: the measure with all parties and no noise.
        parties: in roster order.
    """

    part: str
    measure: str
    labels: Tensor
    embeddings: dict[str, Tensor]
    sigma: float
    clean: float
    parties: tuple[PartyFindings, ...]

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
        """Loss of the measure when a party is noised, in roster order; None of a forest."""
        found = [self.clean - party.noised for party in self.parties if party.noised is not None]
        return found if len(found) == len(self.parties) else None

    @property
    def growths(self) -> list[float] | None:
        """Each head's norm over its norm before the first round, in roster order; None if a party has none."""
        found = [party.growth for party in self.parties if party.growth is not None]
        return found if len(found) == len(self.parties) else None

    def agreement(self, others: Sequence[float] | None) -> float | None:
        """Spearman's rank correlation of the importance with other numbers of the parties, if any.

        It says little for fewer than four parties: for two it is always 1 or -1.
        """
        return _spearman(self.importance, others) if others is not None and len(self.parties) >= RANKED else None


def measure(trained: Trained, sigma: float, progress: Callable[[str], object] = lambda _party: None) -> Findings:
    """Measures the model with each party noised (no forest is), and with each party absent, all others unchanged.

    Args:
        sigma: of the noise on a party's scaled features.
        progress: called with the name of every party.
    """
    part = _part(trained)
    rows = torch.cat(trained.server.schedule.blocks(part))
    labels, measure_name = trained.server.labels[rows], _measure(trained, rows)
    value = partial(_value, trained, measure_name, labels)
    with torch.no_grad():
        if (forest := trained.forest) is not None:
            sides = [trained.splits[name].of_rows(rows) for name in trained.names]
            parties = tuple(_of_forest(trained, forest, sides, value, progress))
            return Findings(part, measure_name, labels, {}, sigma, value(sides)[0], parties)
        if isinstance(trained.joint, ScoreSum):
            scores = [trained.locals[name].of_rows(trained.clients[name].features, rows) for name in trained.names]
            parties = tuple(_of_scores(trained, scores, value, progress))
            return Findings(part, measure_name, labels, {}, sigma, value(scores)[0], parties)
        own = {name: trained.locals[name] for name in trained.names}
        embeddings = {name: _embeddings(trained.clients[name], own[name], part) for name in trained.names}
        sent = [own[name].answer(embeddings[name]) for name in trained.names]
        found = []
        for index, name in enumerate(trained.names):
            progress(name)
            noisy = own[name].answer(_embeddings(trained.clients[name], own[name], part, sigma))
            missing, loss = value(_with(sent, index, sent[index].mean(0, keepdim=True).expand_as(sent[index])))
            norm, first = _norm(trained.heads, index), _norm(trained.first_heads, index)
            found.append(PartyFindings(name, norm, first, value(_with(sent, index, noisy))[0], missing, loss))
        return Findings(part, measure_name, labels, embeddings, sigma, value(sent)[0], tuple(found))


def _value(trained: Trained, name: str, labels: Tensor, parts: Sequence[Tensor]) -> tuple[float, float]:
    """The measure of this name, and the loss."""
    score = trained.server.score()
    score.add(trained.logits(parts), labels)
    metrics = {**score.metrics, **score.some({name} - set(score.metrics))}
    return metrics.get(name, math.nan), metrics["loss"]


def _of_forest(
    trained: Trained, forest: Forest, sides: Sequence[Tensor], value: Value, progress: Callable[[str], object]
) -> Iterator[PartyFindings]:
    used = [forest.used(party) for party in range(len(sides))]
    total = sum(float(gains.sum()) for _, gains in used) or 1.0
    for index, (name, (times, gains)) in enumerate(zip(trained.names, used, strict=True)):
        progress(name)
        missing, loss = _shuffled(trained, sides, index, value)
        share = float(gains.sum()) / total
        yield PartyFindings(name, None, None, None, missing, loss, gain=share, splits=int(times.sum()))


def without_columns(trained: Trained, party: str) -> dict[str, float]:
    """The measure of a forest if the sides of one of a party's columns are shuffled over the rows, by column.

    The server could compute it, but for the names: it knows every side, and which splits are of one column.
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
        column: _shuffled(trained, sides, place, value, partial(without, column))[0]
        for column in dict.fromkeys(columns.tolist())
    }


def _of_scores(
    trained: Trained, scores: Sequence[Tensor], value: Value, progress: Callable[[str], object]
) -> Iterator[PartyFindings]:
    for index, name in enumerate(trained.names):
        progress(name)
        missing, loss = _shuffled(trained, scores, index, value)
        size = (scores[index] - scores[index].mean(0)).abs().mean().item()
        yield PartyFindings(name, None, None, None, missing, loss, size=size)


def _shuffled(
    trained: Trained,
    parts: Sequence[Tensor],
    index: int,
    value: Value,
    shuffle: Callable[[Tensor], Tensor] | None = None,
) -> tuple[float, float]:
    """The mean measure and loss, over some orders, where what a party says of the rows is shuffled over them.

    Args:
        shuffle: what it says in an order of the rows; all of it in that order by default.
    """
    said = shuffle or (lambda order: parts[index][order])
    draws = generator("explain", trained.config.federation.seed, trained.names[index])
    orders = [torch.randperm(len(parts[index]), generator=draws) for _ in range(SHUFFLES)]
    found = torch.tensor([value(_with(parts, index, said(order))) for order in orders], dtype=torch.float64)
    missing, loss = (found.sum(0) / SHUFFLES).tolist()
    return missing, loss


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


def _spearman(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    ranks = torch.stack([_ranks(torch.tensor(values, dtype=torch.float64)) for values in (ours, theirs)])
    value = torch.corrcoef(ranks)[0, 1].item() if len(ours) > 1 else math.nan
    return None if math.isnan(value) else value


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 0; ties share their mean rank."""
    below, equal = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1)
    return below + (equal - 1) / 2
