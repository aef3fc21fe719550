"""Reference models on the joined columns of all members, which no federation has, for comparison with protocols."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from colonnade.common.data.formats.tensors import read_tensor_columns, read_tensor_labels, read_tensor_targets
from colonnade.common.data.labels import TargetScale
from colonnade.common.data.rows import Partition
from colonnade.common.errors import InputError
from colonnade.search.folds import read_parts
from colonnade.search.metrics import SearchMetric
from colonnade.search.simulated import Listen, Result
from colonnade.server.training.metrics.quality import Score
from colonnade.server.training.metrics.residuals import Residuals

CONSTANT, BOOSTING, NETWORK, ALONE = "constant", "boosting", "network", "alone"
"""The majority class or the mean; gradient-boosted trees; a neural network; trees over the server's columns."""

REFERENCES = {
    BOOSTING: (
        "all pooled, boosting",
        "gradient boosting on all columns joined (scikit-learn), ended by the validation rows",
    ),
    NETWORK: (
        "all pooled, network",
        "neural network on all columns joined (scikit-learn, one layer of 100), ended by the validation rows",
    ),
    ALONE: ("server alone, boosting", "the same boosting on the server's own columns"),
    CONSTANT: ("no column", "always the commonest class, or the mean"),
}
"""Title in charts, and in words, by name."""

_PATIENCE: dict[str, int] = {"boosting": 3, "network": 25, "constant": 1}  # evaluations without a better value
_TREES, _STEP = 400, 20  # maximum iterations, and iterations between evaluations
_EPOCHS = 200
_MOST_COLUMNS, _MOST_TREE_VALUES = 1024, 12_000_000  # boosting: columns; rows * columns * trees an iteration

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ReferenceTask:
    """A reference, serialisable as JSON for another process.

    Args:
        columns: files of all members' columns.
        divided: file of the row numbers of every part.
        regression: whether the labels are numbers.
        metric, direction: decide when to end.
    """

    reference: str
    columns: tuple[str, ...]
    labels: str
    divided: str
    regression: bool
    metric: str
    direction: str


def fit_reference(task: ReferenceTask, listen: Listen) -> Result:
    """Fits it on the training rows, and measures it on validation and test rows.

    `listen` ends it by returning False after an evaluation of the validation rows; this, and columns that the reference
    cannot use, raise InputError.
    """
    begun = time.perf_counter()
    data = _Joined.read(task)
    data.refuse_large(task.reference)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = {CONSTANT: _constant, BOOSTING: _boosting, NETWORK: _network}[task.reference](data)
        best, looks = _best(data, steps, SearchMetric(task.metric, task.direction), listen, _PATIENCE[task.reference])
        found = data.score(best[2](data.part("test")), "test") if len(data.parts.test) else None
    judged = data.score(best[2](data.part("validation")), "validation").errors()
    spent = round(time.perf_counter() - begun, 3)
    result = Result(best[0], best[1], looks, looks, spent, 0, validation_errors=judged)
    if found is None:
        return result
    return replace(result, tested=_numbers(found), errors=found.errors(), chance=found.closer()[1].get("chance"))


Predict = Callable[[Matrix], Matrix]
"""Rows to probabilities (rows, classes), or to standardised numbers (rows, targets)."""


def _best(
    data: _Joined, steps: Iterator[Predict], goal: SearchMetric, listen: Listen, patience: int
) -> tuple[tuple[dict[str, float], int, Predict], int]:
    """The step with the best validation metric (metrics, number, model), and the number of steps."""
    best: tuple[dict[str, float], int, Predict] | None = None
    number = 0
    for number, predict in enumerate(steps, 1):
        found = data.measured(predict(data.part("validation")), "validation")
        if goal.metric not in found:
            raise InputError(f"the validation rows have no {goal.name}", hint=f"there are {', '.join(found)}")
        if best is None or goal.better(found[goal.metric], best[0][goal.metric]):
            best = (found, number, predict)
        if not listen(number, found, False) or number - best[1] >= patience:
            break
    assert best is not None  # every reference makes one step at least
    return best, number


@dataclass(frozen=True)
class _Joined:
    """All columns side by side, float64 (rows, columns), and the labels."""

    values: Matrix
    labels: Tensor
    classes: int
    parts: Partition
    scale: TargetScale | None
    images: bool

    @classmethod
    def read(cls, task: ReferenceTask) -> _Joined:
        sources = [read_tensor_columns(Path(path)) for path in task.columns]
        flat = [source.values.flatten(1).double() for source in sources]
        path, parts = Path(task.labels), read_parts(Path(task.divided))
        column = (read_tensor_targets if task.regression else read_tensor_labels)(path)
        scale = TargetScale.fit(column.values, parts.train) if task.regression else None
        images = any(len(source.shape) > 1 for source in sources)
        return cls(torch.cat(flat, dim=1).numpy(), column.values, len(column.classes), parts, scale, images)

    def part(self, name: str) -> Matrix:
        found: Matrix = self.values[getattr(self.parts, name).numpy()]
        return found

    @property
    def targets(self) -> NDArray[Any]:
        """Training targets: classes, or standardised numbers (rows, targets)."""
        found = self.labels[self.parts.train]
        numbers: NDArray[Any] = (found if self.scale is None else self.scale.apply(found).double()).numpy()
        return numbers

    def measured(self, predicted: Matrix, part: str) -> dict[str, float]:
        return _numbers(self.score(predicted, part))

    def score(self, predicted: Matrix, part: str) -> Score | Residuals:
        true = self.labels[getattr(self.parts, part)]
        score: Score | Residuals
        if self.scale is None:
            score = Score()
            score.add(torch.from_numpy(np.log(predicted.clip(1e-12))), true)
        else:
            score = Residuals(self.scale)
            score.add(torch.from_numpy(predicted), self.scale.apply(true))
        return score

    def refuse_large(self, reference: str) -> None:
        """Refuses trees over more pixels than they are suited for."""
        columns = self.values.shape[1]
        trees = self.classes if self.classes > 2 else 1
        work = len(self.parts.train) * columns * trees
        if reference == BOOSTING and (columns > _MOST_COLUMNS or (self.images and work > 4 * _MOST_TREE_VALUES)):
            raise InputError(
                f"not run: {columns} columns of {len(self.parts.train)} rows are too many for trees",
                hint="limit the rows (--rows)",
            )

    def spread(self, probabilities: Matrix, known: NDArray[Any]) -> Matrix:
        """Extends probabilities of the training rows' classes to all classes."""
        found = np.zeros((len(probabilities), self.classes))
        found[:, known] = probabilities
        return found


def _numbers(score: Score | Residuals) -> dict[str, float]:
    found = {**score.closer()[0], **score.metrics}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def _constant(data: _Joined) -> Iterator[Predict]:
    if data.scale is not None:
        width = data.labels.shape[1]
        yield lambda rows: np.zeros((len(rows), width))  # the mean, standardised
        return
    shares = np.bincount(data.targets, minlength=data.classes) / len(data.parts.train)
    yield lambda rows: np.tile(shares, (len(rows), 1))


def _boosting(data: _Joined) -> Iterator[Predict]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor  # noqa: PLC0415

    columns, targets = data.part("train"), data.targets
    more: dict[str, Any] = {"early_stopping": False, "warm_start": True, "random_state": 0, "max_iter": 0}
    if data.scale is None:
        models = [HistGradientBoostingClassifier(**more)]
        wanted = [targets]
    else:
        models = [HistGradientBoostingRegressor(**more) for _ in range(targets.shape[1])]
        wanted = [targets[:, place] for place in range(targets.shape[1])]
    for count in range(_STEP, _TREES + 1, _STEP):
        for model, target in zip(models, wanted, strict=True):
            model.set_params(max_iter=count).fit(columns, target)
        yield _predicting(data, models, count)


def _predicting(data: _Joined, models: list[Any], count: int) -> Predict:
    """Predicts with the first `count` trees of models that may have grown since."""

    def predict(rows: Matrix) -> Matrix:
        if data.scale is None:
            staged = models[0].staged_predict_proba(rows)
            return data.spread(_at(staged, count), models[0].classes_)
        return np.stack([_at(model.staged_predict(rows), count) for model in models], axis=1)

    return predict


def _at(staged: Iterator[Matrix], count: int) -> Matrix:
    return next(islice(staged, count - 1, None))


def _network(data: _Joined) -> Iterator[Predict]:
    from sklearn.neural_network import MLPClassifier, MLPRegressor  # noqa: PLC0415

    columns, targets = data.part("train"), data.targets
    model: Any = (MLPClassifier if data.scale is None else MLPRegressor)(random_state=0)
    for epoch in range(_EPOCHS):
        if data.scale is None:
            model.partial_fit(columns, targets, classes=np.arange(data.classes) if not epoch else None)
        else:
            model.partial_fit(columns, targets if targets.shape[1] > 1 else targets[:, 0])
        yield _frozen(data, copy.deepcopy(model))


def _frozen(data: _Joined, model: Any) -> Predict:
    def predict(rows: Matrix) -> Matrix:
        if data.scale is None:
            found: Matrix = model.predict_proba(rows)
            return found
        numbers: Matrix = model.predict(rows)
        return numbers if numbers.ndim == 2 else numbers[:, None]

    return predict
