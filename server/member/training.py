"""The server's process in training: from a configuration to a summary, and its metrics for the endpoints."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from colonnade.common.config.chaos import UNUSED_RATE
from colonnade.common.contracts.owner import owner_of
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.table_cache import TableCache
from colonnade.common.observability import metric
from colonnade.common.observability.endpoints import Endpoints
from colonnade.common.observability.metric import Metric, Values, number
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
from colonnade.server.member.saving import run_number
from colonnade.server.member.scores import write_scores
from colonnade.server.member.service import ServerMember, training
from colonnade.server.member.sessions import ServerSessions
from colonnade.server.member.summary import person, summarise, write_whole
from colonnade.server.member.timeline import timeline
from colonnade.server.member.tracking import server_model, server_tracking
from colonnade.server.privacy import hold_labels
from colonnade.server.training.context import ServerContext


@dataclass
class ServerRun(ServerMember):
    """One start of the server in training, from a configuration to summary.json, which is written however the run ends.

    `launched` is the start's time in seconds since 1970.
    """

    launched: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        self.launched = self.launched or time.time()
        self._first: float | None = None
        self._folder, self._tables = RunFolder(self.out), TableCache(self.out, writes=True)
        self.went_on = False
        """True if this start has reached a round or the end of the run; else an earlier start's summary stays valid."""

    async def _serve(self, watch: Endpoints) -> None:
        device = choose_device(self.config.device, repeatable=self.config.repeatable)
        self.take_up(training(self.federation))
        tracking = server_tracking(
            self.federation, self.config, self.base, self.out, lambda: self._folder.number() or ""
        )
        store = Checkpoints(self._folder.checkpoints)
        begun, number = self._folder.run.exists(), run_number(self._folder, store)
        store.refuse_others(self._owner(number))  # before anything is written
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
        return ServerSessions(ctx, store, self._owner(number), admission, self.out, start, rows)

    def _owner(self, run: str) -> Owner:
        return owner_of(self.federation, SERVER, self.config, self.base, run, trains=True)

    async def _work(self, sessions: ServerSessions) -> None:
        try:
            await sessions.run()
        finally:
            if (releases := sessions.ctx.releases) is not None:
                releases.close()

    def _end(self, sessions: ServerSessions, tracking: Tracking, status: str, failed: Exception | None) -> None:
        """Ends tracking; writes the last event, and the summary unless an earlier start's is valid."""
        ctx = sessions.ctx
        hub, first = sessions.hub, self._first
        found = summarise(
            ctx, hub.totals, status, failed,
            seconds=round(time.time() - self.launched, 3), saved=sessions.saving.best,
            releases=hub.spending.counts, versions=hub.versions.others,
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
            self._folder.forget_results()
        if event["kind"] == "round" and self._first is None:
            self._first = event["time"]


_COUNTED = {
    "missing": ("colonnade_missing_answers", "Rounds that a party was asked in and did not answer in time."),
    "late": ("colonnade_late_answers", "Messages of a party that came after their round."),
}


class ServerMetrics:
    """Collects events as they happen, and reads other counts on demand. Counters restart when a run is resumed."""

    def __init__(self, sessions: ServerSessions) -> None:
        self._sessions = sessions
        self._done, self.refused = 0, 0
        self.round, self._when = 0, math.nan
        self.scores: dict[tuple[str, str], float] = {}  # by part and metric
        self._counts = {kind: Counter[str](dict.fromkeys(sessions.hub.totals.parties, 0)) for kind in _COUNTED}
        self._saved = (0.0, 0.0)  # number of checkpoints, and total seconds to commit them

    def __call__(self, event: Event) -> None:
        match event["kind"]:
            case "begin":
                self.round = event["round"]
            case "round":
                self._done, self.round, self._when = self._done + 1, event["round"], event["time"]
                if "loss" in event:  # absent in a skipped round
                    self.scores["training", "loss"] = event["loss"]
            case "evaluation":
                self._note_scores(event)
            case "missing" | "late" as kind:
                self._counts[kind][event["party"]] += 1
            case "checkpoint":
                self._saved = (self._saved[0] + 1, self._saved[1] + event["seconds"])
            case "refused":  # without the name, which a stranger can choose freely
                self.refused += 1

    def _note_scores(self, event: Event) -> None:
        prefix = "val" if event["part"] == "validation" else event["part"]
        for what in ("accuracy", "rmse", "loss"):
            if f"{prefix}_{what}" in event:
                self.scores[event["part"], what] = event[f"{prefix}_{what}"]

    def collect(self) -> Iterator[Metric]:
        ctx, hub = self._sessions.ctx, self._sessions.hub
        yield metric.build(ctx.federation, SERVER)
        yield from metric.rounds(self._done, self.round, ctx.schedule.rounds)
        yield metric.round_seconds(ctx.phases.seconds(), self._done)
        yield from metric.traffic(hub.totals.books())
        yield metric.wire(hub.totals.frames())
        here = set(hub.members)
        yield metric.connected({party: party in here for party in ctx.federation.names})
        yield metric.queues(hub.queues())
        yield from metric.privacy(ctx.schedule.privacy, hub.spending.counts)
        if (plan := ctx.schedule.privacy) is not None:
            counts = {name: hub.spending.counts.get(name) for name in ctx.federation.names}
            yield from metric.person(person(ctx, plan, counts)["epsilon"])
        yield metric.checkpoint(self._sessions.saving.committed)
        yield from self._heard()

    def _heard(self) -> Iterable[Metric]:
        for kind, (name, about) in _COUNTED.items():
            yield Metric("counter", name, about, {(p,): n for p, n in self._counts[kind].items()}, ("party",))
        about = "Connections that were turned away."
        yield number("counter", "colonnade_refused_connections", about, self.refused)
        yield Metric("summary", "colonnade_checkpoint_seconds", "Seconds until everyone had saved.", {(): self._saved})
        scores = dict(self.scores)
        for what, name, about in (
            ("accuracy", "colonnade_accuracy_ratio", "Share of the rows of a part that is right, when last evaluated."),
            ("rmse", "colonnade_rmse", "RMSE of the rows of a part in the targets' own units, when last evaluated."),
            ("loss", "colonnade_loss", "Mean loss of the rows of a part: the last batch's, or when last evaluated."),
        ):
            values: Values = {(part,): value for (part, of), value in scores.items() if of == what}
            if values or what == "loss":  # accuracy in classification, RMSE in regression
                yield Metric("gauge", name, about, values, ("part",))
        if math.isfinite(self._when):
            name, about = "colonnade_last_round_timestamp_seconds", "When the last round was done, since 1970."
            yield number("gauge", name, about, self._when)
