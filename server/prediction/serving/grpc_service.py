"""Predictions over gRPC: proto/serving.proto."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc

from colonnade.common.errors import ColonnadeError
from colonnade.common.observability.ports import cannot_listen, refuse_taken, with_port
from colonnade.common.observability.web_gate import PATIENCE
from colonnade.common.run.descriptors import affordable
from colonnade.common.wire._generated.serving_pb2 import Decision, Prediction, PredictReply, PredictRequest
from colonnade.common.wire.grpc_bounds import bounds
from colonnade.server.member.listen import begin
from colonnade.server.prediction.serving.batching import Batcher, Busy
from colonnade.server.prediction.serving.tokens import Tokens, TooMany, Unknown
from colonnade.server.prediction.serving.web import Refused, read_ids

METHOD = "/colonnade.serving.Predictor/Predict"
_KEY = "--grpc"
_LARGEST = 1 << 20  # bytes of a request
_CALLS = 1024  # most concurrent calls
_MOST = 512  # most connections, if there are enough file descriptors

_STATUS: Mapping[type[Exception], grpc.StatusCode] = {
    Unknown: grpc.StatusCode.UNAUTHENTICATED,
    TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refused: grpc.StatusCode.INVALID_ARGUMENT,
    Busy: grpc.StatusCode.UNAVAILABLE,
    ColonnadeError: grpc.StatusCode.UNAVAILABLE,
}


class Remote(grpc.GenericRpcHandler):
    """The gRPC service. `patience`: seconds for a handshake, and for receiving a whole request."""

    def __init__(self, batcher: Batcher, callers: Tokens, patience: float = PATIENCE) -> None:
        self._batcher, self._callers, self._patience = batcher, callers, patience
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, tls: tuple[bytes, bytes] | None) -> str:
        """Listens on HOST:PORT and returns the address; `tls` is key and certificate chain, PEM."""
        refuse_taken(address, _KEY)
        options = [("grpc.max_receive_message_length", _LARGEST), *bounds(affordable(_MOST), self._patience)]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_CALLS)
        self._server.add_generic_rpc_handlers((self,))
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
        except RuntimeError as failed:
            raise cannot_listen(address, _KEY, failed) from failed
        await begin(self._server)
        return with_port(address, port)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=1)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if details.method != METHOD:
            return None
        # A stream of one request looks the same to the caller and lets us read it with a time limit.
        return grpc.stream_unary_rpc_method_handler(
            self._predict, PredictRequest.FromString, PredictReply.SerializeToString
        )

    async def _predict(self, _requests: Any, context: grpc.aio.ServicerContext) -> PredictReply:
        shown = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        token = shown.get("authorization", "")
        try:
            self._callers.admit(token, 0)  # before the request is read
            async with self._callers.seat(token):
                ids = read_ids({"ids": list((await self._read(context)).ids)})
                self._callers.admit(token, len(ids))
                replies = await self._batcher.ask(ids)
        except tuple(_STATUS) as error:
            status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
            ours = isinstance(error, ColonnadeError)  # details are not for callers
            await context.abort(status, "the parties do not answer" if ours else str(error))
        except Exception:  # noqa: BLE001  # gRPC would send its text to the caller
            await context.abort(grpc.StatusCode.INTERNAL, "an unforeseen error")
        said = self._batcher.decision
        decision = (
            None
            if said is None
            else Decision(
                label=said["class"], threshold=said["threshold"], by=said["by"], calibration=said["calibration"] or ""
            )
        )
        predictions = (
            Prediction(id=reply.id, known=reply.known, label=reply.label, values=reply.values) for reply in replies
        )
        return PredictReply(names=self._batcher.names, predictions=predictions, decision=decision)

    async def _read(self, context: grpc.aio.ServicerContext) -> PredictRequest:
        try:
            async with asyncio.timeout(self._patience):
                request = await context.read()
        except TimeoutError:
            raise Refused(f"the request did not come within {self._patience:g} s") from None
        if not isinstance(request, PredictRequest):
            raise Refused("there is no request")
        return request
