"""`colonnade health`: queries a member's health service with minimal imports."""

from __future__ import annotations

import argparse
from typing import NoReturn

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from colonnade.common.text import escaped

DEFAULT = "127.0.0.1:7401"
PATIENCE = 2.0  # timeout in seconds


def main(words: list[str]) -> NoReturn:
    """Exits with 0 if the service is SERVING, else with 1 and one line that gives its state."""
    args = _parser().parse_args(words)
    address = f"127.0.0.1:{args.address}" if args.address.isdecimal() else args.address
    found = state(address, args.service)
    if found != "SERVING":
        print(f"{address}: {escaped(found)}")
    raise SystemExit(found != "SERVING")


def state(address: str, service: str, patience: float = PATIENCE) -> str:
    """Returns SERVING, NOT_SERVING, or the reason for a missing response.

    Args:
        address: HOST:PORT.
        service: "" is the whole process.
    """
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = HealthStub(channel).Check(HealthCheckRequest(service=service), timeout=patience)
        except grpc.RpcError as failed:
            return _in_words(failed, service, patience)
    return str(HealthCheckResponse.ServingStatus.Name(answer.status))


def _in_words(failed: grpc.RpcError, service: str, patience: float) -> str:
    match failed.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {patience:g} s"
        case grpc.StatusCode.NOT_FOUND:
            return f"it knows no service {service!r}: ask for 'colonnade', or for none"
        case code:
            return f"no answer ({code.name.lower().replace('_', ' ')})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("colonnade health", description="Query whether a member is up, or ready.")
    parser.add_argument(
        "address", nargs="?", default=DEFAULT, help=f"PORT or HOST:PORT of its `health`; {DEFAULT} if left out"
    )
    parser.add_argument("--service", default="", metavar="NAME", help="colonnade: ready; default: up")
    return parser
