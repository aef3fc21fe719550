"""A run's sessions: all members assemble, resume from a common round, and stop when one goes away."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.aggregation.summed_sets import times_written
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import PartyAway, TrainingDiverged, declared
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.phases import WAITING
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.start_secret import StartSecret
from colonnade.common.run.user_code import naming_user_code
from colonnade.server.alignment.rows import ServerRows
from colonnade.server.member.admission import Admission
from colonnade.server.member.divergence import after_divergence, refuse_sustained, restore, save_if_due
from colonnade.server.member.hub import Hub
from colonnade.server.member.planned import tell_planned
from colonnade.server.member.saving import Saving
from colonnade.server.member.session_numbers import SessionNumbers
from colonnade.server.protocols import SERVE
from colonnade.server.training.context import ServerContext

_AWAY = "it is away"


@dataclass
class ServerSessions:
    """All sessions of a run.

    Args:
        ctx: its state is restored in every session.
        start: the secret from which the context's draws follow.
        rows: aligns rows; None where they are in the same order already.
    """

    ctx: ServerContext
    store: Checkpoints
    owner: Owner
    admission: Admission
    folder: Path
    start: StartSecret
    rows: ServerRows | None = None
    hub: Hub = field(init=False)
    saving: Saving = field(init=False)

    def __post_init__(self) -> None:
        federation, telemetry = self.ctx.federation, self.ctx.telemetry
        contract = CONTRACTS[federation.protocol.name]
        self.saving = Saving(
            self.store, RunFolder(self.folder).checkpoints, self.owner, federation.checkpoint, telemetry,
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
        ctx, hub, name = self.ctx, self.hub, self.ctx.federation.protocol.name
        while True:
            await hub.assemble(ctx.federation.timeouts.away)
            resumed = hub.session != 0
            self._record_run()
            held, committed = self.store.usable(self.owner), self.saving.committed
            if self.rows is not None:
                hub.aligned = self.rows.agreed({name: member.hello.aligned for name, member in hub.members.items()})
            hub.backed_off = self.saving.backed_off
            cohort, round = hub.begin(held, committed, self._between, lambda: ctx.over)
            self._restore(round, first=not resumed)
            ctx.session = Session(ctx.federation.id, self.owner.run, hub.session, ctx.federation.hashes())
            try:
                if self.rows is not None:
                    hub.aligned = await self.rows.align(cohort, ctx.session)
                ctx.confirm()
                ctx.look_at_classes()
                parties, device = list(cohort), str(ctx.device)
                if not resumed:
                    tell_planned(ctx)
                ctx.telemetry.event("begin", rounds=ctx.schedule.rounds, parties=parties, round=round, device=device)
                with naming_user_code(SERVER, ctx.own_code):
                    await SERVE[name](ctx, cohort, ctx.federation.protocol)
                return
            except PartyAway as gone:
                self.saving.give_up(gone.party, _AWAY)
                ctx.telemetry.event("rollback", party=gone.party, round=ctx.round, reason=str(gone))
                hub.rewind(declared(gone)[0])
            except TrainingDiverged as diverged:
                await self._back_off(diverged)
            finally:
                ctx.phases.turn()

    async def _back_off(self, diverged: TrainingDiverged) -> None:
        """Rolls all members back to the newest sound checkpoint, with lower learning rates. Raises if none is left."""
        await after_divergence(self.ctx, self.saving, diverged)
        self.hub.rewind(declared(diverged)[0])

    def _record_run(self) -> None:
        """Writes the server's secret and the run's number to disk, before any party learns the number."""
        self.start.keep()
        RunFolder(self.folder).record(self.owner.run, self.ctx.federation.id, self.start.record)

    def _restore(self, round: int, *, first: bool) -> None:
        ctx = self.ctx
        restore(ctx, self.saving, round, self.store.load(round, self.owner) if round else None)
        self.store.drop_after(round)
        counts: dict[str, int] = ctx.state.keep("traffic", dict)
        if first:  # later sessions keep counting; only a new process restores the counts
            self.hub.totals.restore(counts)

    async def _between(self, round: int) -> None:
        """After every round: saves a checkpoint if one is due, and checks the parties' presence."""
        hub = self.hub
        refuse_sustained(self.ctx, self.saving, round)
        await save_if_due(self.ctx, self.saving, hub.totals, round, hub.request_save, whole=lambda: hub.whole)
        self.ctx.phases.turn(WAITING)
        await hub.gate()

    def _away(self, party: str) -> None:
        self.saving.give_up(party, _AWAY)
