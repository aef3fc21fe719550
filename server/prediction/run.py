"""The server's process where a run has ended and its model is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from colonnade.common.alignment.keys import Keys
from colonnade.common.alignment.messages import all_kinds, all_limits
from colonnade.common.alignment.record import Record
from colonnade.common.alignment.seed import NAME as SEED
from colonnade.common.alignment.seed import Seed
from colonnade.common.checkpointing.checkpoints import Checkpoints, Owner
from colonnade.common.checkpointing.run_cache import Once
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.config.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import load_labels
from colonnade.common.errors import CheckpointError, ColonnadeError, InputError
from colonnade.common.messaging.message import largest_bytes
from colonnade.common.observability.endpoints import Watch
from colonnade.common.observability.telemetry import Listener, Telemetry
from colonnade.common.prediction import messages as prediction
from colonnade.common.runtime.descriptors import raise_limit
from colonnade.common.runtime.device import choose_device
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE
from colonnade.common.wire.listen import Listener as Port
from colonnade.common.wire.listen import ServerTls
from colonnade.server.fusion.active import load_columns, own_keys
from colonnade.server.membership.admission import Admission, Facts
from colonnade.server.membership.handshakes import watch_handshakes
from colonnade.server.membership.hub import Hub
from colonnade.server.membership.session_numbers import SessionNumbers
from colonnade.server.prediction.exchange import Questions
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.row_index import People, distinct
from colonnade.server.prediction.sessions import Asking
from colonnade.server.privacy.label_digest import refuse_other_labels
from colonnade.server.run.training import own_identity
from colonnade.server.training.absence import Absent
from colonnade.server.training.context import ServerContext, check_labels

_PARTING = 10.0  # seconds that parties have for their farewell
_EVENTS = "predictions.jsonl"


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
        patience: seconds that parties have to come; None for federation.timeouts.away.
        expected: those that may come at all; None for all.
        ids: whom somebody will ask for, where rows are aligned; None for those whom the run was trained on.
        own: whether parties predict too, and keep that at home.
        secure: False talks plainly, on loopback only.
        listeners: told of every event, for progress lines.
    """

    federation: FederationConfig
    config: ServerConfig
    base: Path
    out: Path
    work: Work
    absent: Absent = "refuse"
    patience: float | None = None
    expected: Collection[str] | None = None
    ids: Collection[str] | None = None
    own: bool = False
    secure: bool = True
    listeners: tuple[Listener, ...] = ()

    _facts: Facts = field(init=False)

    async def run(self) -> None:
        """Gathers the parties, and lets the work be done.

        Raises:
            CheckpointError: the run's folder holds no model.
            ColonnadeError: somebody did not come, or has failed.
        """
        raise_limit()
        contract, (owner, store, held) = prediction.contract(self.federation), self.check()
        identity = own_identity(self.federation, self.config, self.base, secure=self.secure)
        tls = None if identity is None else ServerTls(identity.key_pem, identity.chain_pem, identity.ca_pem)
        revoked = RevocationList(None if self.config.revoked is None else self.base / self.config.revoked)
        with (
            Watch(SERVER, self.config) as watch,
            closing(Telemetry(self.out / _EVENTS, watch, *self.listeners)) as telemetry,
            watch_handshakes(lambda reason: telemetry.refused("unknown", reason)) if self.secure else nullcontext(),
        ):
            ctx, people = self._context(telemetry)
            ctx.identity = identity
            admission = Admission(
                self.federation, self._facts, owner.run, revoked, secure=self.secure, purpose=prediction.PURPOSE
            )
            asked, numbers = prediction.asking(self.federation), SessionNumbers(self.out)
            hub = Hub(asked, contract, admission, owner.run, telemetry, numbers=numbers)
            ctx.traffic, ctx.phases = hub.totals.wire, hub.phases
            kinds, limits = all_kinds(self.federation, contract), all_limits(self.federation, contract)
            incoming = dict.fromkeys(kinds, self.federation.compress.evaluations)
            largest = max(largest_bytes(kind, limits, incoming[name]) for name, kind in kinds.items())
            codec, parties = Codec(kinds, incoming, limits), len(self.federation.names)
            port = Port(codec, largest + FRAME_ALLOWANCE, hub.greet, parties)
            try:
                number = await port.start(self.config.listen, tls)
                host = self.config.listen.rpartition(":")[0]
                names = list(self.federation.names)
                telemetry.event("listening", address=f"{host}:{number}", waiting_for=names)
                watch.announce(telemetry)
                asking = Asking(self, ctx, hub, store, owner, held, people)
                await self._converse(ctx, hub, self._model(ctx, people, owner.run, held[0], watch), asking.sessions)
            finally:
                await port.stop()

    def check(self) -> tuple[Owner, Checkpoints, list[int]]:
        """Refuses what cannot be asked, before anybody is started or anything is written.

        Returns:
            The model's owner, the server's checkpoints, and their rounds, newest first.

        Raises:
            InputError: this model cannot be asked, or not so.
            CheckpointError: the run's folder holds no model.
        """
        prediction.contract(self.federation)
        if self.own:
            prediction.refuse_own(self.federation)
        if self.absent != "refuse" and prediction.summed(self.federation):
            raise InputError(
                f"--absent {self.absent}: the server of this run is shown sums alone, of which nobody can be missing",
                hint="start all parties, and leave it out",
            )
        owner, store = self._owner(), Checkpoints(self.out / "checkpoints")
        if not (held := store.usable(owner)):
            raise CheckpointError(
                f"{self.out / 'checkpoints'} holds no whole checkpoint",
                hint="a model is there once a run has saved one",
            )
        return owner, store, held

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
            own = asking.done() and not asking.cancelled() and asking.exception() is error
            said = "what the server does with the model has failed"
            hub.say_failure(getattr(error, "party", SERVER), ColonnadeError(said, told=said) if own else error)
            raise
        finally:
            for task in (guard, *both):
                task.cancel()
            await asyncio.gather(guard, *both, return_exceptions=True)
            await hub.part(_PARTING if status == "completed" else 2.0)
            ctx.telemetry.event("end", status=status, round=ctx.round)

    @property
    def patience_or_away(self) -> float:
        """Seconds that parties have to come, and to come back."""
        return self.federation.timeouts.away if self.patience is None else self.patience

    def _context(self, telemetry: Telemetry) -> tuple[ServerContext, People]:
        labels, federation = load_labels(self.config.labels, self.base, self.federation.task), self.federation
        check_labels(labels, federation)
        self._facts = Facts(len(labels.values), labels.official_test)
        if federation.align != "none":
            record = Record(Once(self.out / "once"), Keys.of(labels.ids, federation.keys, SERVER, self.out), SERVER)
            labels = labels.rows(record.rows(record.number))
        else:
            refuse_other_labels(Once(self.out / "once"), labels)
        schedule = Schedule(federation, len(labels.values), labels.official_test)
        device = choose_device(self.config.device)
        ctx = ServerContext(
            prediction.asking(federation), self.config, labels.values.to(device), schedule, telemetry, self.base, device
        )
        ctx.once = Once(self.out / "once-predictions")
        if federation.align == "none":
            kept = EncoderFile(self.out, begun=True)
            columns = load_columns(federation, self.config, schedule, self.base, len(labels.values), kept=kept)
            ctx.columns = columns and columns.to(device)
            return ctx, People(federation, labels)
        asked = distinct(federation, self.ids or labels.ids or ())
        own = own_keys(federation, self.config, self.base)
        seed = Seed(self.out / "once-predictions" / SEED)
        return ctx, People(federation, labels, tuple(key for key in asked if own is None or key in own), seed)

    def _model(
        self, ctx: ServerContext, people: People, run: str, round: int, watch: Watch
    ) -> Callable[[Questions], Model]:
        names, classes = people.labels.classes, ctx.scale is None
        if ctx.scale is not None:
            names = tuple(f"value_{number}" for number in range(1, self.federation.outputs + 1))
        finish = partial(torch.softmax, dim=1) if ctx.scale is None else ctx.scale.undo
        return lambda questions: Model(run, round, people, names, classes, questions, finish, watch.show)

    def _owner(self) -> Owner:
        path = self.out / "run.json"
        try:
            run = str(json.loads(path.read_text())["run"])
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{path} is missing or was altered", hint="name the folder of a run") from None
        return Owner(SERVER, run, self.federation.lasting_hashes())
