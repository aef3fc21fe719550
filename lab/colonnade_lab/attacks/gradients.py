"""Labels from cut-layer gradients: scores of single rows, and reconstruction batch by batch.

Li et al. 2022, "Label Leakage and Protection in Two-Party Split Learning", Sections 3.1 and 3.2: a gradient is longer
where the model was surer of the wrong class, which is typical of the rare class, and gradients of one class point in
the direction of a row whose class the party knows. Both are measured by the area under the curve.

Zou et al. 2022, "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning", after
Zhu, Liu and Han 2019: the party makes up a linear head W with a softmax, a prediction p_i and a label y_i of every row,
and optimises all of them until the gradients (p_i - y_i) W match those that it received. Lengths tell how sure a model
is and little about the label, so directions are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from colonnade.common.config.optimisers import AdamConfig
from colonnade.common.data.rows import generator
from colonnade.common.models.optimiser import build_optimiser
from colonnade_lab.attacks.bounds import Area, area
from colonnade_lab.attacks.completion import balanced
from colonnade_lab.attacks.labels import best_names, clusters, directions
from colonnade_lab.attacks.rows import FieldRecords, Piece, estimates, gathered, pieces
from colonnade_lab.attacks.run import AttackedRun, accuracy

METHODS = NORM, DIRECTION = "norm", "direction"


@dataclass(frozen=True)
class Scored:
    """How well a score separates each class from the others.

    Args:
        field: KIND.FIELD of the messages.
        epochs: the first captured, the last, or all, averaged.
        area: mean over classes; for two classes that of the rarer one.
        known: rows whose label the party knows, for directions.
    """

    field: str
    epochs: str
    method: str
    area: Area
    known: int
    rows: int


@dataclass
class Scores:
    """Scores of rows, summed over epochs. Of `labels`, int64 (rows,), only those of the rows `have` are used.

    Attributes:
        first, last: an epoch's number and its scores by method, (rows, classes).
    """

    have: Tensor
    labels: Tensor
    classes: int
    first: tuple[int, dict[str, Tensor]] | None = None
    last: tuple[int, dict[str, Tensor]] | None = None
    _sums: dict[str, Tensor] = field(default_factory=dict)
    _count: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._count = torch.zeros(len(self.labels))

    def add(self, epoch: int, rows: Tensor, values: Tensor) -> None:
        """Adds the gradients, float32 (n, width), of some rows, int64 (n,), in an epoch."""
        ranks = values.double().norm(dim=1).argsort().argsort().double() / len(values)  # sizes of gradients change
        found = {NORM: ranks[:, None].expand(-1, self.classes), DIRECTION: self._alike(rows, directions(values))}
        self._count[rows] += 1
        for method, scores in found.items():
            one = torch.full((len(self.labels), self.classes), torch.nan)
            one[rows] = scores.float()
            found[method] = one
            self._sums.setdefault(method, torch.zeros_like(one))[rows] += one[rows]
        self.first = self.first or (epoch, found)
        self.last = epoch, found

    def all(self) -> dict[str, Tensor]:
        """Returns the mean of each method's scores over all epochs, (rows, classes); NaN where a row has none."""
        return {method: total / self._count[:, None] for method, total in self._sums.items()}

    def _alike(self, rows: Tensor, values: Tensor) -> Tensor:
        """Returns cosines to the mean direction of each class's known rows, (n, classes); 0 if there are none."""
        names = torch.full((len(self.labels),), -1)
        names[self.have] = self.labels[self.have]
        of = names[rows]
        means = torch.stack([values[of == name].sum(0) for name in range(self.classes)])
        return values @ directions(means).T


def score(run: AttackedRun, party: str, known: int, seed: int) -> list[Scored]:
    """Scores a party's own capture, best first. Empty if no message has numbers for every row.

    The party knows `known` labels, balanced over classes as far as possible.
    """
    train = run.schedule.partition.train
    labels, classes = run.labels, run.config.federation.outputs
    have = train[balanced(labels[train], known, seed)]
    fields: dict[str, Scores] = {}
    for name, epoch, rows, values in by_epoch(pieces(run.schedule, run.training(party), estimates(run, party))):
        fields.setdefault(name, Scores(have, labels, classes)).add(epoch, rows, values)
    found = [scored for name, scores in fields.items() for scored in areas(name, scores)]
    return sorted(found, key=lambda one: -one.area.auc)


def by_epoch(found: Iterator[Piece]) -> Iterator[tuple[str, int, Tensor, Tensor]]:
    """Yields responses about rows as (KIND.FIELD, epoch, rows, values), one epoch of a field at a time."""
    open_: dict[tuple[str, int], list[Piece]] = {}
    for piece in found:
        if piece.way != "in" or piece.part != "train" or not piece.values.is_floating_point():
            continue
        yield from _closed(open_, piece.epoch - 1)  # asynchronous runs mix messages of two epochs
        open_.setdefault((piece.name, piece.epoch), []).append(piece)
    yield from _closed(open_, None)


def _closed(open_: dict[tuple[str, int], list[Piece]], before: int | None) -> Iterator[tuple[str, int, Tensor, Tensor]]:
    for name, epoch in [key for key in open_ if before is None or key[1] < before]:
        said = open_.pop((name, epoch))
        values = torch.cat([one.values.reshape(len(one.rows), -1).float() for one in said])
        yield name, epoch, torch.cat([one.rows for one in said]), values


def areas(name: str, scores: Scores) -> Iterator[Scored]:
    """Yields the areas of both methods over the rows that are not known: first epoch, last, and all."""
    assert scores.first is not None and scores.last is not None  # at least one epoch was added
    ways = {str(scores.first[0]): scores.first[1], str(scores.last[0]): scores.last[1], "all, mean": scores.all()}
    classes = torch.arange(scores.classes)
    if scores.classes == 2:
        classes = torch.bincount(scores.labels, minlength=2).argmin()[None]  # the rarer, as in the paper
    for epochs, found in ways.items():
        for method, values in found.items():
            rest = ~values[:, 0].isnan()
            rest[scores.have] = False
            truth = scores.labels[rest][:, None] == classes
            one = area(values[rest][:, classes], truth)
            yield Scored(name, epochs, method, one, len(scores.have) if method == DIRECTION else 0, int(rest.sum()))


_STEPS, _RATE = 250, 0.05
_SURE = 2.0  # initial logit of a row's label
_BATCHES = 10  # most batches of an epoch


@dataclass(frozen=True)
class Matched:
    """Labels of single batches, under the class names that fit best.

    Args:
        field: KIND.FIELD that it uses.
        clusters: accuracy of clusters of directions, from which the matching starts.
        chance: accuracy of the matching under the best names for shuffled labels.
    """

    field: str
    epoch: int
    accuracy: float
    clusters: float
    chance: float
    rows: int


def match_batches(run: AttackedRun, party: str) -> list[Matched]:
    """Matches ten batches of the first captured epoch and of the last, best first; empty without lines per row."""
    about = pieces(run.schedule, run.training(party), estimates(run, party))
    found = []
    for name, records in gathered(about, "in", FieldRecords)[0].items():
        if records.last[0].values.is_floating_point():
            for said in {id(said[-1]): said for said in (records.first, records.last)}.values():
                found.append(_matched(name, said[:_BATCHES], run.labels, run.config.federation.outputs))
    return sorted(found, key=lambda one: one.chance - one.accuracy)


def match(values: Tensor, classes: int) -> Tensor:
    """Groups rows by label, int64, from the gradients of one batch, float32 (rows, width); numbers are arbitrary."""
    wanted = directions(values)
    begin = clusters(wanted, classes)
    counted = one_hot(begin, classes).float()
    head = -(counted.T @ wanted) / counted.sum(0).clamp(min=1)[:, None]
    labels, logits = _SURE * counted, torch.zeros(len(values), classes)
    head, labels, logits = invented = [nn.Parameter(one) for one in (head, labels, logits)]
    optimiser = build_optimiser(AdamConfig(lr=_RATE), invented)
    for _ in range(_STEPS):
        optimiser.zero_grad(set_to_none=True)
        made = (logits.softmax(1) - labels.softmax(1)) @ head
        torch.autograd.backward((directions(made) - wanted).square().sum(1).mean())
        optimiser.step()
    return labels.detach().argmax(1)


def _matched(name: str, said: list[Piece], labels: Tensor, classes: int) -> Matched:
    right, rows = torch.zeros(3), 0
    for number, piece in enumerate(said):
        values, truth = piece.values.reshape(len(piece.rows), -1).float(), labels[piece.rows]
        shuffled = truth[torch.randperm(len(truth), generator=generator("shuffled labels", number))]
        found = match(values, classes)
        ways = ((found, truth), (clusters(directions(values), classes), truth), (found, shuffled))
        right += len(truth) * torch.tensor([accuracy(best_names(way, names, classes), names) for way, names in ways])
        rows += len(truth)
    named, clustered, chance = (right / rows).tolist()
    return Matched(name, said[0].epoch, named, clustered, chance, rows)
