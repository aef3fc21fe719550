"""A service in a process of its own with few descriptors, and callers that send incomplete requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.common.crypto.pki.authority import make_federation
from tests.support import warm

ROOT = Path(__file__).parents[3]
TOKEN = "t" * 43
HALF_HEADER = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
HALF_BODY = (
    b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{"
    % TOKEN.encode()
)

SERVICE = """
import asyncio, json, os, resource, ssl, sys
import uvloop
folder, soft, hard = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from colonnade.server.prediction.serving.tokens import Tokens
from colonnade.server.prediction.serving.batching import Batcher
from colonnade.server.prediction.serving.grpc_service import Remote
from colonnade.server.prediction.serving.web import Web
from colonnade.server.prediction.exchange import Questions

class Model:
    names, classes, questions = ("a", "b"), 2, Questions()

async def main():
    Model.questions.hearing.set()
    callers = Tokens({"one": sys.argv[4]}, 100)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(f"{folder}/server/cert.pem", f"{folder}/server/key.pem")
    services = [Web(Batcher(Model), callers, {}), Web(Batcher(Model), callers, {})]
    ports = [await services[0].start("127.0.0.1:0", None), await services[1].start("127.0.0.1:0", context)]
    remote = Remote(Batcher(Model), callers)
    ports.append(await remote.start("127.0.0.1:0", None))
    print(json.dumps([int(where.rpartition(":")[2]) for where in ports]), flush=True)
    await asyncio.Event().wait()

uvloop.run(main())
"""


@contextmanager
def service(folder: Path, soft: int, hard: int) -> Iterator[tuple[list[int], Path]]:
    """Runs it; yields the addresses of HTTP, HTTPS and gRPC and the file of its standard error."""
    make_federation(folder, ["ada"])
    said = folder / "stderr"
    with said.open("wb") as err:
        process = warm.Popen(
            [sys.executable, "-c", SERVICE, folder, soft, hard, TOKEN],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=err,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, said.read_text()
            yield json.loads(line), said
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate()


def is_healthy(port: int) -> bool:
    """True if the health check is answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as reply:
        return bool(json.load(reply) == {"status": "ok"})
