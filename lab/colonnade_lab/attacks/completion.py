"""Passive model completion: labels from a party's own trained model and a few known labels.

Fu et al. 2022, "Label Inference Attacks Against Vertical Federated Learning", Section 4.1: a bottom model that was
trained towards labels separates them, so a party that knows a few labels completes it to a classifier. It needs no
message, and noise on the party's messages does not prevent it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.run import AttackedRun, accuracy

_ROUNDS = 5  # rounds of pseudo-labels
_DRAWS = 5  # draws of the known labels


@dataclass(frozen=True)
class Completion:
    """Result of completing a party's model.

    Args:
        known: number of labels that the party knows, balanced over classes as far as possible.
        accuracy: mean over draws of the known labels; `lowest` and `highest` are the extremes.
        baseline: mean accuracy of the same procedure on the party's raw columns.
    """

    known: int
    rows: int
    accuracy: float
    lowest: float
    highest: float
    baseline: float
    chance: float


def complete(run: AttackedRun, party: str, known: int, seed: int) -> Completion:
    """Infers the labels of a party's training rows from its final model, its columns and `known` labels."""
    if not run.opens:
        raise InputError(f"{run.protocol}: a party's part of its model cannot be restored", hint="take another run")
    rows = run.schedule.partition.train
    labels = run.labels[rows]
    classes = len(torch.unique(labels))
    if not classes <= known < len(rows):
        raise InputError(
            f"--labels {known}: expected {classes}, one of every class, to {len(rows) - 1}", hint="the default is 40"
        )
    local, columns = run.local(party)
    x = columns[rows]
    with torch.no_grad():
        embedded = local(x).flatten(1)
    found, raw = [], []
    for draw in range(_DRAWS):
        have = balanced(labels, known, seed * _DRAWS + draw)
        found.append(completed(embedded, labels, have))
        raw.append(completed(x.flatten(1), labels, have))
    chance = (torch.bincount(labels).max() / len(labels)).item()
    mean = sum(found) / len(found)
    return Completion(known, len(rows), mean, min(found), max(found), sum(raw) / len(raw), chance)


def completed(values: Tensor, labels: Tensor, have: Tensor) -> float:
    """Accuracy on the other rows of a classifier trained on the labels of `have`, then on its own surest labels.

    Args:
        values: float32 (rows, width).
        labels: int64 (rows,).
    """
    rest = torch.ones(len(values), dtype=torch.bool)
    rest[have] = False
    inputs, known = values.double().numpy(), labels[have]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(inputs[have.numpy()], known.numpy())
        for step in range(1, _ROUNDS + 1):
            sure, said = torch.from_numpy(model.predict_proba(inputs)).max(1)
            said = torch.from_numpy(model.classes_)[said]
            said[have] = known
            sure[have] = 2.0
            taken = sure.topk(len(have) + round((len(values) - len(have)) * step / (_ROUNDS + 1))).indices
            model.fit(inputs[taken.numpy()], said[taken].numpy())
    return accuracy(torch.from_numpy(model.predict(inputs))[rest], labels[rest])


def balanced(labels: Tensor, count: int, seed: int) -> Tensor:
    """Draws rows at random, cycling through the classes, int64 (count,)."""
    draws = generator("known labels", seed)
    order = torch.randperm(len(labels), generator=draws)
    place = torch.zeros(len(labels), dtype=torch.int64)
    for name in torch.unique(labels):
        mine = (labels[order] == name).nonzero().flatten()
        place[mine] = torch.arange(len(mine))
    return order[place.argsort(stable=True)][:count]
