"""The equality-solving attack (ESA) of Luo et al. 2021, Section 4: confidences of a linear model are equations.

The logarithms of two confidences differ by a linear function of the columns, so c classes give c - 1 equations. Up to
that many unknown columns are found exactly; for more, the solution nearest to the mean of known rows is taken.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade_lab.attacks.features.coalition import Coalition

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
