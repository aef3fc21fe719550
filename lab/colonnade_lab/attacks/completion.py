"""Model completion: labels from a party's own trained model and a few known labels.

Fu et al. 2022, "Label Inference Attacks Against Vertical Federated Learning". Section 4.1: a bottom model that was
trained towards labels separates them, so a party that knows a few completes it to a classifier. It needs no message,
and noise on messages does not prevent it. Section 4.2: an active party's optimiser lengthens a step wherever a gradient
keeps its sign. Its embeddings change faster than the others', the head follows them, and the bottom model learns more
about the labels. Its messages look like any others.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.run import AttackedRun, accuracy, largest_class
from colonnade_lab.attacks.simulated import Deviation, deviating

_ROUNDS = 5  # rounds of pseudo-labels
DRAWS = 5  # draws of the known labels


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
    local, columns = run.local(party)
    x = columns[rows]
    with torch.no_grad():
        embedded = local(x).flatten(1)
    found, raw = [], []
    for draw in range(DRAWS):
        have = balanced(labels, known, seed * DRAWS + draw)
        found.append(completed(embedded, labels, have))
        raw.append(completed(x.flatten(1), labels, have))
    mean, baseline = sum(found) / len(found), sum(raw) / len(raw)
    return Completion(known, len(rows), mean, min(found), max(found), baseline, largest_class(labels))


def completed(values: Tensor, labels: Tensor, have: Tensor) -> float:
    """Accuracy on the other rows of a classifier trained on the labels of `have`, then on its own surest labels."""
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
    classes = len(torch.unique(labels))
    if not classes <= count < len(labels):
        raise InputError(
            f"--labels {count}: expected {classes}, one of every class, to {len(labels) - 1}", hint="the default is 40"
        )
    draws = generator("known labels", seed)
    order = torch.randperm(len(labels), generator=draws)
    place = torch.zeros(len(labels), dtype=torch.int64)
    for name in torch.unique(labels):
        mine = (labels[order] == name).nonzero().flatten()
        place[mine] = torch.arange(len(mine))
    return order[place.argsort(stable=True)][:count]


_GAIN, _MOST = 1.0, 5.0  # gamma and r_max of the paper


class Hastened:
    """Optimiser that scales each gradient entry by 1 + gain * g / g_before, clamped to 1 to 5, before a step."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self._inner, self.param_groups = inner, inner.param_groups
        self._before: dict[int, Tensor] = {}

    def zero_grad(self, *args: Any, **named: Any) -> None:
        self._inner.zero_grad(*args, **named)

    def step(self) -> None:
        for parameter in (one for group in self.param_groups for one in group["params"]):
            if parameter.grad is None:
                continue
            now = parameter.grad.detach().clone()
            if (before := self._before.get(id(parameter))) is not None:
                sure = before + before.sign() * 1e-7
                parameter.grad *= (1 + _GAIN * now / sure).nan_to_num(nan=1.0).clamp(1.0, _MOST)
            self._before[id(parameter)] = now
        self._inner.step()


def hastening(protocol: str) -> Deviation:
    async def participate(ctx: ClientContext, server: Link, cfg: Any) -> None:
        own = ctx.optimiser
        ctx.optimiser = lambda: Hastened(own())  # type: ignore[method-assign, assignment, return-value]
        await PARTICIPATE[protocol](ctx, server, cfg)

    return participate


def complete_actively(
    run: AttackedRun, party: str, known: int, seed: int
) -> tuple[Completion, Completion, float | None]:
    """Completes a party's model as it is, and as it would be with the malicious optimiser.

    Returns:
        Passive and active completion, and the test accuracy of the run in which the party deviates.
    """
    passive = complete(run, party, known, seed)
    with deviating(run, {party: hastening(run.protocol)}) as other:
        return passive, complete(other, party, known, seed), other.summary["metrics"].get("test_accuracy")
