"""The joint model of a run, for whoever asks it on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from colonnade.common.observability.endpoints import Collector
from colonnade.common.prediction import messages as prediction
from colonnade.server.prediction.exchange import Questions
from colonnade.server.prediction.row_index import RowIndex


@dataclass(frozen=True)
class Model:
    """What a run has learned, as long as everybody is there to answer.

    Args:
        run: its number.
        round: that the model is of.
        people: who can be asked for.
        names: what the values of a row are called: the classes, or in regression the targets.
        classes: whether they are probabilities of classes.
        questions: what takes the rows.
        finish: the joint model's outputs, (rows, names) -> what they say: probabilities, or numbers in their own units.
        show: shows numbers where this process shows its own.
    """

    run: str
    round: int
    row_index: RowIndex
    names: tuple[str, ...]
    classes: bool
    questions: Questions
    finish: Callable[[Tensor], Tensor]
    show: Callable[[Collector], None] = lambda _collector: None

    async def token(self) -> str:
        """Changes with whatever changes what the model says; waits until the parties are there."""
        await self.questions.hearing.wait()
        return f"{self.run} {self.round} {','.join(self.row_index.here)} {','.join(self.names)}"

    async def say(self, ids: Iterable[str]) -> dict[str, tuple[float, ...]]:
        """What the model says of people: a value a name. Who is not there is not known to all members.

        Raises:
            ColonnadeError: the conversation with the parties has ended.
        """
        said: dict[str, tuple[float, ...]] = {}
        wanted = iter(dict.fromkeys(ids))
        while block := tuple(islice(wanted, prediction.ROWS)):
            answer = await self.questions.ask(block)
            values = self.finish(answer.outputs).tolist()
            said |= {id: tuple(values[line]) for id, line in answer.at.items()}
        return said
