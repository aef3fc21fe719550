"""The server's process: from a configuration to a summary."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from colonnade.common.config.chaos import UNUSED_RATE
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.table_cache import TableCache
from colonnade.common.observability.endpoints import Endpoints
from colonnade.common.observability.ports import refuse_taken
from colonnade.common.observability.telemetry import Event, Telemetry, advances
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.device import choose_device
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.start_secret import StartSecret
from colonnade.common.tracking.listener import Tracking
from colonnade.common.tracking.tracker import Status
from colonnade.server.alignment.rows import ServerRows
from colonnade.server.member.admission import Admission
from colonnade.server.member.context import ServerParts
from colonnade.server.member.metrics import ServerMetrics
from colonnade.server.member.saving import run_number
from colonnade.server.member.scores import write_scores
from colonnade.server.member.service import ServerMember, training
from colonnade.server.member.sessions import ServerSessions
from colonnade.server.member.summary import summarise, write_whole
from colonnade.server.member.timeline import timeline
from colonnade.server.member.tracking import server_model, server_tracking
from colonnade.server.privacy.labels import hold_labels
from colonnade.server.training.context import ServerContext


@dataclass
class ServerRun(ServerMember):
    """One start of the server in training, from a configuration to summary.json, which is written however it ends.

    Args:
        launched: when the run was started, seconds since 1970.
    """

    launched: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        self.launched = self.launched or time.time()
        self._first: float | None = None
        self._folder, self._tables = RunFolder(self.out), TableCache(self.out, writes=True)
        self.went_on = False
        """True if this start has reached a round or the end of the run; else an earlier start's summary stays valid."""

    async def _serve(self, watch: Endpoints) -> None:
        device = choose_device(self.config.device)
        self.take_up(training(self.federation))
        tracking = server_tracking(
            self.federation, self.config, self.base, self.out, lambda: self._folder.number() or ""
        )
        store = Checkpoints(self._folder.checkpoints)
        begun, number = self._folder.run.exists(), run_number(self._folder, store)
        store.refuse_others(SERVER, self.federation.lasting_hashes(), number)  # before anything is written
        refuse_taken(self.config.listen, "server.listen")
        telemetry = Telemetry(self._folder.events, self._note_first, watch, *self.listeners, tracking, log="server")
        tracking.report = telemetry.pass_on
        parts = ServerParts(
            self.federation, self.config, self.base, telemetry, device, out=self.out, cache=self._tables
        )  # fmt: skip
        start = StartSecret(self._folder.start, self._folder.start_record(), public=self.federation.public_start)
        run_cache = RunCache(self._folder.run_cache)
        table = parts.prepare(parts.labels(), start, run_cache, self.identity, begun=begun, secure=self.secure)
        with closing(telemetry), self.watch_handshakes(telemetry):
            session = self._sessions(table.ctx, self.admission(table.shape, number), table.rows, number, start)
            watch.show(ServerMetrics(session))
            async with self.listen(session.hub, telemetry, watch):
                self._tables.keep()
                for reason in table.doubts:
                    table.ctx.warn(reason)
                if table.digest:
                    hold_labels(run_cache, table.digest)
                await self.converse(session.hub, self._work(session), partial(self._end, session, tracking))

    def _sessions(
        self, ctx: ServerContext, admission: Admission, rows: ServerRows | None, number: str, start: StartSecret
    ) -> ServerSessions:
        store = Checkpoints(self._folder.checkpoints, ctx.warn)
        store.prepare()
        if ctx.config.chaos.computing:
            ctx.warn(UNUSED_RATE)
        owner = Owner(SERVER, number, self.federation.lasting_hashes())
        return ServerSessions(ctx, store, owner, admission, self.out, start, rows)

    async def _work(self, sessions: ServerSessions) -> None:
        try:
            await sessions.run()
        finally:
            if (releases := sessions.ctx.releases) is not None:
                releases.close()

    def _end(self, sessions: ServerSessions, tracking: Tracking, status: str, failed: Exception | None) -> None:
        """Ends the run at the trackers; writes the last event, and the summary unless an earlier start's is valid."""
        ctx = sessions.ctx
        hub, first = sessions.hub, self._first
        found = summarise(
            ctx, hub.totals, status, failed,
            seconds=round(time.time() - self.launched, 3), saved=sessions.saving.best,
            releases=hub.releases, versions=hub.versions.others,
        )  # fmt: skip
        found["seconds_to_first_round"] = None if first is None else round(first - self.launched, 3)
        tracking.finish(cast(Status, status), ctx.round, found, partial(server_model, ctx.state))
        ctx.telemetry.event("end", status=status, round=ctx.round, phases=ctx.phases.summary())
        if self.went_on or not self._folder.summary.exists():
            presence = timeline(self._folder.events, self.federation.names)
            write_scores(self._folder.scores, ctx)
            write_whole(self._folder.summary, {**found, "timeline": presence})

    def _note_first(self, event: Event) -> None:
        if advances(event) and not self.went_on:
            self.went_on = True
            self._folder.summary.unlink(missing_ok=True)  # the previous start's
        if event["kind"] == "round" and self._first is None:
            self._first = event["time"]
