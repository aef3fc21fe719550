"""A run's sessions: all members assemble, resume from a common round, and stop when one goes away."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.common.aggregation.summed_sets import times_written
from colonnade.common.config.remedy import advice
from colonnade.common.config.run_options import back_off_factor
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.draws import keep_generators
from colonnade.common.errors import ConfigError, PartyAway, TrainingDiverged, declared
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.phases import CHECKPOINT, WAITING
from colonnade.common.run.plug_ins import naming_user_code
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.start_secret import StartSecret
from colonnade.server.alignment.rows import ServerRows
from colonnade.server.member.admission import Admission
from colonnade.server.member.hub import Hub, SessionNumbers
from colonnade.server.member.planned import tell_planned
from colonnade.server.member.saving import Saving
from colonnade.server.member.summary import model_of
from colonnade.server.protocols import SERVE
from colonnade.server.training.context import ServerContext

_AWAY = "it is away"


@dataclass
class ServerSessions:
    """All sessions of a run.

    Args:
        ctx: its state is restored in every session.
        folder: the run's; None in a simulation, which keeps only the checkpoints in `store`.
        start: the secret from which the context's draws follow.
        clock: seconds from an arbitrary origin.
        side: replaces the protocol's server side.
    """

    ctx: ServerContext
    store: Checkpoints
    owner: Owner
    admission: Admission
    folder: Path | None
    start: StartSecret
    rows: ServerRows | None = None
    clock: Callable[[], float] = time.monotonic
    side: Callable[[ServerContext, Cohort, Any], Awaitable[None]] | None = None
    hub: Hub = field(init=False)
    saving: Saving = field(init=False)

    def __post_init__(self) -> None:
        federation, telemetry = self.ctx.federation, self.ctx.telemetry
        contract = CONTRACTS[federation.protocol.name]
        kept = None if self.folder is None else RunFolder(self.folder).checkpoints
        self.saving = Saving(
            self.store, kept, self.owner, federation.checkpoint, telemetry, self.clock,
            grown=lambda: {"sums": times_written(self.ctx.run_cache), "labels": self.ctx.labels_released},
        )  # fmt: skip
        self.hub = Hub(
            federation, contract, self.admission, self.owner.run, telemetry,
            saved=self.saving.saved, away=self._away, numbers=SessionNumbers(self.folder), draws=self.ctx.draws,
        )  # fmt: skip
        self.hub.watch = self.ctx.watch
        self.ctx.traffic, self.ctx.phases = self.hub.totals.wire, self.hub.phases

    async def run(self) -> None:
        """Serves the protocol to its end, over as many sessions as needed."""
        ctx, hub, saving, protocol = self.ctx, self.hub, self.saving, self.ctx.federation.protocol
        side = self.side or SERVE[protocol.name]
        while True:
            await hub.assemble(ctx.federation.timeouts.away)
            resumed = hub.session != 0
            self._record_run()
            held, committed = self.store.usable(self.owner), saving.committed
            if self.rows is not None:
                hub.aligned = self.rows.agreed({name: member.hello.aligned for name, member in hub.members.items()})
            hub.backed_off = saving.backed_off
            cohort, round = hub.begin(held, committed, self._between, lambda: ctx.over)
            if round > (planned := ctx.schedule.rounds):
                raise ConfigError(
                    f"{round} rounds are done, and the configuration ends after {planned}",
                    hint="resume it with at least as many in federation.epochs or federation.rounds",
                )
            self._restore(round, first=not resumed)
            ctx.session = Session(ctx.federation.id, self.owner.run, hub.session, ctx.federation.hashes())
            try:
                if self.rows is not None:
                    hub.aligned = await self.rows.align(cohort, ctx.session)
                ctx.confirm()
                hub.confirm(ctx.schedule)
                ctx.look_at_classes()
                ctx.decide_again()
                self._ready(cohort, round)
                if not resumed:
                    tell_planned(ctx)
                self._tell_begun(cohort, round)
                with naming_user_code(SERVER, ctx.own_code):
                    await side(ctx, cohort, protocol)
                for doubt in ctx.doubts(model_of(ctx, saving.best)["round"]):
                    ctx.warn(doubt)
                return
            except PartyAway as gone:
                self._away(gone.party)
                ctx.telemetry.event("rollback", party=gone.party, round=ctx.round, reason=str(gone))
                hub.rewind(declared(gone)[0])
            except TrainingDiverged as diverged:
                await self._back_off(diverged)
            finally:
                ctx.phases.turn()

    def _ready(self, cohort: Cohort, round: int) -> None:
        """Called in every session before its first round, which follows `round`."""

    def _tell_begun(self, cohort: Cohort, round: int) -> None:
        ctx, device = self.ctx, str(self.ctx.device)
        ctx.telemetry.event("begin", rounds=ctx.schedule.rounds, parties=list(cohort), round=round, device=device)

    async def _back_off(self, diverged: TrainingDiverged) -> None:
        """Rolls all members back to the newest sound checkpoint, with lower learning rates (`federation.back_off`).

        Raises TrainingDiverged if no rollback is left.
        """
        ctx, saving = self.ctx, self.saving
        times, most, sound = ctx.backed_off, 0, 0
        if saving.keeps:
            most = ctx.federation.back_off
            sound = await saving.go_back(times + (times < most), ctx.federation.timeouts.answer)
        ctx.telemetry.event(
            "diverged", party=diverged.member, round=diverged.round, reason=diverged.reason,
            members=list(diverged.members), sound=sound,
        )  # fmt: skip
        if times >= most:
            diverged.sound = sound
            diverged.advice = advice(ctx.federation, diverged.members, sound)
            diverged.hint = diverged.hint or diverged.advice
            raise diverged
        ctx.telemetry.event(
            "back_off", party=diverged.member, round=sound, times=times + 1, factor=back_off_factor(times + 1),
            reason=diverged.reason,
        )  # fmt: skip
        self.hub.rewind(declared(diverged)[0])

    def _record_run(self) -> None:
        """Writes the server's secret and the run's number to disk, before any party learns the number."""
        self.start.keep()
        if self.folder is not None:
            RunFolder(self.folder).record(self.owner.run, self.ctx.federation.id, self.start.record)

    def _restore(self, round: int, *, first: bool) -> None:
        ctx, saving = self.ctx, self.saving
        if round:
            saving.restored(round)
        ctx.restore(round, self.store.load(round, self.owner) if round else None, saving.backed_off)
        keep_generators(ctx.state, ctx.device, ctx.draws)
        if saving.best != ctx.best.round:
            saving.best = 0  # the restored round precedes it
        self.store.drop_after(round)
        counts: dict[str, int] = ctx.state.keep("traffic", dict)
        if first:  # later sessions keep counting; only a new process restores the counts
            self.hub.totals.restore(counts)

    async def _between(self, round: int) -> None:
        """After every round: saves a checkpoint if one is due, and checks the parties' presence."""
        ctx, saving = self.ctx, self.saving
        if ctx.round < round:
            raise ConfigError(
                f"the protocol {ctx.federation.protocol.name} ended round {round} without a record of it",
                hint="its `serve` calls ctx.record(round, loss, responses) at the end of every round that has learned, "
                "and ctx.skip(round, responses) of any other",
            )
        if ctx.watch.sustained and saving.keeps and saving.backed_off < ctx.federation.back_off:
            raise ctx.watch.diverged(round)  # the loss keeps exploding, and the run may still roll back
        last = round if ctx.best.stop else ctx.schedule.rounds
        if saving.due(round, last, ctx.best.round) and self._worth_saving(last):
            await self._save(round, last)
        ctx.phases.turn(WAITING)
        await self.hub.gate()

    def _worth_saving(self, last: int) -> bool:
        """False if a checkpoint of this round may belong to a divergence and there is no sound one besides it."""
        return bool(self.saving.sound) or not self.ctx.watch.growing or self.ctx.round >= last

    async def _save(self, round: int, last: int) -> None:
        """Begins a checkpoint; after the last round waits until it is saved."""
        ctx, hub, saving, limit = self.ctx, self.hub, self.saving, self.ctx.federation.timeouts.answer
        ctx.phases.turn(CHECKPOINT)
        await saving.make_way(limit)
        if not hub.whole:
            return  # a party that has left or failed would be awaited in vain
        ctx.state.keep("traffic", dict[str, int]).update(hub.totals.capture())
        ctx.complete()
        names, sound = ctx.federation.names, not ctx.watch.growing
        await saving.begin(round, ctx.state.capture(), names, hub.request_save, ctx.best.round, sound=sound)
        if round == last:
            await saving.finish(limit)

    def _away(self, party: str) -> None:
        self.saving.give_up(party, _AWAY)
