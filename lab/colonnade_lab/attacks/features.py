"""A party's features, inferred by attackers that know its model.

From predictions (Luo, Wu, Xiao and Ooi 2021, "Feature Inference Attack on Model Predictions in Vertical Federated
Learning"): all members but one hold the trained model, their own columns and the confidences. From responses (He, Zhang
and Lee 2019, "Model Inversion Attacks Against Collaborative Inference", Section 4, white box): a server finds the row
whose embedding is nearest to the one that was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.client.training.local import Local
from colonnade.common.config.optimisers import AdamConfig
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.models.optimiser import build_optimiser
from colonnade.server.training.fusion.joint import Joint
from colonnade_lab.attacks.inversion import Inversion, judge, known_rows
from colonnade_lab.attacks.network import fit, linear
from colonnade_lab.attacks.predictions import of_training, shows_parts
from colonnade_lab.attacks.run import AttackedRun

_PRIOR_RATE = 0.05
_LEAST_VARIANCE = 1e-6  # relative to the largest variance: directions below it are dropped


@dataclass(frozen=True)
class Prior:
    """A normal distribution of rows, and the range of each number.

    `basis` are principal directions times their standard deviations, float32 (components, width).
    """

    mean: Tensor
    basis: Tensor
    lowest: Tensor
    highest: Tensor

    @classmethod
    def of(cls, known: Tensor) -> Prior:
        flat = known.flatten(1)
        mean = flat.mean(0)
        _, sizes, directions = torch.linalg.svd((flat - mean).double(), full_matrices=False)
        kept = sizes.square() > _LEAST_VARIANCE * sizes.square().max()
        basis = directions[kept] * sizes[kept, None] / max(len(flat) - 1, 1) ** 0.5
        return cls(mean, basis.float(), flat.min(0).values, flat.max(0).values)

    def rows(self, z: Tensor) -> Tensor:
        """Maps coordinates, float32 (n, components), to rows, (n, width)."""
        return self.mean + z @ self.basis

    def within(self, rows: Tensor) -> Tensor:
        return rows.clamp(self.lowest, self.highest)


def likeliest(prior: Prior, misfit: Callable[[Tensor], Tensor], rows: int, weight: float, steps: int) -> Tensor:
    """Finds rows that explain the messages and are likely a priori, float32 (rows, width), by Adam on their
    coordinates.

    Args:
        misfit: maps rows (n, width) to (n,), 0 where they explain everything.
        weight: factor of the squared norm of a row's coordinates, beside its misfit.
    """
    z = nn.Parameter(torch.zeros(rows, len(prior.basis)))
    optimiser = build_optimiser(AdamConfig(lr=_PRIOR_RATE), [z])
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward((misfit(prior.rows(z)) + weight * z.square().sum(1)).sum())
        optimiser.step()
    return prior.within(prior.rows(z.detach()))


@dataclass(frozen=True)
class Coalition:
    """Predictions of training rows, and everything but one party's columns.

    Args:
        joint: the server's part of the model.
        place: the victim's place in the roster.
        parts: every party's output, float32 (n, width) each; the victim's is not used.
        logs: logarithms of the predicted confidences, each row centred at 0, float32 (n, classes).
        x: the victim's columns, which are the truth, float32 (n, ...).
    """

    joint: Joint
    local: Local
    place: int
    rows: Tensor
    parts: list[Tensor]
    logs: Tensor
    x: Tensor

    @property
    def inputs(self) -> Tensor:
        """Returns the other parties' outputs and the logarithms side by side, on one scale, (n, widths + classes)."""
        own = torch.cat([part.flatten(1) for place, part in enumerate(self.parts) if place != self.place], dim=1)
        return torch.cat([own, self.logs * own.std() / self.logs.std().clamp(min=1e-12)], dim=1)

    def predict(self, free: Tensor, places: Tensor) -> Tensor:
        """Returns logarithms of the confidences, float32 (m, classes), if the victim's columns of some rows are `free`.

        `places` are these rows' in `rows`, int64 (m,).
        """
        parts = [part[places] for part in self.parts]
        parts[self.place] = self.local(free.view(-1, *self.x.shape[1:]))
        return centred(self.joint.logits(parts))


def view(run: AttackedRun, party: str) -> Coalition:
    run.refuse_unrestored()
    rows, parts = of_training(run)
    joint, (local, columns) = run.joint(), run.local(party)
    local.requires_grad_(requires_grad=False)
    with torch.no_grad():
        logs = centred(joint.logits(parts))
    return Coalition(joint, local, run.config.federation.names.index(party), rows, parts, logs, columns[rows])


def centred(logits: Tensor) -> Tensor:
    """Centres each row at 0, after which logits and logarithms of confidences are equal."""
    return logits - logits.mean(1, keepdim=True)


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


_UNLIKELY = (1e-3, 1e-2, 1e-1, 1.0)  # penalties of unlikely rows against misfits in variances of the logarithms


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
        made = _generated(seen, expected, errors, weight, seed)[second]
        return functional.mse_loss(whole.within(made), truth).item()

    best = min(_UNLIKELY, key=error)
    return whole.within(_generated(seen, regress(seen, have), errors, best, seed))


def _generated(seen: Coalition, expected: Tensor, errors: Prior, weight: float, seed: int) -> Tensor:
    size, each = seen.logs.var(0).sum().clamp(min=1e-12), weight / len(errors.basis)

    def loss(outputs: Tensor, places: Tensor) -> Tensor:
        rows = expected[places] + outputs @ errors.basis
        misfit = (seen.predict(rows, places) - seen.logs[places]).square().sum(1) / size
        return (misfit + each * outputs.square().sum(1)).mean()

    network = fit(seen.inputs, torch.arange(len(seen.inputs)), loss, len(errors.basis), seed)
    return expected + network(seen.inputs) @ errors.basis


_WEIGHTS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # weights of the prior against the misfit in units of the embeddings' variance
_STEPS = 300


def invert_knowing(run: AttackedRun, party: str, known: float, seed: int) -> Inversion:
    """Inverts a party's responses about training rows after training, of which the server knows a share."""
    if not run.opens or not shows_parts(run):
        raise InputError(
            f"{run.protocol}: the server is shown no party's part of a model that can be restored",
            hint="--kind features attacks what is predicted",
        )
    rows, parts = of_training(run)
    said = parts[run.config.federation.names.index(party)].flatten(1)
    local, columns = run.local(party)
    x, y = columns[rows], run.labels[rows]
    have, rest = known_rows(party, len(rows), known, seed)
    made, weight = explain(local, x[have], said[have], said[rest])
    name = f"nearest embedding, prior {weight:g}"
    shape = x[rest].shape
    return judge(made.view(shape), x[have], x[rest], y[have], y[rest], width=said.shape[1], decoder=name, seed=seed)


def explain(local: Local, x: Tensor, said: Tensor, about: Tensor) -> tuple[Tensor, float]:
    """Finds rows, float32 (m, numbers of a row), whose outputs are near `about`, and the weight of the prior.

    The weight is the best one on the second half of the known rows `x`, with the first half as the prior. `said` are
    the party's outputs for them, (n, width).
    """
    local.requires_grad_(requires_grad=False)
    variance, half = said.var(0).sum().clamp(min=1e-12), len(x) // 2

    def made(prior: Prior, sent: Tensor, weight: float) -> Tensor:
        def misfit(free: Tensor) -> Tensor:
            missed: Tensor = local(free.view(-1, *x.shape[1:])).flatten(1) - sent
            return missed.square().sum(1) / variance

        return likeliest(prior, misfit, len(sent), weight / len(prior.basis), _STEPS)

    first, truth = Prior.of(x[:half]), x[half:].flatten(1)
    errors = {weight: functional.mse_loss(made(first, said[half:], weight), truth).item() for weight in _WEIGHTS}
    best = min(errors, key=errors.__getitem__)
    return made(Prior.of(x), about, best), best
