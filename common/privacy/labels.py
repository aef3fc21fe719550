"""Label differential privacy: noise on the training labels, once before training.

Two mechanisms, both epsilon-differentially private (delta 0) for every label, under any post-processing:

- `subset`: a random set of classes that leans towards the label (common/privacy/subsets.py), with `prior` one that the
  model's prediction makes more informative (common/privacy/prior).
- `laplace`: Laplace noise on every entry of the one-hot vector of a label, below.

The post-processing is Bayes' rule: the model's own prediction p is the prior, and the posterior

    q_c  proportional to  p_c L_c,    L_c the probability of the released value if the label were c,

replaces the label in the loss. Cross-entropy to q has the gradient of -log sum_c p_c L_c, the loss of the released
value itself (forward correction: Patrini et al., "Making deep neural networks robust to label noise", 2017), at the
logits of the prior. Protocols by ADMM minimise over z, away from these: `auxiliary` says whether with q kept, or the
loss itself (common/models/admm.py).

Source of `laplace`: Malek, Mironov, Prasad, Shilov and Tramèr, "Antipodes of label differential privacy: PATE
and ALIBI", 2021 (ALIBI). Two one-hot vectors differ by 2 in the L1 norm, so Laplace noise of scale b has epsilon = 2/b,
and

    log L_c = (|v_c| - |v_c - 1|) / b

of a noisy vector v, up to a constant. The noise is drawn on a grid of 2^-20 with integers (common/privacy/laplace.py):
every value of v is exact, and epsilon is that of the discrete distribution, also 2/b.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from colonnade.common.config.privacy import SENSITIVITY, LabelPrivacyConfig
from colonnade.common.privacy.laplace import Bits, discrete_laplace
from colonnade.common.privacy.prior import GroupedSubsets, PendingLabels
from colonnade.common.privacy.subsets import SubsetSelection

_GRID = 2**20  # steps of the noise per unit


def label_noise(config: LabelPrivacyConfig, classes: int) -> LabelNoise:
    """The mechanism for a number of classes. Raises InputError if it does not suit them."""
    if config.mechanism == "laplace":
        return LaplaceLabels(classes, _steps(config))
    assert config.epsilon is not None  # no other amount is possible
    if config.size is not None:
        return SubsetSelection(classes, config.size, config.epsilon)
    return (GroupedSubsets if config.prior else SubsetSelection).best(classes, config.epsilon)


def noise_settings(config: LabelPrivacyConfig, classes: int) -> list[Any]:
    """The parameters that noise is drawn with: JSON values."""
    if config.mechanism == "laplace":
        return [config.mechanism, _steps(config), config.seeded, classes]
    return [label_noise(config, classes).summary(), config.epsilon, config.seeded, classes]


def _steps(config: LabelPrivacyConfig) -> int:
    """b in steps of the grid, rounded up: never less noise than configured."""
    wanted = config.deviation / math.sqrt(2) if config.deviation else SENSITIVITY / (config.epsilon or math.inf)
    return max(1, math.ceil(wanted * _GRID))


class LabelNoise(Protocol):
    """A mechanism that releases labels."""

    @property
    def epsilon(self) -> float:
        """Epsilon of every label, at delta 0."""
        ...

    @property
    def draw_by(self) -> Callable[[Tensor, Tensor, Bits], Tensor] | None:
        """As `draw`, of labels that wait for a prior, (rows, classes); None if all are released at the start."""
        ...

    def first(self, rows: int) -> Tensor:
        """Positions of the training rows that are released at the start, int64, ascending."""
        ...

    def draw(self, labels: Tensor, bits: Bits) -> Tensor:
        """The released values of labels int64 (rows,): float64 (rows, classes)."""
        ...

    def evidence(self, values: Tensor) -> Tensor:
        """The log-likelihood of every class, up to a constant per row: float64 (rows, classes)."""
        ...

    def counts(self, values: Tensor) -> Tensor:
        """Unbiased estimates of the rows of every class: float64 (classes,)."""
        ...

    def summary(self) -> dict[str, Any]:
        """Its name and parameters."""
        ...


@dataclass(frozen=True)
class LaplaceLabels:
    """Laplace noise on one-hot labels.

    Args:
        steps: b in steps of the grid.
    """

    classes: int
    steps: int

    @property
    def scale(self) -> float:
        """b, the scale of the noise."""
        return self.steps / _GRID

    @property
    def epsilon(self) -> float:
        """Epsilon of every label: 2 / b."""
        return SENSITIVITY / self.scale

    draw_by = None

    def first(self, rows: int) -> Tensor:
        return torch.arange(rows)

    def draw(self, labels: Tensor, bits: Bits) -> Tensor:
        """v of labels int64 (rows,): float64 (rows, classes), multiples of 2^-20."""
        noise = discrete_laplace(labels.numel() * self.classes, self.steps, bits)
        values = torch.from_numpy(noise).to(torch.float64).reshape(-1, self.classes) / _GRID
        values[torch.arange(len(labels)), labels.cpu()] += 1.0
        return values

    def evidence(self, values: Tensor) -> Tensor:
        return (values.abs() - (values - 1.0).abs()) / self.scale

    def counts(self, values: Tensor) -> Tensor:
        return values.sum(dim=0)

    def summary(self) -> dict[str, Any]:
        return {"mechanism": "laplace", "scale": self.scale}


@dataclass(frozen=True)
class NoisyLabels:
    """Released training labels.

    Args:
        values: every label's release, float64 (rows, classes); all 0 for rows that wait for their first use.
        seeded: True if the noise can be reproduced.
        pending: the labels that wait; None where all are released at the start.
    """

    values: Tensor
    noise: LabelNoise
    seeded: bool = False
    pending: PendingLabels | None = None

    @classmethod
    def draw(cls, labels: Tensor, classes: int, config: LabelPrivacyConfig, seed: int) -> NoisyLabels:
        """Draws the noise, which spends epsilon on every label. Drawing again for the same labels spends it again.

        Args:
            labels: class numbers of the training rows, int64 (rows,).
            config: the mechanism and its amount of noise.
            seed: the federation's; used only if configured as `seeded`.

        Raises InputError if the mechanism does not suit the number of classes.
        """
        noise, bits = label_noise(config, classes), config.bits(seed)
        values, first = torch.zeros(len(labels), classes, dtype=torch.float64), noise.first(len(labels))
        values[first] = noise.draw(labels.cpu()[first], bits)
        return cls(values, noise, config.seeded)

    def waiting(
        self, labels: Tensor, rows: Tensor, config: LabelPrivacyConfig, seed: int, keep: Callable[[Tensor], None]
    ) -> NoisyLabels:
        """The same labels, with those that wait for a row's first use, if the mechanism has a prior.

        Args:
            labels: class numbers of the training rows, int64 (rows,).
            rows: their numbers, int64 (rows,).
            config, seed: as for `draw`.
            keep: stores the values, before a new release is used.
        """
        if self.noise.draw_by is None:
            return self
        bits = lambda after: config.bits(seed, after)  # noqa: E731
        labels = labels.cpu().clone()
        labels[self.values.any(dim=1)] = -1  # released already
        pending = PendingLabels(rows.cpu(), labels, self.values, self.noise.draw_by, bits, keep)
        return replace(self, pending=pending)

    @property
    def released(self) -> int:
        return int(self.values.any(dim=1).sum())

    @property
    def epsilon(self) -> float:
        return self.noise.epsilon

    def evidence(self) -> Tensor:
        return self.noise.evidence(self.values)

    def counts(self) -> Tensor:
        first = self.values[self.noise.first(len(self.values))]  # the others' sets depend on what the model thought
        return self.noise.counts(first) * (len(self.values) / max(1, len(first)))


def posterior(logits: Tensor, evidence: Tensor) -> Tensor:
    """Bayes' rule with softmax(logits) as the prior, shape (rows, classes); no gradient flows through it."""
    return (logits.detach() + evidence).softmax(dim=-1)
