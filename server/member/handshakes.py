"""Refused TLS handshakes, which gRPC reports only in its log.

A client with a foreign certificate, no certificate or no TLS never reaches a stream, so the hub does not see it.
gRPC's core writes one line to standard error for each, if GRPC_VERBOSITY enables its log (INFO has those lines).
While the server listens, standard error passes through a pipe and those lines become events. Other lines of
gRPC's core are rate-limited; all other lines pass unchanged.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from colonnade.common.escaped import escaped
from colonnade.common.run.rate_limit import Digest

_STDERR = 2
_LINE = re.compile(rb"Handshake failed with error .*OPENSSL_internal:(\w+)(?:: (.*))?")
_GRPC = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] ")  # any other line of gRPC's core
_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not accepted",
    "HTTP_REQUEST": "it does not speak TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}


@contextmanager
def watch_handshakes(broadcast: Callable[[str], None]) -> Iterator[None]:
    """Calls `broadcast`, in the running event loop, with the reason of every handshake that fails inside the context.

    Does nothing if GRPC_VERBOSITY is NONE.
    """
    if os.environ.get("GRPC_VERBOSITY") == "NONE":
        yield
        return
    loop = asyncio.get_running_loop()
    kept = os.dup(_STDERR)
    source, sink = os.pipe()
    os.dup2(sink, _STDERR)
    os.close(sink)

    def tell_loop(reason: str) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            loop.call_soon_threadsafe(broadcast, reason)

    reader = threading.Thread(target=sift, args=(source, kept, tell_loop), name="handshakes", daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)  # closes the pipe, so that its reader reaches the end
        reader.join(timeout=1)


def reason_of(line: bytes) -> str | None:
    """Why a handshake failed, or None if the line is about something else."""
    found = _LINE.search(line)
    if found is None:
        return None
    code, detail = found[1].decode(), (found[2] or b"").decode(errors="replace").strip()
    if code not in _REASONS:
        return f"the TLS handshake failed: {code.lower().replace('_', ' ')}"
    return _REASONS[code] + (f": {escaped(detail)}" if code == "CERTIFICATE_VERIFY_FAILED" and detail else "")


def sift(source: int, kept: int, broadcast: Callable[[str], None]) -> None:
    with os.fdopen(source, "rb", buffering=0) as lines, os.fdopen(kept, "wb", buffering=0) as through:
        bounded = Digest(lambda said: through.write(f"{said['reason']}\n".encode()))
        rest = b""
        while chunk := lines.read(1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if (reason := reason_of(line)) is not None:
                    broadcast(reason)
                elif _GRPC.match(line):
                    bounded({"kind": "refused", "time": 0.0, "reason": line.decode(errors="replace")})
                else:
                    through.write(line + b"\n")
        through.write(rest)
        bounded.settle()
