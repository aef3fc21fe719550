"""The server's process for predictions with the model of a finished run, and its sessions.

In a session the present parties respond for the rows that they have in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_member import NAME as SEED
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.alignment.store import AlignmentRecord
from colonnade.common.config.alignment import refuse_nothing
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts import prediction
from colonnade.common.contracts.owner import owner_of
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.scored_rows import ScoredRows
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import (
    CheckpointError,
    ColonnadeError,
    InputError,
    PartyAway,
    PartyFailed,
    PartyLost,
    declared,
)
from colonnade.common.observability.endpoints import Endpoints
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.device import choose_device
from colonnade.common.run.plug_ins import naming_user_code
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.server.alignment.rows import ServerRows, server_keeping
from colonnade.server.member.admission import DataShape
from colonnade.server.member.context import ServerParts
from colonnade.server.member.hub import Hub, SessionNumbers
from colonnade.server.member.service import ServerMember, prediction_task
from colonnade.server.prediction.exchange import IdsRenewed, Questions, predict
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.row_index import RowIndex, distinct
from colonnade.server.prediction.terms import PredictionTerms
from colonnade.server.privacy import refuse_other_labels
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.active import columns_of, own_keys
from colonnade.server.training.metrics.quality import margins

Work = Callable[[Model], Awaitable[None]]  # uses the model while every party is present


@dataclass
class PredictionRun(ServerMember):
    """One start of the server for predictions.

    Args:
        work: uses the model; when it returns, the parties are dismissed.
        ids: ids that callers may ask for, with alignment; None for the training rows' ids.
    """

    work: Work = field(kw_only=False)
    terms: PredictionTerms = field(default=PredictionTerms(), kw_only=True)
    ids: Collection[str] | None = field(default=None, kw_only=True)

    _data_shape: DataShape = field(init=False)

    def __post_init__(self) -> None:
        self._folder, self.secure = RunFolder(self.out), self.terms.secure

    async def _serve(self, watch: Endpoints) -> None:
        owner, store, held = self.check()
        self.take_up(prediction_task(self.federation))
        with (
            closing(Telemetry(self._folder.prediction_events, watch, *self.listeners, log="server")) as telemetry,
            self.watch_handshakes(telemetry),
        ):
            ctx, row_index = self._context(telemetry)
            ctx.identity = self.identity
            admission, numbers = self.admission(self._data_shape, owner.run), SessionNumbers(self.out)
            task = self.task
            hub = Hub(task.federation, task.contract, admission, owner.run, telemetry, numbers=numbers)
            ctx.traffic, ctx.phases = hub.totals.wire, hub.phases
            sessions = PredictionSessions(
                self.terms,
                self.federation,
                ctx,
                hub,
                store=store,
                owner=owner,
                held=held,
                row_index=row_index,
                folder=self.out,
            )
            async with self.listen(hub, telemetry, watch):
                await self._ask(sessions, self._model(ctx, row_index, owner.run, held[0], watch))

    def check(self) -> tuple[Owner, Checkpoints, list[int]]:
        """Refuses unusable models and terms before any party is started or any file is written.

        Returns the model's owner, the server's checkpoints, and the rounds that may predict, newest first: only the
        best if the run kept one.
        """
        prediction.contract(self.federation)
        if self.terms.own:
            prediction.refuse_own(self.federation)
        if self.terms.absent != "refuse" and prediction.summed(self.federation):
            absent = self.terms.absent
            raise InputError(
                f"--absent {absent}: this run's server sees only sums, which need every party",
                hint="start all parties, and leave it out",
            )
        owner, store = self._owner(), Checkpoints(self._folder.checkpoints)
        if not (held := store.of_model(owner, self._folder.model_record)):
            raise CheckpointError(
                f"{self._folder.checkpoints} holds no whole checkpoint",
                hint="a model is there once a run has saved one",
            )
        return owner, store, held

    async def _ask(self, sessions: PredictionSessions, model: Callable[[Questions], Model]) -> None:
        """Runs the work and the sessions concurrently; the first failure ends both."""
        questions, ctx = Questions(), sessions.ctx
        work = asyncio.ensure_future(self.work(model(questions)))
        work.add_done_callback(lambda _done: questions.close())
        both = (work, asyncio.ensure_future(sessions.sessions(questions)))

        def shared(error: Exception) -> Exception:
            own = work.done() and not work.cancelled() and work.exception() is error
            said = "what the server does with the model has failed"
            return ColonnadeError(said, shared=said) if own else error

        def over(status: str, _failed: Exception | None) -> None:
            ctx.telemetry.event("end", status=status, round=ctx.round)

        await self.converse(sessions.hub, _all_done(both), over, shared=shared, beside=both)

    def _context(self, telemetry: Telemetry) -> tuple[ServerContext, RowIndex]:
        federation, cache = self.federation, TableCache(self.out, writes=True)
        parts = ServerParts(
            federation, self.config, self.base, telemetry,
            choose_device(self.config.device, repeatable=self.config.repeatable), cache=cache,
        )  # fmt: skip
        labels = parts.labels()
        self._data_shape = DataShape(len(labels.values), labels.official_test)
        if federation.align != "none":
            record = AlignmentRecord(
                RunCache(self._folder.run_cache), RowKeys.of(labels.ids, federation.keys, SERVER, self.out), SERVER
            )
            labels = labels.rows(record.rows(record.number))
            keeping = server_keeping(federation, self.config, self.base, self.out, telemetry, secure=self.terms.secure)
            kept = record.kept(keeping.terms) if keeping.terms else None
        else:
            refuse_other_labels(RunCache(self._folder.run_cache), labels)
        ctx = parts.context(labels)
        ctx.federation = prediction.prediction_federation(federation)
        ctx.run_cache = RunCache(self._folder.prediction_cache)
        if federation.align == "none":
            parts.add_columns(ctx, labels, kept=EncoderFile(self.out, begun=True))
            cache.keep()
            return ctx, RowIndex(federation, labels)
        cache.keep()
        seed, able = Seed(self._folder.prediction_cache / SEED), self._able(self.ids or labels.ids or ())
        return ctx, RowIndex(federation, labels, able, seed, keeping, kept.identity if kept else "")

    def _able(self, ids: Collection[str]) -> tuple[str, ...]:
        """Normalised keys that can be asked for: those that the server has columns for, if it has any."""
        own = own_keys(self.federation, self.config, self.base, self.out)
        return tuple(key for key in distinct(self.federation, ids) if own is None or key in own)

    def _model(
        self, ctx: ServerContext, row_index: RowIndex, run: str, round: int, watch: Endpoints
    ) -> Callable[[Questions], Model]:
        names, classes = row_index.labels.classes, ctx.scale is None
        if ctx.scale is not None:
            names = tuple(f"value_{number}" for number in range(1, self.federation.outputs + 1))
        finish = partial(probabilities, ctx) if ctx.scale is None else ctx.scale.undo
        return lambda questions: Model(
            run, round, row_index, names, classes=classes, questions=questions, finish=finish,
            decide=lambda: ctx.decision, paid=self.federation.privacy is not None, show=watch.show, able=self._able,
        )  # fmt: skip

    def _owner(self) -> Owner:
        if (run := self._folder.number()) is None:
            raise CheckpointError(f"{self._folder.run} is missing or was altered", hint="name the folder of a run")
        return owner_of(self.federation, SERVER, self.config, self.base, run)


def probabilities(ctx: ServerContext, logits: Tensor) -> Tensor:
    """Class probabilities, (rows, classes), calibrated if the checkpoint's decision is."""
    if (decision := ctx.decision) is None:
        return torch.softmax(logits, dim=1)
    positive = torch.from_numpy(decision.probabilities(margins(logits)))
    return torch.stack([1.0 - positive, positive], dim=1)


async def _all_done(tasks: Collection[asyncio.Future[None]]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


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
    _told: object = ""  # the decision told last; at first none was
    _silent: dict[str, float] = field(default_factory=dict)
    """Until when a party that gave no answer is left out; else the next session would wait for it too."""
    _scored: ScoredRows = field(init=False)

    def __post_init__(self) -> None:
        self._scored = ScoredRows(self.folder, self._tell_batch, self.ctx.warn)

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
            ctx.decide_again()
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
                await self._while_here(self._predict(cohort, questions, positions))
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
        if (made := self.ctx.decision) == self._told:
            return
        self._told, classes = made, self.row_index.labels.classes
        if made is None:
            for doubt in self.ctx.doubts(self.ctx.round):
                self.ctx.warn(doubt)
            return
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

    def _use(self) -> None:
        """Loads the server's own columns, if any, for the current common rows."""
        places, taken = self.row_index.places, self._scored.take
        columns = columns_of(self.federation, self.ctx.config, self.ctx.base, places, self.folder, taken)
        self.ctx.columns = columns and columns.to(self.ctx.device)
