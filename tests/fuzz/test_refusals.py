"""Defects that the fuzzer found, by what a user now reads."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from colonnade.client.member.pin import Pin
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.certificates import describe, name_of
from colonnade.common.crypto.signatures import ForgedError, Verifier
from colonnade.common.data.formats.arrays import ArrayFile
from colonnade.common.data.formats.idx import read_labels
from colonnade.common.errors import CheckpointError, ConfigError, DataError, IdentityError
from colonnade.common.messaging.forms import Coded, Packed
from colonnade.common.parsing.file import load
from colonnade.common.parsing.yaml_tree import override
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.wire.codec import packed_parts, read_tensor
from colonnade.server.member.hub import SessionNumbers

BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 20)}]\n" for n in range(1, 9))
"""Each list is twenty of the one before."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("begun: 2026-99-99", "'2026-99-99' is no timestamp"),
        ("a: !!float x", "'x' is no float"),
        ("a: !!bool x", "'x' is no bool"),
        ("a: &a [*a]", "contains itself"),
        ("a: " + "[" * 5000, "contains itself"),
        (BOMB, "more than 1000000 values"),
        ('a: "\\uD800"', "no text that UTF-8 can hold"),
    ],
    ids=["no date", "no number", "no truth value", "in itself", "deep", "aliases of aliases", "half a pair"],
)  # fmt: skip
def test_yaml_that_python_cannot_take_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match="is not YAML") as refused:
        load(tmp_path / "c.yaml")
    assert said in str(refused.value)


@pytest.mark.parametrize("setting", [".".join("a" * 5000) + "=1", "\udcff=1"], ids=["deep", "no UTF-8"])
def test_a_setting_that_no_configuration_has_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        override({}, setting)


@pytest.mark.parametrize("changed", [{"reserved": "4"}, {"reserved": -4}, {"noise_multiplier": 0}, {"reserved": 1e999}])
def test_an_altered_reservation_stops_the_count_of_a_budget(tmp_path: Path, changed: dict) -> None:
    """Taken as less than it was, more would be released than the budget allows."""
    line = {"reserved": 4, "noise_multiplier": 1.5}
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(json.dumps(line) + "\n")
    assert Budget(ledger, 100, 10, noise_multiplier=1.5).releases == 4
    ledger.write_text(json.dumps({**line, **changed}) + "\n")
    with pytest.raises(CheckpointError, match="a line that reserves releases was altered"):
        Budget(ledger, 100, 10, noise_multiplier=1.5)


@pytest.mark.parametrize("session", ["1e999", "12.5", "-1", '"12"', "true", "[" * 5000])
def test_a_pin_without_a_whole_number_is_torn(tmp_path: Path, session: str) -> None:
    pin = f'{{"run": "r", "session": {session}, "committed": true, "backed_off": 0, "entered": 0}}'
    (tmp_path / "pinned.json").write_text(pin)
    with pytest.raises(CheckpointError, match="torn or was altered"):
        Pin("ada", tmp_path, Checkpoints(tmp_path / "checkpoints"))


@pytest.mark.parametrize("kept", ["9" * 30, str(1 << 32), "-5", "x"])
def test_a_session_number_that_no_message_holds_is_left_to_the_clock(tmp_path: Path, kept: str) -> None:
    (tmp_path / "session").write_text(kept)
    assert SessionNumbers(tmp_path, lambda: 1000.0).after(0) == 1000


def test_an_idx_header_takes_no_memory_for_rows_that_are_not_there(tmp_path: Path) -> None:
    head = (0x801).to_bytes(4) + (0xE7000000).to_bytes(4)
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(head + b"\0\1")
    with pytest.raises(DataError, match="shorter than the 3875536896 rows"):
        read_labels(tmp_path)


def test_a_npy_head_that_is_no_python_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.arange(3))
    content = (tmp_path / "t.npy").read_bytes()
    (tmp_path / "t.npy").write_bytes(content.replace(b"'<i8'", b"(((((").replace(b"}", b" "))
    with pytest.raises(DataError, match="cannot be read"):
        ArrayFile(tmp_path / "t.npy")


def test_a_checkpoint_of_a_round_that_is_no_number_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "round-²²²²²²²².json").write_text("{}")
    assert Checkpoints(tmp_path).usable() == []


def test_minus_zero_survives_as_the_end_of_a_scale() -> None:
    sent = Packed(
        Coded(2, symmetric=True), (4,), np.zeros(1, np.uint8), np.array([[-0.0]], np.float32), np.empty(0, np.uint8)
    )
    came = read_tensor("E.h", memoryview(b"".join(packed_parts(sent))), sent.form)
    assert isinstance(came, Packed) and np.signbit(came.numbers).all()
    assert torch.equal(torch.from_numpy(came.numbers), torch.from_numpy(sent.numbers))


def test_a_certificate_named_by_bits_is_an_identity_error(tmp_path: Path) -> None:
    """The parser raises TypeError for it, and the server forwards certificates of parties to each other."""
    make_federation(tmp_path / "certs", ["ada"])
    der = x509.load_pem_x509_certificate((tmp_path / "certs/ada/cert.pem").read_bytes()).public_bytes(Encoding.DER)
    common_name = bytes.fromhex("0603550403")
    before, mark, after = der.rpartition(common_name)  # the subject's, after the issuer's
    assert after[0] == 0x0C  # UTF8String; 3 is a BIT STRING
    text = base64.encodebytes(before + mark + b"\x03" + after[1:]).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n".encode()
    for read in (name_of, describe, lambda pem: Verifier("ada", pem, "sha256:" + "0" * 64)):
        with pytest.raises((IdentityError, ForgedError)):
            read(pem)
