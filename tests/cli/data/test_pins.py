"""`colonnade certs pin`: rosters in every form, and certificates that must not get into one."""

from __future__ import annotations

import os
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from colonnade.cli.keys.pins import RosterText
from colonnade.common.config.federation import read_roster
from colonnade.common.crypto.pki.authority import Authority, Role, make_request, read_request
from colonnade.common.crypto.pki.certificates import certificate_pem, fingerprint
from colonnade.common.crypto.pki.identity import new_key
from colonnade.common.errors import ColonnadeError, ConfigError
from tests.cli.data.test_certs import bad, good, join, run

ROOT = Path(__file__).parents[3]
A, B, S = (f"sha256:{digit * 64}" for digit in "abc")
FORMS = {
    "block": "federation:\n  id: x\n  server: ''  # later\n  parties:\n    bank:   # the bank\n    clinic: ''\n",
    "dots": 'federation:\n  server: "sha256:..."\n  parties: {bank: "sha256:...", clinic: "sha256:..."}\n  batch: 2\n',
    "flow list": "federation:\n  # roster\n  parties: [bank, clinic]  # two\n  batch: 2\n",
    "lines": "federation:\n  parties: [bank,  # the bank\n            'clinic']\n  batch: 2\n",
    "block list": "federation:\n  parties:\n    - bank  # the bank\n    # -\n    - clinic\n  batch: 2\n",
    "left list": "federation:\n  parties:\n  - bank\n  - clinic  # last\n  batch: 2\nserver: {listen: 'a:1'}\n",
    "names": "federation: {parties: {bank, clinic}, batch: 2}\n",
    "one line": "{federation: {batch: 2, parties: [bank, clinic]}}",
    "windows": "federation:\r\n  parties: [bank, clinic] # zwei Kön\r\n  batch: 2\r\n",
    "accents": "# Ärztin\nfederation:\n  parties:\n    bank: ''\n    clinic: ~\n",
    "quoted": 'federation:\n  "parties":\n    "bank" : \n    clinic : # none\n',
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("named", [{"bank": A, "clinic": B, "server": S}, {"clinic": B}, {"server": S}])
def test_a_roster_of_any_form_gets_its_pins_and_keeps_all_else(
    tmp_path: Path, form: str, named: dict[str, str]
) -> None:
    path = tmp_path / "federation.yaml"
    path.write_bytes(FORMS[form].encode())
    changed = RosterText(path).pinned(named)
    before, after = yaml.safe_load(FORMS[form]), yaml.safe_load(changed)
    roster = read_roster(after["federation"].pop("parties"))
    assert list(roster) == ["bank", "clinic"]
    for name in ("bank", "clinic"):
        assert roster[name] == named.get(name, read_roster(before["federation"]["parties"])[name])
    assert after["federation"].pop("server", None) == named.get("server", before["federation"].get("server"))
    for tree in (before, after):
        tree["federation"].pop("server", None)
    del before["federation"]["parties"]
    assert after == before
    comments = [line.partition("#")[2] for line in FORMS[form].splitlines() if "#" in line]
    assert all(f"#{comment}" in changed for comment in comments)
    assert changed.count("\r\n") >= FORMS[form].count("\r\n") and ("\r" in changed) == ("\r" in FORMS[form])


@given(st.integers(1, 12))
def test_a_number_of_parties_is_written_out(tmp_path_factory: pytest.TempPathFactory, number: int) -> None:
    path = tmp_path_factory.mktemp("number") / "f.yaml"
    path.write_text(f"federation:\n  parties: {number}  # all\n  batch: 2\n")
    names = list(read_roster(number))
    changed = RosterText(path).pinned({names[-1]: A})
    assert changed.endswith("}  # all\n  batch: 2\n")
    assert yaml.safe_load(changed)["federation"]["parties"] == dict.fromkeys(names, "") | {names[-1]: A}


@pytest.mark.parametrize(
    "text",
    [
        "base: &all {parties: {bank: ''}}\nfederation:\n  <<: *all\n",
        "names: &names {bank: ''}\nfederation:\n  parties: *names\n",
    ],
)
def test_what_cannot_be_changed_alone_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        RosterText(tmp_path / "f.yaml").pinned({"bank": A})
    assert "by hand" in error.value.hint


def test_the_roster_of_the_page_on_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "deploy/machines.md").read_text().partition("## 4. The roster")[2].partition("\n## ")[0]
    agreed, words = (re.findall(rf"^```{kind}\n(.*?)^```", page, re.M | re.S)[0] for kind in ("yaml", "sh"))
    monkeypatch.chdir(tmp_path)
    good("ca", "ca")
    for name in ("server", "bank", "shop", "clinic"):
        join(Path(), name)
    Path("federation.yaml").write_text(agreed)
    command = shlex.split(words)
    assert command[:2] == ["colonnade", "certs"]
    good(*command[2:])
    found = yaml.safe_load(Path("federation.yaml").read_text())["federation"]
    pinned = {"server": found["server"], **found["parties"]}
    assert pinned == {name: fingerprint(Path(f"{name}.pem").read_bytes()) for name in pinned} and len(pinned) == 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An authority, three members' folders, and a configuration."""
    good("ca", tmp_path / "ca")
    for name in ("server", "bank", "clinic"):
        join(tmp_path, name)
    (tmp_path / "f.yaml").write_text("# ours\nfederation:\n  id: credit\n  parties: [bank, clinic]\n")
    return tmp_path


def pins(folder: Path) -> dict[str, str]:
    return {name: fingerprint((folder / f"{name}.pem").read_bytes()) for name in ("server", "bank", "clinic")}


def test_pins_are_written_shown_and_left_alone_the_second_time(folder: Path) -> None:
    (folder / "f.yaml").chmod(0o640)
    (folder / "link.yaml").symlink_to("f.yaml")
    said = good("pin", folder / "link.yaml", f"bank={folder}/bank/cert.pem", f"server={folder}/server/cert.pem")
    expected = pins(folder)
    text = (folder / "f.yaml").read_text()
    assert text == (
        f'# ours\nfederation:\n  id: credit\n  server: "{expected["server"]}"\n'
        f'  parties: {{bank: "{expected["bank"]}",\n            clinic: ""}}\n'
    )
    assert (folder / "link.yaml").is_symlink() and (folder / "f.yaml").stat().st_mode & 0o777 == 0o640
    assert expected["bank"] in said and fingerprint((folder / "ca/cert.pem").read_bytes()) in said
    assert "Still without a fingerprint: clinic." in said and "telephone" in said
    assert "the files of server, bank, clinic." in said

    changed = (folder / "f.yaml").stat().st_mtime_ns
    again = good("pin", folder / "f.yaml", f"bank={folder}/bank.pem", "--ca", folder / "ca/cert.pem")
    assert "as before" in again and "Nothing to write" in again
    assert (folder / "f.yaml").stat().st_mtime_ns == changed


def test_another_pin_stays_unless_it_is_to_be_replaced(folder: Path) -> None:
    before = f"federation:\n  parties: {{bank: {A}, clinic: ''}}  # kept\n"
    (folder / "f.yaml").write_text(before)
    words = [f"{name}={folder}/{name}/cert.pem" for name in ("bank", "clinic")]
    error = bad("pin", folder / "f.yaml", *words)
    assert A in str(error) and pins(folder)["bank"] in str(error) and "--replace" in error.hint
    assert (folder / "f.yaml").read_text() == before
    assert f"before: {A}" in good("pin", folder / "f.yaml", *words, "--replace")
    roster = yaml.safe_load((folder / "f.yaml").read_text())["federation"]["parties"]
    assert roster == {name: pins(folder)[name] for name in ("bank", "clinic")}


def expired(folder: Path) -> str:
    long_ago = datetime.now(UTC) - timedelta(days=400)
    request = read_request(make_request(new_key(), "bank", []))
    old = Authority.load(folder / "ca")._issue(request, Role.PARTY, 30, long_ago)  # `sign` refuses another time
    (folder / "old.pem").write_bytes(certificate_pem(old))
    return f"bank={folder}/old.pem"


def other_authority(folder: Path) -> str:
    good("ca", folder / "other")
    good("sign", folder / "bank/request.csr", "--ca", folder / "other", "--out", folder / "foreign.pem")
    return f"bank={folder}/foreign.pem"


WRONG = {
    "another's": (lambda folder: f"bank={folder}/clinic.pem", "is the certificate of 'clinic', not of 'bank'"),
    "expired": (expired, "expired on"),
    "a key": (lambda folder: f"bank={folder}/bank/key.pem", "is a private key"),
    "a request": (lambda folder: f"bank={folder}/bank/request.csr", "is a request"),
    "the authority's": (lambda folder: f"bank={folder}/ca/cert.pem", "is an authority's certificate"),
    "other authority": (other_authority, "is not signed by the authority"),
    "no file": (lambda folder: f"bank={folder}/nothing.pem", "there is no file"),
    "text": (lambda folder: f"bank={folder}/f.yaml", "is not a certificate in PEM"),
    "no member": (lambda folder: f"bnak={folder}/bank.pem", "no member 'bnak' is in the roster"),
    "no name": (lambda folder: f"{folder}/bank.pem", "expected NAME=FILE"),
    "twice": (lambda folder: f"server={folder}/server.pem", "'server' is given twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_certificate_changes_nothing(folder: Path, case: str) -> None:
    make, expected = WRONG[case]
    before = (folder / "f.yaml").read_bytes()
    words = [f"server={folder}/server.pem", make(folder), "--ca", folder / "ca/cert.pem"]
    error = bad("pin", folder / "f.yaml", *words)
    assert expected in str(error)
    assert (folder / "f.yaml").read_bytes() == before and not list(folder.glob("*.partial"))


def test_an_authority_has_to_be_named_and_be_one(folder: Path) -> None:
    assert "--ca" in bad("pin", folder / "f.yaml", f"bank={folder}/bank.pem").hint
    wrong = bad("pin", folder / "f.yaml", f"bank={folder}/bank.pem", "--ca", folder / "clinic.pem")
    assert "no authority's" in str(wrong)
    good("ca", folder / "other")
    (folder / "clinic/ca.pem").write_bytes((folder / "other/cert.pem").read_bytes())
    words = [f"{name}={folder}/{name}/cert.pem" for name in ("bank", "clinic")]
    assert "different authorities" in str(bad("pin", folder / "f.yaml", *words))


@pytest.mark.parametrize(
    "text", ["", "[a]\n", "federation: {id: x}\n", "federation: 3\n", "federation: {parties: x}\n"]
)
def test_a_file_without_a_roster(folder: Path, text: str) -> None:
    (folder / "f.yaml").write_text(text)
    assert isinstance(bad("pin", folder / "f.yaml", f"bank={folder}/bank/cert.pem"), ColonnadeError)
    assert "no such file" in str(bad("pin", folder / "none.yaml", f"bank={folder}/bank/cert.pem"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        assert run("pin", folder / "f.yaml", f"bank={folder}/bank/cert.pem").exit_code
    finally:
        folder.chmod(0o700)
