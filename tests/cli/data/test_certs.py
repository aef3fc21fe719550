from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from colonnade.cli.keys.commands import app
from colonnade.common.crypto.pki.authority import Authority
from colonnade.common.crypto.pki.certificates import describe, fingerprint
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import ColonnadeError


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def good(*words: str | Path) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.output


def bad(*words: str | Path) -> ColonnadeError:
    result = run(*words)
    assert isinstance(result.exception, ColonnadeError), result.output
    assert result.exception.hint
    return result.exception


def join(folder: Path, name: str, *words: str) -> Path:
    """Commands of a party and of the authority, and the files that they send."""
    member, ca = folder / name, folder / "ca"
    role = ["--role", "server"] if name == "server" else []
    good("request", name, member, *words)
    good("sign", member / "request.csr", "--ca", ca, "--out", folder / f"{name}.pem", *role)
    (member / "cert.pem").write_bytes((folder / f"{name}.pem").read_bytes())
    (member / "ca.pem").write_bytes((ca / "cert.pem").read_bytes())
    return member


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    good("ca", tmp_path / "ca")
    return tmp_path


def test_from_nothing_to_identities(folder: Path) -> None:
    assert load_identity(join(folder, "alice")).name == "alice"
    server = join(folder, "server", "--dns", "fl.example.org", "--ip", "10.0.0.7", "--loopback")
    assert load_identity(server).name == "server"
    hosts = describe((server / "cert.pem").read_bytes()).hosts
    assert hosts == ("fl.example.org", "localhost", "10.0.0.7", "127.0.0.1", "::1")


def test_every_step_names_the_next(tmp_path: Path) -> None:
    ca, alice, out = tmp_path / "ca", tmp_path / "alice", tmp_path / "a.pem"
    said = good("ca", ca)
    assert f"Keep {ca / 'key.pem'} here" in said
    assert "colonnade certs sign" in said
    said = good("request", "alice", alice)
    assert f"Keep {alice / 'key.pem'} here" in said
    assert f"send {alice / 'request.csr'} to the holder of the authority" in said
    shown = next(line for line in said.splitlines() if "sha256:" in line).split()[-1]
    said = good("sign", alice / "request.csr", "--ca", ca, "--out", out)
    assert shown in said, "the two people compare the same fingerprint"
    assert f"alice: {fingerprint(out.read_bytes())}" in said


def test_the_servers_request_needs_the_servers_role(folder: Path) -> None:
    assert "--role server" in good("request", "server", folder / "server")
    out = folder / "server.pem"
    error = bad("sign", folder / "server/request.csr", "--ca", folder / "ca", "--out", out)
    assert "--role server" in error.hint
    assert not out.exists()


def test_a_key_is_kept_by_default(folder: Path) -> None:
    good("request", "alice", folder / "alice")
    before = (folder / "alice/key.pem").read_bytes()
    error = bad("request", "alice", folder / "alice")
    assert "exists already" in str(error)
    assert "renew" in error.hint and "--force" in error.hint
    assert (folder / "alice/key.pem").read_bytes() == before
    good("request", "alice", folder / "alice", "--force")
    assert (folder / "alice/key.pem").read_bytes() != before


def test_an_authority_and_a_certificate_stay_too(folder: Path) -> None:
    assert "exists already" in str(bad("ca", folder / "ca"))
    join(folder, "alice")
    words = ("sign", folder / "alice/request.csr", "--ca", folder / "ca", "--out", folder / "alice.pem")
    assert "exists already" in str(bad(*words))
    good(*words, "--force")


def test_renewing_keeps_key_name_and_hosts(folder: Path) -> None:
    member = join(folder, "server", "--dns", "fl.example.org", "--ip", "::1")
    key, old = (member / "key.pem").read_bytes(), (member / "cert.pem").read_bytes()
    assert "every roster" in good("renew", member)
    assert (member / "key.pem").read_bytes() == key
    out = folder / "new.pem"
    good("sign", member / "request.csr", "--ca", folder / "ca", "--out", out, "--role", "server", "--days", "9")
    assert describe(out.read_bytes()).hosts == describe(old).hosts == ("fl.example.org", "::1")
    assert fingerprint(out.read_bytes()) != fingerprint(old)
    assert "certs request" in bad("renew", folder / "nowhere").hint


def test_show(folder: Path) -> None:
    member = join(folder, "alice")
    said = good("show", member / "cert.pem", folder / "ca/cert.pem")
    assert f"alice  ({member / 'cert.pem'})" in said
    assert fingerprint((member / "cert.pem").read_bytes()) in said
    assert said.count(describe(Authority.load(folder / "ca").certificate).subject) == 3
    assert "EXPIRED" not in said
    assert "localhost" in good("show", join(folder, "server", "--loopback") / "cert.pem")
    assert "not a certificate" in str(bad("show", member / "key.pem"))
    assert "there is no file" in str(bad("show", folder / "nothing.pem"))


def test_revoke_by_file_and_by_fingerprint(folder: Path) -> None:
    alice, bob, path = join(folder, "alice"), join(folder, "bob"), folder / "revoked.json"
    print_ = fingerprint((bob / "cert.pem").read_bytes())
    said = good("revoke", alice / "cert.pem", "--list", path, "--reason", "stolen")
    assert "alice" in said and "stolen" in said
    good("revoke", print_, "--list", path, "--reason", "left")
    held = RevocationList(path)
    assert held.reason((alice / "cert.pem").read_bytes()) == "stolen"
    assert held.reason(print_) == "left"


@pytest.mark.parametrize("which", ["nothing.pem", "sha256:12"])
def test_a_revocation_that_cannot_be_leaves_no_list(folder: Path, which: str) -> None:
    path = folder / "revoked.json"
    bad("revoke", which, "--list", path, "--reason", "stolen")
    assert not path.exists()


def test_a_broken_list_is_not_replaced(folder: Path) -> None:
    path = folder / "revoked.json"
    path.write_text("{")
    assert "is broken" in str(bad("revoke", "sha256:" + "a" * 64, "--list", path, "--reason", "x"))
    assert path.read_text() == "{"
    path.write_text(json.dumps({"revoked": []}))
    good("revoke", "sha256:" + "a" * 64, "--list", path, "--reason", "x")


def test_all_for_demos_warns(tmp_path: Path) -> None:
    said = good("all", tmp_path / "certs", "--parties", "alice, bob", "--dns", "server")
    assert "Warning" in said and "everyone's private key" in said
    for name in ("server", "alice", "bob"):
        assert f"{name}: {load_identity(tmp_path / 'certs' / name).fingerprint}" in said
    hosts = describe((tmp_path / "certs/server/cert.pem").read_bytes()).hosts
    assert hosts == ("localhost", "server", "127.0.0.1", "::1")
    assert "new or empty" in bad("all", tmp_path / "certs", "--parties", "alice").hint


@pytest.mark.parametrize(
    "words",
    [
        ("request", "Alice", "alice"),
        ("request", "alice", "alice", "--dns", "example.org"),
        ("request", "server", "alice", "--ip", "10.0.0.256"),
        ("all", "alice", "--parties", "a,,b"),
    ],
)
def test_wrong_words_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    bad(*words)
    assert list(tmp_path.iterdir()) == []
