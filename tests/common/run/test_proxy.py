"""Connections through a proxy: the variables against gRPC's own reading of them, and a proxy's responses."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.client.dialling.proxy import Proxy, connect, proxy_for
from colonnade.common.errors import ConfigError, EnvironmentFault

CONNECTED = b"HTTP/1.1 200 Connection established\r\nVia: a test\r\n\r\nthe far end"


@contextmanager
def proxy(answer: bytes = CONNECTED) -> Iterator[tuple[Proxy, list[bytes]]]:
    """Answers every caller the same, and records their requests."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                with line:
                    heard.append(line.recv(4096))
                    line.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Proxy("127.0.0.1", listening.getsockname()[1]), heard
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def asked_by_grpc(target: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if gRPC by default connects to the target through the proxy."""
    with proxy(b"HTTP/1.1 403 Forbidden\r\n\r\n") as (there, heard):
        for name, value in environ.items():
            monkeypatch.setenv(name, value.replace("PROXY", f"127.0.0.1:{there.port}"))

        async def dial() -> None:
            async with grpc.aio.insecure_channel(target) as channel:
                with pytest.raises(grpc.RpcError):
                    await channel.unary_unary("/a/b")(b"", timeout=2)

        asyncio.run(dial())
    return bool(heard)


@pytest.mark.parametrize(
    ("target", "environ"),
    [
        ("192.0.2.1:1", {"https_proxy": "http://PROXY"}),
        ("192.0.2.1:1", {"http_proxy": "http://PROXY"}),
        ("192.0.2.1:1", {"grpc_proxy": "http://PROXY", "https_proxy": "http://127.0.0.1:1"}),
        ("fl.invalid:1", {"https_proxy": "http://PROXY", "no_proxy": "example.org, invalid"}),
        ("fl.invalid:1", {"https_proxy": "http://PROXY", "no_proxy": "example.org,10.0.0.0/8"}),
        ("fl.invalid:1", {"https_proxy": "http://PROXY", "no_proxy": "fl.invalid", "no_grpc_proxy": "else"}),
        ("127.0.0.2:1", {"https_proxy": "http://PROXY", "no_proxy": "127.0.0.0/8"}),
        ("fl.invalid:1", {"HTTPS_PROXY": "http://PROXY"}),
        ("fl.invalid:1", {"https_proxy": "", "http_proxy": "http://PROXY"}),
    ],
)
def test_the_environment_is_read_as_grpc_reads_it(target: str, environ: dict, monkeypatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    ours = proxy_for(target.rpartition(":")[0], {k: v.replace("PROXY", "127.0.0.1:9") for k, v in environ.items()})
    assert (ours is not None) == asked_by_grpc(target, environ, monkeypatch)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_local_addresses_are_dialled_directly(host: str) -> None:
    """gRPC would ask a proxy, which has another 127.0.0.1."""
    assert proxy_for(host, {"http_proxy": "http://proxy:3128"}) is None


def test_everyone_may_be_excepted() -> None:
    assert proxy_for("fl.example.org", {"https_proxy": "http://proxy:3128", "no_proxy": "*"}) is None


@pytest.mark.parametrize(
    "value", ["http://user:hush@proxy:3128", "user:hush@proxy:3128", "http://user:hush@proxy:3128/"]
)
def test_a_proxy_with_a_password_which_is_never_shown(value: str) -> None:
    found = proxy_for("fl.example.org", {"https_proxy": value})
    assert found == Proxy("proxy", 3128, "user:hush", "https_proxy")
    assert found.url == "http://user:hush@proxy:3128" and "hush" not in repr(found)


@pytest.mark.parametrize(
    "value", ["https://u:hush@proxy:3128", "http://u:hush@proxy", "u:hush@[::1", "http://:1", "socks5://p:1"]
)
def test_a_variable_that_names_no_proxy(value: str) -> None:
    with pytest.raises(ConfigError, match=r"https_proxy = .* is no proxy: expected http://HOST:PORT") as caught:
        proxy_for("fl.example.org", {"https_proxy": value})
    assert "hush" not in str(caught.value)


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_the_environment_holds_there_is_a_proxy_or_none_or_a_clear_word(value: str, excepted: str) -> None:
    try:
        found = proxy_for("fl.example.org", {"https_proxy": value, "no_proxy": excepted})
    except ConfigError as clear:
        assert "https_proxy" in str(clear)
    else:
        assert found is None or (found.host and found.port)


def test_bytes_after_the_response_are_not_lost() -> None:
    with proxy() as (there, heard), there.connect("fd00::7", 7400, 5) as line:
        assert line.makefile("rb").read() == b"the far end"
    assert heard == [b"CONNECT [fd00::7]:7400 HTTP/1.1\r\nHost: [fd00::7]:7400\r\n\r\n"]


def test_a_password_goes_to_the_proxy_decoded() -> None:
    with proxy() as (there, heard):
        Proxy(there.host, there.port, "user:pa%40ss").connect("fl", 1, 5).close()
    assert b"Proxy-Authorization: Basic dXNlcjpwYUBzcw==\r\n" in heard[0]  # base64 of user:pa@ss


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"),
        (b"HTTP/1.0 407 Proxy Authentication Required\r\n\r\n", "407 Proxy"),
        (b"220 mail.example.org ESMTP\r\n", "nothing that a proxy says|mail"),
        (b"", "nothing that a proxy says"),
        (b"HTTP/1.1 200 fine\r\n" + b"X: y\r\n" * 3, None),
    ],
)
def test_a_proxy_that_does_not_connect_us_is_named(answer: bytes, said: str | None) -> None:
    with proxy(answer) as (there, _):
        if said is None:
            there.connect("fl", 1, 5).close()
            return
        with pytest.raises(EnvironmentFault, match=rf"the proxy 127.0.0.1:{there.port} \(https_proxy\).*({said})"):
            there.connect("fl", 1, 5)


def test_a_proxy_that_is_not_there_is_named(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("grpc_proxy", f"http://127.0.0.1:{port}")
    with pytest.raises(EnvironmentFault, match=rf"no answer from the proxy 127.0.0.1:{port} \(grpc_proxy\)"):
        connect("fl.example.org", 7400, 5)
