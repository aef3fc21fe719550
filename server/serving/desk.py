"""Puts the questions of many callers together: whoever comes while one is under way shares the next."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from common.metric import Metric, Values, number
from common.prediction import ROWS
from common.telemetry import Event
from server.model import Model

_REMEMBERED = 4096  # answers of which quantiles are taken
_QUANTILES = (0.5, 0.95)


@dataclass(frozen=True)
class Answer:
    """What the model makes of one id.

    Args:
        id: who it is about.
        known: whether all members know it.
        values: probabilities of the classes, in their order; in regression numbers, one a target.
    """

    id: str
    known: bool
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Request:
    rows: frozenset[int]
    answer: asyncio.Future[dict[int, tuple[float, ...]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Desk:
    """Takes ids and gives answers, while `run` runs.

    Args:
        model: that is asked.
    """

    def __init__(self, model: Model) -> None:
        self.names, self.classes, self._model = model.names, model.classes, model
        self._waiting: deque[_Request] = deque()
        self._news = asyncio.Event()
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._count, self._total, self._rounds, self._ids = 0, 0.0, 0, 0

    @property
    def open(self) -> bool:
        """Whether the parties are there."""
        return self._model.questions.hearing.is_set()

    async def ask(self, ids: Sequence[str]) -> list[Answer]:
        """An answer for every id, in their order. Raises whatever has ended the conversation with the parties."""
        begin = time.perf_counter()
        places = await self._model.places(ids)
        request = _Request(frozenset(places.values()))
        found: dict[int, tuple[float, ...]] = {}
        if request.rows:
            self._waiting.append(request)
            self._news.set()
            found = await request.answer
        self._note(time.perf_counter() - begin, len(ids))
        return [Answer(id, id in places, found.get(places.get(id, -1), ())) for id in ids]

    async def run(self) -> None:
        """Asks the model for whatever waits, again and again, until it is cancelled."""
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            taken = self._take()
            rows = torch.tensor(sorted(frozenset.union(*(request.rows for request in taken))))
            values = await self._model.values(rows)
            self._rounds += 1
            self._hand_out(taken, rows, values)

    def quantiles(self) -> dict[float, float]:
        """Seconds that half and 95 % of the newest answers took at most; nothing before the first."""
        ordered = sorted(self._seconds)
        return {q: ordered[min(int(q * len(ordered)), len(ordered) - 1)] for q in _QUANTILES if ordered}

    def collect(self) -> Iterator[Metric]:
        """For Prometheus, from another thread."""
        about = "Seconds from a request to its answer"
        yield Metric("summary", "colonnade_serve_seconds", f"{about}.", {(): (self._count, self._total)})
        newest: Values = {(f"{q:g}",): seconds for q, seconds in self.quantiles().items()}
        yield Metric("gauge", "colonnade_serve_latency_seconds", f"{about}, of the newest.", newest, ("quantile",))
        yield number("counter", "colonnade_serve_ids", "Ids that were asked for.", self._ids)
        yield number("counter", "colonnade_serve_questions", "Questions to the parties.", self._rounds)

    def __call__(self, event: Event) -> None:
        """Events say nothing that is shown here."""

    def _take(self) -> list[_Request]:
        """Those that fit into one question, the first in any case."""
        taken = [self._waiting.popleft()]
        size = len(taken[0].rows)
        while self._waiting and size + len(self._waiting[0].rows) <= ROWS:
            taken.append(self._waiting.popleft())
            size += len(taken[-1].rows)
        return taken

    def _hand_out(self, taken: list[_Request], rows: Tensor, values: Tensor) -> None:
        by_row = dict(zip(rows.tolist(), map(tuple, values.tolist()), strict=True))
        for request in taken:
            if not request.answer.done():  # its caller may have gone
                request.answer.set_result({row: by_row[row] for row in request.rows})

    def _note(self, seconds: float, ids: int) -> None:
        self._seconds.append(seconds)
        self._count, self._total, self._ids = self._count + 1, self._total + seconds, self._ids + ids

    def likeliest(self, answer: Answer) -> str:
        """The class of an answer of which there is one."""
        return self.names[max(range(len(answer.values)), key=answer.values.__getitem__)]
