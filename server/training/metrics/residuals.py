"""Regression metrics, accumulated block by block."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.data.labels import CountScale, TargetScale
from colonnade.common.models.losses import PoissonDeviance, Squared
from colonnade.server.training.metrics import chance

Numbers = NDArray[np.float64]


class Residuals:
    """RMSE, MAE and R2 in the targets' own units, each a mean over targets; and the mean loss.

    The loss is squared on training's scale, or the deviance of counts.
    """

    def __init__(self, scale: TargetScale) -> None:
        self._scale, self._loss, self.rows = scale, 0.0, 0
        self._predicted: list[Tensor] = []
        self._true: list[Tensor] = []

    @torch.no_grad()
    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds rows: predictions and true values, (rows, targets), both scaled."""
        loss = PoissonDeviance() if isinstance(self._scale, CountScale) else Squared()
        self._loss += loss.value(outputs, targets).sum().item()
        self._predicted.append(self._scale.undo(outputs).cpu())
        self._true.append(self._scale.undo(targets).cpu())
        self.rows += len(targets)

    @property
    def metrics(self) -> dict[str, float]:
        """`rmse`, `mae`, `r2` and `loss` of at least one row; a target constant over these rows has an R2 of 0."""
        true = torch.cat(self._true)
        error = torch.cat(self._predicted) - true
        squares, spread = error.square().sum(dim=0), (true - true.mean(dim=0)).square().sum(dim=0)
        same = (true == true[0]).all(dim=0)  # rounding of the mean may leave the spread above 0
        r2 = torch.where(same, 0.0, 1 - squares / torch.where(same, 1.0, spread))
        return {
            "rmse": (squares / self.rows).sqrt().mean().item(),
            "mae": error.abs().mean().item(),
            "r2": r2.mean().item(),
            "loss": self._loss / self.rows,
        }

    def some(self, names: Collection[str]) -> dict[str, float]:  # noqa: ARG002  # signature of `Score`
        """Empty: there are no further metrics (see `Score.some`)."""
        return {}

    def closer(self) -> tuple[dict[str, float], dict[str, Any]]:
        """`baseline_rmse`, the error of predicting the training rows' mean; and as details `chance`, a verdict, and
        `residuals`, for charts, of a single target.
        """
        predicted, true = self.arrays()
        mean, deviation = self._scale.mean.numpy(), self._scale.deviation.numpy()
        model, baseline = (np.square((guess - true) / deviation) for guess in (predicted, mean))
        metrics = {"baseline_rmse": float((np.sqrt(baseline.mean(axis=0)) * deviation).mean())}
        diverged = None if np.isfinite(predicted).all() else dict(chance.DIVERGED)
        details: dict[str, Any] = {"chance": diverged or chance.of_numbers(model, baseline)}
        if not diverged and predicted.shape[1] == 1 and len(predicted) >= _FEWEST:
            details["residuals"] = _residuals(predicted[:, 0], true[:, 0])
        return metrics, details

    def errors(self) -> dict[str, float]:
        return chance.errors_of_numbers(*self.arrays())

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predicted and true targets of all rows in their own units, float64 (rows, targets) each."""
        return torch.cat(self._predicted).double().numpy(), torch.cat(self._true).double().numpy()


_FEWEST = 20  # rows that are summed up, so that no number is a single row's
_BINS, _BANDS = 31, 10
_WITHIN = (0.5, 0.8, 0.9, 0.95)


def _residuals(predicted: Numbers, true: Numbers) -> dict[str, Any]:
    """Distribution of errors, for charts.

    `within` has quantiles of the absolute error. `histogram` counts prediction less true value in bins of equal width;
    the outermost also count what lies beyond them. `bands` have equal numbers of rows in the order of the predictions:
    their mean, and the true values' tenth, half and nine tenths.
    """
    error = predicted - true
    low, high = (float(edge) for edge in np.quantile(error, (0.01, 0.99)))
    edges = np.linspace(low, high, _BINS + 1)
    counts = np.histogram(error.clip(low, high), edges)[0] if (np.diff(edges) > 0).all() else [len(error)]
    of_bands = np.array_split(np.argsort(predicted, kind="stable"), min(_BANDS, len(true) // 5))
    return {
        "within": {str(share): float(np.quantile(np.abs(error), share)) for share in _WITHIN},
        "histogram": {"from": low, "to": high, "rows": [int(count) for count in counts]},
        "bands": [
            {"rows": len(rows), "predicted": float(predicted[rows].mean()),
             **dict(zip(("low", "median", "high"), np.quantile(true[rows], (0.1, 0.5, 0.9)).tolist(), strict=True))}
            for rows in of_bands
        ],
    }  # fmt: skip
