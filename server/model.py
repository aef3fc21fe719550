"""The joint model of a run, for whoever asks it on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from common import prediction
from common.watch import Collector
from server.people import People
from server.predicting import Questions


@dataclass(frozen=True)
class Model:
    """What a run has learned, as long as everybody is there to answer.

    Args:
        run: its number.
        people: who can be asked for.
        names: what the values of a row are called: the classes, or in regression the targets.
        classes: whether they are probabilities of classes.
        questions: what takes the rows.
        finish: the joint model's outputs, (rows, names) -> what they say: probabilities, or numbers in their own units.
        show: shows numbers where this process shows its own.
    """

    run: str
    people: People
    names: tuple[str, ...]
    classes: bool
    questions: Questions
    finish: Callable[[Tensor], Tensor]
    show: Callable[[Collector], None] = lambda _collector: None

    async def places(self, ids: Iterable[str]) -> dict[str, int]:
        """Where the rows of these ids are, of those that all members know; waits until that is known."""
        await self.questions.hearing.wait()
        return {id: place for id in ids if (place := self.people.place(id)) is not None}

    async def values(self, rows: Tensor) -> Tensor:
        """What the model says of some rows, (rows, names).

        Args:
            rows: positions, int64 (rows,), as many as there are, without repeats.

        Raises:
            ColonnadeError: the conversation with the parties has ended.
        """
        outputs = [await self.questions.ask(block) for block in torch.split(rows, prediction.ROWS)]
        return self.finish(torch.cat(outputs))
