"""The attackers by name, and their results compared with a guess made without messages.

One of them uses inner products of rows: a linear layer that descends along gradients G of its outputs changes by -eta
G'X, so that its output for a row x changes by -eta G'Xx: by the products of x with the rows of the batch. The server
knows every G. It solves for the first weights and for rows up to a rotation, which leaves all products unchanged. A
deeper model is treated as a linear one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor

from colonnade.common.config.optimisers import SgdConfig
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.columns.matching import Marginals, matched, rotated_onto, turned
from colonnade_lab.attacks.columns.sight import Sight
from colonnade_lab.attacks.columns.starts import known_start, public_starts, search_starts
from colonnade_lab.attacks.run import AttackedRun

SEARCH, START, PRODUCTS, COMPONENTS, ROWS = "starts", "known-start", "products", "components", "known-rows"

_STEPS = 100
_RIDGE = 1e-6
_PENALTIES = tuple(10.0**power for power in range(-6, 4))


def rotated_rows(sight: Sight, seed: int) -> Tensor:
    """Estimates rows, float64 (n, columns), which equal the true ones up to a rotation."""
    decay, sums = _past(sight)
    rows, width, columns = len(sight.rows), sight.width, sight.columns
    draws = torch.Generator().manual_seed(seed)
    x = _guess(sight, draws).requires_grad_()
    begun = (torch.randn(width, columns + 1, generator=draws, dtype=torch.float64) / columns**0.5).requires_grad_()
    ones = torch.full((rows, 1), len(sight.members) ** 0.5, dtype=torch.float64)  # every member has a bias
    said = torch.cat([one.said for one in sight.seen])
    scale = said.square().mean().clamp(min=1e-30)
    optimiser = torch.optim.LBFGS([x, begun], max_iter=_STEPS, history_size=20, line_search_fn="strong_wolfe")

    def misfit() -> Tensor:
        optimiser.zero_grad()
        whole = torch.cat([x, ones], dim=1)
        moved = (whole.T @ sums).view(columns + 1, len(decay), width)  # X'C of every exchange
        weights = decay[:, None, None] * begun.T - moved.movedim(1, 0)  # (exchanges, columns + 1, width)
        made = torch.cat([whole[one.rows] @ weight for one, weight in zip(sight.seen, weights, strict=True)])
        loss: Tensor = (made - said).square().mean() / scale + _RIDGE * (x.square().mean() + begun.square().mean())
        torch.autograd.backward(loss)
        return loss

    optimiser.step(misfit)  # type: ignore[no-untyped-call]
    return x.detach()


def _guess(sight: Sight, draws: torch.Generator) -> Tensor:
    first = torch.zeros(len(sight.rows), sight.width, dtype=torch.float64)
    for one in reversed(sight.seen):
        first[one.rows] = one.said
    left, sizes, _ = torch.linalg.svd(first - first.mean(0), full_matrices=False)
    x = 0.3 * torch.randn(len(first), sight.columns, generator=draws, dtype=torch.float64)
    count = min(sight.columns, len(sizes))
    x[:, :count] += left[:, :count] * sizes[:count] / sizes[:1].clamp(min=1e-30) * len(first) ** 0.5
    return x


def _past(sight: Sight) -> tuple[Tensor, Tensor]:
    """Expresses the weights before every exchange by the first ones W and the rows X, as a W - X'C.

    Returns a, (exchanges,), and C side by side, (rows, exchanges * width). Other optimisers than SGD count as plain
    descent.
    """
    config = sight.members[0].optimiser
    momentum, decay = (config.momentum, config.weight_decay) if isinstance(config, SgdConfig) else (0.0, 0.0)
    a, speed_a = 1.0, 0.0
    c = torch.zeros(len(sight.rows), sight.width, dtype=torch.float64)
    speed_c = torch.zeros_like(c)
    every_a, every_c = [], []
    for one in sight.seen:
        every_a.append(a)
        every_c.append(c.clone())
        if one.gradient is None:
            continue
        speed_a = momentum * speed_a + decay * a
        speed_c = momentum * speed_c - decay * c
        speed_c[one.rows] += one.gradient
        a, c = a - config.lr * speed_a, c + config.lr * speed_c
    return torch.tensor(every_a, dtype=torch.float64), torch.cat(every_c, dim=1)


EXACT = 0.01
"""Of a column's range: values this near are found."""


@dataclass(frozen=True)
class Knowledge:
    """What an attacker knows beside the messages, and `truth` for scoring, float64 (n, columns).

    The last attacker knows the rows at `have`, int64 (k,); the first one tries `starts` starts.
    """

    truth: Tensor
    marginals: Marginals
    have: Tensor
    starts: int
    seed: int


@dataclass(frozen=True)
class ColumnScore:
    """Distance of an estimate from the truth.

    Args:
        r2: per varying column, 1 minus the squared error over that of the column's true mean.
        exact: share of the rows whose every column is within `EXACT` of its range.
    """

    r2: tuple[float, ...]
    mean: float
    median: float
    exact: float
    rows: int


@dataclass(frozen=True)
class ColumnsFound:
    """Result of an attacker.

    Args:
        without: score of a guess without messages: the columns' means, or the mean of the known rows.
    """

    score: ColumnScore
    without: ColumnScore
    more: Mapping[str, Any] = field(default_factory=dict)


def score(x: Tensor, truth: Tensor, known: Marginals) -> ColumnScore:
    varies = known.values[-1] > known.values[0]
    apart = (truth - known.mean).square().sum(0)[varies].clamp(min=1e-30)
    r2 = 1 - (x - truth).square().sum(0)[varies] / apart
    near = (x - truth).abs() <= EXACT * (known.values[-1] - known.values[0])
    exact = near.all(1).double().mean()
    return ColumnScore(
        tuple(round(float(one), 4) for one in r2), float(r2.mean()), float(r2.median()), float(exact), len(x)
    )


def _search(sight: Sight, known: Knowledge) -> ColumnsFound:
    found = search_starts(sight, known.marginals, known.starts)
    more = {"tried": found.tried, "a_second": found.a_second, "misfit": found.misfit, "fits": found.solved.fits}
    return _found(found.solved.x, known, {**more, "public": found.public and found.solved.fits})


def _known_start(sight: Sight, known: Knowledge) -> ColumnsFound:
    found = known_start(sight, sight.models(public_starts(sight)), known.marginals)
    return _found(found.x, known, {"misfit": found.misfit, "fits": found.fits})


def _products(sight: Sight, known: Knowledge) -> ColumnsFound:
    x = rotated_rows(sight, known.seed)
    best = score(rotated_onto(x, known.truth), known.truth, known.marginals)
    by_rows = _regressed(x, known)
    return _found(
        turned(x, known.marginals, known.seed), known, {"rotated": asdict(best), "known_rows": asdict(by_rows.score)}
    )


def _components(sight: Sight, known: Knowledge) -> ColumnsFound:
    return _found(matched(sight.repeated(), known.marginals, known.seed), known, {})


def _known_rows(sight: Sight, known: Knowledge) -> ColumnsFound:
    return _regressed(sight.repeated(), known)


def _regressed(values: Tensor, known: Knowledge) -> ColumnsFound:
    """A ridge regression on the messages about all rows, (n, width); the known rows choose the penalty."""
    have, x = known.have, known.truth[known.have]
    rest = torch.ones(len(known.truth), dtype=torch.bool)
    rest[have] = False
    left, sizes, _ = torch.linalg.svd(values - values.mean(0), full_matrices=False)
    inputs = left * sizes / sizes[:1].clamp(min=1e-30) * len(values) ** 0.5  # the first of variance 1
    model = RidgeCV(alphas=_PENALTIES, alpha_per_target=True).fit(inputs[have].numpy(), x.numpy())
    made = torch.from_numpy(model.predict(inputs.numpy())).reshape(len(inputs), -1)[rest]
    truth = known.truth[rest]
    mean = x.mean(0).expand(len(truth), -1)
    return ColumnsFound(score(made, truth, known.marginals), score(mean, truth, known.marginals), {"known": len(have)})


def _found(x: Tensor, known: Knowledge, more: Mapping[str, Any]) -> ColumnsFound:
    mean = known.marginals.mean.expand(len(known.truth), -1)
    return ColumnsFound(score(x, known.truth, known.marginals), score(mean, known.truth, known.marginals), more)


ATTACKERS: Mapping[str, Callable[[Sight, Knowledge], ColumnsFound]] = {
    SEARCH: _search,
    START: _known_start,
    PRODUCTS: _products,
    COMPONENTS: _components,
    ROWS: _known_rows,
}


def knowledge(run: AttackedRun, sight: Sight, share: float, starts: int, seed: int) -> Knowledge:
    """Collects what attackers know; the last one knows `share` of the training rows, at most half of those seen."""
    truth, training = (_columns(run, sight, rows) for rows in (sight.rows, run.schedule.partition.train))
    count = min(max(2, round(share * len(training))), len(truth) // 2)
    if count < 2:
        raise InputError(f"only {len(truth)} rows were seen", hint="take more rounds, or a run with larger batches")
    order = torch.randperm(len(truth), generator=generator("known rows", seed, "columns"))
    return Knowledge(truth, Marginals.of(training), order[:count], starts, seed)


def _columns(run: AttackedRun, sight: Sight, rows: Tensor) -> Tensor:
    return torch.cat([run.columns(member.name)[rows].flatten(1) for member in sight.members], dim=1).double()
