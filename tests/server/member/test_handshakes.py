"""Failed handshakes are logged, although gRPC itself reports none. In a process of its own: it has one stderr."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from colonnade.common.crypto.pki.authority import make_federation
from colonnade.server.member.listen import reason_of
from tests.support import warm
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[3]
COUNT = 20
OWN = ["a line of another kind", "another: für alle", "and the last without an end", "afterwards"]

SERVER = """
import asyncio, json, os, socket, ssl, sys
from pathlib import Path
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.wire.codec import Codec
from colonnade.server.member.listen import Listener, ServerTls
from colonnade.server.member.listen import watch_handshakes
from tests.support.patience import PATIENCE

folder, count = sys.argv[1], int(sys.argv[2])
server = load_identity(Path(folder) / "ours" / "server")
told = []

async def greet(connection, pem):
    connection.attach(lambda parcel: None, lambda error: None)

def with_tls(port, of):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if of:
        context.load_cert_chain(f"{folder}/{of}/ada/cert.pem", f"{folder}/{of}/ada/key.pem")
    with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as secured:
        try:
            return bool(secured.recv(1))
        except ssl.SSLError:
            return False

def without(port, words):
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(words)
        while plain.recv(100):
            pass

async def main():
    kept = os.dup(2)
    with watch_handshakes(told.append):
        if os.path.sameopenfile(2, kept):
            told.append("standard error is itself")
        os.write(2, b"a line of another kind\\n")
        listener = Listener(Codec(CONTRACT.kinds), 1 << 20, greet)
        port = await listener.start("127.0.0.1:0", ServerTls(server.key_pem, server.chain_pem, server.ca_pem))
        tries = []
        for _ in range(count):
            tries += [(with_tls, port, "theirs"), (with_tls, port, ""), (with_tls, port, "ours")]
            tries += [(without, port, b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")]
            tries += [(without, port, b"GET / HTTP/1.1\\r\\n\\r\\n")]
        await asyncio.gather(*(asyncio.to_thread(*one) for one in tries))
        os.write(2, "another: für alle\\nand the last without an end".encode())
        await listener.stop()
    os.write(2, b"\\nafterwards\\n")
    await asyncio.sleep(0)
    print(json.dumps(told))

asyncio.run(main())
"""


def serve(tmp_path: Path, **asked: str) -> tuple[list[str], list[str]]:
    """Events of all handshakes, and the lines of standard error."""
    for folder in ("ours", "theirs"):
        make_federation(tmp_path / folder, ["ada"])
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GRPC_")}
    done = warm.run(
        [sys.executable, "-c", SERVER, str(tmp_path), str(COUNT)],
        cwd=ROOT, env={**environment, **asked, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    own = ("absl::InitializeLog", "Log level INFO is not suitable")  # of gRPC's beginning
    lines = [line for line in done.stderr.splitlines() if not any(said in line for said in own)]
    return json.loads(done.stdout), lines


def test_every_failed_handshake_is_logged_and_every_other_line_passes(tmp_path: Path) -> None:
    logged, lines = serve(tmp_path, GRPC_VERBOSITY="INFO")
    assert Counter(logged) == {
        "its certificate is not accepted: unable to get local issuer certificate": COUNT,
        "it showed no certificate": COUNT,
        "it does not speak TLS": 2 * COUNT,
    }
    assert lines == OWN


def test_by_default_grpc_logs_nothing_and_standard_error_is_unchanged(tmp_path: Path) -> None:
    assert serve(tmp_path) == (["standard error is itself"], OWN)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"I1121 01:07:39 ssl.cc:2563] Handshake failed with error SSL_ERROR_SSL: error:1000007d:SSL routines:"
         b"OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: certificate has expired",
         "its certificate is not accepted: certificate has expired"),
        (b"Handshake failed with error SSL_ERROR_SSL: error:1:SSL routines:OPENSSL_internal:TLSV1_ALERT_UNKNOWN_CA: x",
         "the TLS handshake failed: tlsv1 alert unknown ca"),
        (b"Handshake failed with error SSL_ERROR_SYSCALL", None),
        (b"Traceback (most recent call last):", None),
        (b"", None),
    ],
)  # fmt: skip
def test_a_line_gives_the_reason(line: bytes, reason: str | None) -> None:
    assert reason_of(line) == reason
