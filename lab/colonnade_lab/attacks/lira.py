"""Membership by likelihood ratios: the offline attack of Carlini et al. 2022.

"Membership Inference Attacks From First Principles", Section VI: the confidence of models that were not trained on a
row differs from row to row. Shadows give the usual confidence for each row; a model with more was trained on it. With
few shadows all rows share one deviation, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.bounds import Area, Counts, area, clopper_pearson, least_epsilon
from colonnade_lab.attacks.predictions import predicted
from colonnade_lab.attacks.run import AttackedRun

_ALARMS = 0.01  # false positives, at which true ones are reported
_THRESHOLDS = 100


@dataclass(frozen=True)
class Likelihood:
    """Result of separating members from others.

    Args:
        area: of the likelihood ratios.
        baseline: area of the confidence alone, without shadows (Yeom et al. 2018).
        hits: share of members above the threshold that one in a hundred of the others exceeds.
        least_epsilon: lower bound, at a threshold chosen on half of the rows and counted on the other half.
    """

    rows: int
    area: Area
    baseline: Area
    hits: float
    interval: tuple[float, float]
    least_epsilon: float
    delta: float


def infer_members(run: AttackedRun, shadows: Iterable[AttackedRun], delta: float, seed: int) -> Likelihood:
    """Compares the run's confidence in every row with that of one or more shadows; `delta` is the bound's."""
    if not run.opens:
        raise InputError(f"{run.protocol}: its model cannot be restored", hint="take another run")
    rows, found = confidence(run, run)
    total, count = torch.zeros_like(found), torch.zeros_like(found)
    for shadow in shadows:
        _, usual = confidence(run, shadow)
        out = ~torch.isin(_sources(run, rows), _sources(shadow, shadow.schedule.partition.train))
        total[out] += usual[out]
        count[out] += 1
    member, seen = torch.isin(rows, run.schedule.partition.train), count > 0
    return judged(found, found - total / count.clamp(min=1), member, _balanced(member, seen, seed), delta)


def judged(plain: Tensor, ratio: Tensor, member: Tensor, chosen: Tensor, delta: float) -> Likelihood:
    """Returns the result for given scores.

    Args:
        plain, ratio: confidence, and its excess over the usual one, float64 (n,).
        member: bool (n,).
        chosen: the rows to judge, members and others alternating, int64.
    """
    plain, ratio, member = plain[chosen], ratio[chosen], member[chosen]
    others = ratio[~member].sort(descending=True).values
    threshold = others[max(1, math.floor(_ALARMS * len(others))) - 1]
    hits = int((ratio[member] > threshold).sum())
    half = len(chosen) // 2
    tried = torch.quantile(ratio[:half], torch.linspace(0.005, 0.995, _THRESHOLDS, dtype=ratio.dtype)).tolist()
    best = max(tried, key=lambda one: least_epsilon(_count(ratio[:half], member[:half], one), delta))
    return Likelihood(
        len(chosen), area(ratio[:, None], member[:, None]), area(plain[:, None], member[:, None]),
        hits / int(member.sum()), clopper_pearson(hits, int(member.sum())),
        least_epsilon=least_epsilon(_count(ratio[half:], member[half:], best), delta), delta=delta,
    )  # fmt: skip


@torch.no_grad()
def confidence(run: AttackedRun, by: AttackedRun) -> tuple[Tensor, Tensor]:
    """Rows of `run`, int64 (n,), and log(p / (1 - p)) of their true classes by the model of `by`, float64 (n,)."""
    rows, parts = predicted(run, by)
    logs = by.joint().logits(parts).double().log_softmax(1)
    true = torch.nn.functional.one_hot(run.labels[rows], logs.shape[1]).bool()
    return rows, logs[true] - logs.masked_fill(true, -math.inf).logsumexp(1)


def _sources(run: AttackedRun, rows: Tensor) -> Tensor:
    return rows if run.sample is None else run.sample[rows]


def _balanced(member: Tensor, seen: Tensor, seed: int) -> Tensor:
    draws = generator("likelihood", seed)
    kinds = [(kind & seen).nonzero().flatten() for kind in (member, ~member)]
    most = min(map(len, kinds))
    return torch.stack([kind[torch.randperm(len(kind), generator=draws)[:most]] for kind in kinds], dim=1).flatten()


def _count(scores: Tensor, member: Tensor, threshold: float) -> Counts:
    said = scores > threshold
    return Counts(int(said[member].sum()), int(member.sum()), int(said[~member].sum()), int((~member).sum()))
