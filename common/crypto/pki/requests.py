from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from colonnade.common.crypto.pki import names
from colonnade.common.crypto.pki.certificates import MALFORMED, host
from colonnade.common.crypto.pki.keys import PrivateKey, is_p256
from colonnade.common.errors import IdentityError


@dataclass(frozen=True)
class Request:
    """Content of a request whose own signature has been checked."""

    name: str
    hosts: tuple[x509.GeneralName, ...]
    public_key: ec.EllipticCurvePublicKey


def make_request(key: PrivateKey, name: str, hosts: Sequence[str] = ()) -> bytes:
    """A request in PEM for a certificate in `name`; only the server's carries `hosts`.

    Args:
        key: signs the request; it never leaves its machine.
        hosts: DNS names and IP addresses under which parties dial the server.
    """
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.check_name(name))])
    alternatives = alternative_names(name, map(host, hosts))
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.add_extension(alternatives, critical=False).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(pem: bytes) -> Request:
    """Reads an untrusted request, and checks its signature and all its fields."""
    try:
        request = x509.load_pem_x509_csr(pem)
        valid = request.is_signature_valid
        subject = [str(part.value) for part in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        alternatives = list(_alternatives(request))
        key = request.public_key()
    except MALFORMED as error:
        raise IdentityError(f"this is not a certificate request in PEM: {error}", hint=_AGAIN) from error
    if not valid:
        raise IdentityError("the request was changed after it was signed", hint=_AGAIN)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not is_p256(key):
        raise IdentityError("the request's key is not ECDSA on P-256", hint=_AGAIN)
    return Request(_requested_name(subject, alternatives), _requested_hosts(alternatives), key)


def alternative_names(name: str, hosts: Iterable[x509.GeneralName]) -> x509.SubjectAlternativeName:
    """The subject's alternative names: `NAME.colonnade`, then the hosts, each once. Only the server may have hosts."""
    others = list(dict.fromkeys(hosts))
    if others and name != names.SERVER:
        raise IdentityError(f"a certificate for {name!r} cannot carry host names", hint="only the server is dialled")
    return x509.SubjectAlternativeName([x509.DNSName(names.dns_name(name)), *others])


def _alternatives(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise IdentityError("the request carries no NAME.colonnade", hint=_AGAIN) from error


def _requested_name(subject: list[str], alternatives: list[x509.GeneralName]) -> str:
    claimed = names.named_by(part.value for part in alternatives if isinstance(part, x509.DNSName))
    if len(subject) != 1 or claimed != subject:
        raise IdentityError(f"the request asks for {subject} and {claimed}, not for one name", hint=_AGAIN)
    return names.check_name(subject[0])


def _requested_hosts(alternatives: list[x509.GeneralName]) -> tuple[x509.GeneralName, ...]:
    hosts: list[x509.GeneralName] = []
    for part in alternatives:
        if not isinstance(part, x509.DNSName | x509.IPAddress):
            raise IdentityError(f"the request asks for {part.value!r}, which is no host", hint=_AGAIN)
        if isinstance(part, x509.IPAddress) or not names.named_by([part.value]):
            hosts.append(host(str(part.value)))
    return tuple(hosts)


_AGAIN = "have it made again and sent over a secure channel: colonnade certs request NAME DIR"
