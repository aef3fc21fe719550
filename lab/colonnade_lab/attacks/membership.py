"""Membership of rows in the training set, by shadow models and by likelihood ratios.

Shadow models (Shokri et al. 2017): the attacker simulates federations like the target on other rows, whose members it
knows, and learns to separate members from others. Both are viewed as predictions of the final model: training messages
would be recognised by their age, and by their noise, which the head has learned.

Likelihood ratios (Carlini et al. 2022, "Membership Inference Attacks From First Principles", Section VI, offline): the
confidence of models that were not trained on a row differs from row to row. Shadows give the usual confidence for each
row; a model with more was trained on it. With few shadows all rows share one deviation, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.bounds import Area, Counts, area, clopper_pearson, least_epsilon
from colonnade_lab.attacks.predictions import predicted, shows_parts
from colonnade_lab.attacks.rows import FieldRecords, Rows, common_rows, gathered, pieces
from colonnade_lab.attacks.run import AttackedRun

_PROBABILITIES = 10  # largest probabilities used per row
_THRESHOLDS = 100


@dataclass(frozen=True)
class Candidates:
    """The server's view of rows of one run.

    Args:
        features: float64 (rows, width).
        member: True for training rows, bool (rows,).
        by: source of the predictions: the server's `head`, or the attacker's own `classifier`.
    """

    features: Tensor
    member: Tensor
    by: str

    def balanced(self, seed: int) -> Candidates:
        """Draws as many members as others at random."""
        rows = torch.cat(_as_many(self.member, torch.ones_like(self.member), generator("balanced", seed)))
        return Candidates(self.features[rows], self.member[rows], self.by)


@dataclass(frozen=True)
class MembershipAttack:
    """Result of separating members from equally many others: chance is .5 for `accuracy` and `auc`.

    `counts` are at the threshold that gave the largest bound on the shadows, and `least_epsilon` is the bound there.
    """

    rows: int
    accuracy: float
    auc: float
    counts: Counts
    least_epsilon: float
    delta: float
    by: str


def tell_apart(target: Candidates, shadows: Sequence[Candidates], delta: float, seed: int) -> MembershipAttack:
    """Learns from shadows, at least one, and attacks the target. `delta` belongs to the bound on epsilon."""
    target = target.balanced(seed)
    known = [shadow.balanced(seed) for shadow in shadows]
    x, y = torch.cat([one.features for one in known]).numpy(), torch.cat([one.member for one in known]).numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    held = torch.from_numpy(cross_val_predict(model, x, y, cv=5, method="predict_proba")[:, 1])
    scores = torch.from_numpy(model.fit(x, y).predict_proba(target.features.numpy())[:, 1])
    chosen = _count(scores, target.member, _threshold(held, torch.from_numpy(y), delta))
    return MembershipAttack(
        len(scores), _count(scores, target.member, 0.5).accuracy, float(roc_auc_score(target.member, scores)),
        chosen, least_epsilon=least_epsilon(chosen, delta), delta=delta, by=target.by,
    )  # fmt: skip


def _threshold(scores: Tensor, member: Tensor, delta: float) -> float:
    tried = torch.quantile(scores, torch.linspace(0.005, 0.995, _THRESHOLDS, dtype=scores.dtype)).tolist()
    return float(max(tried, key=lambda threshold: least_epsilon(_count(scores, member, threshold), delta)))


def _as_many(member: Tensor, among: Tensor, draws: torch.Generator) -> list[Tensor]:
    """Draws equally many members and others, bool (n,) each, among some rows: their places, int64 (m,) twice."""
    kinds = [(kind & among).nonzero().flatten() for kind in (member, ~member)]
    most = min(map(len, kinds))
    return [kind[torch.randperm(len(kind), generator=draws)[:most]] for kind in kinds]


def _count(scores: Tensor, member: Tensor, threshold: float) -> Counts:
    said = scores > threshold
    return Counts(int(said[member].sum()), int(member.sum()), int(said[~member].sum()), int((~member).sum()))


def candidates(run: AttackedRun) -> Candidates:
    rows, parts = predicted(run) if run.opens else overheard(run)
    member = torch.isin(rows, run.schedule.partition.train)
    labels, by, shown = run.labels[rows], "classifier", parts
    if run.opens:
        with torch.no_grad():
            probabilities, by = torch.softmax(run.joint().logits(parts).double(), 1), "head"
        shown = parts if shows_parts(run) else []
    else:
        probabilities = own_classifier(torch.cat(parts, dim=1), labels, run.config.federation.outputs)
    return Candidates(signals(probabilities, labels, shown), member, by)


def overheard(run: AttackedRun) -> tuple[Tensor, list[Tensor]]:
    """Numbers of training rows in the last epoch and of others in the last evaluation, and each party's values."""
    if missing := set(run.config.federation.names).difference(run.captured):
        raise InputError(
            f"{', '.join(sorted(missing))}: captured nothing in {run.folder}, and what all parties sent is needed",
            hint="run it again with --set 'every_party.capture={}'",
        )
    sent = [_sent(run, party) for party in run.config.federation.names]
    kinds = [common_rows(kind) for kind in zip(*sent, strict=True)]
    parts = [torch.cat(part) for part in zip(*(values for _, values in kinds), strict=True)]
    return torch.cat([rows for rows, _ in kinds]), parts


def signals(probabilities: Tensor, labels: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """Returns the attack network's inputs, float64 (rows, width): largest probabilities, loss, entropy, norms.

    `parts` are what is visible of each party, (rows, width) each; norms are standardised over the rows.
    """
    logs = probabilities.clamp(min=1e-12).log()
    ranked = logs.sort(1, descending=True).values[:, :_PROBABILITIES]
    loss = -logs.gather(1, labels[:, None])
    entropy = -(probabilities * logs).sum(1, keepdim=True)
    norms = [part.double().square().sum(1).sqrt() for part in parts]
    scaled = [((norm - norm.mean()) / norm.std().clamp(min=1e-12))[:, None] for norm in norms]
    return torch.cat([ranked, loss, entropy, *scaled], dim=1)


def _sent(run: AttackedRun, party: str) -> tuple[Rows, Rows]:
    """Returns a party's values of training and of evaluated rows, from the field that both have."""
    training, evaluated = (
        gathered(pieces(run.schedule, said), "out", FieldRecords)[0]
        for said in (run.training(party), run.evaluations(party))
    )
    for name, records in evaluated.items():
        like = [other for other in training if other == name or other.partition(".")[2] == name.partition(".")[2]]
        if like:
            return _whole(run, training[like[0]]), _whole(run, records)
    raise InputError(
        f"{party}: nothing was captured that has a line for every row, of training rows and of evaluated ones",
        hint="capture evaluations too; some protocols send nothing of the kind (docs/attackers_membership.md)",
    )


def _whole(run: AttackedRun, records: FieldRecords) -> Rows:
    """The newest value of every row, from full batches if there are any: clipping a matrix depends on its rows."""
    full = FieldRecords()
    for piece in records.last:
        if len(piece.rows) == run.config.federation.batch:
            full.add(piece)
    return (full or records).newest()


def own_classifier(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Returns cross-fitted probabilities of the attacker's own classifier: no row is scored by a model that saw it."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    found = torch.zeros(len(values), classes, dtype=torch.float64)
    said = cross_val_predict(model, values.double().numpy(), labels.numpy(), cv=2, method="predict_proba")
    found[:, torch.unique(labels)] = torch.from_numpy(said)
    return found


def delta_of(summary: Mapping[str, object]) -> float:
    """Returns the delta of the run's claim, or 1e-5 if it makes none."""
    claimed = summary.get("delta")
    return float(claimed) if isinstance(claimed, float | int) else 1e-5


_ALARMS = 0.01  # false positives, at which true ones are reported


@dataclass(frozen=True)
class Likelihood:
    """Result of separating members from others.

    Args:
        area: AUC of the likelihood ratios.
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
    run.refuse_unrestored()
    rows, found = confidence(run, run)
    total, count = torch.zeros_like(found), torch.zeros_like(found)
    for shadow in shadows:
        _, usual = confidence(run, shadow)
        out = ~torch.isin(_sources(run, rows), _sources(shadow, shadow.schedule.partition.train))
        total[out] += usual[out]
        count[out] += 1
    member, seen = torch.isin(rows, run.schedule.partition.train), count > 0
    chosen = torch.stack(_as_many(member, seen, generator("likelihood", seed)), dim=1).flatten()
    return judged(found, found - total / count.clamp(min=1), member, chosen, delta)


def judged(plain: Tensor, ratio: Tensor, member: Tensor, chosen: Tensor, delta: float) -> Likelihood:
    """Returns the result for given scores.

    Args:
        plain, ratio: confidence, and its excess over the usual one, float64 (n,).
        member: bool (n,).
        chosen: the rows to judge, members and others alternating, int64.
    """
    plain, ratio, member = plain[chosen], ratio[chosen], member[chosen]
    others = ratio[~member].sort(descending=True).values
    threshold = others[math.floor(_ALARMS * len(others))]
    hits = int((ratio[member] > threshold).sum())
    half = len(chosen) // 2
    best = _threshold(ratio[:half], member[:half], delta)
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
