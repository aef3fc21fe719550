"""`python -m benchmarks.strangers [CONNECTIONS]`: memory that strangers take at the two gRPC ports, each for 8 s.

Callers of `serve` without a token send as many calls of 1 MB as they may; at the federation's port, holders of a
certificate that is in no roster send one stream of 16 MB each. Server and strangers are processes on loopback.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.raw_http2 import Greedy
from benchmarks.report import Figure
from benchmarks.runs import ROOT
from colonnade.common.crypto.pki.federation import make_federation
from colonnade.common.wire.frame import METHOD as CONVERSE
from colonnade.server.prediction.serving.grpc_service import METHOD as PREDICT

SECONDS, BOUND = 8.0, 150.0

_SERVERS = {
    "serve": """
remote = Remote(Batcher(type("Model", (), {"names": ("a",), "classes": 1})), Tokens({"one": "x" * 40}, 1))
port = int((await remote.start("127.0.0.1:0", None)).rpartition(":")[2])
""",
    "federation": """
identity = load_identity(Path(sys.argv[1]) / "server")
async def greet(connection, pem):
    await asyncio.sleep(1)
    await connection.close()
listener = Listener(Codec(CONTRACT.kinds), 1 << 20, greet)
port = await listener.start("127.0.0.1:0", ServerTls(identity.key_pem, identity.chain_pem, identity.ca_pem))
""",
}
_PROGRAM = """
import asyncio, sys
from pathlib import Path
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.wire.codec import Codec
from colonnade.server.member.listen import Listener, ServerTls
from colonnade.server.prediction.serving.batching import Batcher
from colonnade.server.prediction.serving.grpc_service import Remote
from colonnade.server.prediction.serving.tokens import Tokens

async def main():
{body}
    print(port, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def main(connections: int = 150) -> list[Figure]:
    """Growth of a server's memory at its peak, MB."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="strangers-") as scratch:
        keys = Path(scratch)
        make_federation(keys, ["former"])
        for place, calls in (("serve", 8), ("federation", 1)):
            grown = _grown(place, keys, connections, calls)
            what = f"{place}: {connections} connections x {calls} calls"
            figures.append(Figure(f"{what}, memory at most", grown, BOUND, "MB"))
    return figures


def _grown(place: str, keys: Path, connections: int, calls: int) -> float:
    body = "\n".join(f"    {line}" for line in _SERVERS[place].splitlines())
    command = [sys.executable, "-c", _PROGRAM.format(body=body), str(keys)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port, process = int(server.stdout.readline()), psutil.Process(server.pid)
        before = process.memory_info().rss
        return (asyncio.run(_flood(place, port, keys, connections, calls, process)) - before) / 1e6
    finally:
        server.kill()
        server.wait()


async def _flood(place: str, port: int, keys: Path, connections: int, calls: int, process: psutil.Process) -> int:
    tls, path, size = None, PREDICT, 1_000_000
    if place == "federation":
        tls, path, size = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), CONVERSE, 16_000_000
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.load_cert_chain(keys / "former" / "cert.pem", keys / "former" / "key.pem")
        tls.set_alpn_protocols(["h2"])
    strangers = [asyncio.create_task(Greedy(path.encode(), calls, size).run(port, tls)) for _ in range(connections)]
    most, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        most = max(most, process.memory_info().rss)
        await asyncio.sleep(0.05)
    for stranger in strangers:
        stranger.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    return most


if __name__ == "__main__":
    for one in main(*map(int, sys.argv[1:2])):
        print(*one.cells(), sep=" | ")
