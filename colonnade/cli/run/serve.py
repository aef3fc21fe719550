"""`colonnade serve`: serves predictions of a model over HTTP and gRPC; reads tables and ids again at SIGHUP."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from colonnade.cli.run.predict import say
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ColonnadeError, DataError, InputError
from colonnade.common.observability.ports import refuse_taken, split_address
from colonnade.common.run.descriptors import raise_limit
from colonnade.common.run.event_loop import on_hangup
from colonnade.common.run.rate_limit import Digest
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.named_tables import Tables
from colonnade.launcher.prediction_files import PredictionIds
from colonnade.launcher.predictions import OpenedRun, opened
from colonnade.launcher.processes import Processes
from colonnade.reports.console.batches import NewBatches
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.serving.batching import Batcher
from colonnade.server.prediction.serving.grpc_service import Remote
from colonnade.server.prediction.serving.tokens import Tokens
from colonnade.server.prediction.serving.web import Web
from colonnade.server.prediction.terms import PredictionTerms

_LOOK = 2.0  # seconds between polls of the parties' notes


class ServedIds:
    """The ids that a service answers, from a file that it can read again. Refuses runs that match rows by order."""

    def __init__(self, file: PredictionIds, run: OpenedRun) -> None:
        if not run.aligns:
            raise InputError(
                "--ids: federation.align is none, so the service answers the rows of training and no others",
                hint="leave it out; or train with federation.align: psi",
            )
        self._file = file

    def read(self) -> tuple[str, ...]:
        """Returns all ids; refuses an empty file."""
        if not (found := tuple(self._file.ids())):
            raise DataError(f"{self._file.path} has a header but no ids", hint="an id is one line below the header")
        return found

    async def renew(self, model: Model) -> None:
        """Reads the file again; if it is broken, reports that and keeps the previous ids."""
        try:
            ids = await asyncio.to_thread(self.read)
            await asyncio.to_thread(model.renew, ids)
        except ColonnadeError as wrong:
            console.say(f"the ids before stay: {wrong}", "yellow")
        else:
            console.say(f"{counted(len(ids), 'id')} are looked up in all tables", "dim")


@dataclass
class Changes:
    """Reads tables and ids again at SIGHUP while a service runs.

    Args:
        ids: None for the rows of the run.
    """

    run: OpenedRun
    ids: ServedIds | None
    batches: NewBatches

    async def follow(self, model: Model) -> None:
        """Handles signals, and prints the parties' reports on their tables. Runs until cancelled."""
        hung_up = asyncio.Event()
        on_hangup(hung_up.set)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(hung_up.wait(), _LOOK)
            if hung_up.is_set():
                hung_up.clear()
                self.run.reload_tables()
                if self.ids is not None:
                    await self.ids.renew(model)
            self.batches.tell(console)


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Doors:
    """Endpoints of the service.

    Args:
        http, grpc: HOST:PORT; "" disables the endpoint.
        tokens: file of callers; None takes the run's own.
        rate: ids per second that one caller may request.
        certificate, key: PEM files; without them only loopback is allowed.
    """

    http: str
    grpc: str
    tokens: Path | None
    rate: float
    certificate: Path | None = None
    key: Path | None = None

    def refuse_shut(self) -> None:
        """Checks ports and files before any party is started."""
        _context(self)
        _pair(self)
        for name, address in (("--http", self.http), ("--grpc", self.grpc)):
            if address:
                refuse_taken(address, name)

    def check(self) -> None:
        """Refuses connections from other machines without TLS."""
        if not self.http and not self.grpc:
            raise InputError("--http and --grpc are both disabled", hint="enable one of them: --http 127.0.0.1:8000")
        if (self.certificate is None) != (self.key is None):
            raise InputError("--certificate without --key, or the other way round", hint="give both")
        for name, address in (("--http", self.http), ("--grpc", self.grpc)):
            if address and self.certificate is None and split_address(address)[0] not in _LOOPBACK:
                raise InputError(
                    f"{name} {address}: callers from elsewhere would send their tokens in the clear",
                    hint="give --certificate and --key, or listen on 127.0.0.1 behind a proxy that speaks TLS",
                )


def serve(
    folder: Path,
    file: Path | None,
    terms: PredictionTerms,
    doors: Doors,
    *,
    ids: tuple[Path, str] | None = None,
    tables: Tables | None = None,
    processes: Processes | None = None,
) -> None:
    """Serves until it is stopped. `ids`: file of the ids that may be requested, and its column."""
    doors.check()
    raise_limit()
    with ExitStack() as after, opened(folder, file, terms, tables=tables, processes=processes) as run:
        run.check()
        doors.refuse_shut()
        batches = NewBatches(run.folder, (SERVER, *run.parties))
        after.callback(batches.show, console)  # after the parties have ended
        for line in run.other_tables:
            console.say(line, "dim")
        served = None if ids is None else ServedIds(PredictionIds(*ids, run.key), run)
        begin_with = None if served is None else served.read()
        tokens = doors.tokens or RunFolder(run.folder).tokens
        callers = Tokens.read(tokens, doors.rate)
        console.point("tokens", tokens)
        run.listen(Digest(partial(say, run.without, terms.absent)))
        run.ask(partial(_work, run, callers, doors, Changes(run, served, batches)), begin_with)


async def _work(run: OpenedRun, callers: Tokens, doors: Doors, changes: Changes, model: Model) -> None:
    batcher, following = Batcher(model), asyncio.ensure_future(changes.follow(model))
    model.show(batcher)
    async with AsyncExitStack() as open_doors:
        open_doors.callback(following.cancel)
        if doors.http:
            web = Web(batcher, callers, {"federation": run.federation, "protocol": run.protocol, "run": model.run})
            open_doors.push_async_callback(web.stop)
            scheme = "https" if doors.certificate else "http"
            console.point("HTTP", f"{scheme}://{await web.start(doors.http, _context(doors))}/v1/predict")
        if doors.grpc:
            remote = Remote(batcher, callers)
            open_doors.push_async_callback(remote.stop)
            console.point("gRPC", await remote.start(doors.grpc, _pair(doors)))
        await batcher.run()


def _context(doors: Doors) -> ssl.SSLContext | None:
    if doors.certificate is None or doors.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(doors.certificate, doors.key)
    except (OSError, ssl.SSLError) as wrong:
        said = f"--certificate {doors.certificate}, --key {doors.key}: {wrong}"
        raise InputError(said, hint="both are PEM") from None
    return context


def _pair(doors: Doors) -> tuple[bytes, bytes] | None:
    if doors.certificate is None or doors.key is None:
        return None
    try:
        return doors.key.read_bytes(), doors.certificate.read_bytes()
    except OSError as wrong:
        raise InputError(f"--certificate, --key: {wrong}", hint="both are PEM") from None
