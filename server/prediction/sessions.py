"""The sessions of a prediction server: the present parties respond for the rows that they have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.common.alignment.refusal import refuse_nothing
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts import prediction
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.scored_rows import ScoredRows
from colonnade.common.errors import PartyAway, PartyFailed, PartyLost, declared
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.user_code import naming_user_code
from colonnade.server.alignment.rows import ServerRows
from colonnade.server.member.hub import Hub
from colonnade.server.prediction.exchange import IdsRenewed, Questions, predict
from colonnade.server.prediction.row_index import RowIndex
from colonnade.server.prediction.terms import PredictionTerms
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.active import columns_of
from colonnade.server.training.metrics.decision import Decision


@dataclass
class PredictionSessions:
    """The sessions of one start. The context's state is restored in every session; `held` are rounds, newest first."""

    terms: PredictionTerms
    federation: FederationConfig
    ctx: ServerContext
    hub: Hub
    _: KW_ONLY
    store: Checkpoints
    owner: Owner
    held: list[int]
    row_index: RowIndex
    folder: Path
    _rows: ServerRows | None = None
    _aligned: tuple[str, ...] = ()
    _told: Decision | None = None
    _silent: dict[str, float] = field(default_factory=dict)
    """Until when a party that gave no answer is left out; else the next session would wait for it too."""
    _scored: ScoredRows = field(init=False)

    def __post_init__(self) -> None:
        self._scored = ScoredRows(self.folder, self._tell_batch, self._warn)

    async def sessions(self, questions: Questions) -> None:
        """Answers questions, over as many sessions as needed.

        Raises PartyLost or PartyFailed for a party that may not be absent, or PartyLost if no party came.
        """
        ctx, hub, federation = self.ctx, self.hub, self.federation
        while True:
            names = await self.gather()
            self.row_index.here = names
            self._prepare(names)
            cohort, round = hub.begin(self.held, self.held[0], hub.revocations.seen, lambda: questions.over, names)
            ctx.restore(round, self.store.load(round, self.owner))
            ctx.confirm()
            self._tell_decision()
            ctx.session = Session(federation.id, self.owner.run, hub.session, federation.hashes())
            absent = [name for name in federation.names if name not in names]
            try:
                if self._rows is not None:
                    hub.aligned = await self._rows.align(cohort, ctx.session)
                    if not self.row_index.places and not self.terms.lasting:
                        refuse_nothing(federation.align, 0)
                ctx.telemetry.event("begin", parties=list(cohort), round=round, absent=absent)
                ctx.trained_as, positions = self.row_index.history().__getitem__, self.row_index.positions
                asking = self._predict(cohort, questions, positions)
                await self._while_here(asking)
                return
            except (PartyLost, PartyFailed) as gone:
                if isinstance(gone, PartyFailed):
                    self._excuse(gone)
                elif not isinstance(gone, PartyAway):
                    self.leave_out(gone)
                ctx.telemetry.event("rollback", party=gone.party, round=round, reason=str(gone))
                hub.rewind(declared(gone)[0])
            except IdsRenewed as renewed:
                self.row_index.asked, self._aligned = renewed.asked, ()
                hub.rewind(str(renewed))
            finally:
                questions.hearing.clear()
                self._scored.end()

    async def _predict(
        self, cohort: Cohort, questions: Questions, positions: Callable[[Sequence[str]], Tensor]
    ) -> None:
        with naming_user_code(SERVER, self.ctx.own_code):
            await predict(
                self.ctx, cohort, questions, positions, self.terms.absent, own=self.terms.own, scored=self._scored.add
            )

    async def gather(self) -> tuple[str, ...]:
        terms, hub, loop, names = self.terms, self.hub, asyncio.get_running_loop(), self.federation.names
        patience = self._patience
        until = loop.time() + patience
        if terms.absent == "refuse":
            await hub.assemble(patience)
            return hub.here
        silent = {party for party, over in self._silent.items() if loop.time() < over}
        awaited = set(names if terms.expected is None else terms.expected) - silent
        with suppress(PartyLost):
            while not awaited <= set(hub.here):
                try:
                    await hub.assemble(max(until - loop.time(), 0), awaited)
                except PartyFailed as failed:
                    self._excuse(failed)
                    awaited.discard(failed.party)
        here = tuple(party for party in hub.here if party not in silent)
        if not here:
            hint = "start the missing parties; one that still reads its table joins when it has: raise --wait for it"
            raise PartyLost(", ".join(names), f"did not join within {patience:g} s", hint=hint)
        return here

    @property
    def _patience(self) -> float:
        return self.federation.timeouts.away if self.terms.patience is None else self.terms.patience

    def leave_out(self, lost: PartyLost) -> None:
        """Treats connected parties that gave no answer as absent; raises the error where absence is not allowed."""
        names = set(lost.party.split(", "))
        if self.terms.absent == "refuse" or not names < set(self.hub.here):
            if not prediction.summed(self.federation):
                lost.hint = "start it again, raise federation.timeouts.answer, or go on without it by --absent mean"
            raise lost
        until = asyncio.get_running_loop().time() + self._patience
        self._silent |= dict.fromkeys(names, until)

    def _excuse(self, failed: PartyFailed) -> None:
        """Treats a failed party as absent; raises its error where absence is not allowed."""
        if self.terms.absent == "refuse":
            raise failed
        self.hub.excuse(failed.party)

    async def _while_here(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work until it is done or a party goes, which is noticed at once, not only at the next question."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(self.hub.watch_absence())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in filter(asyncio.Future.done, tasks):
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _tell_decision(self) -> None:
        if (made := self.ctx.decision) is None or made == self._told:
            return
        self._told, classes = made, self.row_index.labels.classes
        self.ctx.telemetry.event("decision", model=self.ctx.round, **made.summary(classes[1]))

    def _prepare(self, names: tuple[str, ...]) -> None:
        """Aligns rows anew whenever the set of present parties has changed."""
        federation, hub = self.federation, self.hub
        if federation.align == "none":
            return
        if names != self._aligned:
            kinds = prediction.contract(federation).kinds
            self._rows = self.row_index.rows(names, kinds, self.ctx.telemetry, self._use)
            self._aligned = names
        assert self._rows is not None  # set for the first parties
        held = {name: hub.members[name].hello.aligned for name in names}
        if self._rows.record.number and set(held.values()) != {self._rows.record.number}:
            self._aligned = ()  # a party has read its table again
            self._prepare(names)
        else:
            hub.aligned = self._rows.agreed(held)

    def _tell_batch(self, record: dict[str, Any], said: str) -> None:
        self.ctx.telemetry.event("batch", party=SERVER, said=said, rows=record["rows"])

    def _warn(self, reason: str) -> None:
        self.ctx.warn(reason)

    def _use(self) -> None:
        """Loads the server's own columns, if any, for the current common rows."""
        places, taken = self.row_index.places, self._scored.take
        columns = columns_of(self.federation, self.ctx.config, self.ctx.base, places, self.folder, taken)
        self.ctx.columns = columns and columns.to(self.ctx.device)
