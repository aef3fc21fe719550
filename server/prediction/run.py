"""The server's process for predictions with the model of a finished run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_member import NAME as SEED
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.alignment.record import AlignmentRecord
from colonnade.common.contracts import prediction
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import CheckpointError, ColonnadeError, InputError
from colonnade.common.observability.endpoints import Endpoints
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.device import choose_device
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.server.alignment.rows import server_keeping
from colonnade.server.member.admission import DataShape
from colonnade.server.member.context import ServerParts
from colonnade.server.member.hub import Hub
from colonnade.server.member.service import ServerMember, prediction_task
from colonnade.server.member.session_numbers import SessionNumbers
from colonnade.server.prediction.exchange import Questions
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.row_index import RowIndex, distinct
from colonnade.server.prediction.sessions import PredictionSessions
from colonnade.server.prediction.terms import PredictionTerms
from colonnade.server.privacy.labels import refuse_other_labels
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.active import own_keys
from colonnade.server.training.metrics.quality import margins

Work = Callable[[Model], Awaitable[None]]
"""Uses the model while every party is present."""


@dataclass
class PredictionRun(ServerMember):
    """One start of the server for predictions.

    Args:
        work: uses the model; when it returns, the parties are dismissed.
        ids: ids that may be asked for, where rows are aligned; None for the training rows' ids.
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
                f"--absent {absent}: the server of this run is shown sums alone, of which nobody can be missing",
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
            federation, self.config, self.base, telemetry, choose_device(self.config.device), cache=cache
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
        return Owner(SERVER, run, self.federation.lasting_hashes())


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
