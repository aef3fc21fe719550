"""Both attacks of Luo et al. 2021 on a party's features, from the joint model's predictions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from colonnade.common.data.rows import generator
from colonnade_lab.attacks.features.coalition import Coalition, view
from colonnade_lab.attacks.features.prior import Prior
from colonnade_lab.attacks.inversion import Inversion, judge, known_rows
from colonnade_lab.attacks.network import fit, linear
from colonnade_lab.attacks.run import AttackedRun

ESA, GRN, REGRESSION = "equations", "generator", "regression"


def infer_features(run: AttackedRun, party: str, known: float, seed: int) -> dict[str, Inversion]:
    """Infers a party's training rows by each attack that fits the model, with all other members as the attacker.

    `regression` is the baseline: the same inputs and known rows, without the model. The known share of the training
    rows gives the mean and range of each number.
    """
    seen = view(run, party)
    have, rest = known_rows(party, len(seen.rows), known, seed)
    x, y = seen.x, run.labels[seen.rows]
    mean = x[have].flatten(1).mean(0)
    found = {ESA: solve(seen, mean), GRN: generate(seen, have, seed), REGRESSION: regress(seen, have)}
    return {
        how: judge(
            made[rest].view(x[rest].shape), x[have], x[rest], y[have], y[rest],
            width=seen.logs.shape[1], decoder=how, seed=seed,
        )
        for how, made in found.items() if made is not None
    }  # fmt: skip


_LINEAR = 1e-3  # relative departure from linearity that disqualifies a model
_SMALLEST = 1e-5  # relative singular value below which equations are noise


def solve(seen: Coalition, mean: Tensor) -> Tensor | None:
    """Solves for the victim's columns, float32 (n, columns). None if the model is not linear in them."""
    first = torch.zeros(1, dtype=torch.int64)

    def of(row: Tensor) -> Tensor:
        return seen.predict(row[None], first)[0]

    slope: Tensor = torch.func.jacrev(of)(mean)  # (classes, numbers)
    with torch.no_grad():
        away = torch.randn(mean.shape, generator=generator("another row"))
        expected, met = slope @ away, of(mean + away) - of(mean)
        if (expected - met).norm() > _LINEAR * met.norm().clamp(min=1e-12):
            return None
        places = torch.arange(len(seen.rows))
        missing = seen.logs - seen.predict(mean.expand(len(places), -1), places)
        inverse: Tensor = torch.linalg.pinv(slope.double(), rtol=_SMALLEST)
        return (mean + missing.double() @ inverse.T).float()


_WEIGHTS = (1e-3, 1e-2, 1e-1, 1.0)  # penalties of unlikely rows against misfits in variances of the logarithms


def regress(seen: Coalition, have: Tensor) -> Tensor:
    """Ridge regression of the victim's columns on the known rows `have`, without the model, float32 (n, columns)."""
    return linear(seen.inputs[have], seen.x[have].flatten(1))[0](seen.inputs)


def generate(seen: Coalition, have: Tensor, seed: int) -> Tensor:
    """Trains networks on all predictions, and returns the best one's rows, float32 (n, columns).

    The first half of the known rows `have` fits the regression, the second half measures it.
    """
    first, second = have[: len(have) // 2], have[len(have) // 2 :]
    expected, truth = regress(seen, first), seen.x[second].flatten(1)
    errors, whole = Prior.of(truth - expected[second]), Prior.of(seen.x[have])

    def error(weight: float) -> float:
        made = _made(seen, expected, errors, weight, seed)[second]
        return functional.mse_loss(whole.within(made), truth).item()

    best = min(_WEIGHTS, key=error)
    return whole.within(_made(seen, regress(seen, have), errors, best, seed))


def _made(seen: Coalition, expected: Tensor, errors: Prior, weight: float, seed: int) -> Tensor:
    size, each = seen.logs.var(0).sum().clamp(min=1e-12), weight / len(errors.basis)

    def loss(outputs: Tensor, places: Tensor) -> Tensor:
        rows = expected[places] + outputs @ errors.basis
        misfit = (seen.predict(rows, places) - seen.logs[places]).square().sum(1) / size
        return (misfit + each * outputs.square().sum(1)).mean()

    network = fit(seen.inputs, torch.arange(len(seen.inputs)), loss, len(errors.basis), seed)
    return expected + network(seen.inputs) @ errors.basis
