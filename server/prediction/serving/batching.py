"""Batches the questions of many callers: requests that arrive during one question share the next."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from colonnade.common.contracts.prediction import ROWS
from colonnade.common.observability.metric import Metric, Values, number
from colonnade.common.observability.telemetry import Event
from colonnade.server.prediction.model import Model, Said

_REMEMBERED = 4096  # newest responses, for quantiles
_QUANTILES = (0.5, 0.95)
_LONGEST = 1024  # most requests waiting
ENDING = "the service ends: ask again when it is back"


class Busy(Exception):
    """The service does not reply: its queue is full, or it is ending."""


@dataclass(frozen=True)
class Reply:
    """Prediction for one id, `known` if all members know it.

    It has the class ("" in regression) and the classes' probabilities in their order; in regression one number per
    target.
    """

    id: str
    known: bool
    label: str = ""
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Request:
    ids: frozenset[str]
    answer: asyncio.Future[dict[str, Said]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Takes ids and returns predictions, while `run` runs."""

    def __init__(self, model: Model) -> None:
        self.names, self.classes, self._model = model.names, model.classes, model
        self._waiting: deque[_Request] = deque()
        self._taken: list[_Request] = []
        self._ended = False
        self._news = asyncio.Event()
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._count, self._total, self._rounds, self._ids = 0, 0.0, 0, 0

    @property
    def open(self) -> bool:
        return self._model.questions.hearing.is_set()

    @property
    def waiting(self) -> int:
        """Requests for the next question."""
        return len(self._waiting)

    async def ask(self, ids: Sequence[str]) -> list[Reply]:
        """A reply for every id, in order. Raises Busy."""
        begin = time.perf_counter()
        request = _Request(frozenset(ids))
        if self._ended:
            raise Busy(ENDING)
        if len(self._waiting) >= _LONGEST:
            raise Busy("too many requests are waiting")
        self._waiting.append(request)
        self._news.set()
        found = await request.answer
        self.note(time.perf_counter() - begin, len(ids))
        return [Reply(id, id in found, *found.get(id, ())) for id in ids]

    async def run(self) -> None:
        """Asks until it is cancelled or a question fails; requests without a reply then end with Busy."""
        try:
            while True:
                while not self._take():
                    self._news.clear()
                    await self._news.wait()
                found = await self._model.say(frozenset.union(*(request.ids for request in self._taken)))
                self._rounds += 1
                for request in self._taken:
                    if not request.answer.done():  # else its caller has gone
                        request.answer.set_result({id: found[id] for id in request.ids if id in found})
        finally:
            self._ended = True
            for request in (*self._taken, *self._waiting):
                if not request.answer.done():
                    request.answer.set_exception(Busy(ENDING))

    def quantiles(self) -> dict[float, float]:
        """Median and 95th percentile of the newest response times, in seconds; empty before the first."""
        ordered = sorted(self._seconds)
        return {q: ordered[min(int(q * len(ordered)), len(ordered) - 1)] for q in _QUANTILES if ordered}

    def collect(self) -> Iterator[Metric]:
        """Metrics for Prometheus; called from another thread."""
        about = "Seconds from a request to its answer"
        yield Metric("summary", "colonnade_serve_seconds", f"{about}.", {(): (self._count, self._total)})
        newest: Values = {(f"{q:g}",): seconds for q, seconds in self.quantiles().items()}
        yield Metric("gauge", "colonnade_serve_latency_seconds", f"{about}, of the newest.", newest, ("quantile",))
        yield number("counter", "colonnade_serve_ids", "Ids that were asked for.", self._ids)
        yield number("counter", "colonnade_serve_questions", "Questions to the parties.", self._rounds)

    def __call__(self, event: Event) -> None:
        """Ignores events: part of the listener interface."""

    def _take(self) -> list[_Request]:
        """Takes requests that fit into one question, at least one; drops requests whose callers have gone."""
        taken = self._taken = []
        size = 0
        while self._waiting and (not taken or size + len(self._waiting[0].ids) <= ROWS):
            request = self._waiting.popleft()
            if not request.answer.done():
                taken.append(request)
                size += len(request.ids)
        return taken

    def note(self, seconds: float, ids: int) -> None:
        self._seconds.append(seconds)
        self._count, self._total, self._ids = self._count + 1, self._total + seconds, self._ids + ids

    @property
    def decision(self) -> dict[str, Any] | None:
        """The rule that decides the positive class of two, for callers; None to take the more likely class."""
        if (made := self._model.decide()) is None:
            return None
        said = made.summary(self.names[1])
        return {key: said[key] for key in ("class", "threshold", "by", "calibration")}
