from __future__ import annotations

import base64
import subprocess
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.crypto.pki.authority import (
    CLOCK_SKEW,
    Authority,
    Role,
    make_federation,
    make_request,
    read_request,
)
from colonnade.common.crypto.pki.certificates import certificate_pem, describe, fingerprint, name_of
from colonnade.common.crypto.pki.identity import load_identity, new_key
from colonnade.common.errors import IdentityError

if TYPE_CHECKING:
    from conftest import Federation

AUTHORITY = Authority.make()
KEY = new_key()
ENDS = "abcdefghijklmnopqrstuvwxyz0123456789"
NAMES = st.builds(
    "".join, st.tuples(st.sampled_from(ENDS), st.text(ENDS + "-_", max_size=61), st.sampled_from(ENDS))
).filter(lambda name: name not in ("ca", "server"))


def tampered(pem: bytes, old: bytes, new: bytes) -> bytes:
    body = base64.b64decode(b"".join(pem.splitlines()[1:-1]))
    assert old in body
    changed = base64.encodebytes(body.replace(old, new))
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + changed + b"-----END CERTIFICATE REQUEST-----\n"


def foreign(subject: list[str], alternatives: list[x509.GeneralName] | None, key: object = KEY) -> bytes:
    """A request made by another tool."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text) for text in subject])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    if alternatives is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]


@given(NAMES)
def test_a_name_survives_request_and_signature(name: str) -> None:
    certificate = AUTHORITY.sign(make_request(KEY, name))
    assert name_of(certificate) == name
    assert name_of(certificate_pem(certificate)) == name
    assert certificate.public_key() == KEY.public_key()


def test_usages_of_a_partys_certificate() -> None:
    certificate = AUTHORITY.sign(make_request(KEY, "alice"))
    certificate.verify_directly_issued_by(AUTHORITY.certificate)
    extensions = certificate.extensions
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical and usage.value.digital_signature and not usage.value.key_cert_sign
    assert describe(certificate).hosts == ()


def test_contents_of_the_servers_certificate() -> None:
    hosts = ["fl.example.org", "10.0.0.7", "localhost", "::1", "localhost"]
    certificate = AUTHORITY.sign(make_request(KEY, "server", hosts), role=Role.SERVER)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.colonnade", "fl.example.org", "localhost"]
    assert describe(certificate).hosts == ("fl.example.org", "localhost", "10.0.0.7", "::1")
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_the_authority_signs_members_and_no_authorities() -> None:
    constraints = AUTHORITY.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and constraints.value.ca and constraints.value.path_length == 0
    usage = AUTHORITY.certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign and not usage.digital_signature
    AUTHORITY.certificate.verify_directly_issued_by(AUTHORITY.certificate)


def test_times_and_serials() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    first = AUTHORITY.sign(make_request(KEY, "alice"), days=10, now=now)
    second = AUTHORITY.sign(make_request(KEY, "alice"), days=10, now=now)
    assert first.not_valid_before_utc == now - CLOCK_SKEW
    assert first.not_valid_after_utc == now + timedelta(days=10)
    assert first.serial_number != second.serial_number
    assert first.serial_number.bit_length() > 64


def test_no_certificate_outlives_its_authority() -> None:
    young = Authority.make(days=5)
    certificate = young.sign(make_request(KEY, "alice"), days=365)
    assert certificate.not_valid_after_utc == young.certificate.not_valid_after_utc
    with pytest.raises(IdentityError, match="authority's own certificate expired"):
        young.sign(make_request(KEY, "alice"), now=datetime.now(UTC) + timedelta(days=6))


@pytest.mark.parametrize("days", [0, -1, 36501])
def test_days_that_make_no_sense(days: int) -> None:
    with pytest.raises(IdentityError, match="days"):
        AUTHORITY.sign(make_request(KEY, "alice"), days=days)


@pytest.mark.parametrize(
    ("name", "role", "why"),
    [("server", Role.PARTY, "the request is the server's"), ("alice", Role.SERVER, "only 'server'")],
)
def test_the_role_is_the_signers_to_say(name: str, role: Role, why: str) -> None:
    with pytest.raises(IdentityError, match=why) as caught:
        AUTHORITY.sign(make_request(KEY, name), role=role)
    assert "--role" in caught.value.hint


def test_a_tampered_request_is_refused() -> None:
    pem = make_request(KEY, "alice")
    assert read_request(pem).name == "alice"
    with pytest.raises(IdentityError, match="changed after it was signed"):
        AUTHORITY.sign(tampered(pem, b"alice", b"carol"))


def test_a_well_signed_request_with_other_names_is_refused() -> None:
    for subject, names in [
        (["alice"], ["bob.colonnade"]),
        (["alice"], ["alice.colonnade", "bob.colonnade"]),
        (["alice", "bob"], ["alice.colonnade"]),
        (["alice"], ["ALICE.COLONNADE"]),
        (["alice"], ["example.org"]),
        ([], ["alice.colonnade"]),
    ]:
        with pytest.raises(IdentityError, match="not for one name"):
            AUTHORITY.sign(foreign(subject, [x509.DNSName(name) for name in names]))


def test_a_request_that_asks_for_more_is_refused() -> None:
    mine = x509.DNSName("alice.colonnade")
    for more in [x509.DNSName("example.org"), x509.IPAddress(IPv4Address("10.0.0.7"))]:
        with pytest.raises(IdentityError, match="cannot carry host names"):
            AUTHORITY.sign(foreign(["alice"], [mine, more]))
    with pytest.raises(IdentityError, match="no host"):
        AUTHORITY.sign(foreign(["alice"], [mine, x509.UniformResourceIdentifier("https://x.org")]))
    with pytest.raises(IdentityError, match="not a name for a party"):
        AUTHORITY.sign(foreign(["Alice"], [x509.DNSName("Alice.colonnade")]))
    with pytest.raises(IdentityError, match=r"no NAME\.colonnade"):
        AUTHORITY.sign(foreign(["alice"], None))
    with pytest.raises(IdentityError, match="authority's name"):
        AUTHORITY.sign(foreign(["ca"], [x509.DNSName("ca.colonnade")]))


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)])
def test_another_kind_of_key_is_refused(key: object) -> None:
    with pytest.raises(IdentityError, match="not ECDSA on P-256"):
        AUTHORITY.sign(foreign(["alice"], [x509.DNSName("alice.colonnade")], key))


@given(st.binary(max_size=300))
def test_noise_is_refused_in_words(noise: bytes) -> None:
    body = base64.encodebytes(noise)
    for pem in (
        noise,
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + body + b"-----END CERTIFICATE REQUEST-----\n",
    ):
        with pytest.raises(IdentityError, match="not a certificate request"):
            read_request(pem)


def test_hosts_are_for_the_server_only() -> None:
    with pytest.raises(IdentityError, match="cannot carry host names"):
        make_request(KEY, "alice", ["localhost"])


def test_an_authority_is_kept_and_found(tmp_path: Path) -> None:
    made = Authority.make_in(tmp_path / "ca")
    found = Authority.load(tmp_path / "ca")
    assert found.certificate == made.certificate
    assert (tmp_path / "ca/key.pem").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "ca/cert.pem").read_bytes()
    with pytest.raises(IdentityError, match="exists already"):
        Authority.make_in(tmp_path / "ca")
    assert (tmp_path / "ca/cert.pem").read_bytes() == before
    assert "PRIVATE" not in repr(found) and "key=" not in repr(found)


def test_a_folder_without_an_authority(tmp_path: Path, federation: Federation) -> None:
    with pytest.raises(IdentityError, match="there is no file") as caught:
        Authority.load(tmp_path)
    assert "colonnade certs ca" in caught.value.hint
    with pytest.raises(IdentityError, match="alice's certificate, no authority's"):
        Authority.load(federation.folder / "alice")
    Authority.make_in(tmp_path / "ca")
    (tmp_path / "ca/cert.pem").write_bytes(certificate_pem(AUTHORITY.certificate))
    with pytest.raises(IdentityError, match="does not belong"):
        Authority.load(tmp_path / "ca")


def test_openssl_finds_nothing_to_object_to(federation: Federation) -> None:
    for name, purpose in [("alice", "sslclient"), ("server", "sslserver")]:
        folder = federation.folder / name
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.pem", "cert.pem"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("no openssl on this machine")
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_federation_in_one_step(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "certs"
    prints = make_federation(folder, ["alice", "bob"], ["fl.example.org"])
    assert list(prints) == ["server", "alice", "bob"]
    assert sorted(path.name for path in folder.iterdir()) == ["alice", "bob", "ca", "server"]
    for name, pinned in prints.items():
        identity = load_identity(folder / name)
        assert (identity.name, identity.fingerprint) == (name, pinned)
    Authority.load(folder / "ca")
    assert describe((folder / "server/cert.pem").read_bytes()).hosts == ("fl.example.org",)
    assert len(set(prints.values()) | {fingerprint((folder / "ca/cert.pem").read_bytes())}) == 4
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*/key.pem"))
    assert len({path.read_bytes() for path in folder.glob("*/key.pem")}) == 4
    assert [path.name for path in folder.parent.iterdir()] == ["certs"]


def test_a_folder_in_use_stays_as_it_is(tmp_path: Path) -> None:
    make_federation(tmp_path / "certs", ["alice"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.pem")}
    with pytest.raises(IdentityError, match="cannot make") as caught:
        make_federation(tmp_path / "certs", ["alice"])
    assert "new or empty" in caught.value.hint
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.pem")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["certs"]


@pytest.mark.parametrize(
    ("parties", "hosts", "why"),
    [
        (["alice", "alice"], [], "named twice"),
        (["server"], [], "server's name"),
        (["ca"], [], "authority's name"),
        (["Alice"], [], "not a name"),
        (["../alice"], [], "not a name"),
        ([""], [], "not a name"),
        (["alice"], ["*.org"], "neither a host name"),
    ],
)
def test_wrong_names_leave_nothing_behind(tmp_path: Path, parties: list[str], hosts: list[str], why: str) -> None:
    with pytest.raises(IdentityError, match=why):
        make_federation(tmp_path / "certs", parties, hosts)
    assert list(tmp_path.iterdir()) == []
