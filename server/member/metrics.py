"""The server's metrics for its endpoints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.observability import metric
from colonnade.common.observability.metric import Metric, Values, number
from colonnade.common.observability.telemetry import Event
from colonnade.server.member.sessions import ServerSessions
from colonnade.server.member.summary import person

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
        yield from metric.privacy(ctx.schedule.privacy, dict(hub.releases))
        if (plan := ctx.schedule.privacy) is not None:
            counts = {name: hub.releases.get(name) for name in ctx.federation.names}
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
