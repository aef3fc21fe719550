"""The server's process where a run has ended and its model is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from common import prediction
from common.checkpoints import Checkpoints, Owner
from common.config import FederationConfig, ServerConfig
from common.conversation import SERVER
from common.crypto.revocation import RevocationList
from common.crypto.sealing import Session
from common.data.labels import Labels
from common.data.sources import load_labels
from common.device import choose_device
from common.errors import CheckpointError, InputError, PartyAway, PartyLost
from common.message import largest_bytes
from common.once import Once
from common.schedule import Schedule
from common.telemetry import Listener, Telemetry
from common.watch import Collector, Watch
from common.wire.codec import Codec
from common.wire.frame import FRAME_ALLOWANCE
from common.wire.listen import Listener as Port
from common.wire.listen import ServerTls
from server.absence import Absent
from server.active import load_columns
from server.admission import Admission, Facts
from server.context import ServerContext
from server.hub import Hub
from server.predicting import Questions, predict
from server.run import own_identity

_PARTING = 10.0  # seconds that parties have for their farewell
_EVENTS = "predictions.jsonl"


@dataclass(frozen=True)
class Model:
    """The joint model of a run, for whoever asks it on this machine.

    Args:
        run: its number.
        labels: of the rows that there are.
        classes: their names, in the order of the probabilities.
        questions: what takes the rows.
        show: shows numbers where this process shows its own.
    """

    run: str
    labels: Labels
    classes: tuple[str, ...]
    questions: Questions
    show: Callable[[Collector], None] = lambda _collector: None

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where the row of an id is; rows without ids go by their numbers."""
        ids = self.labels.ids
        names = map(str, range(len(self.labels.values))) if ids is None else ids
        return {name: place for place, name in enumerate(names)}

    async def probabilities(self, rows: Tensor) -> Tensor:
        """Of the classes for some rows, float32 (rows, classes).

        Args:
            rows: positions, int64 (rows,), as many as there are, without repeats.

        Raises:
            ColonnadeError: the conversation with the parties has ended.
        """
        asked = torch.split(rows, prediction.ROWS)
        logits = [await self.questions.ask(block) for block in asked]
        return torch.cat(logits).softmax(1)


Work = Callable[[Model], Awaitable[None]]
"""What is done with the model while everybody is there."""


@dataclass
class PredictionRun:
    """One start of a server that asks the model of a run.

    Args:
        federation, config: the two sections of its file.
        base: the folder that paths in the file are relative to.
        out: the run's folder.
        work: what is done with the model; when it returns, the parties are dismissed.
        absent: what is taken for a party that is not there.
        patience: seconds that parties have to come, where they may be absent; else federation.timeouts.away.
        expected: those that may come at all; None for all.
        secure: False talks plainly, on loopback only.
        listeners: told of every event, for progress lines.
    """

    federation: FederationConfig
    config: ServerConfig
    base: Path
    out: Path
    work: Work
    absent: Absent = "refuse"
    patience: float = 10.0
    expected: Collection[str] | None = None
    secure: bool = True
    listeners: tuple[Listener, ...] = ()

    async def run(self) -> None:
        """Gathers the parties, and lets the work be done.

        Raises:
            CheckpointError: the run's folder holds no model.
            ColonnadeError: somebody did not come, or has failed.
        """
        contract = prediction.contract(self.federation)  # first, since it may refuse
        if self.absent != "refuse" and prediction.summed(self.federation):
            raise InputError(
                f"--absent {self.absent}: the server of this run is shown sums alone, of which nobody can be missing",
                hint="start all parties, and leave it out",
            )
        owner, store = self._owner(), Checkpoints(self.out / "checkpoints")
        held = store.usable(owner)
        if not held:
            raise CheckpointError(
                f"{self.out / 'checkpoints'} holds no whole checkpoint",
                hint="a model is there once a run has saved one",
            )
        identity = own_identity(self.federation, self.config, self.base, secure=self.secure)
        tls = None if identity is None else ServerTls(identity.key_pem, identity.chain_pem, identity.ca_pem)
        revoked = RevocationList(None if self.config.revoked is None else self.base / self.config.revoked)
        with (
            Watch(SERVER, self.config) as watch,
            closing(Telemetry(self.out / _EVENTS, watch, *self.listeners)) as telemetry,
        ):
            ctx, labels = self._context(telemetry)
            ctx.identity = identity
            facts = Facts(len(labels.values), labels.official_test)
            admission = Admission(
                self.federation, facts, owner.run, revoked, secure=self.secure, purpose=prediction.PURPOSE
            )
            hub = Hub(self.federation, contract, admission, owner.run, telemetry)
            ctx.traffic, ctx.phases = hub.totals.wire, hub.phases
            limits = contract.limits(self.federation)
            incoming = dict.fromkeys(contract.kinds, self.federation.compress.evaluations)
            largest = max(largest_bytes(kind, limits, incoming[name]) for name, kind in contract.kinds.items())
            codec = Codec(contract.name, contract.kinds, incoming, limits)
            port = Port(codec, largest + FRAME_ALLOWANCE, hub.greet)
            try:
                number = await port.start(self.config.listen, tls)
                host = self.config.listen.rpartition(":")[0]
                names = list(self.federation.names)
                telemetry.event("listening", address=f"{host}:{number}", waiting_for=names)
                watch.announce(telemetry)
                sessions = partial(self._sessions, ctx, hub, store, owner, held)
                model = partial(Model, owner.run, labels, labels.classes, show=watch.show)
                await self._converse(ctx, hub, model, sessions)
            finally:
                await port.stop()

    async def _converse(
        self,
        ctx: ServerContext,
        hub: Hub,
        model: Callable[[Questions], Model],
        sessions: Callable[[Questions], Awaitable[None]],
    ) -> None:
        """The work beside the sessions: whatever fails first ends both."""
        questions, status = Questions(), "failed"
        guard = asyncio.ensure_future(hub.watch_revocations())
        asking = asyncio.ensure_future(self.work(model(questions)))
        asking.add_done_callback(lambda _done: questions.close())
        serving = asyncio.ensure_future(sessions(questions))
        both = {asking, serving}
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            status = "completed"
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        except Exception as error:
            hub.say_failure(getattr(error, "party", SERVER), error)
            raise
        finally:
            for task in (guard, *both):
                task.cancel()
            await asyncio.gather(guard, *both, return_exceptions=True)
            await hub.part(_PARTING if status == "completed" else 2.0)
            ctx.telemetry.event("end", status=status, round=ctx.round)

    async def _sessions(
        self, ctx: ServerContext, hub: Hub, store: Checkpoints, owner: Owner, held: list[int], questions: Questions
    ) -> None:
        """Answers questions, over as many sessions as that takes."""
        while True:
            names = await self._gather(hub)
            cohort, round = hub.begin(held, held[0], _nothing, lambda: questions.over, names)
            ctx.restore(round, store.load(round, owner))
            ctx.session = Session(self.federation.id, owner.run, hub.session, self.federation.hashes())
            absent = [name for name in self.federation.names if name not in names]
            ctx.telemetry.event("begin", parties=list(cohort), round=round, absent=absent)
            try:
                await predict(ctx, cohort, questions, self.absent)
                return
            except PartyAway as gone:
                questions.heard = False
                ctx.telemetry.event("rollback", party=gone.party, round=round, reason=str(gone))
                hub.rewind(str(gone))

    async def _gather(self, hub: Hub) -> tuple[str, ...]:
        """Who is there, after everybody has come or has had the time to."""
        if self.absent == "refuse":
            await hub.assemble(self.federation.timeouts.away)
        else:
            with suppress(PartyLost):
                await hub.assemble(self.patience, self.expected)
            if not hub.here:
                raise PartyLost(", ".join(self.federation.names), f"did not join within {self.patience:g} s")
        return hub.here

    def _context(self, telemetry: Telemetry) -> tuple[ServerContext, Labels]:
        labels = load_labels(self.config.labels, self.base)
        schedule = Schedule(self.federation, len(labels.values), labels.official_test)
        device = choose_device(self.config.device)
        federation = prediction.asking(self.federation)
        ctx = ServerContext(federation, self.config, labels.values, schedule, telemetry, self.base, device)
        columns = load_columns(self.federation, self.config, schedule, self.base, len(labels.values))
        ctx.columns, ctx.once = columns and columns.to(device), Once(self.out / "once-predictions")
        return ctx, labels

    def _owner(self) -> Owner:
        path = self.out / "run.json"
        try:
            run = str(json.loads(path.read_text())["run"])
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{path} is missing or was altered", hint="name the folder of a run") from None
        return Owner(SERVER, run, self.federation.lasting_hashes())


async def _nothing(_round: int) -> None:
    """Nothing is to be done between two questions."""
