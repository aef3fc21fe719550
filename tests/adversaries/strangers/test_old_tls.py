"""A man in the middle downgrades to TLS 1.2: the port accepts only 1.3, and so does a party.

Bounds: no cell.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from colonnade.common.crypto.pki.authority import make_federation
from tests.support import warm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

SCENE = """
import asyncio, json, socket, ssl, sys
from pathlib import Path
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.wire.codec import Codec
from colonnade.client.dialling.dial import ClientTls, Dialer
from colonnade.server.member.listen import Listener, ServerTls

folder = Path(sys.argv[1])
server, ada = load_identity(folder / "server"), load_identity(folder / "ada")
codec, largest = Codec(CONTRACT.kinds), 1 << 20

def try_version(port, version):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(ada.files.certificate, ada.files.key)
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as secured:
            return bool(secured.recv(1)) and secured.version()
    except (ssl.SSLError, ConnectionError):
        return None

def serve_once(listening, version):
    # A server of our own federation that speaks one version of TLS alone: what a party makes of it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(server.files.certificate, server.files.key)
    plain, _ = listening.accept()
    try:
        with plain, context.wrap_socket(plain, server_side=True) as secured:
            return secured.version()
    except (ssl.SSLError, ConnectionError):
        return None

async def main():
    said = {}
    greeted = asyncio.Event()
    async def greet(connection, pem):
        greeted.set()
    listener = Listener(codec, largest, greet)
    port = await listener.start("127.0.0.1:0", ServerTls(server.key_pem, server.chain_pem, server.ca_pem))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        said[version.name] = await asyncio.to_thread(try_version, port, version)

    tls = ClientTls(ada.key_pem, ada.chain_pem, server.chain_pem, "server.colonnade")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = "127.0.0.1:%d" % listening.getsockname()[1]
            dialing = asyncio.create_task(Dialer(codec, largest).dial(lambda: address, lambda *_: tls, 20))
            said[f"party, {version.name}"] = await asyncio.to_thread(serve_once, listening, version)
            dialing.cancel()
    dialer = Dialer(codec, largest)
    await dialer.dial(lambda: f"127.0.0.1:{port}", lambda *_: tls, 20)
    await greeted.wait()
    print(json.dumps(said), flush=True)
    await dialer.close()
    await listener.stop()

asyncio.run(main())
"""


def test_the_port_and_a_party_speak_tls_1_3_alone(tmp_path: Path) -> None:
    make_federation(tmp_path, ["ada"])
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GRPC_")}
    done = warm.run(
        [sys.executable, "-c", SCENE, str(tmp_path)], cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "TLSv1_2": None,
        "TLSv1_3": "TLSv1.3",
        "party, TLSv1_2": None,
        "party, TLSv1_3": "TLSv1.3",
    }
