"""Real mutual TLS by gRPC, with the options of a dialler and a server."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from colonnade.client.dialling.dial import fetch_certificate
from colonnade.common.crypto.pki.certificates import fingerprint, read_certificate
from colonnade.common.crypto.pki.identity import (
    Identity,
    IdentityFiles,
    key_pem,
    load_identity,
    new_key,
    parse_key,
    save_key,
)
from colonnade.common.crypto.pki.names import SERVER, dns_name
from colonnade.common.crypto.pki.revocation import RevocationList, verify_peer
from colonnade.common.errors import EnvironmentFault, IdentityError, RefusedError
from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from conftest import Federation, Forge

METHOD = "/test.Echo/WhoAmI"
PINNED_NAME = (("grpc.ssl_target_name_override", dns_name(SERVER)),)


class WhoAmI(grpc.GenericRpcHandler):
    """Answers with the certificate that the caller's handshake showed."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda _, context: context.auth_context()["x509_pem_cert"][0])


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(identity.key_pem, identity.chain_pem)], root_certificates=identity.ca_pem, require_client_auth=True
    )


@contextmanager
def serving(credentials: grpc.ServerCredentials | None, address: str = "127.0.0.1") -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(1), handlers=(WhoAmI(),))
    where = f"{address}:0"
    port = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait(PATIENCE)


@pytest.fixture(scope="module")
def port(federation: Federation) -> Iterator[int]:
    with serving(server_credentials(federation.identity("server"))) as port:
        yield port


def client_credentials(identity: Identity, roots: bytes | None = None) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(roots or identity.ca_pem, identity.key_pem, identity.chain_pem)


def ask(channel: grpc.Channel) -> bytes:
    with channel:
        answer: bytes = channel.unary_unary(METHOD)(b"", timeout=PATIENCE)
    return answer


def refused(channel: grpc.Channel) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


# Options of the two ends.


def test_a_party_and_the_server_know_each_other(federation: Federation, port: int) -> None:
    alice, nobody = federation.identity("alice"), RevocationList()
    shown = fetch_certificate("127.0.0.1", port, alice)
    verify_peer(shown, SERVER, federation.prints, nobody)
    seen = ask(grpc.secure_channel(f"127.0.0.1:{port}", client_credentials(alice, shown), PINNED_NAME))
    assert fingerprint(seen) == alice.fingerprint
    verify_peer(seen, "alice", federation.prints, nobody)


def test_the_same_by_asyncio_and_streams(federation: Federation) -> None:
    server_identity, alice = federation.identity("server"), federation.identity("alice")

    async def talk(requests: object, context: grpc.aio.ServicerContext) -> None:
        await context.write(context.auth_context()["x509_pem_cert"][0])

    async def run() -> bytes:
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(talk)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", {"WhoAmI": handler})])
        port = server.add_secure_port("127.0.0.1:0", server_credentials(server_identity))
        await server.start()
        shown = await asyncio.to_thread(fetch_certificate, "127.0.0.1", port, alice)
        credentials = client_credentials(alice, shown)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, PINNED_NAME) as channel:
            answer: bytes = await channel.stream_stream(METHOD)(timeout=PATIENCE).read()
        await server.stop(None)
        return answer

    assert fingerprint(asyncio.run(run())) == alice.fingerprint


# Clients that the server refuses.


def test_a_client_of_another_authority_is_turned_away(federation: Federation, strangers: Federation, port: int) -> None:
    roots = federation.identity("alice").ca_pem
    refused(grpc.secure_channel(f"localhost:{port}", client_credentials(strangers.identity("alice"), roots)))


def test_a_plaintext_client_is_turned_away(port: int) -> None:
    refused(grpc.insecure_channel(f"127.0.0.1:{port}"))


def test_a_client_without_a_certificate_is_turned_away(federation: Federation, port: int) -> None:
    roots = federation.identity("alice").ca_pem
    refused(grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(roots)))


@pytest.mark.parametrize(("hours", "accepted"), [((-1, 1), True), ((-2, -1), False), ((1, 2), False)])
def test_a_client_out_of_its_time_is_turned_away(
    federation: Federation, port: int, forge: Forge, hours: tuple[int, int], accepted: bool
) -> None:
    alice, key = federation.identity("alice"), new_key()
    begin, end = (timedelta(hours=hour) for hour in hours)
    shown = forge(["alice"], ["alice.colonnade"], key=key, begin=begin, end=end)
    credentials = grpc.ssl_channel_credentials(alice.ca_pem, key_pem(key), shown)
    channel = grpc.secure_channel(f"localhost:{port}", credentials)
    if accepted:
        assert fingerprint(ask(channel)) == fingerprint(shown)
    else:
        refused(channel)


def test_a_certificate_signed_by_a_party_is_turned_away(federation: Federation, port: int, forge: Forge) -> None:
    bob, key = federation.identity("bob"), new_key()
    issuer = read_certificate(bob.chain_pem).subject, parse_key(bob.key_pem, "bob's")
    chain = forge(["alice"], ["alice.colonnade"], key=key, issuer=issuer) + bob.chain_pem
    refused(grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(bob.ca_pem, key_pem(key), chain)))


def test_the_servers_certificate_does_not_dial(federation: Federation, port: int) -> None:
    refused(grpc.secure_channel(f"localhost:{port}", client_credentials(federation.identity("server"))))


# Servers that a party accepts.


@pytest.mark.parametrize("name", ["server", "bob"])
def test_a_party_does_not_pass_for_the_server(federation: Federation, name: str) -> None:
    """Nor under its own name: its certificate is for dialling only."""
    alice, options = federation.identity("alice"), [("grpc.ssl_target_name_override", dns_name(name))]
    with serving(server_credentials(federation.identity("bob"))) as port:
        refused(grpc.secure_channel(f"localhost:{port}", client_credentials(alice), options))
        with pytest.raises(RefusedError, match="not accepted"):
            fetch_certificate("127.0.0.1", port, alice)


def test_another_certificate_in_the_servers_name_fails_by_the_pin_alone(federation: Federation, tmp_path: Path) -> None:
    alice, nobody = federation.identity("alice"), RevocationList()
    pinned = federation.identity("server").chain_pem
    twin = load_identity(federation.issue(tmp_path / "twin", SERVER, ["localhost"]))
    with serving(server_credentials(twin)) as port:
        where = f"localhost:{port}"
        assert ask(grpc.secure_channel(where, client_credentials(alice), PINNED_NAME))
        refused(grpc.secure_channel(where, client_credentials(alice, pinned), PINNED_NAME))
        shown = fetch_certificate("127.0.0.1", port, alice)
        with pytest.raises(RefusedError, match="the roster pins"):
            verify_peer(shown, SERVER, federation.prints, nobody)


def test_the_pinned_name_holds_under_any_address(federation: Federation, tmp_path: Path) -> None:
    alice = federation.identity("alice")
    nameless = load_identity(federation.issue(tmp_path / "nameless", SERVER))
    with serving(server_credentials(nameless)) as port:
        for where in (f"localhost:{port}", f"127.0.0.1:{port}"):
            refused(grpc.secure_channel(where, client_credentials(alice)))
            shown = fetch_certificate("127.0.0.1", port, alice)
            assert shown.split() == nameless.chain_pem.split()
            assert ask(grpc.secure_channel(where, client_credentials(alice, shown), PINNED_NAME))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_hosts_in_the_certificate_hold_without_a_pin(federation: Federation, port: int, host: str) -> None:
    assert ask(grpc.secure_channel(f"{host}:{port}", client_credentials(federation.identity("alice"))))


def test_the_hosts_in_the_certificate_hold_by_ipv6(federation: Federation) -> None:
    alice = federation.identity("alice")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with serving(server_credentials(federation.identity("server")), "[::1]") as port:
        assert ask(grpc.secure_channel(f"[::1]:{port}", client_credentials(alice)))
        assert fingerprint(fetch_certificate("::1", port, alice)) == federation.prints[SERVER]


# Errors of fetching the certificate.


def test_a_server_of_another_authority(federation: Federation, strangers: Federation) -> None:
    why = "not accepted: unable to get local issuer"
    theirs = server_credentials(strangers.identity("server"))
    with serving(theirs) as port, pytest.raises(RefusedError, match=why) as caught:
        fetch_certificate("127.0.0.1", port, federation.identity("alice"))
    assert "certs show" in caught.value.hint


def test_a_server_that_does_not_accept_us(federation: Federation, port: int, forge: Forge, tmp_path: Path) -> None:
    key = new_key()
    late = forge(["alice"], ["alice.colonnade"], key=key, begin=timedelta(-2), end=timedelta(-1))
    (tmp_path / "cert.pem").write_bytes(late)
    save_key(key, tmp_path / "key.pem")
    alice = replace(federation.identity("alice"), files=IdentityFiles.in_folder(tmp_path))
    with pytest.raises(RefusedError, match="does not accept our certificate") as caught:
        fetch_certificate("127.0.0.1", port, alice)
    assert "expired" in caught.value.hint


def test_a_server_that_gives_a_reason_for_its_refusal(federation: Federation, strangers: Federation) -> None:
    here = federation.folder / SERVER
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(strangers.folder / "ca/cert.pem")
    context.load_cert_chain(here / "cert.pem", here / "key.pem")

    def answer() -> None:
        with suppress(ssl.SSLError), listening.accept()[0] as plain:
            context.wrap_socket(plain, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        with pytest.raises(RefusedError, match=r"does not accept our certificate: .*unknown ca"):
            fetch_certificate("127.0.0.1", listening.getsockname()[1], federation.identity("alice"))
        answered.result(timeout=PATIENCE)


def test_a_server_without_tls(federation: Federation) -> None:
    with serving(None) as port, pytest.raises(RefusedError, match="wrong version number") as caught:
        fetch_certificate("127.0.0.1", port, federation.identity("alice"))
    assert "--insecure" in caught.value.hint


def test_no_server(federation: Federation) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(EnvironmentFault, match=f"no answer from 127.0.0.1:{port}"):
        fetch_certificate("127.0.0.1", port, federation.identity("alice"))


def test_a_silent_server(federation: Federation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(EnvironmentFault, match="timed out"):
        fetch_certificate("127.0.0.1", silent.getsockname()[1], federation.identity("alice"), timeout=0.2)


def test_a_peer_that_hangs_up(federation: Federation) -> None:
    def hang_up() -> None:
        listening.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(hang_up)
        with pytest.raises(EnvironmentFault, match="no answer from"):
            fetch_certificate("127.0.0.1", listening.getsockname()[1], federation.identity("alice"))
        answered.result(timeout=PATIENCE)


def test_our_own_files_replaced_meanwhile(federation: Federation, tmp_path: Path, port: int) -> None:
    identity = load_identity(federation.issue(tmp_path / "alice", "alice"))
    save_key(new_key(), identity.files.key, overwrite=True)
    with pytest.raises(IdentityError, match="changed since they were read"):
        fetch_certificate("127.0.0.1", port, identity)
