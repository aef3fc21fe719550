"""The joint model of a run, for callers in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.observability.endpoints import Collector
from colonnade.common.prediction import messages as prediction
from colonnade.server.prediction.exchange import Questions
from colonnade.server.prediction.row_index import RowIndex

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Predicted:
    """Predictions of some ids, in their order.

    Args:
        known: bool (ids,); False where some member does not know the id.
        values: float64 (known ids, names), a line for each known id.
    """

    known: Bools
    values: Floats


@dataclass(frozen=True)
class Model:
    """Trained model of a run, available while every party is present.

    Args:
        run: the run's number.
        round: round of the model.
        row_index: index of the rows that can be predicted.
        names: names of a row's values: the classes, or in regression the targets.
        classes: True if the values are probabilities of classes.
        questions: queue of the rows to predict.
        finish: the joint model's outputs, (rows, names) -> probabilities, or numbers in their own units.
        paid: True if every request is charged to the parties' privacy budgets.
        show: adds metrics to those of this process.
    """

    run: str
    round: int
    row_index: RowIndex
    names: tuple[str, ...]
    classes: bool
    questions: Questions
    finish: Callable[[Tensor], Tensor]
    paid: bool = False
    show: Callable[[Collector], None] = lambda _collector: None

    async def token(self) -> str:
        """Token that changes whenever predictions may change; waits until the parties are present."""
        await self.questions.hearing.wait()
        return f"{self.run} {self.round} {','.join(self.row_index.here)} {','.join(self.names)}"

    async def predict(self, ids: Sequence[str]) -> Predicted:
        """Predictions of some ids, at most `ROWS`, by one request to the parties; ids may be repeated.

        Raises:
            ColonnadeError: the conversation with the parties has ended.
        """
        answer = await self.questions.ask(ids)
        lines = answer.lines.numpy()
        known = lines >= 0
        values = self.finish(answer.outputs).to(torch.float64).numpy()
        return Predicted(known, values[lines[known]])

    async def say(self, ids: Iterable[str]) -> dict[str, tuple[float, ...]]:
        """Predictions by id: one value per name. Ids that some member lacks are left out.

        Raises:
            ColonnadeError: the conversation with the parties has ended.
        """
        said: dict[str, tuple[float, ...]] = {}
        wanted = iter(dict.fromkeys(ids))
        while block := tuple(islice(wanted, prediction.ROWS)):
            answer = await self.predict(block)
            said |= zip(compress(block, answer.known), map(tuple, answer.values.tolist()), strict=True)
        return said
