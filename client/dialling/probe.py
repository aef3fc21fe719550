"""Fetches the certificate of a server before the real connection is made.

gRPC does not report the accepted certificate to a Python client, so fingerprints cannot be compared afterwards. Instead
a client fetches the certificate here, compares it, and gives gRPC this one certificate as its only root: gRPC then
accepts exactly it, and nothing can change in between. Faults of either end's certificate are also reported here in
words; gRPC reports "unavailable".
"""

from __future__ import annotations

import socket
import ssl
from typing import cast

from colonnade.client.dialling.proxy import connect
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.errors import EnvironmentFault, IdentityError, RefusedError


def fetch_certificate(host: str, port: int, identity: Identity, *, timeout: float = 5.0) -> bytes:
    """The certificate (PEM) of the server at `host`, checked: a valid server certificate of our authority.

    The caller must still compare its name and fingerprint: see `peers.verify_peer`. Blocks for at most about three
    times `timeout` seconds.

    Raises:
        RefusedError: there is no TLS server, another authority signed its certificate, or it does not accept ours.
        EnvironmentFault: no response from that address; the caller may retry.
        IdentityError: our own key and certificate files were replaced while this process ran.
    """
    where = f"{host}:{port}"
    context = _context(identity)
    plain = _connect(host, port, timeout)
    try:
        with plain, context.wrap_socket(plain, server_hostname=host) as secured:
            shown = cast(bytes, secured.getpeercert(binary_form=True))  # never None: one is required
            _await_acceptance(secured, where)
    except ssl.SSLCertVerificationError as error:
        raise RefusedError(
            f"the certificate of the server at {where} is not accepted: {error.verify_message}",
            hint="compare its authority with our ca.pem, by: colonnade certs show FILE",
        ) from error
    except ssl.SSLEOFError as error:  # e.g. a proxy whose server has not started yet
        raise _no_answer(where, error) from error
    except ssl.SSLError as error:
        raise _refused(where, _in_words(error)) from error
    except OSError as error:
        raise _no_answer(where, error) from error
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def _await_acceptance(secured: ssl.SSLSocket, where: str) -> None:
    # Under TLS 1.3 a server checks our certificate only after our part of the handshake is done.
    # It then sends its settings or an alert, or closes the connection.
    try:
        if secured.recv(1):
            return
        why = "it closed the connection on seeing it"
    except (ssl.SSLError, ConnectionError) as error:
        why = _in_words(error)
    raise RefusedError(
        f"the server at {where} does not accept our certificate: {why}",
        hint="see whether it has expired, and whether the server's authority is ours: colonnade certs show FILE",
    )


def _connect(host: str, port: int, timeout: float) -> socket.socket:
    try:
        return connect(host, port, timeout)
    except OSError as error:
        raise _no_answer(f"{host}:{port}", error) from error


def _context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a pinned certificate is valid at any address
    context.load_verify_locations(cadata=identity.ca_pem.decode())
    try:
        context.load_cert_chain(identity.files.certificate, identity.files.key)
    except OSError as error:
        raise IdentityError(
            f"{identity.files.certificate} and its key changed since they were read: {error}",
            hint="start again, once both files are in place",
        ) from error
    context.set_alpn_protocols(["h2"])
    return context


def _no_answer(where: str, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"no answer from {where}: {_in_words(error)}",
        hint="check that the server is up, its address and port, and the firewall between",
    )


def _refused(where: str, why: str) -> RefusedError:
    return RefusedError(
        f"no secure connection with {where}: {why}",
        hint="check that a Colonnade server listens there, without --insecure, and that the same "
        "authority signed its certificate and ours: colonnade certs show FILE",
    )


def _in_words(error: OSError) -> str:
    # OpenSSL's reasons are names in capitals; str() would add a line number of its source.
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).lower().replace("_", " ")
