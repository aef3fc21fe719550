"""Labels of one batch from its gradients alone, by gradient matching.

Zou et al. 2022, "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning", after
Zhu, Liu and Han 2019: the party makes up a linear head W with a softmax, a prediction p_i and a label y_i of every row,
and optimises all of them until the gradients (p_i - y_i) W match those that it received. Lengths tell how sure a model
is and little about the label, so directions are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from colonnade.common.config.optimisers import AdamConfig
from colonnade.common.data.rows import generator
from colonnade.common.models.optimiser import build_optimiser
from colonnade_lab.attacks.estimates import estimates
from colonnade_lab.attacks.labels import best_names, clusters, directions
from colonnade_lab.attacks.rows import Piece, by_field, pieces
from colonnade_lab.attacks.run import AttackedRun, accuracy

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
    for name, records in by_field(about, "in").items():
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
