"""The joint model of a run, for callers in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, islice, repeat
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.contracts import prediction
from colonnade.common.observability.endpoints import Collector
from colonnade.server.prediction.exchange import Questions
from colonnade.server.prediction.row_index import RowIndex
from colonnade.server.training.metrics.decision import Decision

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Predicted:
    """Predictions for some ids, in their order.

    Args:
        known: bool (ids,); False where some member does not know the id.
        values: float64 (known ids, names), one line for each known id.
        chosen: class numbers, int64 (known ids,); empty in regression.
    """

    known: Bools
    values: Floats
    chosen: Classes


class Said(NamedTuple):
    """The prediction for one id: its class ("" in regression), and a value by name."""

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Model:
    """Trained model of a run, available while every party is present.

    Args:
        names: of a row's values: the classes, or in regression the targets.
        classes: True if the values are class probabilities.
        finish: the joint model's outputs, (rows, names) -> probabilities, or targets in their own units.
        decide: the rule from probabilities to classes; None for the most likely class. It is read from the model's
            checkpoint, which is loaded once the parties are present.
        paid: True if requests are charged to the parties' privacy budgets.
        show: adds metrics to those of this process.
        able: filters ids: the distinct normalised keys that the server can ask for.
    """

    run: str
    round: int
    row_index: RowIndex
    names: tuple[str, ...]
    classes: bool
    questions: Questions
    finish: Callable[[Tensor], Tensor]
    decide: Callable[[], Decision | None] = lambda: None
    paid: bool = False
    show: Callable[[Collector], None] = lambda _collector: None
    able: Callable[[Collection[str]], tuple[str, ...]] = tuple

    async def token(self) -> str:
        """A string that changes whenever predictions may change; waits until the parties are present."""
        await self.questions.hearing.wait()
        decision = "" if (made := self.decide()) is None else f" {made.record()}"
        return f"{self.run} {self.round} {','.join(self.row_index.here)} {','.join(self.names)}{decision}"

    def renew(self, ids: Collection[str]) -> None:
        """With alignment: allows only these ids from now on, after a new alignment of the current tables.

        Raises DataError if no id is left, or the server's own columns cannot be read. The earlier ids stay.
        """
        self.questions.renew(self.able(ids))

    async def predict(self, ids: Sequence[str]) -> Predicted:
        """Predictions for at most `ROWS` ids, by one request to the parties; ids may be repeated."""
        answer = await self.questions.ask(ids)
        lines = answer.lines.numpy()
        known = lines >= 0
        values = self.finish(answer.outputs).to(torch.float64).numpy()
        values = values[lines[known]]
        return Predicted(known, values, self._chosen(values))

    def _chosen(self, values: Floats) -> Classes:
        """Class numbers from probabilities float64 (rows, names); empty in regression."""
        if not self.classes:
            return np.empty(0, np.int64)
        decision = self.decide()
        return values.argmax(1) if decision is None else decision.positive(values[:, 1]).astype(np.int64)

    async def say(self, ids: Iterable[str]) -> dict[str, Said]:
        """Predictions by id; ids that some member lacks are left out."""
        said: dict[str, Said] = {}
        wanted = iter(dict.fromkeys(ids))
        while block := tuple(islice(wanted, prediction.ROWS)):
            answer = await self.predict(block)
            known = compress(block, answer.known)
            labels = [self.names[number] for number in answer.chosen.tolist()] if self.classes else repeat("")
            said |= zip(known, map(Said, labels, map(tuple, answer.values.tolist())), strict=True)
        return said
