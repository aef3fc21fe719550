"""The HTTP proxy that a party dials through, if its environment names one.

gRPC reads `grpc_proxy`, `https_proxy` and `http_proxy` by itself. Before it dials, the server's certificate is fetched
(`dial.py`) over a separate connection, which must take the same route. So the variables are read here,
once, by gRPC's rules, and the result is passed to gRPC: both connections reach the same server.
"""

from __future__ import annotations

import os
import socket
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from colonnade.common.errors import ConfigError, EnvironmentFault

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # the first that is set applies; empty means none
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")  # likewise


@dataclass(frozen=True)
class Proxy:
    """A proxy that connects by HTTP CONNECT, named by an environment `variable`. `user` is `NAME:PASSWORD` in the
    variable's form (percent-encoded), or "".
    """

    host: str
    port: int
    user: str = field(default="", repr=False)
    variable: str = "https_proxy"

    @property
    def url(self) -> str:
        return f"http://{self.user + '@' if self.user else ''}{_bracketed(self.host)}:{self.port}"

    def connect(self, host: str, port: int, timeout: float) -> socket.socket:
        """A connection to HOST:PORT through the proxy; `timeout` seconds for reaching it and for each line it sends."""
        try:
            line = socket.create_connection((self.host, self.port), timeout)
            try:
                self._ask(line, host, port)
            except BaseException:
                line.close()
                raise
        except OSError as error:
            raise EnvironmentFault(
                f"no answer from the proxy {self._name}: {str(error.strerror or error).lower()}",
                hint=f"mend {self.variable} in the environment, or empty it to dial directly",
            ) from error
        return line

    @property
    def _name(self) -> str:
        return f"{_bracketed(self.host)}:{self.port} ({self.variable})"

    def _ask(self, line: socket.socket, host: str, port: int) -> None:
        target = f"{_bracketed(host)}:{port}"
        line.sendall(self._request(target))
        with line.makefile("rb", buffering=0) as response:  # unbuffered: TLS reads what follows
            status = response.readline(_LONGEST)
            for _ in range(_MOST):
                if not response.readline(_LONGEST).strip():
                    break
        self._check(status, target)

    def _request(self, target: str) -> bytes:
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self.user:
            lines.append(f"Proxy-Authorization: Basic {b64encode(unquote(self.user).encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode()

    def _check(self, status: bytes, target: str) -> None:
        words = status.decode("latin-1").split(maxsplit=1)
        if len(words) != 2 or not words[0].startswith("HTTP/1.") or not words[1].startswith("2"):
            said = words[1].strip() if len(words) == 2 else "nothing that a proxy says"
            raise EnvironmentFault(
                f"the proxy {self._name} does not connect us to {target}: {said[:80]}",
                hint="have it allow CONNECT to that port, or name the server's host in no_proxy",
            )


def proxy_for(host: str, environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy on the way to `host`, or None. This machine is always dialled directly.

    `no_proxy` is a comma-separated list of host name endings and networks (10.0.0.0/8); `*` matches every host.
    """
    variable = next((name for name in _PROXIES if name in environ), "")
    value = environ.get(variable, "")
    excepted = next((environ[name] for name in _EXCEPTIONS if name in environ), "")
    if not value or _is_here(host) or any(_excepts(entry.strip(), host) for entry in excepted.split(",")):
        return None
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        if parts.scheme == "http" and parts.hostname and parts.port:
            return Proxy(parts.hostname, parts.port, parts.netloc.rpartition("@")[0], variable)
    except ValueError:
        pass  # no port, or unclosed brackets: reported below
    raise ConfigError(  # without the password that it may contain
        f"the environment's {variable} = {value.rpartition('@')[2][:80]!r} is no proxy: expected http://HOST:PORT",
        hint="mend the variable, or empty it for this command",
    )


def connect(host: str, port: int, timeout: float) -> socket.socket:
    """A connection to HOST:PORT, through the proxy that the environment names for it, if any. Raises OSError if there
    is none within `timeout` seconds, EnvironmentFault if the proxy is unreachable or refuses, ConfigError if it is
    invalid.
    """
    if (proxy := proxy_for(host)) is None:
        return socket.create_connection((host, port), timeout)
    return proxy.connect(host, port, timeout)


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _excepts(entry: str, host: str) -> bool:
    if not entry:
        return False
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:  # one of the two is a name
        return entry == "*" or host.lower().endswith(entry.lower())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_LONGEST, _MOST = 4096, 100  # bytes of a line of a proxy's response, and lines
