from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtensionOID, NameOID

from colonnade.common.crypto.pki.authority import Authority, Role, make_federation, make_request
from colonnade.common.crypto.pki.certificates import certificate_pem
from colonnade.common.crypto.pki.identity import Identity, PrivateKey, load_identity, new_key, save_key
from colonnade.common.crypto.pki.names import SERVER


@dataclass(frozen=True)
class Federation:
    folder: Path
    prints: dict[str, str]

    def identity(self, name: str) -> Identity:
        return load_identity(self.folder / name)

    @property
    def authority(self) -> Authority:
        return Authority.load(self.folder / "ca")

    def issue(
        self,
        folder: Path,
        name: str,
        hosts: Sequence[str] = (),
        *,
        now: datetime | None = None,
        days: int = 1,
    ) -> Path:
        """Another identity by the same authority, in `folder`."""
        key = new_key()
        role = Role.SERVER if name == SERVER else Role.PARTY
        certificate = self.authority.sign(make_request(key, name, hosts), role=role, days=days, now=now)
        folder.mkdir()
        save_key(key, folder / "key.pem")
        (folder / "cert.pem").write_bytes(certificate_pem(certificate))
        (folder / "ca.pem").write_bytes((self.folder / "ca/cert.pem").read_bytes())
        return folder


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    folder = tmp_path_factory.mktemp("ours") / "certs"
    return Federation(folder, make_federation(folder, ["alice", "bob"]))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Another federation, whose members have the same names."""
    folder = tmp_path_factory.mktemp("theirs") / "certs"
    return Federation(folder, make_federation(folder, ["alice", "bob"]))


Forge = Callable[..., bytes]


@pytest.fixture(scope="session")
def forge(federation: Federation) -> Forge:
    """A certificate by the federation's authority that `Authority.sign` would never make."""

    def make(
        subject: Sequence[str],
        dns: Sequence[str] | bytes | None,
        *,
        key: PrivateKey | None = None,
        begin: timedelta = timedelta(hours=-1),
        end: timedelta = timedelta(hours=1),
        issuer: tuple[x509.Name, PrivateKey] | None = None,
    ) -> bytes:
        authority, now = federation.authority, datetime.now(UTC)
        issuer_name, issuer_key = issuer or (authority.certificate.subject, authority.key)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text) for text in subject])
        builder = x509.CertificateBuilder(
            issuer_name,
            name,
            (key or new_key()).public_key(),
            x509.random_serial_number(),
            now + begin,
            now + end,
        )
        if isinstance(dns, bytes):
            noise = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, dns)
            builder = builder.add_extension(noise, critical=False)
        elif dns is not None:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(text) for text in dns])
            builder = builder.add_extension(alternatives, critical=False)
        return certificate_pem(builder.sign(issuer_key, hashes.SHA256()))

    return make
