"""The same over gRPC: proto/serving.proto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc

from common.errors import ColonnadeError
from common.ports import cannot_listen, refuse_taken, with_port
from common.prediction import ROWS
from common.wire._generated.serving_pb2 import Prediction, PredictReply, PredictRequest
from server.serving.callers import Callers, TooMany, Unknown
from server.serving.desk import Answer, Busy, Desk
from server.serving.web import Refused, read_ids

METHOD = "/colonnade.serving.Predictor/Predict"
_KEY = "--grpc"
_LARGEST = 1 << 20  # bytes of a request

_STATUS: Mapping[type[Exception], grpc.StatusCode] = {
    Unknown: grpc.StatusCode.UNAUTHENTICATED,
    TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refused: grpc.StatusCode.INVALID_ARGUMENT,
    Busy: grpc.StatusCode.UNAVAILABLE,
    ColonnadeError: grpc.StatusCode.UNAVAILABLE,
}


class Remote(grpc.GenericRpcHandler):
    """The gRPC service.

    Args:
        desk: that answers.
        callers: that may ask.
    """

    def __init__(self, desk: Desk, callers: Callers) -> None:
        self._desk, self._callers = desk, callers
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, tls: tuple[bytes, bytes] | None) -> str:
        """Listens on HOST:PORT and returns where.

        Args:
            tls: key and certificate chain, PEM.

        Raises:
            EnvironmentFault: the port is in use.
        """
        refuse_taken(address, _KEY)
        options = [("grpc.max_receive_message_length", _LARGEST), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
        except RuntimeError as failed:
            raise cannot_listen(address, _KEY, failed) from failed
        await self._server.start()
        return with_port(address, port)

    async def stop(self) -> None:
        """Listens no more."""
        if self._server is not None:
            await self._server.stop(grace=1)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """gRPC asks who handles a method."""
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._predict, PredictRequest.FromString, PredictReply.SerializeToString
        )

    async def _predict(self, request: PredictRequest, context: grpc.aio.ServicerContext) -> PredictReply:
        shown = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        try:
            self._callers.admit(shown.get("authorization", ""), min(len(request.ids), ROWS))
            answers = await self._desk.ask(read_ids({"ids": list(request.ids)}))
        except tuple(_STATUS) as error:
            status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
            ours = isinstance(error, ColonnadeError)  # which is not the caller's business
            await context.abort(status, "the parties do not answer" if ours else str(error))
        return PredictReply(names=self._desk.names, predictions=(_shown(self._desk, answer) for answer in answers))


def _shown(desk: Desk, answer: Answer) -> Prediction:
    label = desk.likeliest(answer) if answer.known and desk.classes else ""
    return Prediction(id=answer.id, known=answer.known, label=label, values=answer.values)
